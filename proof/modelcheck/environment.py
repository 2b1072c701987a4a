"""What happens to the protocol from outside: messages, crashes, partitions, releases, forks."""

from collections.abc import Hashable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

from msgspec.structs import replace

from proof.modelcheck.explore import ModelStep, RuleViolation
from proof.modelcheck.fact_log import FORGED_ANSWER, SESSION, FactLog
from proof.modelcheck.letters import make_answer_mail, make_queued, post_letter, untaken_letters
from proof.modelcheck.rules import check_batch, empty_lane, tell_decision
from proof.modelcheck.world import DRIVER_NAMES, NOBODY, DriverState, Scenario, WorldState
from windlass.core.errors import NothingToDo, QuestionDecided
from windlass.core.events import Fact, MailRefused, RunEnded
from windlass.journals.mail_rules import AnswerPost, decide_question
from windlass.journals.postgres.doubts import make_pause

Step: TypeAlias = ModelStep[WorldState]


def environment_steps(scenario: Scenario, log: FactLog, state: WorldState) -> Iterator[Step]:
    """Yield what others may do in a state. None of it has to happen."""
    for poster, kinds in enumerate(scenario.posters):
        posted = state.posted[poster]
        for kind in kinds[posted] if posted < len(kinds) else ():
            after = partial(_post, scenario, log, state, poster, kind)
            yield ModelStep(f"poster {poster + 1}", f"posts {kind}", after, is_environment=True)
    yield from _acceptance(scenario, log, state)
    for me, driver in enumerate(state.drivers):
        if driver.place not in ("idle", "dead"):
            yield from _faults_of(state, me, driver)
    if state.outages and state.lock != NOBODY:
        after = partial(_lose_server, state)
        yield ModelStep("the server", "is away for a minute", after, is_environment=True)
    yield from _failover(scenario, log, state)
    if state.forgeries and log[state.log].state.is_waiting:
        after = partial(_forge, log, state)
        yield ModelStep("an intruder", "writes an answer", after, is_environment=True)
    if state.forks:
        for at in range(1, log[state.log].seq + 1):
            for is_import in (False, True):
                text = f"{'imports' if is_import else 'forks'} the first {at} records"
                after = partial(_fork, log, state, at, is_import=is_import)
                yield ModelStep("somebody", text, after, is_environment=True)


def _failover(scenario: Scenario, log: FactLog, state: WorldState) -> Iterator[Step]:
    """A standby takes over; after a lease time, a run that no driver has restored is paused."""
    if state.lost_tails and state.rewound == NOBODY:
        for at in range(1, log[state.log].seq + 1):
            after = partial(_lose_tail, log, state, at)
            text = f"takes over with the first {at} records"
            yield ModelStep("a standby", text, after, is_environment=True)
    holder = None if state.lock == NOBODY else state.drivers[state.lock]
    if state.rewound != NOBODY and (holder is None or not holder.is_connected):
        after = partial(_settle_doubt, scenario, log, state)
        yield ModelStep("a process", "pauses the run as possibly rewound", after)


def _lose_tail(log: FactLog, state: WorldState, at: int) -> WorldState:
    """All leases are void, and the session is in doubt."""
    first, second = (driver._replace(has_epoch=False) for driver in state.drivers)
    return state._replace(
        drivers=(first, second),
        log=log.rewind(state.log, at),
        rewound=state.log,
        lost_tails=state.lost_tails - 1,
    )


def _settle_doubt(scenario: Scenario, log: FactLog, state: WorldState) -> WorldState:
    """Pause the run by the store's own rule, and free the session."""
    facts = () if scenario.bug == "rewound_run_not_paused" else make_pause(log[state.log].state)
    paused = log.append(state.log, "rewound", facts) if facts else state.log
    return state._replace(log=paused, rewound=NOBODY, lock=NOBODY, opener=NOBODY)


def _acceptance(scenario: Scenario, log: FactLog, state: WorldState) -> Iterator[Step]:
    """Without a driver, an acceptor queues the first prompt, and a canceller ends a queued run."""
    session = log[state.log].state
    waiting = untaken_letters(state.prompts, session.prompts_taken)
    may_write = state.lock == NOBODY or scenario.bug == "accepted_beside_a_driver"
    if waiting and may_write and not session.is_active:
        text = f"queues {waiting[0].describe()}"
        after = partial(_write_outside, log, state, text, (make_queued(session, waiting[0]),))
        yield ModelStep("the acceptor", text, after, is_environment=True)
    if session.is_queued and session.run is not None and state.lock == NOBODY:
        for poster, kinds in enumerate(scenario.posters):
            posted = state.posted[poster]
            if posted < len(kinds) and "cancel" in kinds[posted]:
                after = partial(_cancel_queued, scenario, log, state, poster)
                text = "cancels the queued run"
                yield ModelStep(f"poster {poster + 1}", text, after, is_environment=True)


def _cancel_queued(scenario: Scenario, log: FactLog, state: WorldState, poster: int) -> WorldState:
    """End a queued run as `UndrivenRuns.end_run` does: its messages are refused by facts."""
    session = log[state.log].state
    run = session.run
    assert run is not None
    letters = untaken_letters(state.control, session.mail_taken)
    refused = [MailRefused(letter.number, letter.kind, "cancelled") for letter in letters]
    facts: list[Fact] = [*refused, RunEnded("cancelled", prompt=run.queued_mail)]
    waiting = untaken_letters(state.prompts, run.queued_mail)
    if waiting:
        facts.append(make_queued(session, waiting[0]))
    posted = list(state.posted)
    posted[poster] += 1
    state = state._replace(posted=tuple(posted))
    if scenario.bug == "prompt_left_behind":
        # As if the end did not take the prompt: it is still owed, and its run is over.
        ended = _write_outside(log, state, ("cancel", len(letters), len(waiting)), facts)
        return ended._replace(prompts=state.prompts)
    return _write_outside(log, state, ("cancel", len(letters), len(waiting)), facts)


def _write_outside(
    log: FactLog, state: WorldState, name: Hashable, facts: Sequence[Fact]
) -> WorldState:
    """Write facts as a process that holds the lease for this one append."""
    if state.lock != NOBODY:
        raise RuleViolation("a run was queued beside the driver that has the session")
    before = log[state.log].state
    after = log.append(state.log, name, facts)
    return check_batch(state, before, facts, NOBODY)._replace(log=after)


def _faults_of(state: WorldState, me: int, driver: DriverState) -> Iterator[Step]:
    name = DRIVER_NAMES[me]
    if state.crashes:
        yield ModelStep(name, "crashes", partial(_crash, state, me), is_environment=True)
    if state.cuts and driver.is_connected:
        cut = state.with_driver(me, driver._replace(is_connected=False))
        after = partial(cut._replace, cuts=state.cuts - 1)
        yield ModelStep(name, "is cut off from the store", after, is_environment=True)
    if state.stops and not driver.has_expired:
        stopped = state.with_driver(me, driver._replace(has_expired=True))
        after = partial(stopped._replace, stops=state.stops - 1)
        yield ModelStep(name, "is stopped until its lease expires", after, is_environment=True)
    if state.releases and driver.place == "driving" and not driver.must_release:
        asked = state.with_driver(me, driver._replace(must_release=True))
        after = partial(asked._replace, releases=state.releases - 1)
        yield ModelStep(name, "is asked to release the run", after, is_environment=True)


def _post(
    scenario: Scenario, log: FactLog, state: WorldState, poster: int, kind: str
) -> WorldState:
    session = log[state.log].state
    posted = list(state.posted)
    posted[poster] += 1
    state = state._replace(posted=tuple(posted))
    if kind == "prompt":
        lane = post_letter(state.prompts, kind, 0, session.prompts_taken, scenario.bug)
        return state._replace(prompts=lane)
    if kind in ("allow", "deny"):
        return _post_answer(scenario, log, state, kind)
    # A message names the run that its poster saw, which may have ended since: always the first.
    opening = session.run.opening_seq if session.run is not None else 0
    lane = post_letter(state.control, kind, 1, session.mail_taken, scenario.bug, opening)
    return state._replace(control=lane)


def _post_answer(scenario: Scenario, log: FactLog, state: WorldState, kind: str) -> WorldState:
    """Decide the question by the store's own rule, in one step with the letter, or be refused."""
    taken = log[state.log].state.mail_taken
    lane = post_letter(state.control, kind, 1, taken, scenario.bug)
    post = AnswerPost(SESSION, lane.last, make_answer_mail(kind, 1), by="", key="")
    row = state.question
    if row is not None and scenario.bug == "second_answer_counts":
        row = replace(row, answers=(), decision=None)
    try:
        decided = decide_question(row, post)
    except QuestionDecided as refusal:
        return tell_decision(state, refusal.decision.answer)
    except NothingToDo:
        return state
    if decided is None or decided.decision is None:
        raise AssertionError(decided)
    if scenario.bug == "answer_not_passed_by_mail":
        lane = state.control
    return tell_decision(state._replace(control=lane, question=decided), decided.decision.answer)


def _crash(state: WorldState, me: int) -> WorldState:
    """The process is gone: what it ran, what it knew and, on the same machine, its lock."""
    lock = NOBODY if state.lock == me else state.lock
    dead = state.with_driver(me, DriverState("dead"))
    return dead._replace(lock=lock, crashes=state.crashes - 1)


def _lose_server(state: WorldState) -> WorldState:
    """All connections are lost, and all leases have expired when the server is back."""
    drivers = [
        driver
        if driver.place in ("idle", "dead")
        else driver._replace(is_connected=False, has_expired=True)
        for driver in state.drivers
    ]
    return state._replace(
        drivers=(drivers[0], drivers[1]), is_quiet=True, outages=state.outages - 1
    )


def _forge(log: FactLog, state: WorldState) -> WorldState:
    """Put an answer among the records, as a login of the database can. Nobody has signed it."""
    forged = log.append(state.log, "forged", (FORGED_ANSWER,))
    return state._replace(log=forged, forgeries=state.forgeries - 1, is_forged=True)


def _fork(log: FactLog, state: WorldState, at: int, *, is_import: bool) -> WorldState:
    """Go on in the copy: it has a mailbox of its own, and nobody drives it yet."""
    forked = log.fork(state.log, at, is_import=is_import)
    session = log[forked].state
    return state._replace(
        drivers=(DriverState(), DriverState()),
        log=forked,
        lock=NOBODY,
        opener=NOBODY,
        control=empty_lane(session.mail_taken),
        prompts=empty_lane(session.prompts_taken),
        effects=0,
        token=0,
        forks=state.forks - 1,
    )
