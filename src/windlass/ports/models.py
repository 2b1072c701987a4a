"""The port to language models."""

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol, runtime_checkable

from windlass.core.errors import Fault
from windlass.core.events import ReplyPiece
from windlass.core.messages import ContentPart
from windlass.core.rate_limits import RateLimits
from windlass.core.setup import ModelInfo
from windlass.core.suggestions import SettingsStruct
from windlass.core.view import Prompt


class Model(Protocol):
    """A language model behind one wire format."""

    @property
    def info(self) -> ModelInfo:
        """What the model is: its name, price, window and abilities."""
        ...

    def stream(self, prompt: Prompt) -> AsyncGenerator[ReplyPiece]:
        """Make one request and stream its pieces.

        Raises ModelError. It must not retry: the loop decides about retries, and records them.
        """
        ...


class BatchingModel(Model, Protocol):
    """A model that knows which pieces came together, such as in one read from a socket."""

    def stream_batches(self, prompt: Prompt) -> AsyncGenerator[tuple[ReplyPiece, ...]]:
        """Stream what `stream` would, with the pieces that came together in one batch.

        Watchers still receive the pieces one by one. A batch costs less to pass on.
        """
        ...


@runtime_checkable
class RefusesContent(Protocol):
    """A model that knows before a request which content it cannot take."""

    def content_refusal(self, parts: Sequence[ContentPart]) -> str | None:
        """Return why the model cannot take one of these parts, for users; None if it takes all."""
        ...


@runtime_checkable
class RateLimitedModel(Protocol):
    """A model whose provider limits the rate of requests."""

    @property
    def quota_key(self) -> str:
        """The quota that its requests count against: models with the same key share it."""
        ...


class RequestPermit(Protocol):
    """Lets one request be made, and hears what the provider says to it."""

    def note_opened(self, limits: RateLimits | None) -> None:
        """Note that the provider took the request, and what it said about its limits."""
        ...

    def close(self, fault: Fault | None, limits: RateLimits | None = None) -> None:
        """Note that the request is over; with its fault if it failed, None if not or if unknown."""
        ...


class RequestGovernor(Protocol):
    """Holds requests back so that providers need not refuse them."""

    def try_admit(self, key: str, tokens: int) -> RequestPermit | None:
        """Admit a request at once, or return None: then `admit` waits for its turn."""
        ...

    async def admit(
        self, key: str, tokens: int, *, group: str = "", priority: int = 0
    ) -> RequestPermit:
        """Wait until a request that needs `tokens` tokens may be made.

        Groups are served in turns, those of a higher priority first. Cancelling gives up the place.
        """
        ...


class Timeouts(SettingsStruct, frozen=True, kw_only=True):
    """How long a model may be silent, in seconds. None waits forever."""

    connect_s: float | None = 10.0
    first_byte_s: float | None = 120.0
    """From the request to the first piece of content."""
    idle_s: float | None = 90.0
    """Between two pieces of content; keep-alives do not count as content."""
    step_s: float | None = None
    """For a whole attempt at a step."""
