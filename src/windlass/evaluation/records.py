"""What scorers see: a trial, read off its facts.

Invariant: nothing but the facts. A session that was recorded a year ago can be scored today, and no
model is asked.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import msgspec

from windlass.agent.child_sessions import find_sessions_below
from windlass.core.events import (
    CallAnswered,
    CallFinished,
    CallJudged,
    CallStarted,
    Fact,
    Outcome,
    RunEnded,
    RunQueued,
    RunStarted,
    StepProposed,
)
from windlass.core.fold.run import fold
from windlass.core.messages import ToolCall, ToolResult
from windlass.core.result import build_result
from windlass.core.setup import Setup
from windlass.core.state import State
from windlass.core.verdicts import Allow, Ask, Modify
from windlass.evaluation.cases import Case
from windlass.ports import Journal

TrialOutcome = Outcome | Literal["working"]
"""How the run of a trial ended; `working` if it has not finished yet."""


@dataclass(frozen=True, slots=True)
class TrialCall:
    """One call that the model made in a trial."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    """Those that ran, or would have run."""
    seq: int
    """The number of the record in which the model made it."""
    asked: bool
    """A person was asked about it."""
    approved: bool
    """A person allowed it."""
    ran: bool
    """It was started, so that its effect may have happened."""
    result: ToolResult | None
    """None if the trial ended before it did."""
    session: str = ""
    """The session of the sub-agent that made it; empty if the agent itself did."""


@dataclass(frozen=True)
class TrialRecord:
    """A trial as its facts tell it, and the copy of the workspace that it worked in."""

    case: Case
    session: str
    facts: Sequence[Fact] = field(repr=False)
    kept: int = 0
    """How many records at the beginning are those of the session that was forked."""
    workspace: Path | None = None
    below: Mapping[str, Sequence[TrialCall]] = field(default_factory=dict[str, Any], repr=False)
    """The calls of the sub-agents that worked for a call, by its id."""

    @cached_property
    def state(self) -> State:
        return fold(self.session, self.facts)

    @cached_property
    def _before(self) -> State:
        """The state of the session when the trial began."""
        return fold(self.session, self.facts[: self.kept])

    @property
    def own_facts(self) -> Sequence[Fact]:
        """The facts of the trial itself, without those of the session that it was forked from."""
        return self.facts[self.kept :]

    @cached_property
    def outcome(self) -> TrialOutcome:
        """How the run ended, or why it stops."""
        run = self.state.run
        if run is None:
            return "working"
        if run.outcome is not None:
            return run.outcome
        if self.state.is_waiting:
            return "suspended"
        return "paused" if self.state.is_paused else "working"

    @property
    def reason(self) -> str:
        """Why it ended so, in words; empty if it completed."""
        return build_result(self.state, recorded=True).reason if self.state.run else ""

    @property
    def text(self) -> str:
        """The text of the last reply."""
        return self.state.run.text if self.state.run else ""

    @cached_property
    def output(self) -> Any:  # noqa: ANN401 - whatever the JSON says
        """The last reply as JSON; as text if it is not JSON."""
        try:
            return msgspec.json.decode(self.text)
        except (msgspec.DecodeError, RecursionError):
            return self.text

    @property
    def steps(self) -> int:
        """Replies of the model in the trial."""
        return _steps_of(self.state) - _steps_of(self._before)

    @property
    def seconds(self) -> float:
        """Time at work. Waiting for a person does not count."""
        return _seconds_of(self.state) - _seconds_of(self._before)

    @property
    def tokens(self) -> int:
        """Input and output together, over all attempts."""
        return _tokens_of(self.state) - _tokens_of(self._before)

    @property
    def usd(self) -> Decimal | None:
        """What the trial cost; None if a price is not known."""
        if self.state.ledger.usd is None and self.tokens:
            return None
        return self.state.ledger.known_usd - self._before.ledger.known_usd

    @property
    def setup(self) -> Setup | None:
        """What decided what the trial may do."""
        return self.state.setup

    @property
    def agent_name(self) -> str | None:
        """The name of the agent whose run the trial began; None if it began none of its own."""
        started = (fact.agent for fact in self.own_facts if isinstance(fact, RunStarted))
        return next(started, None)

    @property
    def unpriced_models(self) -> set[str]:
        """The models that were used and have no known price."""
        charges = self.state.ledger.charges
        return {charge.model for charge in charges if charge.usage and charge.usd is None}

    @property
    def ended_at(self) -> float | None:
        """When the trial ended, in seconds since the epoch; None if it has not."""
        if not has_ended(self.own_facts):
            return None
        return next(fact.at for fact in reversed(self.own_facts) if isinstance(fact, RunEnded))

    @cached_property
    def calls(self) -> tuple[TrialCall, ...]:
        """The calls of the trial, in the order in which the model made them.

        Those of a sub-agent come after the call that it works for.
        """
        own = read_calls(self.session, self.facts, self.kept)
        return tuple(each for call in own for each in (call, *self.below.get(call.id, ())))

    @property
    def was_out_of_money(self) -> bool:
        """Whether the run ended because a shared budget had no more: no fault of the agent."""
        run = self.state.run
        if run is None or run.outcome != "budget_exceeded":
            return False
        return any(given.dry for given in run.allotments)


def _steps_of(state: State) -> int:
    return state.run.steps if state.run else 0


def _seconds_of(state: State) -> float:
    return state.run.elapsed_s if state.run else 0.0


def _tokens_of(state: State) -> int:
    usage = state.ledger.usage
    return usage.total if usage else 0


def count_kept(facts: Sequence[Fact], case: Case) -> int:
    """Return how many facts at the beginning of a trial belong to the session it was forked from.

    A fork ends with the facts that settle calls which were under way, which are its own.
    """
    return min(case.fork.at, len(facts)) if case.fork is not None else 0


def read_calls(session: str, facts: Sequence[Fact], after: int = 0) -> list[TrialCall]:
    """Return the calls that were made after a record, or were still open then."""
    pending = fold(session, facts[:after]).unfinished_calls if after else ()
    return [call for call in _list_calls(facts) if call.seq > after or call.id in pending]


async def read_calls_below(
    journal: Journal, session: str, calls: Iterable[TrialCall]
) -> dict[str, Sequence[TrialCall]]:
    """Return the calls that sub-agents made for calls of a session, by the id of the latter."""
    below: dict[str, Sequence[TrialCall]] = {}
    for call in calls:
        made: list[TrialCall] = []
        for name, facts in await find_sessions_below(journal, f"{session}/{call.id}"):
            own = [replace(each, session=name) for each in _list_calls(facts)]
            deeper = await read_calls_below(journal, name, own)
            made += [found for each in own for found in (each, *deeper.get(each.id, ()))]
        if made:
            below[call.id] = made
    return below


def _list_calls(facts: Iterable[Fact]) -> list[TrialCall]:
    """Return the calls that the model made in these facts, with the result of each."""
    made: dict[str, tuple[int, ToolCall]] = {}
    arguments: dict[str, Mapping[str, Any]] = {}
    asked, approved, started = set[str](), set[str](), set[str]()
    results: dict[str, ToolResult] = {}
    for fact in facts:
        match fact:
            case StepProposed(reply=reply):
                made.update((call.id, (fact.seq, call)) for call in reply.calls)
            case CallJudged(call_id=call_id, verdict=verdict):
                if isinstance(verdict, Ask):
                    asked.add(call_id)
                changed = verdict.arguments if isinstance(verdict, Ask | Modify) else None
                if (judged := changed or fact.arguments) is not None:
                    arguments[call_id] = judged
            case CallAnswered(call_id=call_id, verdict=verdict):
                if isinstance(verdict, Modify):
                    arguments[call_id] = verdict.arguments
                if isinstance(verdict, Allow | Modify):
                    approved.add(call_id)
            case CallStarted(call_id=call_id):
                started.add(call_id)
            case CallFinished(call_id=call_id, result=result):
                results[call_id] = result
            case _:
                pass
    return [
        TrialCall(
            id=call_id,
            name=call.name,
            arguments=arguments.get(call_id) or _decode_arguments(call.arguments),
            seq=seq,
            asked=call_id in asked,
            approved=call_id in approved,
            ran=call_id in started,
            result=results.get(call_id),
        )
        for call_id, (seq, call) in made.items()
    ]


def _decode_arguments(text: str) -> Mapping[str, Any]:
    """Return the arguments as the model wrote them; none if they are not an object."""
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return {}


def has_ended(facts: Sequence[Fact]) -> bool:
    """Whether the last run of a session has ended."""
    for fact in reversed(facts):
        if isinstance(fact, RunEnded | RunStarted | RunQueued):
            return isinstance(fact, RunEnded)
    return False
