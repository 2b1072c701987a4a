"""The events of a run in, the events of a response out.

Invariant: what comes out follows from the events and from nothing else, so a client that comes
late, comes back, or asks another replica sees the same response. An item that was shown is never
taken back: what a broken attempt had said stays its own item, which is incomplete, and the
next attempt opens another one.

The number of an event is its place in the journal, never in a connection. So every
connection, and every replica, gives the same event the same number. It is the number of a fact,
times 2^24, plus a count. The deltas of a text count its characters, so a client that comes back
gets exactly the rest of the text, however it was cut into pieces.
"""

from collections.abc import Callable, Iterator
from typing import Literal

import msgspec
from msgspec.structs import replace

from windlass.core.events import Event, RunEnded, RunQueued, RunStarted
from windlass.core.projection.runs import RunView
from windlass.core.projection.view import Projection, ReplyEntry
from windlass.core.question import Question
from windlass.server.client_run import find_run
from windlass.server.openai.objects import (
    ErrorDetails,
    IncompleteDetails,
    ItemPhase,
    ItemStatus,
    LinkedQuestion,
    OutputItem,
    OutputText,
    ResponseObject,
    ResponseStatus,
    RunDetails,
    make_id,
    make_response_fault,
    response_usage,
    text_settings,
)
from windlass.server.reply_following import (
    AttemptDropped,
    ReplyFollower,
    ReplyNews,
    ReplySettled,
    TextWritten,
)

PLACES = 2**24
"""Numbers for each fact. JavaScript reads whole numbers up to 2^53, so 2^29 facts have room."""
LAST_PLACE = PLACES - 1


def sequence_number(seq: int, place: int) -> int:
    """Return the number of an event that follows from a fact, or lies after it."""
    return seq * PLACES + min(place, LAST_PLACE)


LifecycleKind = Literal[
    "response.created",
    "response.queued",
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


FAILED_OUTCOMES = ("failed", "empty_reply")
"""Outcomes that leave the client without an answer."""


class ResponseEncoder:
    """One run of a session as a response. Events before and after the run change nothing."""

    def __init__(self, run: int, question_url: Callable[[Question], str], view: Projection) -> None:
        """Make the encoder of a run; `view` is the session before the first event that comes."""
        self._run = run
        self._question_url = question_url
        self._replies = ReplyFollower(view, judged_only=True)
        self.has_ended = False
        """Whether the last event of the run has come."""
        self._items: list[OutputItem] = []
        self._shown_chars = 0
        """Of the text of the open item."""
        self._is_created = False
        """Whether the response was announced when its run was queued."""
        self._is_open = False
        """Whether the last item belongs to the attempt that is under way."""

    def encode(self, event: Event, view: Projection) -> Iterator[ResponseEvent]:
        """Yield what an event means for the response, given the view after it."""
        if self.has_ended:
            return
        news = list(self._replies.follow(event, view))
        if view.run is None or view.run.number != self._run:
            return
        if isinstance(event, RunQueued):
            self._is_created = True
            yield self._lifecycle("response.created", event.seq, 0, view)
            yield self._lifecycle("response.queued", event.seq, 1, view)
        if isinstance(event, RunStarted):
            if not self._is_created:
                yield self._lifecycle("response.created", event.seq, 0, view)
            yield self._lifecycle("response.in_progress", event.seq, 1, view)
        for piece in news:
            yield from self._encode_news(view.session, event.seq, piece)
        if isinstance(event, RunEnded):
            self.has_ended = True
            yield self._end(event, view)

    def _end(self, fact: RunEnded, view: Projection) -> LifecycleEvent:
        match self._find_status(view):
            case "completed":
                return self._lifecycle("response.completed", fact.seq, 3, view)
            case "failed":
                return self._lifecycle("response.failed", fact.seq, 3, view)
            case _:
                return self._lifecycle("response.incomplete", fact.seq, 3, view)

    def waits(self, view: Projection) -> bool:
        """Whether the run continues only when a person has answered or resumed it."""
        return self._find_state(view) in ("waiting", "paused")

    def read_response(self, view: Projection) -> ResponseObject:
        """Return the response as it is in a view of its session."""
        run = find_run(view, self._run) or RunView(self._run)
        state = self._find_state(view)
        status = self._find_status(view)
        error = None
        if run.outcome in FAILED_OUTCOMES:
            error = make_response_fault(
                f"run_{run.outcome}",
                run.reason or f"The run ended as {run.outcome}.",
                retryable=run.fault is not None and run.fault.retryable,
            )
        incomplete = None
        if status == "incomplete":
            incomplete = IncompleteDetails(_incomplete_reason(state))
        previous = None
        if self._run > 1:
            previous = make_id("resp", view.session, self._run - 1)
        return ResponseObject(
            make_id("resp", view.session, self._run),
            int(run.started_at),
            run.agent,
            status,
            self.read_details(view),
            tuple(self._items),
            response_usage(run.ledger),
            error,
            incomplete,
            previous,
            None if run.ended_at is None else int(run.ended_at),
            text=text_settings(view.setup.output_schema if view.setup is not None else None),
        )

    def read_details(self, view: Projection) -> RunDetails:
        """Return what the protocol has no place for."""
        run = find_run(view, self._run)
        questions = view.questions if run is not None and run.is_open else ()
        run = run or RunView(self._run)
        return RunDetails(
            view.session,
            self._run,
            make_id("resp", view.session, self._run),
            self._find_state(view),
            run.reason or (run.pause.reason if run.pause else ""),
            tuple(self._link_question(question) for question in questions),
        )

    def _find_state(self, view: Projection) -> str:
        run = find_run(view, self._run)
        if run is None:
            return "queued"
        if run.outcome is not None:
            return run.outcome
        if run.queued and run.pause is None:
            return "queued"
        match view.status.waits_for:
            case "person":
                return "waiting"
            case "continue":
                return "paused"
            case _:
                return "running"

    def _find_status(self, view: Projection) -> ResponseStatus:
        match self._find_state(view):
            case "queued":
                return "queued"
            case "running" | "waiting" | "paused":
                return "in_progress"
            case "completed":
                return "completed"
            case "cancelled":
                return "cancelled"
            case "failed" | "empty_reply":
                return "failed"
            case _:
                return "incomplete"

    def _link_question(self, question: Question) -> LinkedQuestion:
        return LinkedQuestion(
            question.call_id,
            question.tool,
            question.question,
            question.session,
            self._question_url(question),
        )

    def _lifecycle(
        self, kind: LifecycleKind, seq: int, place: int, view: Projection
    ) -> LifecycleEvent:
        return LifecycleEvent(kind, sequence_number(seq, place), self.read_response(view))

    # The text of one attempt.

    def _encode_news(self, session: str, seq: int, news: ReplyNews) -> Iterator[ResponseEvent]:
        match news:
            case TextWritten(attempt, "text", text) if attempt.seq:
                yield from self._show_text(session, attempt.seq, text)
            case AttemptDropped(attempt, had_text=had_text):
                if had_text:
                    yield from self._open_item(session, attempt.seq)
                if self._is_open:
                    yield from self._close_item(seq, "", "incomplete")
            case ReplySettled(_, entry) if self._is_open:
                is_partial = entry.kind == "partial"
                status: ItemStatus = "incomplete" if is_partial else "completed"
                yield from self._close_item(seq, entry.text, status, _find_phase(entry))
            case _:
                # Text of no attempt is that of one that failed, which has its item. Text that was
                # replaced is sent whole with the end of its item.
                pass

    def _show_text(self, session: str, attempt: int, text: str) -> Iterator[ResponseEvent]:
        """Show more text of an attempt, as an item that is opened with its first text."""
        yield from self._open_item(session, attempt)
        index = len(self._items) - 1
        item = self._items[-1]
        if not self._shown_chars:
            number = sequence_number(attempt, 1)
            yield PartEvent("response.content_part.added", number, index, item.id, OutputText(""))
        self._shown_chars += len(text)
        number = sequence_number(attempt, 1 + self._shown_chars)
        yield TextPieceEvent(number, index, item.id, text)

    def _open_item(self, session: str, attempt: int) -> Iterator[ResponseEvent]:
        if self._is_open:
            return
        self._is_open = True
        self._shown_chars = 0
        item = OutputItem(make_id("msg", session, attempt), "in_progress")
        self._items.append(item)
        number = sequence_number(attempt, 0)
        yield ItemEvent("response.output_item.added", number, len(self._items) - 1, item)

    def _close_item(
        self, seq: int, text: str, status: ItemStatus, phase: ItemPhase | None = None
    ) -> Iterator[ResponseEvent]:
        """Close the open item. Its text is sent whole, so missed deltas do no harm."""
        index = len(self._items) - 1
        content = (OutputText(text),) if text else ()
        item = replace(self._items[-1], status=status, content=content, phase=phase)
        self._items[-1] = item
        self._is_open = False
        for part in content:
            yield TextDoneEvent(sequence_number(seq, 0), index, item.id, part.text)
            number = sequence_number(seq, 1)
            yield PartEvent("response.content_part.done", number, index, item.id, part)
        yield ItemEvent("response.output_item.done", sequence_number(seq, 2), index, item)


def _find_phase(entry: ReplyEntry) -> ItemPhase | None:
    if entry.kind == "partial":
        return None
    return "commentary" if entry.calls else "final_answer"


def _incomplete_reason(outcome: str) -> str:
    """Return why a response is incomplete: in their words where they have one, else in ours."""
    match outcome:
        case "truncated":
            return "max_output_tokens"
        case "refused" | "policy_denied":
            return "content_filter"
        case _:
            return outcome
