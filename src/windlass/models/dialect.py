"""The parts of every wire dialect: an encoder of requests and a reader of replies, both pure.

`encode_request` turns a prompt into the body of one request; a parser turns the bytes of the
response into events, and a reader turns events into pieces of the reply. None of them opens a
connection, waits or retries.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from windlass.core.events import ReplyPiece
from windlass.core.secrets.mask import Secret
from windlass.core.view import Prompt
from windlass.models.http.sse import SseEvent, SseParser
from windlass.models.options import ModelOptions


class StreamParser(Protocol):
    """Parses the bytes of one response into events, however the bytes are split."""

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Return the events that this chunk completes. Raises ModelError for damaged bytes."""
        ...

    def finish(self) -> list[SseEvent]:
        """Return the events that are complete although nothing ended them."""
        ...


@dataclass(frozen=True, slots=True)
class WireRequest:
    """One request, ready to be sent to a vendor's base URL."""

    path: str
    """Appended to the base URL."""
    body: bytes
    headers: dict[str, str] = field(default_factory=dict[str, str])
    new_parser: Callable[[], StreamParser] = SseParser
    """Makes the parser of its response."""


class RequestSigner(Protocol):
    """Adds credentials to requests."""

    @property
    def secrets(self) -> Mapping[str, Secret]:
        """The lasting secrets that it holds, by name."""
        ...

    async def sign_request(self, url: str, body: bytes) -> Mapping[str, str]:
        """Return the headers that a POST of this body needs. Raises ModelError."""
        ...


class ReplyReader(Protocol):
    """Reads the events of one response."""

    def read_event(self, event: str, data: bytes) -> Iterable[ReplyPiece]:
        """Return the pieces in one server-sent event.

        Raises ModelError if the event announces an error or cannot be read.
        """
        ...


@runtime_checkable
class FinishingReader(Protocol):
    """A reader of a protocol in which more may follow after the model has finished."""

    @property
    def is_finishing(self) -> bool:
        """Whether the model has finished its reply, and the end marker has not come yet."""
        ...

    def finish(self) -> Sequence[ReplyPiece]:
        """Return the last pieces. Called once, when nothing more comes."""
        ...


@runtime_checkable
class WholeReplyReader(Protocol):
    """A reader that can also read a reply that comes whole, as one JSON document."""

    def split_reply(self, body: bytes) -> Sequence[tuple[str, bytes]] | None:
        """Return the events that a stream would have brought; None if it is not such a reply."""
        ...


class Dialect(Protocol):
    """One wire protocol."""

    def encode_request(self, prompt: Prompt, model: str, options: ModelOptions) -> WireRequest:
        """Encode one request. Raises ModelError for content that the API cannot take."""
        ...

    def new_reader(self, prompt: Prompt) -> ReplyReader:
        """Return a reader for the response to one request with this prompt."""
        ...
