"""A cache of replies on disk, for development and tests: the same request, the same reply.

    agent = Agent(CachedModel("openai:gpt-5", ".cache/replies"))

Invariant: only whole replies are kept, and a reply from the cache is marked as one in the record
and costs nothing. What is not in the cache is asked of the model, once. A file that cannot be read
is a reply that is not there.
"""

import hashlib
import os
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.events import ReplyEnd, ReplyPiece, ReplyRestarted, StreamOpened, UsageDelta
from windlass.core.messages import ContentPart, Usage
from windlass.core.secrets.mask import Secret
from windlass.core.setup import ModelInfo
from windlass.core.view import Prompt
from windlass.models.http.model import HttpModel
from windlass.models.resolve import resolve_model
from windlass.ports import Model, RefusesContent
from windlass.private_files import make_private_folder

FOLDER_VARIABLE = "WINDLASS_REPLY_CACHE"
_VERSION = 1
_CACHED_USAGE = UsageDelta(Usage(cached_replies=1))


class _CachedReply(msgspec.Struct, frozen=True):
    version: int
    model: str
    pieces: list[ReplyPiece]


_decode_reply = msgspec.json.Decoder(_CachedReply).decode


class CachedModel:
    """A model whose replies are kept in a folder, and given again for the same request.

    Replies that were cut off at the output limit are not kept. Delete the folder to ask again.
    Raises ConfigError if the folder cannot be made.
    """

    def __init__(self, model: Model | str, folder: str | Path) -> None:
        self._model: Model = resolve_model(model) if isinstance(model, str) else model
        self._folder = Path(folder)
        try:
            # A reply may hold what other users should not read.
            make_private_folder(self._folder)
        except OSError as error:
            raise ConfigError(
                f"the reply cache {folder} cannot be made: {error.strerror}"
            ) from None

    @property
    def info(self) -> ModelInfo:
        """The model's name, price and limits."""
        return self._model.info

    @property
    def secrets(self) -> Mapping[str, Secret]:
        """The secrets in its requests, by name."""
        return getattr(self._model, "secrets", {})

    @property
    def quota_key(self) -> str:
        """The quota that its requests count against."""
        return getattr(self._model, "quota_key", self.info.name)

    def content_refusal(self, parts: Sequence[ContentPart]) -> str | None:
        """Return why the model cannot take one of these parts; None if it takes all."""
        return (
            self._model.content_refusal(parts) if isinstance(self._model, RefusesContent) else None
        )

    async def stream(self, prompt: Prompt) -> AsyncGenerator[ReplyPiece]:
        """Yield the reply that is kept; else make one request, and keep its reply."""
        path = self._folder / f"{self._request_key(prompt)}.json"
        kept = _read_reply(path)
        if kept is not None:
            for piece in kept.pieces:
                if type(piece) is ReplyEnd:
                    yield _CACHED_USAGE
                yield piece
            return
        pieces: list[ReplyPiece] = []
        async with aclosing(self._model.stream(prompt)) as stream:
            async for piece in stream:
                if isinstance(piece, ReplyRestarted):
                    pieces.clear()
                elif not isinstance(piece, UsageDelta | StreamOpened):
                    pieces.append(piece)
                # Kept before it is passed on: after the end of a reply, the caller stops iterating.
                if isinstance(piece, ReplyEnd) and piece.stop != "length":
                    _write_reply(path, _CachedReply(_VERSION, self.info.name, pieces))
                yield piece

    def _request_key(self, prompt: Prompt) -> str:
        """Return the name of a request: equal requests to the same model share it.

        The limit on the reply's length is left out: it depends on what was spent before.
        """
        asked: list[Any] = [
            _VERSION,
            self.info.name,
            repr(self._model.options) if isinstance(self._model, HttpModel) else "",
            prompt.system,
            list(prompt.messages),
            prompt.tools,
            prompt.tool_choice,
            prompt.output_schema,
            prompt.parallel_tool_calls,
        ]
        return hashlib.sha256(msgspec.json.encode(asked)).hexdigest()


def cache_replies(models: Sequence[Model], environ: Mapping[str, str]) -> Sequence[Model]:
    """Return the models, with a cache if the environment names a folder for one.

    No file of a project can name it: what is in a cache decides what models say.
    """
    folder = environ.get(FOLDER_VARIABLE)
    return [CachedModel(model, folder) for model in models] if folder else models


def _read_reply(path: Path) -> _CachedReply | None:
    try:
        kept = _decode_reply(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
    ends = bool(kept.pieces) and isinstance(kept.pieces[-1], ReplyEnd)
    return kept if kept.version == _VERSION and ends else None


def _write_reply(path: Path, reply: _CachedReply) -> None:
    """Write the file as a whole, so that no reader sees half of it."""
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".new")
    with os.fdopen(handle, "wb") as file:
        file.write(msgspec.json.encode(reply))
    Path(name).replace(path)
