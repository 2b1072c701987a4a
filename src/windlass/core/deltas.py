"""Deltas: what a watcher sees of a run and no journal keeps."""

from typing import Any, ClassVar, Literal, Self, TypeVar

import msgspec
from msgspec.structs import replace
from typing_extensions import override

from windlass.core.json_form import JsonForm, decode_json
from windlass.core.messages import DisplayCard, RichDisplay, Usage
from windlass.core.question import Question
from windlass.core.rate_limits import RateLimits

StopReason = Literal["end", "calls", "length", "refusal"]
"""Why a reply stopped: at its end, for calls, at the output limit, or by a refusal."""


class PlacedEvent(
    RichDisplay,
    JsonForm,
    msgspec.Struct,
    frozen=True,
    gc=False,
    kw_only=True,
    omit_defaults=True,
    tag_field="type",
):
    """An event at a place in a session: the base of all facts and deltas."""

    from_outside: ClassVar[bool] = False
    """Of a fact: whether the world says it, and not the rules (see `core/events.py`)."""

    seq: int = 0
    nth: int = 0
    at: float = 0.0
    """When it happened, in seconds since the epoch."""
    worked_s: float | None = None
    """Of a fact: the seconds at work since the fact before, where `at` shows others.

    The wall clock was set, the machine slept, or another process wrote the fact before.
    """
    hidden: tuple[str, ...] = ()
    """The fields that a viewer does not see (`core/disclosure.py`). No journal hides any."""

    @property
    def place(self) -> str:
        """The place as text: `12` for a fact, `12.3` for the third delta after it."""
        if self.nth:
            return f"{self.seq}.{self.nth}"
        return str(self.seq)

    @override
    def display_card(self) -> DisplayCard:
        """Return the notebook representation of this event: its fields without their defaults."""
        rows = tuple(
            (field.name, str(value))
            for field in msgspec.structs.fields(self)
            if field.name not in ("seq", "nth", "at", "worked_s")
            if (value := getattr(self, field.name)) != field.default
        )
        return DisplayCard(type(self).__name__, self.place, rows=rows)


class TextDelta(PlacedEvent, frozen=True, tag="TextDelta"):
    """More text of the reply."""

    text: str


class ThinkingDelta(PlacedEvent, frozen=True, tag="ThinkingDelta"):
    """More of the model's reasoning."""

    text: str
    signature: str | None = None


class CallDelta(PlacedEvent, frozen=True, tag="CallDelta"):
    """A fragment of a call. It is not visible output: a call counts only in a complete reply."""

    index: int | None = None
    id: str | None = None
    name: str | None = None
    arguments: str = ""
    signature: str | None = None
    origin: str = ""


class UsageDelta(PlacedEvent, frozen=True, tag="UsageDelta"):
    """The usage of the attempt so far. A later one replaces it."""

    usage: Usage


class StreamOpened(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="StreamOpened"):
    """The provider accepted the request: the head of its response has come, and maybe no more.

    A model may stream it first. It is no event: it has no content and no place, and is never shown.
    """

    limits: RateLimits | None = None
    """What the response says about the provider's rate limits."""


class ReplyRestarted(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="ReplyRestarted"):
    """The provider starts its reply over within the same response: what came before is void.

    Like StreamOpened it is no event. The attempt so far fails, and the next one reads on.
    """


class ReplyEnd(PlacedEvent, frozen=True, tag="ReplyEnd"):
    """The provider's end marker. A stream without one is incomplete; nothing behind it is read."""

    stop: StopReason = "end"


class AttemptDiscarded(PlacedEvent, frozen=True, tag="AttemptDiscarded"):
    """The text shown of this attempt does not count; the step starts again."""

    step: int
    attempt: int
    reason: str = ""


class AttemptRetrying(PlacedEvent, frozen=True, tag="Retrying"):
    """The step will send another request after `wait_s` seconds."""

    step: int
    attempt: int
    wait_s: float
    reason: str = ""


class StreamStalled(PlacedEvent, frozen=True, tag="Stalled"):
    """The model sent nothing for too long, so the attempt was given up."""

    step: int
    attempt: int


class ModelFellBack(PlacedEvent, frozen=True, tag="FellBack"):
    """No attempts are left for one model; the next model gets the request."""

    step: int
    model: str
    instead_of: str


class CallProgress(PlacedEvent, frozen=True, tag="CallProgress"):
    """A running tool reports its progress."""

    call_id: str
    text: str


class NestedEvent(PlacedEvent, frozen=True, tag="Nested"):
    """An event of another session, which works for a call of this one."""

    call_id: str
    agent: str
    session: str
    event: Any
    """A fact or a delta, with its place in that session."""
    event_type: ClassVar[Any] = None
    """The type of all events, which is defined above this module and set there."""

    @override
    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the event that `to_json` wrote, with the event in it. Raises ValueError."""
        return resolve_nested(decode_json(text, cls))


EventT = TypeVar("EventT", bound=PlacedEvent)


def resolve_nested(event: EventT) -> EventT:
    """Return an event with the event in it, which is decoded as plain data, as an event.

    Raises ValueError if that is none.
    """
    if not isinstance(event, NestedEvent) or isinstance(event.event, PlacedEvent):
        return event
    try:
        nested = msgspec.convert(event.event, NestedEvent.event_type, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(f"The nested event is not an event: {error}") from error
    return replace(event, event=resolve_nested(nested))


class RunSuspended(PlacedEvent, frozen=True, tag="RunSuspended"):
    """The run waits for a person, or is paused. Only this stream of events ends, not the run."""

    questions: tuple[Question, ...] = ()
    """What a person is asked, here and in sub-agents. Empty if the run is paused or released."""
