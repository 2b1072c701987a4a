"""Which calls of an earlier run can be undone, and the note that the model gets about it.

Invariant: a call is undone at most once, the last one first, and only if this session made it. If
it is not known whether it was undone, only what may happen twice is tried again. A call that failed
by its own account, or that never started, has no effect that could be undone. What a sub-agent did
is undone as a whole, in its own session, when the turn of its call comes, however its run ended.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from windlass.core.context_facts import UndoneCall, UndoPlanned
from windlass.core.errors import NothingToDo
from windlass.core.events import (
    CallFinished,
    CallStarted,
    Fact,
    RunEnded,
    RunStarted,
    SessionImported,
)
from windlass.core.messages import (
    CallOutcome,
    ResultKind,
    TextPart,
    ToolCall,
    ToolResults,
    ToolSpec,
    UserMessage,
)
from windlass.core.setup import Setup
from windlass.core.state import State
from windlass.core.tool_search import unwrap_call

UNDONE_KINDS: tuple[ResultKind, ...] = ("value", "timed_out", "cancelled", "unknown", "denied")
"""The results of calls that started and had their effect, or may have had it. A call is denied
after its start if a crash interrupted it and a person does not want it to run again."""


def undo_tool_name(name: str) -> str:
    """Return the name by which the gate knows the tool that undoes calls of another."""
    return f"undo_{name}"


def add_undo(end: RunEnded, setup: Setup | None) -> RunEnded:
    """Return the end of a run, which says whether the next run undoes what this one did."""
    is_wanted = setup is not None and setup.rules.on_failure == "undo"
    if is_wanted and end.outcome != "completed":
        return replace(end, undo=True)
    return end


class UndoPlan(msgspec.Struct, frozen=True):
    """What has to be undone."""

    run: int
    """The run whose calls are undone."""
    calls: tuple[UndoneCall, ...]
    """The last one first; `make_fact` names the calls that undo them."""
    outcomes: Mapping[str, CallOutcome]
    left: tuple[str, ...] = ()
    """The tools of the run that may have changed something and cannot undo it."""

    def describe(self) -> str:
        """Return what is undone, as the prompt of the run that does it."""
        text = f"Undo what run {self.run} did."
        if self.left:
            text += f" What {', '.join(self.left)} did cannot be undone."
        return text

    def make_fact(self, run: int) -> UndoPlanned:
        """Return the fact for the run of this number, which undoes these calls."""
        calls: list[ToolCall] = []
        undone: list[UndoneCall] = []
        for at, one in enumerate(self.calls):
            call = self.outcomes[one.call_id].call
            by = f"u{run}_{at}"
            calls.append(ToolCall(by, undo_tool_name(call.name), call.arguments))
            undone.append(replace(one, by=by))
        return UndoPlanned(tuple(calls), tuple(undone), self.run)


def plan_undo(
    state: State,
    facts: Sequence[Fact],
    tools: Sequence[ToolSpec],
    run: int | None = None,
    nested: Mapping[str, UndoPlan] = MappingProxyType({}),
) -> UndoPlan:
    """Return what of a run can be undone by the agent with these tools.

    Without a number, this is the last run that has something to undo, or the one that must be
    undone before the session can continue. Raises NothingToDo if there is none, or no such run.
    """
    if state.run is not None and state.run.undo_due:
        run = state.run.number
    plans = [plan for plan in list_undo_plans(state, facts, tools, nested) if plan.calls]
    if run is not None:
        plans = [plan for plan in plans if plan.run == run]
    if not plans:
        if state.run is not None and state.run.undo_due:
            return UndoPlan(state.run.number, (), {})
        which = "no run" if run is None else f"no run {run}"
        raise NothingToDo(f"session {state.session} has {which} with calls that can be undone")
    return plans[-1]


def list_undo_plans(
    state: State,
    facts: Sequence[Fact],
    tools: Sequence[ToolSpec],
    nested: Mapping[str, UndoPlan],
) -> list[UndoPlan]:
    """Return what is still to be undone of each run; of some, this is nothing.

    `nested` has what sub-agents did, by the call that they worked for.
    """
    outcomes = {item.call.id: item for item in list_outcomes(state)}
    undone = set(_undone_before(facts, outcomes, tools))
    return [
        _plan_run(run, _find_snapshots(state.session, part), outcomes, tools, undone, nested)
        for run, part in _split_runs(facts)
    ]


def list_outcomes(state: State) -> Iterator[CallOutcome]:
    """Yield each call of a session that is closed, with its result."""
    for message in state.transcript:
        if isinstance(message, ToolResults):
            yield from (replace(item, call=unwrap_call(item.call)) for item in message.items)


def _split_runs(facts: Sequence[Fact]) -> Iterator[tuple[int, list[Fact]]]:
    """Yield the number and the facts of each run. What was imported belongs to another session."""
    part: list[Fact] = []
    number = 0
    for fact in facts:
        if isinstance(fact, RunStarted):
            if number:
                yield number, part
            number = fact.run
            part = []
        elif isinstance(fact, SessionImported):
            part = []
        part.append(fact)
    if number:
        yield number, part


def _undone_before(
    facts: Sequence[Fact], outcomes: Mapping[str, CallOutcome], tools: Sequence[ToolSpec]
) -> Iterator[str]:
    """Yield the calls that were undone already, or may have been by what must not happen twice."""
    began = {fact.call_id for fact in facts if isinstance(fact, CallStarted)}
    kinds = {fact.call_id: fact.result.kind for fact in facts if isinstance(fact, CallFinished)}
    repeatable = {spec.name for spec in tools if spec.undo != "write"}
    plans = (fact for fact in facts if isinstance(fact, UndoPlanned))
    for undone in chain.from_iterable(plan.undone for plan in plans):
        kind = kinds.get(undone.by, "unknown")
        may_be_undone = undone.by in began and kind in UNDONE_KINDS
        name = outcomes[undone.call_id].call.name
        if kind == "value" or (may_be_undone and name not in repeatable):
            yield undone.call_id


def _find_snapshots(session: str, facts: Sequence[Fact]) -> dict[str, str]:
    """Return the calls that this session started in a run, in order, with what was kept of each."""
    snapshots: dict[str, str] = {}
    for fact in facts:
        # A fork holds the calls of another session, which are not for it to undo.
        if isinstance(fact, CallStarted) and fact.key == f"{session}/{fact.call_id}":
            # The first one counts: a call that runs again finds what its first run left.
            snapshots[fact.call_id] = snapshots.get(fact.call_id) or fact.snapshot
    return snapshots


def _plan_run(
    run: int,
    snapshots: dict[str, str],
    outcomes: Mapping[str, CallOutcome],
    tools: Sequence[ToolSpec],
    undone: Collection[str],
    nested: Mapping[str, UndoPlan],
) -> UndoPlan:
    """Return what of one run can be undone, and what cannot."""
    undoable = {spec.name for spec in tools if spec.undo}
    reads = {spec.name for spec in tools if spec.effect == "read"}
    calls: list[UndoneCall] = []
    left: list[str] = []
    for call_id in reversed(snapshots):
        item = outcomes.get(call_id)
        inner = nested.get(call_id)
        if item is None or (inner is None and item.result.kind not in UNDONE_KINDS):
            continue
        name = item.call.name
        if inner is not None:
            left += [f"{one} of {name}" for one in inner.left]
        if name not in undoable | reads:
            left.append(name)
        is_wanted = name in undoable and call_id not in undone
        if is_wanted and (inner is None or inner.calls):
            text = item.result.text
            calls.append(UndoneCall(call_id, "", item.result.kind, text, snapshots[call_id]))
    return UndoPlan(run, tuple(calls), outcomes, tuple(dict.fromkeys(left)))


def build_undo_note(outcomes: Sequence[CallOutcome], undone: Sequence[UndoneCall]) -> UserMessage:
    """Return a note that says which calls have no effect any more."""
    lines = ["These calls were undone, the last one first:"]
    for item, one in zip(outcomes, undone, strict=True):
        done = "undone" if item.result.kind == "value" else f"NOT undone ({item.result.kind})"
        lines.append(f"- {one.call_id} ({item.call.name}): {done}. {item.result.text}")
    return UserMessage((TextPart("\n".join(lines)),), note=True)
