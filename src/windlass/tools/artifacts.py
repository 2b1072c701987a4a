"""Results too long to show, kept whole, and the tool that reads them in parts.

An artifact is named by its content, so that the same result has the same name in every process,
and it is seen only by the session that made it. A journal that can keep it does, for as long as the
session, so that a run that another process takes over reads on; else it is kept in memory.
"""

import hashlib
from collections import OrderedDict
from typing import Annotated, Any, Protocol

from msgspec import Meta

from windlass.core.errors import ModelRetry
from windlass.ports import BlobStore
from windlass.tools.function import Tool, tool
from windlass.tools.run_context import RunContext

PAGE_CHARS = 8_000
"""What `read_artifact` gives unless told otherwise."""
PAGE_CHARS_MAX = 8_000
"""At 4 bytes a character, the most, this stays below the size at which a result is clipped."""
STORED_BYTES_MAX = 64 * 2**20
NAME_CHARS = 16
"""As much of an artifact's name as a model is told."""


class ArtifactStore(Protocol):
    """Where long results are kept."""

    async def store_text(self, session: str, text: str) -> str:
        """Keep a text, and return its name."""
        ...

    async def read_text(self, session: str, name: str) -> str | None: ...


class MemoryArtifacts:
    """Keeps artifacts for as long as the process lives and there is room; the oldest go first."""

    def __init__(self, kept_bytes_max: int = STORED_BYTES_MAX) -> None:
        self._texts: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._stored_bytes = 0
        self._stored_bytes_max = kept_bytes_max

    async def store_text(self, session: str, text: str) -> str:
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
        data = self._texts.get((session, name))
        return None if data is None else data.decode()


class JournalArtifacts:
    """Keeps artifacts in the journal, beside the session's records."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs

    async def store_text(self, session: str, text: str) -> str:
        return (await self._blobs.put_blob(session, text.encode()))[:NAME_CHARS]

    async def read_text(self, session: str, name: str) -> str | None:
        data = await self._blobs.get_blob(session, name)
        try:
            return None if data is None else data.decode()
        except UnicodeDecodeError:
            return None  # A session keeps pictures too; they are nobody's long result.


def build_artifact_reader(artifacts: ArtifactStore) -> Tool[..., Any]:
    """The tool `read_artifact` over a store."""

    @tool(effect="read", retries=0)
    async def read_artifact(
        context: RunContext,
        id: Annotated[str, "The id that the shortened result gave."],  # noqa: A002 - the model's word
        offset: Annotated[int, Meta(ge=0, description="The first character to read.")] = 0,
        limit: Annotated[
            int, Meta(ge=1, le=PAGE_CHARS_MAX, description="How many characters to read.")
        ] = PAGE_CHARS,
    ) -> str:
        """Read a part of a tool result that was too long to be shown whole."""
        earlier = context.call.earlier_result(id) if context.call else None
        text = earlier.text if earlier else await artifacts.read_text(context.session_id, id)
        if text is None and context.blobs is not None:
            text = await JournalArtifacts(context.blobs).read_text(context.session_id, id)
        if text is None:
            raise ModelRetry(
                f"There is no artifact {id!r} any more: call the tool that made it again."
            )
        end = min(len(text), offset + limit)
        after = f"; go on with offset={end}" if end < len(text) else "; this is the end"
        return f"{text[offset:end]}\n[characters {offset} to {end} of {len(text)}{after}]"

    return read_artifact
