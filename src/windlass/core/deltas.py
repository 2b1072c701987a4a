"""What a watcher sees of a run and no journal keeps."""

from typing import Any, Literal

import msgspec

from windlass.core.messages import Usage

StopReason = Literal["end", "calls", "length", "refusal"]


class PlacedEvent(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag_field="type"
):
    """Something that happened at a place in a session."""

    seq: int = 0
    nth: int = 0
    at: float = 0.0

    @property
    def place(self) -> str:
        return f"{self.seq}.{self.nth}" if self.nth else str(self.seq)


class TextDelta(PlacedEvent, frozen=True, tag="TextDelta"):
    text: str


class ThinkingDelta(PlacedEvent, frozen=True, tag="ThinkingDelta"):
    text: str
    signature: str | None = None


class CallDelta(PlacedEvent, frozen=True, tag="CallDelta"):
    """A fragment of a call. Not visible output: a call counts only when the reply is whole."""

    index: int | None = None
    id: str | None = None
    name: str | None = None
    arguments: str = ""
    signature: str | None = None
    origin: str = ""


class UsageDelta(PlacedEvent, frozen=True, tag="UsageDelta"):
    """The attempt's usage so far; a later one replaces it."""

    usage: Usage


class ReplyEnd(PlacedEvent, frozen=True, tag="ReplyEnd"):
    """The provider's end marker. A stream without one is incomplete."""

    stop: StopReason = "end"


class AttemptDiscarded(PlacedEvent, frozen=True, tag="AttemptDiscarded"):
    """What was shown of this attempt does not count; the step starts again."""

    step: int
    attempt: int
    reason: str


class AttemptRetrying(PlacedEvent, frozen=True, tag="Retrying"):
    """The step will ask again, after a while."""

    step: int
    attempt: int
    wait_s: float
    reason: str


class StreamStalled(PlacedEvent, frozen=True, tag="Stalled"):
    """The model fell silent, and is not waited for any longer."""

    step: int
    attempt: int


class ModelFellBack(PlacedEvent, frozen=True, tag="FellBack"):
    """The attempts at one model are spent; the next one is asked."""

    step: int
    model: str
    instead_of: str


class CallProgress(PlacedEvent, frozen=True, tag="CallProgress"):
    """A running tool says how it is getting on."""

    call_id: str
    text: str


class NestedEvent(PlacedEvent, frozen=True, tag="Nested"):
    """An event of a session that works for a call of this one."""

    call_id: str
    agent: str
    session: str
    event: Any
    """As it was told there: a fact or a delta, with its place in that session."""


class RunSuspended(PlacedEvent, frozen=True, tag="RunSuspended"):
    """The run waits for a person. Not an end: the last event only of this watch."""

    call_ids: tuple[str, ...]
