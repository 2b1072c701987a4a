"""What every wire dialect is made of: an encoder and a reader, both pure.

`encode` turns a prompt into the body of one request; a reader turns the server's events into
pieces. Neither opens a connection, waits or retries.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from windlass.core.events import ReplyPiece
from windlass.core.view import Prompt

Effort = Literal["off", "low", "medium", "high"]
ToolProtocol = Literal["native", "text", "grammar"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """What a caller may ask of a provider besides the prompt. None leaves it to the provider."""

    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    effort: Effort | None = None
    """How much to think; None lets the policy choose from the prompt."""
    service_tier: str | None = None
    tool_protocol: ToolProtocol | None = None
    """How tools are offered: by the wire, in the text, or by a grammar; None as the vendor does."""
    extra_body: dict[str, Any] = field(default_factory=dict[str, Any])
    extra_headers: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class WireRequest:
    """One request, ready to be sent to a vendor's base URL."""

    path: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict[str, str])


class ReplyReader(Protocol):
    """Reads the events of one response."""

    def read_event(self, event: str, data: bytes) -> Iterable[ReplyPiece]:
        """The pieces in one server-sent event; raises ModelError for an error that it announces."""
        ...


class Dialect(Protocol):
    """One wire protocol."""

    def encode_request(self, prompt: Prompt, model: str, options: ModelOptions) -> WireRequest: ...

    def new_reader(self, prompt: Prompt) -> ReplyReader: ...
