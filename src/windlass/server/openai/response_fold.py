"""The events of a run in, the events of a response out.

The law: what comes out follows from the events and from nothing else, so a client that comes late,
comes back, or asks another replica sees the same response. An item that was shown is never taken
back: what a broken attempt had said stays an item of its own, which is incomplete, and the next
attempt opens another one.
"""

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from windlass.core.events import (
    AttemptFailed,
    AttemptStarted,
    Event,
    ReplyJudged,
    RunEnded,
    RunReleased,
    RunResumed,
    RunStarted,
    StepProposed,
    TextDelta,
)
from windlass.core.projection.project import apply_event
from windlass.core.projection.runs import OpenQuestion, RunView
from windlass.core.projection.view import Projection, ReplyEntry
from windlass.core.verdicts import Allow
from windlass.server.openai.ids import make_id
from windlass.server.openai.objects import (
    IncompleteDetails,
    ItemStatus,
    LinkedQuestion,
    OutputItem,
    OutputText,
    ResponseFault,
    ResponseObject,
    ResponseStatus,
    RunDetails,
    response_usage,
)
from windlass.server.openai.stream_events import (
    ItemEvent,
    LifecycleEvent,
    PartEvent,
    ResponseEvent,
    TextDoneEvent,
    TextPieceEvent,
    sequence_number,
)

FAILED_OUTCOMES = ("failed", "empty_reply")
"""Outcomes that leave the client without an answer."""


class ResponseFold:
    """One run of a session as a response. Events before and after the run change nothing."""

    def __init__(
        self,
        session: str,
        run: int,
        question_url: Callable[[OpenQuestion], str],
        start: Projection | None = None,
    ) -> None:
        """Make the fold of a run; `start` is the session before the first event that comes."""
        self.run = run
        self._session = session
        self._question_url = question_url
        self._view = start or Projection(session)
        self._items: list[OutputItem] = []
        self._attempt_seq = 0
        """The fact that began the attempt that is under way; 0 if none is."""
        self._shown: list[str] = []
        """What was shown of that attempt, piece by piece."""
        self._shown_chars = 0
        self._is_open = False
        self._is_unjudged = False
        """Whether the last item belongs to that attempt."""
        self._is_unjudged = False
        """Whether the reply of that attempt is complete, and shown once it is allowed."""

    @property
    def has_begun(self) -> bool:
        return self._own_run is not None

    @property
    def has_ended(self) -> bool:
        return self._own_run is not None and not self._own_run.is_open

    @property
    def waits(self) -> bool:
        """Whether the run goes on only when a person has answered or resumed it."""
        return self._find_state() in ("waiting", "paused")

    @property
    def seq(self) -> int:
        return self._view.seq

    def apply(self, event: Event) -> Iterator[ResponseEvent]:
        """Yield what one more event of the session means for the response."""
        if self.has_ended:
            return
        before = self._view.place
        self._view = apply_event(self._view, event)
        if self._own_run is None or self._view.place == before:
            return
        match event:
            case RunStarted(seq=seq):
                yield self._lifecycle("response.created", seq, 0)
                yield self._lifecycle("response.in_progress", seq, 1)
            case AttemptStarted(purpose="main"):
                yield from self._drop_attempt(event.seq)
                self._attempt_seq = event.seq
            case TextDelta(text):
                yield from self._take_text(text)
            case StepProposed():
                yield from self._take_reply(event.seq)
            case ReplyJudged(verdict):
                yield from self._judge_reply(event.seq, is_allowed=isinstance(verdict, Allow))
            case AttemptFailed(partial=partial):
                yield from self._drop_attempt(event.seq, had_text=bool(partial))
            case RunResumed() | RunReleased():
                if not self._is_unjudged:
                    # Nobody recorded how much of the attempt was seen, so it always is an item.
                    yield from self._drop_attempt(event.seq, had_text=True)
            case RunEnded():
                yield from self._end(event)
            case _:
                pass

    def read_response(self) -> ResponseObject:
        """Return the response as it is now."""
        run = self._own_run or RunView(self.run)
        state = self._find_state()
        error = None
        if run.outcome in FAILED_OUTCOMES:
            is_retryable = run.fault is not None and run.fault.retryable
            error = ResponseFault(
                f"run_{run.outcome}",
                run.reason or f"The run ended as {run.outcome}.",
                retryable=is_retryable,
            )
        incomplete = None
        if self._find_status() == "incomplete":
            incomplete = IncompleteDetails(_incomplete_reason(state))
        previous = None
        if self.run > 1:
            previous = make_id("resp", self._session, self.run - 1)
        return ResponseObject(
            self.response_id,
            int(run.started_at),
            run.agent,
            self._find_status(),
            self.read_details(),
            tuple(self._items),
            response_usage(run.ledger),
            error,
            incomplete,
            previous,
            None if run.ended_at is None else int(run.ended_at),
        )

    def read_details(self) -> RunDetails:
        """Return what the protocol has no place for."""
        run = self._own_run or RunView(self.run)
        questions: tuple[OpenQuestion, ...] = ()
        if run.is_open and self.has_begun:
            questions = self._view.questions
        return RunDetails(
            self._session,
            self.run,
            self.response_id,
            self._find_state(),
            run.reason or (run.pause.reason if run.pause else ""),
            tuple(self._link_question(question) for question in questions),
        )

    @property
    def response_id(self) -> str:
        return make_id("resp", self._session, self.run)

    @property
    def _own_run(self) -> RunView | None:
        run = self._view.run
        return run if run is not None and run.number == self.run else None

    @property
    def _is_typed(self) -> bool:
        """Whether only a reply of the right type counts, so that nothing is shown before."""
        return self._view.setup is not None and self._view.setup.output_schema is not None

    def _find_state(self) -> str:
        run = self._own_run
        if run is None:
            return "queued"
        if run.outcome is not None:
            return run.outcome
        match self._view.status.waits_for:
            case "person":
                return "waiting"
            case "continue":
                return "paused"
            case _:
                return "running"

    def _find_status(self) -> ResponseStatus:
        match self._find_state():
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

    def _link_question(self, question: OpenQuestion) -> LinkedQuestion:
        return LinkedQuestion(
            question.call_id,
            question.tool,
            question.question,
            question.session,
            self._question_url(question),
        )

    def _lifecycle(self, kind: str, seq: int, place: int) -> LifecycleEvent:
        return LifecycleEvent(kind, sequence_number(seq, place), self.read_response())  # pyright: ignore[reportArgumentType] - the callers name kinds that exist

    # The text of one attempt.

    def _take_text(self, text: str) -> Iterator[ResponseEvent]:
        if self._attempt_seq and not self._is_typed:
            yield from self._show_text(self._attempt_seq, text)

    def _show_text(self, attempt: int, text: str) -> Iterator[ResponseEvent]:
        """Show more text of an attempt, as an item that is opened with its first text."""
        if not text:
            return
        yield from self._open_item(attempt)
        if not self._shown:
            item = self._items[-1]
            number = sequence_number(attempt, 1)
            index = len(self._items) - 1
            yield PartEvent("response.content_part.added", number, index, item.id, OutputText(""))
        self._shown.append(text)
        self._shown_chars += len(text)
        number = sequence_number(attempt, 1 + self._shown_chars)
        yield TextPieceEvent(number, len(self._items) - 1, self._items[-1].id, text)

    def _show_rest(self, attempt: int, text: str) -> Iterator[ResponseEvent]:
        """Show what is missing of a text; nothing if it does not begin with what was shown."""
        if text.startswith("".join(self._shown)):
            yield from self._show_text(attempt, text[self._shown_chars :])

    def _open_item(self, attempt: int) -> Iterator[ResponseEvent]:
        if self._is_open:
            return
        self._is_open = True
        item = OutputItem(make_id("msg", self._session, attempt), "in_progress")
        self._items.append(item)
        number = sequence_number(attempt, 0)
        yield ItemEvent("response.output_item.added", number, len(self._items) - 1, item)

    def _close_item(self, seq: int, item: OutputItem) -> Iterator[ResponseEvent]:
        """Close the open item. Its text is told whole, so deltas that were missed do no harm."""
        index = len(self._items) - 1
        self._items[-1] = item
        if item.content:
            part = item.content[0]
            number = sequence_number(seq, 0)
            yield TextDoneEvent(number, index, item.id, part.text)
            number = sequence_number(seq, 1)
            yield PartEvent("response.content_part.done", number, index, item.id, part)
        yield ItemEvent("response.output_item.done", sequence_number(seq, 2), index, item)
        self._forget_attempt()

    def _forget_attempt(self) -> None:
        self._attempt_seq = 0
        self._shown = []
        self._shown_chars = 0
        self._is_open = False
        self._is_unjudged = False

    def _take_reply(self, seq: int) -> Iterator[ResponseEvent]:
        attempt = self._attempt_seq
        entry = _last_reply(self._view)
        if entry is None or not attempt:
            self._forget_attempt()
            return
        if entry.withheld or self._is_typed:
            self._is_unjudged = True
            return
        yield from self._finish_item(seq, attempt, entry)

    def _judge_reply(self, seq: int, *, is_allowed: bool) -> Iterator[ResponseEvent]:
        entry = _last_reply(self._view)
        if not self._is_unjudged or entry is None:
            return
        if is_allowed:
            yield from self._finish_item(seq, self._attempt_seq, entry)
        else:
            yield from self._drop_attempt(seq)

    def _finish_item(self, seq: int, attempt: int, entry: ReplyEntry) -> Iterator[ResponseEvent]:
        """Show what is missing of a complete reply, and close its item."""
        text = entry.text
        if not text and not self._is_open:
            self._forget_attempt()
            return
        yield from self._show_rest(attempt, text)
        phase = "commentary" if entry.calls else "final_answer"
        yield from self._complete_item(seq, text, "completed", phase)

    def _complete_item(
        self, seq: int, text: str, status: ItemStatus, phase: str | None = None
    ) -> Iterator[ResponseEvent]:
        content = (OutputText(text),) if text else ()
        item = replace(self._items[-1], status=status, content=content, phase=phase)
        yield from self._close_item(seq, item)

    def _drop_attempt(self, seq: int, *, had_text: bool = False) -> Iterator[ResponseEvent]:
        """Close the item of an attempt that does not count, without its text."""
        attempt = self._attempt_seq
        if attempt and had_text and not self._is_typed:
            yield from self._open_item(attempt)
        if self._is_open:
            yield from self._complete_item(seq, "", "incomplete")
        self._forget_attempt()

    def _end(self, fact: RunEnded) -> Iterator[ResponseEvent]:
        """Close what is open, with what had come of it, and end the response."""
        entry = _last_reply(self._view)
        is_partial = entry is not None and entry.kind == "partial" and entry.seq == fact.seq
        if entry is not None and is_partial and self._attempt_seq and not self._is_typed:
            yield from self._show_rest(self._attempt_seq, entry.text)
            yield from self._complete_item(fact.seq, entry.text, "incomplete")
        yield from self._drop_attempt(fact.seq)
        match self._find_status():
            case "completed":
                yield self._lifecycle("response.completed", fact.seq, 3)
            case "failed":
                yield self._lifecycle("response.failed", fact.seq, 3)
            case _:
                yield self._lifecycle("response.incomplete", fact.seq, 3)


def _last_reply(view: Projection) -> ReplyEntry | None:
    replies = [entry for entry in view.tail if isinstance(entry, ReplyEntry)]
    return replies[-1] if replies else None


def _incomplete_reason(outcome: str) -> str:
    """Return why a response is incomplete: in their words where they have one, else in ours."""
    match outcome:
        case "truncated":
            return "max_output_tokens"
        case "refused" | "policy_denied":
            return "content_filter"
        case _:
            return outcome
