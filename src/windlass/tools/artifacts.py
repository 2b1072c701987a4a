"""Stores results that are too long to show, and offers the tool that reads them in parts.

An artifact is named by its content, so the same result has the same name in every process. Only the
session that made it can read it. A journal that can store blobs keeps it as long as the session, so
another process that takes over the run can read it too; otherwise it is kept in memory.
"""

import hashlib
from collections import OrderedDict
from dataclasses import replace
from typing import Annotated, Any, Protocol

from msgspec import Meta
from msgspec.structs import replace as replace_spec

from windlass.core.errors import ModelRetry
from windlass.ports import BlobStore
from windlass.tools.function import Tool, tool
from windlass.tools.run_context import RunContext

PAGE_CHARS = 8_000
"""What `read_artifact` returns by default."""
PAGE_CHARS_MAX = 8_000
"""Even at 4 bytes for each character, such a page is too short to be clipped again."""
STORED_BYTES_MAX = 64 * 2**20
NAME_CHARS = 16
"""How much of an artifact's name the model sees."""


class ArtifactStore(Protocol):
    """Where long results are stored."""

    async def store_text(self, session: str, text: str) -> str:
        """Store a text, and return its name."""
        ...

    async def read_text(self, session: str, name: str) -> str | None:
        """Return a text of a session by its name; None if the name is unknown."""
        ...


class MemoryArtifacts:
    """Stores artifacts in memory. When it is full, the oldest are removed."""

    def __init__(self, kept_bytes_max: int = STORED_BYTES_MAX) -> None:
        self._texts: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._stored_bytes = 0
        self._stored_bytes_max = kept_bytes_max

    async def store_text(self, session: str, text: str) -> str:
        """Keep a text and return its name; the same text has the same name."""
        data = text.encode()
        name = hashlib.blake2b(data, digest_size=NAME_CHARS // 2).hexdigest()
        if (session, name) not in self._texts:
            self._stored_bytes += len(data)
        self._texts[session, name] = data
        self._texts.move_to_end((session, name))
        while self._stored_bytes > self._stored_bytes_max and len(self._texts) > 1:
            _, oldest = self._texts.popitem(last=False)
            self._stored_bytes -= len(oldest)
        return name

    async def read_text(self, session: str, name: str) -> str | None:
        """Return a text, or None if it is not kept any more."""
        data = self._texts.get((session, name))
        return None if data is None else data.decode()


class JournalArtifacts:
    """Stores artifacts in the journal, beside the session's records."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs

    async def store_text(self, session: str, text: str) -> str:
        return (await self._blobs.put_blob(session, text.encode()))[:NAME_CHARS]

    async def read_text(self, session: str, name: str) -> str | None:
        data = await self._blobs.get_blob(session, name)
        try:
            return None if data is None else data.decode()
        except UnicodeDecodeError:
            return None  # A blob that is not text is a picture, and not an artifact.


def build_artifact_reader(artifacts: ArtifactStore) -> Tool[..., Any]:
    """Build the tool `read_artifact`.

    Its texts stay as they are: most agents have this tool, and a run that was begun with other
    texts can only be resumed with consent.
    """

    @tool(effect="read", retries=0)
    async def read_artifact(
        context: RunContext,
        id: Annotated[str, "The id that the shortened result gave."],  # noqa: A002 - the model's parameter
        offset: Annotated[int, Meta(ge=0, description="The first character to read.")] = 0,
        limit: Annotated[
            int, Meta(ge=1, le=PAGE_CHARS_MAX, description="How many characters to read.")
        ] = PAGE_CHARS,
    ) -> str:
        """Read a part of a tool result that was too long to be shown whole."""
        earlier = context.call.earlier_result(id) if context.call else None
        if earlier:
            text = earlier.text
        else:
            text = await artifacts.read_text(context.session_id, id)
        if text is None and context.blobs is not None:
            text = await JournalArtifacts(context.blobs).read_text(context.session_id, id)
        if text is None:
            raise ModelRetry(
                f"There is no artifact {id!r} (any longer). Call the tool that made it again."
            )
        end = min(len(text), offset + limit)
        if end < len(text):
            following = f"continue with offset={end}"
        else:
            following = "this is the end"
        return f"{text[offset:end]}\n[characters {offset} to {end} of {len(text)}; {following}]"

    # It would cost tokens in every request of a run that never shortens a result.
    return replace(read_artifact, spec=replace_spec(read_artifact.spec, needs_artifact=True))
