"""What a response streams, and how a client resumes after an event that it has seen.

Invariant: the number of an event is its place in the journal, never in a connection. So every
connection, and every replica, gives the same event the same number. It is the number of a fact,
times 2^24, plus a count. The deltas of a text count its characters, so a client that comes back
gets exactly the rest of the text, however it was cut into pieces.
"""

from typing import Literal

import msgspec
from msgspec.structs import replace

from windlass.server.openai.objects import OutputItem, OutputText, ResponseObject
from windlass.server.openai.openai_errors import ErrorDetails

PLACES = 2**24
"""Numbers for each fact. JavaScript reads whole numbers up to 2^53, so 2^29 facts have room."""
LAST_PLACE = PLACES - 1


def sequence_number(seq: int, place: int) -> int:
    """Return the number of an event that follows from a fact, or lies after it."""
    return seq * PLACES + min(place, LAST_PLACE)


LifecycleKind = Literal[
    "response.created",
    "response.in_progress",
    "response.completed",
    "response.incomplete",
    "response.failed",
]


class LifecycleEvent(msgspec.Struct, frozen=True):
    type: LifecycleKind
    sequence_number: int
    response: ResponseObject


class ItemEvent(msgspec.Struct, frozen=True):
    type: Literal["response.output_item.added", "response.output_item.done"]
    sequence_number: int
    output_index: int
    item: OutputItem


class PartEvent(msgspec.Struct, frozen=True):
    type: Literal["response.content_part.added", "response.content_part.done"]
    sequence_number: int
    output_index: int
    item_id: str
    part: OutputText
    content_index: int = 0


class TextPieceEvent(msgspec.Struct, frozen=True):
    sequence_number: int
    output_index: int
    item_id: str
    delta: str
    content_index: int = 0
    logprobs: tuple[str, ...] = ()
    type: Literal["response.output_text.delta"] = "response.output_text.delta"


class TextDoneEvent(msgspec.Struct, frozen=True):
    sequence_number: int
    output_index: int
    item_id: str
    text: str
    content_index: int = 0
    logprobs: tuple[str, ...] = ()
    type: Literal["response.output_text.done"] = "response.output_text.done"


class ErrorEvent(msgspec.Struct, frozen=True):
    """The stream ends here, and the run may not have. Older clients read it without `error`."""

    sequence_number: int
    code: str
    message: str
    error: ErrorDetails
    param: None = None
    type: Literal["error"] = "error"


ResponseEvent = LifecycleEvent | ItemEvent | PartEvent | TextPieceEvent | TextDoneEvent | ErrorEvent


def skip_seen(event: ResponseEvent, starting_after: int) -> ResponseEvent | None:
    """Return what a client has not seen of an event, or None if it has seen all of it."""
    if event.sequence_number <= starting_after:
        return None
    if not isinstance(event, TextPieceEvent):
        return event
    unseen = event.sequence_number - starting_after
    if unseen >= len(event.delta):
        return event
    return replace(event, delta=event.delta[-unseen:])
