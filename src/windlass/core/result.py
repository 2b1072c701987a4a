"""What a run gives back, whichever way it ended, and how it is read off the state."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar, Generic, cast

import msgspec
from typing_extensions import TypeVar, override

from windlass.core.control_facts import NestedQuestion
from windlass.core.errors import Fault, ForOperator, WindlassError
from windlass.core.events import Outcome
from windlass.core.messages import DisplayCard, Ledger, Message, RichDisplay, Tone, ToolCall, Usage
from windlass.core.setup import digest
from windlass.core.state import State
from windlass.core.suggestions import ForeignNames
from windlass.core.verdicts import Approval, list_agreed

OutputT = TypeVar("OutputT", default=str)
"""What a run gives back: text, unless the agent has an output type."""


@dataclass(frozen=True, slots=True)
class Question(RichDisplay):
    """A call that waits for a person's answer."""

    call: ToolCall
    arguments: dict[str, object]
    """What would run if the answer is yes."""
    question: str
    digest: str
    """Of the arguments. An answer is bound to it."""
    expires_at: float | None = None
    """Seconds since the epoch after which only a denial is accepted; None: never."""
    session: str = ""
    """The session of the sub-agent that asks; empty if the run itself does."""
    agents: tuple[str, ...] = ()
    """Who works for whom, the outermost first, if a sub-agent asks: it is the last one."""
    rule: str = ""
    """The rule that asks."""
    form: Mapping[str, Any] | None = None
    """A JSON Schema, if values are asked for instead of a yes: `Modify(values, …)` gives them, and
    `Allow` gives those in `arguments`."""
    is_live: bool = False
    """A call that runs asks for it. It cannot wait for long, so no answer counts as a no."""
    approvals: tuple[Approval, ...] = ()
    """Who has to agree, on the page of a service; empty: anyone who may answer."""
    agreed: tuple[str, ...] = ()
    """The people who agreed so far, if others have to agree too."""

    @override
    def display_card(self) -> DisplayCard:
        """Return what is shown of this question in a notebook: the whole call."""
        rows = tuple((name, str(value)) for name, value in self.arguments.items())
        return DisplayCard(f"May {self.call.name} run?", self.rule, self.question, rows, "asking")


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

    @override
    def display_card(self) -> DisplayCard:
        """Return what is shown of this result in a notebook: how it ended, said and cost."""
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
    """Return why a run that has not ended goes no further."""
    if state.is_paused:
        return "paused"
    is_left = state.run is not None and state.run.is_released
    return "released" if is_left or state.is_queued else "suspended"


def open_questions(state: State) -> tuple[Question, ...]:
    """Return the questions that wait for a person: of the run itself, then of its sub-agents."""
    own = [
        Question(
            call.call,
            call.decoded_arguments,
            call.question.question,
            digest(call.decoded_arguments),
            call.question.expires_at,
            rule=call.question.rule,
            approvals=call.question.approvals,
            agreed=tuple(given.by for given in list_agreed(call.answers)),
        )
        for call in state.step_calls
        if call.question is not None
    ]
    nested = [
        _read_nested(question)
        for call in state.step_calls
        if call.waits_for is not None
        for question in call.waits_for.questions
    ]
    return (*own, *nested)


def _read_nested(nested: NestedQuestion) -> Question:
    return Question(
        ToolCall(nested.call_id, nested.tool, nested.arguments),
        msgspec.json.decode(nested.arguments, type=dict[str, object]),
        nested.question,
        nested.digest,
        nested.expires_at,
        nested.session,
        nested.agents,
        nested.rule,
        approvals=nested.approvals,
        agreed=nested.agreed,
    )


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
