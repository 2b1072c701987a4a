"""The sessions that work for the calls of a run, as the journal has them.

Those of sub-agents, of code that calls tools, and of models that write for a call: how they are
found, what they cost, how far they came, what can be undone, and how they end with their caller.

Invariant: a name proves nothing. A session that was not begun for this very call and task is passed
over: a caller may have chosen that name, or it is left from a session that was deleted. A run that
ends takes along the sessions that work for it, also those that other processes drive.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec
from msgspec.structs import replace

from windlass.agent.options import build_mask
from windlass.core.decide.undoing import UndoPlan, add_undo, list_outcomes, list_undo_plans
from windlass.core.errors import ConfigError, ForOperator, NothingToDo, SessionBusy
from windlass.core.events import (
    RULES_VERSION,
    CallFinished,
    Fact,
    MailRefused,
    RunContinued,
    RunEnded,
    RunResumed,
    RunStarted,
    SessionProgress,
    StepProposed,
)
from windlass.core.fold.run import fold
from windlass.core.limits import Amount, Limits
from windlass.core.mail import CancelMail, Letter
from windlass.core.messages import Charge, TextPart, ToolSpec
from windlass.core.result import RunResult, build_result
from windlass.core.secrets.mask import Mask
from windlass.core.state import CallState, State
from windlass.logs import get_logger
from windlass.ports import Clock, Journal
from windlass.runtime.leases import find_root, hold_session, release_after
from windlass.runtime.mailbox import read_next_run, refuse_letter
from windlass.runtime.recorder import RealClock, Recorder
from windlass.runtime.shared_limits import settle_budgets

SESSION_NAMES_MAX = 100
CALLER_ENDED = "the run that it works for has ended"
TASK_RUN = 1
"""The run of a sub-agent's session that did the task of its call."""
_PROGRESS = (StepProposed, CallFinished, RunStarted, RunContinued, RunEnded)
_log = get_logger(__name__)

ChildFacts = tuple[str, Sequence[Fact]]
"""The name of a session that works for a call, and its facts."""


async def find_own_session(journal: Journal, call: str, task: str) -> State:
    """Return the state of the session that was begun for a call and its task, or of a new one.

    `call` is the caller's session and the id of the call. Raises ConfigError if there are too many
    other sessions of that name.
    """
    return fold(*await read_own_session(journal, call, task))


async def read_own_session(journal: Journal, call: str, task: str) -> ChildFacts:
    """Return the name and the facts of the session that `find_own_session` finds."""
    for name in _own_names(call):
        facts = await journal.read(name)
        if not facts or (_has_parent(facts, call) and _has_prompt(facts, task)):
            return name, facts
    raise ConfigError(f"there are already {SESSION_NAMES_MAX} other sessions named after {call}")


async def find_sessions_below(journal: Journal, call: str) -> Sequence[ChildFacts]:
    """Return the sessions of sub-agents and of code that worked for a call, with their facts."""
    return await _read_children(journal, call, _own_names(call))


async def find_model_sessions(journal: Journal, call: str) -> list[State]:
    """Return the sessions in which a model wrote something for a running call, in their order."""
    return [fold(*child) for child in await _read_children(journal, call, _model_names(call))]


async def _read_children(journal: Journal, call: str, names: Iterable[str]) -> list[ChildFacts]:
    """Return the sessions of these names that were begun for a call, up to a name that is free."""
    found: list[ChildFacts] = []
    for name in names:
        facts = await journal.read(name)
        if not facts:
            break
        if _has_parent(facts, call):
            found.append((name, facts))
    return found


def _has_parent(facts: Sequence[Fact], call: str) -> bool:
    return isinstance(facts[0], RunStarted) and facts[0].parent == call


def _has_prompt(facts: Sequence[Fact], task: str) -> bool:
    return isinstance(facts[0], RunStarted) and facts[0].prompt == (TextPart(task),)


def _own_names(call: str) -> Iterator[str]:
    yield call
    yield from (f"{call}.{nth}" for nth in range(2, SESSION_NAMES_MAX + 1))


def _model_names(call: str) -> Iterator[str]:
    return (model_session_name(call, nth) for nth in range(1, SESSION_NAMES_MAX + 1))


def model_session_name(call: str, nth: int) -> str:
    return f"{call}.model{nth}"


def _open_calls(state: State) -> list[CallState]:
    """Return the calls of a run that have begun and are not over: sessions may work for them."""
    return [call for call in state.step_calls if call.began and call.phase != "closed"]


async def read_progress_below(journal: Journal, state: State) -> tuple[SessionProgress, ...]:
    """Return how far the sessions have come that work for open calls of a run, at any depth."""
    found: list[SessionProgress] = []
    for call in _open_calls(state):
        name = state.child_session_name(call.id)
        children = await _read_children(journal, name, _own_names(name))
        children += await _read_children(journal, name, _model_names(name))
        for session, facts in children:
            progress = (fact.seq for fact in reversed(facts) if isinstance(fact, _PROGRESS))
            found.append(SessionProgress(session, next(progress, 0)))
            found += await read_progress_below(journal, fold(session, facts))
    return tuple(found)


async def plan_nested_undo(
    journal: Journal, state: State, tools: Sequence[ToolSpec]
) -> Mapping[str, UndoPlan]:
    """Return what sub-agents did for the calls of a session and is not undone, by call.

    The session of a sub-agent has what it did, and its setup on record which tools can undo it.
    """
    undoable = {spec.name for spec in tools if spec.undo}
    plans: dict[str, UndoPlan] = {}
    for item in list_outcomes(state):
        if item.call.name not in undoable:
            continue
        task = msgspec.json.decode(item.call.arguments, type=dict[str, Any]).get("task")
        if not isinstance(task, str):
            continue
        name, facts = await read_own_session(journal, f"{state.session}/{item.call.id}", task)
        if not facts:
            continue
        child = fold(name, facts)
        # The tools that the session began with: the setup of a run that undoes has others.
        first = facts[0]
        setup = first.setup if isinstance(first, RunStarted) else None
        own_tools = setup.tools if setup is not None else ()
        nested = await plan_nested_undo(journal, child, own_tools)
        every_run = list_undo_plans(child, facts, own_tools, nested)
        plans[item.call.id] = next(plan for plan in every_run if plan.run == TASK_RUN)
    return plans


def as_subagent_charges(charges: Sequence[Charge]) -> tuple[Charge, ...]:
    """Return the charges of a sub-agent as those of its caller."""
    return tuple(replace(charge, purpose="subagent") for charge in charges)


def limit_spending(limits: Limits, remaining: Amount) -> Limits:
    """Return the agent's own limits, lowered to what its caller has left.

    Raises ConfigError if nothing is left.
    """
    for left in (remaining.usd, remaining.tokens):
        if left is not None and left <= 0:
            raise ConfigError("nothing is left to spend")
    usd = [one for one in (limits.usd, remaining.usd) if one is not None]
    tokens = [one for one in (limits.tokens, remaining.tokens) if one is not None]
    return replace(limits, usd=min(usd, default=None), tokens=min(tokens, default=None))


class UndrivenRuns(msgspec.Struct, frozen=True):
    """Ends runs without a driver, with the sessions that work for them."""

    journal: Journal
    clock: Clock
    mask: Mask

    @classmethod
    def in_journal(cls, journal: Journal) -> "UndrivenRuns":
        """Return those of a journal, without an agent: nothing is known of its secrets."""
        return cls(journal, RealClock(), build_mask(None))

    async def abandon(self, session: str, reason: str) -> RunResult[Any]:
        """End the open run of a session, and return what it did.

        Raises NothingToDo if no run is open, and SessionBusy if it has a driver.
        """
        with await hold_session(self.journal, session):
            state = await self._read_state(session)
            if not state.is_active:
                raise NothingToDo(f"session {session} has no open run")
            end = RunEnded("cancelled", reason)
            end = await self.end_run(state, end, f"the run was ended: {reason}")
            # The next run may have been queued with the end.
            facts = await self.journal.read(session)
            return build_result(fold(session, facts[: end.seq]), recorded=True)

    async def end_run(self, state: State, end: RunEnded, refusal: str) -> RunEnded:
        """End the open run of a session whose lease the caller holds. Returns its end.

        Messages that wait for the run are refused by facts, so that no driver has to come for them;
        the one that the end carries is taken by it.
        """
        session = state.session
        is_queued = state.run is not None and state.is_queued
        if state.run is not None and is_queued:
            end = replace(end, prompt=state.run.queued_mail)
        else:
            charges = await self.end_children(state, end)
            end = replace(end, charges=tuple(chain.from_iterable(charges.values())))
            end = add_undo(end, state.setup)
        letters = await self.journal.read_mail(session, "control", state.mail_taken)
        before = [letter for letter in letters if not end.mail or letter.number < end.mail]
        behind = [letter for letter in letters if end.mail and letter.number > end.mail]

        def refuse(letters: Sequence[Letter]) -> list[MailRefused]:
            return [refuse_letter(letter, refusal) for letter in letters]

        recorder = Recorder(self.journal, self.clock, state, self.mask)
        await recorder.record(
            *(() if is_queued else (RunResumed(rules=RULES_VERSION),)),
            *refuse(before),
            end,
            *refuse(behind),
            *(() if end.undo else await read_next_run(self.journal, state)),
        )
        await settle_budgets(self.journal, recorder.ended_state or recorder.state)
        if letters:
            await self.journal.remove_mail(session, "control", letters[-1].number)
        if end.prompt:
            await self.journal.remove_mail(session, "prompts", end.prompt)
        written = await self.journal.read(session, state.seq)
        return next((fact for fact in written if isinstance(fact, RunEnded)), end)

    async def end_children(
        self, state: State, end: RunEnded, closed_calls: Collection[str] = ()
    ) -> Mapping[str, Sequence[Charge]]:
        """End the runs that work for open calls of a run that is about to end.

        Returns what they cost, by call: it is on no record of their caller. One that has a driver
        is cancelled by a message. Calls in `closed_calls` are over, or end by themselves.
        """
        charges: dict[str, Sequence[Charge]] = {}
        is_undo = state.run is not None and state.run.is_undo
        for call in _open_calls(state):
            if call.id in closed_calls:
                continue
            name = state.child_session_name(call.id)
            arguments = msgspec.json.decode(call.began_with or "{}", type=dict[str, Any])
            task = arguments.get("task")
            given = arguments.get("code") if task is None else task
            children: list[State] = []
            if isinstance(given, str):
                child = await find_own_session(self.journal, name, given)
                children += [child] if child.seq else []
            # Code pays for nothing: what an attempt of it had reserved was never at stake. What is
            # undone was paid for when it was done.
            is_free = is_undo or (task is None and bool(children))
            for child in children or await find_model_sessions(self.journal, name):
                ended = await self.end_child(child, by=end.by)
                if ended.run is not None and not is_free:
                    paid = as_subagent_charges(ended.run.ledger.charges)
                    charges[call.id] = (*charges.get(call.id, ()), *paid)
        return charges

    async def end_child(self, child: State, by: str = "") -> State:
        """End the run of a session that works for a call, if it is open. Returns its state."""
        if not child.is_active:
            return child
        end = RunEnded("cancelled", CALLER_ENDED, by=by)
        session = child.session
        has_posted = False
        while True:
            try:
                # As a driver of the tree, which may fence off what is left of an earlier one.
                with release_after(await self.journal.lease(session)):
                    state = await self._read_state(session)
                    if state.is_active:
                        await self.end_run(state, end, "the run was cancelled with its caller")
                    return await self._read_state(session)
            except SessionBusy:
                if has_posted or not await self._post_cancel(child, end.by):
                    return child
                # Its driver may release it before it reads this, so look again.
                has_posted = True

    async def settle_orphan(self, session: str) -> bool:
        """End the run of a sub-agent whose caller has no open call for it, and refuse its mail.

        Its driver may have died before it took the message to end, and no run will come for it.
        Returns False if its caller has an open call for it. Raises SessionBusy if it has a driver.
        """
        with await hold_session(self.journal, session):
            state = await self._read_state(session)
            root = await find_root(self.journal, state)
            if root.session != session:
                return False
            if state.is_active:
                await self.end_run(state, RunEnded("cancelled", CALLER_ENDED), CALLER_ENDED)
            await self._refuse_mail(await self._read_state(session))
            return True

    async def _refuse_mail(self, state: State) -> None:
        """Refuse every message in the mailbox of a session whose lease the caller holds."""
        session = state.session
        control = await self.journal.read_mail(session, "control", state.mail_taken)
        prompts = await self.journal.read_mail(session, "prompts", state.prompts_taken)
        if control or prompts:
            recorder = Recorder(self.journal, self.clock, state, self.mask)
            refusals = [refuse_letter(letter, CALLER_ENDED) for letter in (*control, *prompts)]
            await recorder.record(*refusals)
            state = recorder.state
        await self.journal.remove_mail(session, "control", state.mail_taken)
        await self.journal.remove_mail(session, "prompts", state.prompts_taken)

    async def _post_cancel(self, child: State, by: str) -> bool:
        """Ask the driver of a sub-agent to end its run. Returns whether that was possible."""
        if child.run is None:
            return False
        message = CancelMail(run=child.run.number, reason=CALLER_ENDED)
        try:
            await self.journal.post_mail(child.session, message, by=by)
        except ForOperator as error:
            _log.warning("session %s could not be told to end: %s", child.session, error)
            return False
        return True

    async def _read_state(self, session: str) -> State:
        return fold(session, await self.journal.read(session))
