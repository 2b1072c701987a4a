"""The sessions that work for a run: finding them, what they cost, and ending them with it.

The law: a name proves nothing. A session that was not begun for this very call and task is passed
over, because it may have been made by someone who chose that name, or be left from a session that
was deleted. A run that ends takes those along that work for it, whoever drives them.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, overload

import msgspec
from msgspec.structs import replace
from typing_extensions import override

from windlass.agent.options import build_mask
from windlass.core.decide.undoing import add_undo
from windlass.core.errors import ConfigError, ForOperator, NothingToDo, SessionBusy
from windlass.core.events import RULES_VERSION, Fact, MailRefused, RunEnded, RunResumed, RunStarted
from windlass.core.fold.run import fold
from windlass.core.limits import Amount, Limits
from windlass.core.mail import CancelMail, Letter
from windlass.core.messages import Charge, TextPart
from windlass.core.result import RunResult, build_result
from windlass.core.secrets.mask import Mask
from windlass.core.state import State
from windlass.logs import get_logger
from windlass.ports import Clock, Journal, Mailbox
from windlass.runtime.clock import RealClock
from windlass.runtime.driver import RunDriver
from windlass.runtime.leases import hold_session
from windlass.runtime.mailbox import refuse_letter
from windlass.runtime.recorder import Recorder
from windlass.runtime.session_tree import find_root
from windlass.runtime.shared_budgets import settle_budgets

SESSION_NAMES_MAX = 100
CALLER_ENDED = "the run that it works for has ended"
_log = get_logger(__name__)


async def find_own_session(journal: Journal, call: str, task: str) -> State:
    """Return the state of the session that was begun for a call and its task, or of a new one.

    `call` is the caller's session and the id of the call. Raises ConfigError if there are too many
    other sessions of that name.
    """
    return fold(*await read_own_session(journal, call, task))


async def read_own_session(journal: Journal, call: str, task: str) -> tuple[str, Sequence[Fact]]:
    """Return the name and the facts of the session that `find_own_session` finds."""
    for name in _candidate_names(call):
        facts = await journal.read(name)
        if not facts or _was_begun_for(facts[0], call, task):
            return name, facts
    raise ConfigError(f"there are already {SESSION_NAMES_MAX} other sessions named after {call}")


async def find_sessions_below(journal: Journal, call: str) -> Sequence[tuple[str, Sequence[Fact]]]:
    """Return the sessions of sub-agents that worked for a call, with their facts."""
    found: list[tuple[str, Sequence[Fact]]] = []
    for name in _candidate_names(call):
        facts = await journal.read(name)
        if not facts:
            break
        first = facts[0]
        if isinstance(first, RunStarted) and first.parent == call:
            found.append((name, facts))
    return found


async def find_model_sessions(journal: Journal, call: str) -> list[State]:
    """Return the sessions in which a model wrote something for a running call, in their order."""
    found: list[State] = []
    for nth in range(1, SESSION_NAMES_MAX + 1):
        name = model_session_name(call, nth)
        facts = await journal.read(name)
        if not facts:
            break
        first = facts[0]
        if isinstance(first, RunStarted) and first.parent == call:
            found.append(fold(name, facts))
    return found


def model_session_name(call: str, nth: int) -> str:
    return f"{call}.model{nth}"


def is_model_session(call: str, session: str) -> bool:
    return session.startswith(model_session_name(call, 0)[:-1])


def _was_begun_for(first: Fact, call: str, task: str) -> bool:
    return (
        isinstance(first, RunStarted) and first.parent == call and first.prompt == (TextPart(task),)
    )


def _candidate_names(call: str) -> Iterator[str]:
    yield call
    yield from (f"{call}.{nth}" for nth in range(2, SESSION_NAMES_MAX + 1))


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


class ChargesSoFar(Sequence[Charge]):
    """What a running sub-agent has paid, for its caller's ledger: looked up whenever it is read."""

    def __init__(self, driver: RunDriver, before: tuple[Charge, ...] = ()) -> None:
        """Make the charges of a run. `before`: what others that worked for the call have paid."""
        self._driver = driver
        self._before = before

    @overload
    def __getitem__(self, index: int) -> Charge: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Charge]: ...
    @override
    def __getitem__(self, index: int | slice) -> Charge | Sequence[Charge]:
        return self._read()[index]

    @override
    def __len__(self) -> int:
        return len(self._read())

    @override
    def __iter__(self) -> Iterator[Charge]:
        return iter(self._read())

    def _read(self) -> tuple[Charge, ...]:
        return (*self._before, *as_subagent_charges(self._driver.charges_so_far))


class UndrivenRuns(msgspec.Struct, frozen=True):
    """Ends runs that nobody drives, with all that works for them."""

    journal: Journal
    clock: Clock
    mask: Mask

    @classmethod
    def in_journal(cls, journal: Journal) -> "UndrivenRuns":
        """Return those of a journal, without an agent: nothing is known of its secrets."""
        return cls(journal, RealClock(), build_mask(None))

    async def abandon(self, session: str, reason: str) -> RunResult[Any]:
        """End the open run of a session, and return what it did.

        Raises NothingToDo if no run is open, and SessionBusy if somebody drives it.
        """
        with await hold_session(self.journal, session):
            state = await self._read_state(session)
            if not state.is_active:
                raise NothingToDo(f"session {session} has no open run")
            await self.end_run(state, RunEnded("cancelled", reason), f"the run was ended: {reason}")
            return build_result(await self._read_state(session), recorded=True)

    async def end_run(self, state: State, end: RunEnded, refusal: str) -> RunEnded:
        """End the open run of a session whose lease the caller holds. Returns its end.

        Messages that wait for the run are refused by facts, so that no driver has to come for them;
        the one that the end carries is taken by it.
        """
        session = state.session
        charges = await self.end_children(state, end)
        end = replace(end, charges=tuple(chain.from_iterable(charges.values())))
        end = add_undo(end, state.setup)
        letters: Sequence[Letter] = ()
        if isinstance(self.journal, Mailbox):
            letters = await self.journal.read_mail(session, "control", state.mail_taken)
        before = [letter for letter in letters if not end.mail or letter.number < end.mail]
        behind = [letter for letter in letters if end.mail and letter.number > end.mail]

        def refuse(letters: Sequence[Letter]) -> list[MailRefused]:
            return [refuse_letter(letter, refusal) for letter in letters]

        recorder = Recorder(self.journal, self.clock, state, self.mask)
        await recorder.record(
            RunResumed(rules=RULES_VERSION),
            *refuse(before),
            end,
            *refuse(behind),
        )
        await settle_budgets(self.journal, recorder.state)
        if letters and isinstance(self.journal, Mailbox):
            await self.journal.remove_mail(session, "control", letters[-1].number)
        written = await self.journal.read(session, state.seq)
        return next((fact for fact in written if isinstance(fact, RunEnded)), end)

    async def end_children(
        self, state: State, end: RunEnded, closed_calls: Collection[str] = ()
    ) -> Mapping[str, Sequence[Charge]]:
        """End the runs of those that work for open calls of a run that is about to end.

        Returns what they cost, by call: it is on no record of their caller. One that somebody
        drives is cancelled by a message. Calls in `closed_calls` are over, or end by themselves.
        """
        charges: dict[str, Sequence[Charge]] = {}
        is_undo = state.run is not None and state.run.is_undo
        for call in state.step_calls:
            is_open = call.began and call.phase != "closed" and call.id not in closed_calls
            if not is_open:
                continue
            name = state.child_session_name(call.id)
            task = call.decoded_arguments.get("task")
            code = call.decoded_arguments.get("code")
            for child in await self._find_children(name, code if task is None else task):
                ended = await self.end_child(child, by=end.by)
                # Code pays for nothing. What an attempt of it had reserved was never at stake. What
                # is undone was paid for when it was done.
                runs_code = task is None and not is_model_session(name, child.session)
                if ended.run is not None and not runs_code and not is_undo:
                    paid = as_subagent_charges(ended.run.ledger.charges)
                    charges[call.id] = (*charges.get(call.id, ()), *paid)
        return charges

    async def _find_children(self, call: str, task: object) -> Sequence[State]:
        """Return the sessions that were begun for a call.

        That is one for the task of a sub-agent or the code that makes calls, or one for each thing
        that the call had a model write.
        """
        if isinstance(task, str):
            child = await find_own_session(self.journal, call, task)
            if child.seq:
                return (child,)
        return await find_model_sessions(self.journal, call)

    async def end_child(self, child: State, by: str = "") -> State:
        """End the run of one that works for a run, if it is open. Returns its session then."""
        if not child.is_active:
            return child
        end = RunEnded("cancelled", CALLER_ENDED, by=by)
        session = child.session
        has_posted = False
        while True:
            try:
                with await hold_session(self.journal, session):
                    state = await self._read_state(session)
                    if state.is_active:
                        await self.end_run(state, end, "the run was cancelled with its caller")
                    return await self._read_state(session)
            except SessionBusy:
                if has_posted or not await self._post_cancel(child, end.by):
                    return child
                # Its driver may let go before it reads this, so it is looked at once more.
                has_posted = True

    async def settle_orphan(self, session: str) -> bool:
        """End the run of a sub-agent whose caller has no open call for it, and refuse its mail.

        Its driver may have died before it took the message to end, and no run will come for it.
        Returns False if a caller will still come. Raises SessionBusy if somebody drives it.
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
        """Refuse all that is in the mailbox of a session whose lease the caller holds."""
        if not isinstance(self.journal, Mailbox):
            return
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
        """Ask whoever drives a sub-agent to end its run. Returns whether that was possible."""
        if not isinstance(self.journal, Mailbox) or child.run is None:
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
