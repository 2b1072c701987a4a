"""A model behind HTTP: a dialect, a vendor's address and a key, as one `Model`.

Invariant: one call of `stream` is one request, without retries. It gives pieces, or raises one
classified error. A reply is complete when its end marker has come: nothing behind it is
awaited or read, so usage that a server sends behind its end marker does not count.
"""

import hashlib
import re
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import cast
from urllib.parse import urlsplit

from typing_extensions import override

from windlass.core.errors import ModelError
from windlass.core.events import ReplyEnd, ReplyPiece, StreamOpened
from windlass.core.messages import ContentPart, TextPart, UserMessage
from windlass.core.secrets.mask import Secret
from windlass.core.setup import ModelInfo
from windlass.core.view import Prompt
from windlass.models.character_halves import HalfJoiner, replace_halves
from windlass.models.dialect import (
    Dialect,
    FinishingReader,
    ReplyReader,
    RequestSigner,
    WholeReplyReader,
    WireRequest,
)
from windlass.models.http.post import STREAM_OPENED, ReplyProgress, post_sse
from windlass.models.http.provider_errors import RequestTarget, mask_keys
from windlass.models.http.sse import SseEvent
from windlass.models.options import ModelOptions, choose_effort
from windlass.models.reading import malformed_stream_error
from windlass.ports import Timeouts

_DEFAULT_TIMEOUTS = Timeouts()
_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie", re.IGNORECASE)
"""The names of headers that hold secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEndpoint:
    """Where requests go, and with which credentials."""

    target: RequestTarget
    key: Secret | None = None
    key_header: str = "Authorization"
    extra_headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers that this server wants with each request."""
    query: str = ""
    """Appended to the URL of each request, with its question mark."""
    signer: RequestSigner | None = None
    """Adds credentials that are not a fixed key."""
    proxy: str | None = None
    timeouts: Timeouts = _DEFAULT_TIMEOUTS

    @property
    def request_headers(self) -> dict[str, str]:
        """The headers of each request, the key included."""
        headers = {"Content-Type": "application/json", **self.extra_headers}
        if self.key:
            value = self.key.reveal()
            if self.key_header == "Authorization":
                value = f"Bearer {value}"
            headers[self.key_header] = value
        return headers


class HttpModel:
    """A model of some vendor.

    With `effort_policy`, `choose_effort` decides how much to think if the options do not say.
    """

    def __init__(
        self,
        info: ModelInfo,
        dialect: Dialect,
        endpoint: ModelEndpoint,
        options: ModelOptions | None = None,
        *,
        effort_policy: bool = False,
    ) -> None:
        # Attributes, because they are read several times in each step.
        self.info = info
        """The model's name, price and limits."""
        host = urlsplit(endpoint.target.url).netloc.rpartition("@")[2]
        key = endpoint.key.reveal() if endpoint.key else ""
        digest = hashlib.sha256(f"{host}\0{key}".encode()).hexdigest()[:12]
        self.quota_key = f"{info.name}@{host}#{digest}"
        """Names the quota of its requests: providers count by key and by model."""
        self.dialect = dialect
        """The wire protocol that it speaks."""
        self.options = options or ModelOptions()
        """What is asked of the provider besides the prompt."""
        self._endpoint = endpoint
        self._chooses_effort = effort_policy and self.options.effort is None

    @property
    def vendor(self) -> str:
        """The provider's name."""
        return self._endpoint.target.vendor

    @property
    def url(self) -> str:
        """The base URL."""
        return self._endpoint.target.url

    @property
    def proxy(self) -> str | None:
        """The proxy that its requests go through."""
        return self._endpoint.proxy

    def encode_request(self, prompt: Prompt) -> WireRequest:
        """Encode one request, as `stream` would send it."""
        return self.dialect.encode_request(prompt, self._endpoint.target.model, self.options)

    async def sign_headers(self, url: str, body: bytes) -> Mapping[str, str]:
        """Return the headers that a request of this model needs, with its credentials."""
        headers = self._endpoint.request_headers
        if self._endpoint.signer is None:
            return headers
        return {**headers, **await self._endpoint.signer.sign_request(url, body)}

    @property
    def secrets(self) -> Mapping[str, Secret]:
        """The secrets in its requests, by name. They must not appear in journals or events."""
        target = self._endpoint.target
        secrets: dict[str, Secret] = {}
        if self._endpoint.key:
            secrets[target.key_env or f"{target.vendor}-key"] = self._endpoint.key
        if self._endpoint.signer:
            secrets |= self._endpoint.signer.secrets
        if password := urlsplit(target.url).password:
            secrets[f"{target.vendor}-password"] = Secret(password)
        headers = {**self._endpoint.extra_headers, **self.options.extra_headers}
        for name, value in headers.items():
            if _SECRET_HEADER.search(name):
                secrets[name] = Secret(value.removeprefix("Bearer ").strip())
        return secrets

    @override
    def __repr__(self) -> str:
        return f"HttpModel({self.info.name!r}, {mask_keys(self._endpoint.target.url)!r})"

    def content_refusal(self, parts: Sequence[ContentPart]) -> str | None:
        """Return why a prompt with these parts cannot be sent, or None if it can.

        A prompt that was recorded is part of every later request, so an unsupported one has to be
        refused before it is recorded. The encoder itself is asked, so that the two never disagree.
        """
        media = tuple(part for part in parts if not isinstance(part, TextPart))
        if not media:
            return None
        messages = [UserMessage(media)]
        prompt = Prompt(self.info.name, "", messages, (), "auto", self.info.output_max)
        try:
            self.dialect.encode_request(prompt, self._endpoint.target.model, self.options)
        except ModelError as error:
            return str(error)
        return None

    async def stream(self, prompt: Prompt) -> AsyncGenerator[ReplyPiece]:
        """Send one request and yield the pieces of the reply. Raises ModelError."""
        async with aclosing(self.stream_batches(prompt)) as batches:
            async for batch in batches:
                for piece in batch:
                    yield piece

    async def stream_batches(self, prompt: Prompt) -> AsyncGenerator[tuple[ReplyPiece, ...]]:
        """Stream what `stream` does, with all pieces of one read from the socket together."""
        # What a model is shown of its own past depends on which model is asked.
        if prompt.model != self.info.name:
            prompt = replace(prompt, model=self.info.name)
        reader = self.dialect.new_reader(prompt)
        # Asked for each request, and `isinstance` is slow with a protocol.
        finishing = cast("FinishingReader", reader) if hasattr(reader, "is_finishing") else None
        progress = ReplyProgress(finishing)
        if hasattr(reader, "split_reply"):
            progress.split_reply = cast("WholeReplyReader", reader).split_reply
        pieces = _PieceReader(reader)
        fault: ModelError | None = None
        try:
            async with aclosing(self._request_events(prompt, progress)) as reads:
                async for events in reads:
                    if events is STREAM_OPENED:
                        yield (StreamOpened(progress.limits),)
                        continue
                    batch, fault = pieces.read_events(events)
                    progress.ended = bool(batch) and type(batch[-1]) is ReplyEnd
                    if batch:
                        yield tuple(batch)
                    if progress.ended:
                        return
                    if fault is not None:
                        raise fault
        except ModelError as error:
            fault = self._name_vendor(error)
        # The stream is over, with or without an error. If the model had finished its reply before
        # that, the reply counts and the error does not.
        if finishing is not None and finishing.is_finishing:
            yield tuple(pieces.join_halves(finishing.finish()))
        elif fault is not None:
            raise fault

    def _name_vendor(self, error: ModelError) -> ModelError:
        """Return the error with the vendor's name in front, and the address if it is named."""
        target = self._endpoint.target
        prefix = f"{target.vendor}: "
        fault = error.fault
        host = urlsplit(target.url).hostname
        names_host = host is not None and host in fault.message
        if fault.message.startswith(prefix) and not names_host:
            return error
        named = ModelError(
            fault.kind,
            prefix + fault.message.removeprefix(prefix),
            retryable=fault.retryable,
            retry_after_s=fault.retry_after_s,
            limits=error.limits,
            note=fault.note,
            address=mask_keys(target.url) if names_host else "",
        )
        # What the runtime knows a lack of files by.
        named.__cause__ = error.__cause__
        return named

    def _request_events(
        self, prompt: Prompt, progress: ReplyProgress
    ) -> AsyncGenerator[Sequence[SseEvent]]:
        """Prepare one request. Nothing is sent before the first event is asked for."""
        options = self.options
        if self._chooses_effort:
            options = replace(options, effort=choose_effort(prompt))
        endpoint = self._endpoint
        request = self.dialect.encode_request(prompt, endpoint.target.model, options)
        progress.new_parser = request.new_parser
        return post_sse(
            endpoint.target.url + request.path + endpoint.query,
            request.body,
            endpoint.request_headers | request.headers,
            target=endpoint.target,
            timeouts=endpoint.timeouts,
            proxy=endpoint.proxy,
            progress=progress,
            signer=endpoint.signer,
        )


class _PieceReader:
    """Reads the pieces of one response, and joins characters that a server cut in half."""

    __slots__ = ("_joiner", "_reader")

    def __init__(self, reader: ReplyReader) -> None:
        self._reader = reader
        self._joiner: HalfJoiner | None = None
        """Set once an event had half of a character in it."""

    def read_events(self, events: Sequence[SseEvent]) -> tuple[list[ReplyPiece], ModelError | None]:
        """Return the pieces in events that came together, up to the end of the reply or an error.

        What came before an error counts: it was streamed.
        """
        batch: list[ReplyPiece] = []
        try:
            for event, data in events:
                before = len(batch)
                try:
                    pieces = self._reader.read_event(event, data)
                    batch += pieces if self._joiner is None else self._joiner.join_pieces(pieces)
                except ModelError as error:
                    del batch[before:]
                    batch += self._read_with_halves(event, data, error)
                # Checked for each event of each reply, so with the cheapest test there is.
                if batch and type(batch[-1]) is ReplyEnd:
                    break
        except ModelError as error:
            return batch, error
        except RecursionError as error:  # Also in a field that no reader knows.
            return batch, malformed_stream_error(error)
        return batch, None

    def join_halves(self, pieces: Iterable[ReplyPiece]) -> Iterable[ReplyPiece]:
        """Return pieces with whole characters."""
        return pieces if self._joiner is None else self._joiner.join_pieces(pieces)

    def _read_with_halves(self, event: str, data: bytes, error: ModelError) -> Iterable[ReplyPiece]:
        """Read an event that could not be read, if half of a character is what is wrong with it."""
        replaced = replace_halves(data) if error.fault.kind == "malformed_stream" else None
        if replaced is None:
            raise error
        self._joiner = self._joiner or HalfJoiner()
        return self._joiner.join_pieces(self._reader.read_event(event, replaced))
