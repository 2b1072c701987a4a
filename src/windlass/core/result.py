"""What a run gives back, whichever way it ended, and how it is read off the state."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar, Generic, cast, overload

import msgspec
from msgspec.structs import replace
from typing_extensions import TypeVar, override

from windlass.core.errors import Fault, ForOperator, WindlassError
from windlass.core.events import Outcome
from windlass.core.json_form import ValueT, convert_output, decode_json, encode_json
from windlass.core.messages import Charge, DisplayCard, Ledger, Message, RichDisplay, Tone, Usage
from windlass.core.question import Question
from windlass.core.setup import digest
from windlass.core.state import State
from windlass.core.suggestions import ForeignNames
from windlass.core.verdicts import list_agreed

OutputT = TypeVar("OutputT", default=str)
"""What a run gives back: text, unless the agent has an output type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult(RichDisplay, ForeignNames, Generic[OutputT]):
    """All that a run did, said and paid for. Nothing of it is lost when the run ends early."""

    foreign_names: ClassVar[Mapping[str, str]] = {
        "data": "result.output",
        "final_output": "result.output",
        "response": "result.text",
        "to_input_list": "agent.run(prompt, session=result.session_id) to continue",
    }

    outcome: Outcome
    reason: str
    """Why it ended so, in words; empty if it completed."""
    output_or_none: OutputT | None
    """The validated output; None if the run has none. `output` raises in that case."""
    text: str
    """The text of the last reply."""
    partial_text: str
    """What had come of a reply that broke off."""
    messages: tuple[Message, ...] = field(repr=False)
    """The whole session, including this run."""
    new_from: int = field(repr=False)
    """The index of this run's first message."""
    ledger: Ledger = field(repr=False)
    """What the run spent, for each model and purpose."""
    steps: int
    """Replies of the model."""
    model_calls: int
    """Requests, including those that failed."""
    duration_s: float
    """Seconds at work. Waiting for a person does not count."""
    session_id: str
    run: int
    """The number of the run in its session, from 1."""
    error: Fault | None
    gated: bool
    """Whether a gate was set. Without one, every call of a registered tool was allowed."""
    recorded: bool
    """Whether the journal confirmed the end. False only when the journal failed or hung."""
    questions: tuple[Question, ...] = ()
    """The calls that wait for a person, if the run is suspended."""
    is_undo: bool = False
    """The run undid another one, so it has no output."""
    undo_due: bool = False
    """The run has ended, and the next one undoes what it did (`LoopPolicy.on_failure`)."""
    still_running: tuple[str, ...] = ()
    """The ids of the calls that were abandoned while they ran, and may still take effect."""

    @property
    def usage(self) -> Usage | None:
        """The tokens of all attempts, or None if no usage is known."""
        return self.ledger.usage

    @property
    def cost(self) -> Decimal | None:
        """US dollars, or None when a price or the usage is unknown."""
        return self.ledger.usd

    @property
    def completed(self) -> bool:
        """Whether the run came to its natural end. Then it has an output, unless it was an undo."""
        return self.outcome == "completed"

    @property
    def output(self) -> OutputT:
        """The validated output, of the agent's output type.

        Raises OutputMissing, which carries this result, if the run did not complete, or was an
        undo. See `output_or_none`.
        """
        if not self.completed or self.is_undo:
            raise OutputMissing(self)
        # None is a valid output if the output type allows it, so it cannot be the test here.
        return cast("OutputT", self.output_or_none)

    def all_messages(self) -> tuple[Message, ...]:
        """Return the messages of the whole session."""
        return self.messages

    def new_messages(self) -> tuple[Message, ...]:
        """Return the messages of this run only."""
        return self.messages[self.new_from :]

    def to_json(self, *, messages: bool = False) -> str:
        """Return this result as JSON, as the last line of `stream-json`; it never raises.

        `output` is null without an output. `messages` includes the messages of the whole session.
        """
        form = ResultForm.of_result(self, messages=messages)
        try:
            return encode_json(form).decode()
        except (TypeError, ValueError, msgspec.MsgspecError):  # An output that JSON cannot hold.
            return encode_json(replace(form, output=repr(form.output))).decode()

    @overload
    @classmethod
    def from_json(cls, text: str | bytes) -> "RunResult[Any]": ...
    @overload
    @classmethod
    def from_json(cls, text: str | bytes, output_type: type[ValueT]) -> "RunResult[ValueT]": ...
    @classmethod
    def from_json(cls, text: str | bytes, output_type: object = None) -> "RunResult[Any]":
        """Return the result that `to_json` wrote, with what it left out as empty.

        The output is plain data, unless `output_type` is given. Raises ValueError if the text is
        not a result, or its output does not fit.
        """
        form = decode_json(text, ResultForm, "a result")
        output = form.output
        if output_type is not None and output is not None:
            output = convert_output(output, output_type)
        return RunResult(**form.list_fields(), output_or_none=output)

    @override
    def display_card(self) -> DisplayCard:
        """Return the notebook representation of this result: how it ended, said and cost."""
        usage = self.usage
        rows = [
            ("steps", str(self.steps)),
            ("requests", str(self.model_calls)),
            ("tokens", "" if usage is None else f"{usage.input} in, {usage.output} out"),
            ("cost", "" if self.cost is None else f"${self.cost}"),
            ("at work", f"{self.duration_s:.1f} s"),
            ("session", self.session_id),
        ]
        output = self.output_or_none
        has_value = output is not None and not isinstance(output, str)
        return DisplayCard(
            self.outcome,
            self.reason,
            repr(output) if has_value else self.text or self.partial_text,
            tuple((name, value) for name, value in rows if value),
            _TONES.get(self.outcome, "bad"),
            tuple(question.display_card() for question in self.questions),
        )


class ResultForm(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="result"):
    """A result as JSON. The fields that are no field of `RunResult` follow from the others."""

    session: str
    run: int
    outcome: Outcome
    reason: str = ""
    output: Any = None
    text: str = ""
    partial_text: str = ""
    steps: int = 0
    model_calls: int = 0
    usage: Usage | None = None
    cost_usd: Decimal | None = None
    charges: tuple[Charge, ...] = ()
    """What each model was paid, and for what."""
    duration_s: float = 0.0
    error: Fault | None = None
    questions: tuple[Question, ...] = ()
    gated: bool = False
    recorded: bool = True
    is_undo: bool = False
    undo_due: bool = False
    still_running: tuple[str, ...] = ()
    messages: tuple[Message, ...] | msgspec.UnsetType = msgspec.UNSET
    new_from: int | msgspec.UnsetType = msgspec.UNSET

    @classmethod
    def of_result(cls, result: RunResult[Any], *, messages: bool) -> "ResultForm":
        """Return the form of a result."""
        same = {name: getattr(result, name) for name in _SAME_NAMES}
        return cls(
            **same,
            session=result.session_id,
            output=result.output_or_none,
            usage=result.usage,
            cost_usd=result.cost,
            charges=result.ledger.charges,
            messages=result.messages if messages else msgspec.UNSET,
            new_from=result.new_from if messages else msgspec.UNSET,
        )

    def list_fields(self) -> dict[str, Any]:
        """Return the fields of the result, without its output."""
        same = {name: getattr(self, name) for name in _SAME_NAMES}
        messages = () if self.messages is msgspec.UNSET else self.messages
        new_from = 0 if self.new_from is msgspec.UNSET else self.new_from
        ledger = Ledger(self.charges)
        return {
            **same,
            "session_id": self.session,
            "ledger": ledger,
            "messages": messages,
            "new_from": new_from,
        }


_SAME_NAMES = (
    *("run", "outcome", "reason", "text", "partial_text", "steps", "model_calls", "duration_s"),
    *("error", "questions", "gated", "recorded", "is_undo", "undo_due", "still_running"),
)
"""The fields of a result that its JSON has under the same names."""
_TONES: dict[Outcome, Tone] = {
    "completed": "good",
    "suspended": "asking",
    "paused": "asking",
    "released": "asking",
}


def build_result(state: State, *, recorded: bool) -> RunResult[Any]:
    """Return the result of the session's last run, without its output, which the agent decodes.

    Raises ValueError if the session has no run.
    """
    run = state.run
    setup = state.setup
    if run is None:
        raise ValueError("no run has started")
    # A run that is paused or waits may hold text that its gate has not allowed.
    withhold = setup is not None and setup.withhold_replies
    is_unjudged = withhold and run.reply is not None and not run.passed
    return RunResult(
        outcome=run.outcome or _outcome_so_far(state),
        reason=run.reason or (run.pause.reason if run.pause else ""),
        output_or_none=None,
        text="" if is_unjudged else run.text,
        partial_text="" if withhold else run.partial,
        messages=tuple(state.transcript),
        new_from=run.new_from,
        ledger=run.ledger,
        steps=run.steps,
        model_calls=run.model_calls,
        duration_s=run.elapsed_s,
        session_id=state.session,
        run=run.number,
        error=run.fault,
        gated=setup is not None and bool(setup.gate),
        recorded=recorded,
        questions=open_questions(state),
        is_undo=run.is_undo,
        undo_due=run.undo_due,
        still_running=run.still_running,
    )


def _outcome_so_far(state: State) -> Outcome:
    """Return why a run that has not ended stops."""
    if state.is_paused:
        return "paused"
    is_left = state.run is not None and state.run.is_released
    return "released" if is_left or state.is_queued else "suspended"


def open_questions(state: State) -> tuple[Question, ...]:
    """Return the questions that wait for a person: of the run itself, then of its sub-agents."""
    own = [
        Question(
            state.session,
            call.call.id,
            call.call.name,
            call.decoded_arguments,
            call.question.question,
            digest(call.decoded_arguments),
            call.question.rule,
            call.question.expires_at,
            approvals=call.question.approvals,
            agreed=tuple(given.by for given in list_agreed(call.answers)),
        )
        for call in state.step_calls
        if call.question is not None
    ]
    nested = [
        question.read()
        for call in state.step_calls
        if call.waits_for is not None
        for question in call.waits_for.questions
    ]
    return (*own, *nested)


class OutputMissing(ForOperator):
    """A run that did not complete has no output. `result` says how it ended, and what it did."""

    def __init__(self, result: RunResult[Any]) -> None:
        super().__init__(f"Run {result.run} has no output: {_describe_end(result)}")
        self.result = result


def _describe_end(result: RunResult[Any]) -> str:
    if result.is_undo:
        return "it undid another one."
    if result.questions:
        return f"it is {result.outcome}, and waits for an answer: see `result.questions`."
    reason = f": {result.reason}" if result.reason else ""
    is_open = result.outcome in {"suspended", "paused", "released"}
    return f"it {'is' if is_open else 'ended as'} {result.outcome}{reason}."


class RunFailed(WindlassError):
    """A run ended as `failed`. `result` holds all that it did and paid for."""

    def __init__(self, fault: Fault, result: RunResult[Any]) -> None:
        super().__init__(fault.message)
        self.fault = fault
        self.result = result


class FailedByModel(RunFailed):
    """The provider's errors outlasted the attempts."""


class FailedByOutput(RunFailed):
    """The model's replies never fitted the output type."""


class FailedByTools(RunFailed):
    """The tools' infrastructure kept failing."""


class FailedByJournal(RunFailed):
    """The journal stopped accepting records, or no file can be opened. The run can be resumed."""


class FailedByBug(RunFailed):
    """An exception that nothing in the runtime expected."""


_FAILURE_BY_KIND: dict[str, type[RunFailed]] = {
    "output_misfit": FailedByOutput,
    "tools": FailedByTools,
    "journal": FailedByJournal,
    "bug": FailedByBug,
}


def raise_if_failed(result: RunResult[OutputT]) -> RunResult[OutputT]:
    """Return a result, unless the run failed: then raise RunFailed, which carries it."""
    if result.outcome == "failed":
        fault = result.error or Fault("bug", result.reason)
        raise _FAILURE_BY_KIND.get(fault.kind, FailedByModel)(fault, result)
    return result
