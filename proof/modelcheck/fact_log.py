"""The facts of the modelled session, folded by the real fold and continued by the real decision.

Two lists of facts that the protocol cannot tell apart are one node: nodes are told apart by
everything that the model looks at.
"""

import asyncio
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property

from msgspec.structs import replace

from proof.modelcheck.letters import BUDGET
from proof.modelcheck.world import CallPlace
from windlass.core.decide.next_move import decide
from windlass.core.events import (
    RULES_VERSION,
    AttemptStarted,
    CallAnswered,
    CallFinished,
    CallJudged,
    CallStarted,
    Fact,
    RunQueued,
    RunStarted,
    SessionImported,
    StepProposed,
)
from windlass.core.fold.run import apply_fact, fold
from windlass.core.limits import Budget, Limits, Reservation
from windlass.core.messages import AssistantMessage, TextPart, ToolCall, ToolResult, ToolSpec
from windlass.core.moves import Move
from windlass.core.setup import ModelInfo, Setup, digest
from windlass.core.state import State
from windlass.core.verdicts import Allow
from windlass.journals.forking import fork
from windlass.journals.memory import MemoryJournal
from windlass.testing.journals import append_facts

SESSION = "s"
TOOL = ToolSpec("send", "Sends a message.", {"type": "object"}, effect="write")
SETUP = Setup(model=ModelInfo("m"), tools=(TOOL,), limits=Limits(steps=9, usd=None))
REPEATABLE = replace(SETUP, tools=(replace(TOOL, effect="idempotent"),))
PROMPT = (TextPart("Go."),)
_CALL = "c1"
CALL_START = CallStarted(_CALL, "key")
FORGED_ANSWER = CallAnswered(_CALL, Allow(), digest({}), by="owner")
CALL_RESULTS: dict[CallPlace, Fact] = {
    "done": CallFinished(_CALL, ToolResult.from_text("value", "sent")),
    "was_done": CallFinished(_CALL, ToolResult.from_text("value", "sent")),
    "not_started": CallFinished(_CALL, ToolResult.from_text("cancelled", "not started")),
    "was_not_done": CallJudged(_CALL, Allow("it had not happened")),
}
"""What is written down about a call, with the next facts."""
_RESERVED = Reservation(1, 1, Decimal(0))


@dataclass(eq=False)
class LogNode:
    """A session up to a fact."""

    number: int
    facts: tuple[Fact, ...]
    state: State

    @cached_property
    def move(self) -> Move:
        """What a driver does next, by the real decision."""
        return decide(self.state)

    @property
    def seq(self) -> int:
        return self.state.seq


class FactLog:
    """All sessions that the explorer has seen, as nodes."""

    def __init__(
        self,
        *,
        has_call: bool,
        is_repeatable: bool = False,
        is_queued: bool = False,
        has_budget: bool = False,
    ) -> None:
        self._has_call = has_call
        self._nodes: list[LogNode] = []
        self._by_key: dict[Hashable, int] = {}
        self._appended: dict[Hashable, int] = {}
        self._setup = REPEATABLE if is_repeatable else SETUP
        if has_budget:
            self._setup = replace(self._setup, budgets=(Budget(BUDGET, tokens=10**6),))
        start = RunQueued(1, 1, seq=1) if is_queued else self.start_fact(State(SESSION), 0)
        self.first = self._find_node(State(SESSION), (), (start,))

    def __getitem__(self, number: int) -> LogNode:
        return self._nodes[number]

    def append(self, number: int, name: Hashable, facts: Sequence[Fact]) -> int:
        """Return the node after some more facts. `name` tells the batches of a node apart.

        Raises IllegalFact as the recorder does.
        """
        key = (number, name)
        after = self._appended.get(key)
        if after is None:
            node = self._nodes[number]
            after = self._appended[key] = self._find_node(node.state, node.facts, facts)
        return after

    def _find_node(self, state: State, facts: tuple[Fact, ...], more: Sequence[Fact]) -> int:
        stamped: list[Fact] = []
        for fact in more:
            stamped.append(replace(fact, seq=state.seq + 1, at=0.0))
            state = apply_fact(state, stamped[-1])
        key = _key_of(state)
        number = self._by_key.setdefault(key, len(self._nodes))
        if number == len(self._nodes):
            self._nodes.append(LogNode(number, (*facts, *stamped), state))
        return number

    def start_fact(self, state: State, mail: int) -> RunStarted:
        """Return the fact that begins the next run, or the one that waits in the queue."""
        number = state.run.number + (not state.is_queued) if state.run else 1
        setup = self._setup if state.setup is None else None
        return RunStarted(number, PROMPT, setup, rules=RULES_VERSION, mail=mail)

    def reply_facts(self, state: State) -> Sequence[Fact]:
        """Return the request and reply that come next: in the first run a call, then an answer."""
        run = state.run
        assert run is not None
        if self._has_call and run.number == 1 and not run.steps:
            call = ToolCall(_CALL, TOOL.name, "{}")
            proposal = StepProposed(AssistantMessage((call,)), "calls")
        else:
            proposal = StepProposed(AssistantMessage((TextPart("Done."),)), "end")
        return (AttemptStarted(state.steps + 1, 1, "m", _RESERVED), proposal)

    def rewind(self, number: int, at: int) -> int:
        """Return a session without its records after one of them."""
        return self._find_node(State(SESSION), (), self._nodes[number].facts[:at])

    def fork(self, number: int, at: int, *, is_import: bool) -> int:
        """Return a fork of a session at a record, made by the real code."""
        key = ("fork", number, at, is_import)
        forked = self._appended.get(key)
        if forked is None:
            facts = asyncio.run(_fork_facts(self._nodes[number].facts, at))
            if is_import:
                state = fold(SESSION, facts)
                mark = SessionImported("elsewhere", state.unfinished_calls, seq=state.seq + 1)
                facts = (*facts, mark)
            forked = self._appended[key] = self._find_node(State(SESSION), (), facts)
        return forked


async def _fork_facts(facts: Sequence[Fact], at: int) -> Sequence[Fact]:
    journal = MemoryJournal()
    await append_facts(journal, SESSION, facts)
    return await journal.read(await fork(journal, SESSION, at))


def _key_of(state: State) -> Hashable:
    run = state.run
    assert run is not None
    return (
        state.seq,
        state.mail_taken,
        state.prompts_taken,
        state.steps,
        run.number,
        run.opening_seq,
        run.outcome,
        run.steps,
        run.pause is not None,
        run.queued_mail,
        run.is_released,
        run.budget_wait is not None,
        tuple(allotment.dry for allotment in run.allotments),
        len(run.pending),
        run.reply is not None,
        run.attempt is not None,
        tuple(
            (call.phase, call.imported, call.answered, call.doubted, len(call.died_with))
            for call in state.step_calls
        ),
    )
