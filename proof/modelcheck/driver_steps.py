"""What one process can do: look for work, drive, take mail, run a call, lose the store, let go."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias

from msgspec.structs import replace

from proof.modelcheck.explore import ModelStep, RuleViolation
from proof.modelcheck.fact_log import (
    CALL_RESULTS,
    CALL_START,
    SESSION,
    FactLog,
    LogNode,
)
from proof.modelcheck.letters import (
    make_letter_fact,
    make_queued,
    remove_letters,
    untaken_letters,
)
from proof.modelcheck.plants import PlantedBug
from proof.modelcheck.rules import check_batch, count_death, forget_repeated_mail
from proof.modelcheck.world import (
    DRIVER_NAMES,
    NOBODY,
    CallPlace,
    DriverPlace,
    DriverState,
    Scenario,
    WorldState,
    is_freed,
)
from windlass.core.driver_needs import needs_driver
from windlass.core.errors import IllegalFact, SessionBusy
from windlass.core.events import (
    BudgetAllotted,
    BudgetAwaited,
    BudgetWaitEnded,
    CallJudged,
    Fact,
    MailRefused,
    ReleaseAsked,
    RunEnded,
    RunPaused,
    RunReleased,
    RunResumed,
    SteeringTaken,
)
from windlass.core.limits import Amount
from windlass.core.moves import (
    AwaitBudget,
    DrawBudget,
    EndRun,
    JudgeCalls,
    PauseRun,
    RequestReply,
    RunCalls,
    StayPaused,
    StayWaiting,
    TakeSteering,
    WaitForAnswers,
)
from windlass.core.session_summary import row_of
from windlass.core.setup import digest
from windlass.core.state import State
from windlass.core.verdicts import Allow, Ask
from windlass.journals.codec import check_order
from windlass.journals.work_rules import needs_work

Step: TypeAlias = ModelStep[WorldState]
NextPlace = DriverPlace | Literal["let go"]


class DriverSteps:
    """The steps of one process in a state."""

    def __init__(self, scenario: Scenario, log: FactLog, state: WorldState, me: int) -> None:
        self._scenario = scenario
        self._bug: PlantedBug | None = scenario.bug
        self._log = log
        self._world = state
        self._me = me
        self._driver = state.drivers[me]

    def list_steps(self) -> Iterator[Step]:
        """Yield what the process can do now."""
        driver = self._driver
        if not driver.is_connected:
            yield from self._endure_partition()
        elif self._world.rewound != NOBODY and self._world.lock == self._me:
            yield from self._recover()
        elif driver.place == "idle":
            yield from self._look_for_work()
        elif driver.place == "leased":
            opening = driver._replace(place="opening", log=self._world.log)
            yield self._step("reads the session", opening)
        elif driver.place == "opening":
            yield from self._open_session()
        elif driver.place == "driving":
            yield from self._take_mail()
            yield from self._remove_mail()
            yield from self._go_on()
        elif driver.place == "leaving":
            yield from self._remove_mail()
            yield self._step_to("frees the lease", self._free_lease)
        if driver.has_expired and driver.is_connected:
            yield self._step("renews its row", driver._replace(has_expired=False))
        if driver.call in ("recorded", "inside"):
            yield from self._run_call()
        elif driver.place == "lingering":
            yield self._step_to("its last call is over: frees the lease", self._free_lease)

    def _step(self, text: str, driver: DriverState, **changes: Any) -> Step:  # noqa: ANN401 - fields of the world
        return self._step_to(text, partial(self._change, driver, **changes))

    def _step_to(self, text: str, after: Callable[[], WorldState]) -> Step:
        return ModelStep(DRIVER_NAMES[self._me], text, after)

    def _change(self, driver: DriverState, **changes: Any) -> WorldState:  # noqa: ANN401 - as above
        changed = self._world.with_driver(self._me, driver)
        return changed._replace(**changes) if changes else changed

    # The lease

    def _look_for_work(self) -> Iterator[Step]:
        """A sweep, a worker and `drive` use the one rule, and the lease decides between them."""
        world = self._world
        session = self._log[world.log].state
        if not self._is_needed(session) or not self._has_work(session):
            return
        if world.rewound != NOBODY and self._bug != "rewound_run_resumed":
            return  # It is in doubt: it cannot be leased.
        if world.is_quiet:
            yield self._step("has renewed its row for a lease time", self._driver, is_quiet=False)
        is_expired = world.lock != NOBODY and world.drivers[world.lock].has_expired
        may_take = not world.is_quiet or self._bug == "first_one_back_takes_all"
        if world.lock == NOBODY:
            yield self._step_to("takes the lease", self._claim)
        elif self._is_server and is_expired and may_take and world.lock != self._me:
            yield self._step_to("takes the lease, which has expired", self._claim)

    def _recover(self) -> Iterator[Step]:
        """After a failover, write again what is lost, if this process knows what it was."""
        driver = self._driver
        rewound = self._world.rewound
        knows_all = driver.log == rewound or driver.place in ("leaving", "lingering")
        if knows_all or self._world.log == rewound:
            restored = driver._replace(has_epoch=True)
            text = "takes the lease again, and writes what was lost"
            yield self._step(text, restored, log=rewound, rewound=NOBODY)
        else:
            yield self._step_to("has lost the session", self._free_lease)

    @property
    def _is_server(self) -> bool:
        return self._scenario.store == "server"

    def _claim(self) -> WorldState:
        """Name this process in the row of the session, with a new epoch."""
        world = self._world
        if world.lock != NOBODY and world.is_quiet:
            raise RuleViolation("a session was taken before its process could come back")
        other = world.drivers[1 - self._me]._replace(has_epoch=False)
        claimed = self._change(DriverState("leased", has_epoch=True), lock=self._me, rewound=NOBODY)
        return claimed.with_driver(1 - self._me, other)

    def _is_needed(self, session: State) -> bool:
        if session.is_paused and self._bug == "sweep_ignores_mail_of_paused":
            return False
        if session.is_paused and self._bug == "sweep_drives_paused":
            return True
        if session.awaits_budget and self._bug == "freed_budget_unnoticed":
            return False
        has_control, has_prompts = self._find_mail(session)
        # The time of a wait never comes here: what is given back must be enough to continue it.
        return needs_driver(session, now=0.0, has_control_mail=has_control, has_prompts=has_prompts)

    def _has_work(self, session: State) -> bool:
        """Return whether the session has a row of work: a look sees nothing else."""
        if session.is_paused and self._bug == "sweep_drives_paused":
            return True
        # As in `_needs_driver`, the time of a wait never comes.
        row = replace(row_of(session), due=None)
        has_control, has_prompts = self._find_mail(session)
        if self._bug == "no_work_for_mail_of_waiting" and row.state == "waiting":
            has_control = False
        return needs_work(row, has_control=has_control, has_prompts=has_prompts)

    def _find_mail(self, session: State) -> tuple[bool, bool]:
        """Return whether control messages wait, and whether prompts do."""
        world = self._world
        return (
            bool(untaken_letters(world.control, session.mail_taken)),
            bool(untaken_letters(world.prompts, session.prompts_taken)),
        )

    def _free_lease(self) -> WorldState:
        lock = NOBODY if self._world.lock == self._me else self._world.lock
        return self._change(DriverState(is_connected=self._driver.is_connected), lock=lock)

    def _let_go(self, world: WorldState) -> WorldState:
        """Stop driving. While a call runs that has no end on record, the lease is kept."""
        driver = world.drivers[self._me]
        taken = self._log[driver.log].state
        has_mail_left = (
            remove_letters(world.control, taken.mail_taken) != world.control
            or remove_letters(world.prompts, taken.prompts_taken) != world.prompts
        )
        driver = driver._replace(
            letters=(), must_take=0, must_release=False, log=driver.log if has_mail_left else 0
        )
        if driver.call != "inside":
            # A call that has not begun does not begin any more: nothing can be recorded for it.
            leaving = driver._replace(place="leaving", call="", token=0)
            return world.with_driver(self._me, leaving)
        if self._bug == "release_before_calls_ended" and world.lock == self._me:
            world = world._replace(lock=NOBODY)
        return world.with_driver(self._me, driver._replace(place="lingering", log=0))

    # The store does not answer

    def _endure_partition(self) -> Iterator[Step]:
        driver = self._driver
        world = self._world
        if driver.place in ("leased", "opening", "driving"):
            give_up = partial(self._let_go, world)
            yield self._step_to("gives up, because the store does not answer", give_up)
        if self._is_server and world.lock == self._me and not driver.has_expired:
            expired = driver._replace(has_expired=True)
            yield self._step("is not heard of for a lease time", expired)
        back = driver._replace(is_connected=True, has_expired=False)
        yield self._step("reaches the store again, and renews its row", back)

    # Opening

    def _open_session(self) -> Iterator[Step]:
        world = self._world
        session = self._log[self._driver.log].state
        prompts = untaken_letters(world.prompts, session.prompts_taken)
        if not self._is_needed(session):
            yield self._step_to("finds nothing to do", partial(self._let_go, world))
        elif session.is_queued and prompts:
            start = self._log.start_fact(session, prompts[0].number)
            yield self._append(f"begins the queued run: {prompts[0].describe()}", (start,))
        elif session.is_active:
            # What no signature proves is judged again, as `runtime/session_hold.py` has it.
            is_believed = not world.is_forged or self._bug == "forged_answer_believed"
            doubted = () if is_believed else tuple(call.id for call in session.step_calls)
            yield self._append("resumes the run", (RunResumed(doubted=doubted),))
        elif prompts:
            start = self._log.start_fact(session, prompts[0].number)
            yield self._append(f"begins run {start.run}: {prompts[0].describe()}", (start,))
        else:
            letter = untaken_letters(world.control, session.mail_taken)[0]
            refusal = MailRefused(letter.number, letter.kind, "no run is open")
            yield self._append(f"refuses {letter.describe()}", (refusal,), "opening")

    # Mail

    def _take_mail(self) -> Iterator[Step]:
        """Take the next message. Reading it and writing its fact are one step.

        In between, only more messages can come, which changes neither; if the session is lost, the
        fence refuses the fact, however long ago the message was read.
        """
        driver = self._driver
        session = self._log[driver.log].state
        taken = 0 if self._bug == "take_without_cursor" else session.mail_taken
        letters = driver.letters or untaken_letters(self._world.control, taken)
        if not letters:
            return
        letter = letters[0]
        if self._bug == "remove_before_fact" and not driver.letters:
            control = remove_letters(self._world.control, letter.number)
            text = f"removes {letter.describe()} from the mailbox"
            yield self._step(text, driver._replace(letters=(letter,)), control=control)
            return
        fact = make_letter_fact(session, letter, self._bug)
        if self._bug == "freed_before_the_wait" and isinstance(fact, BudgetWaitEnded):
            fact = MailRefused(letter.number, letter.kind, "the run does not wait")
        verb = "refuses" if isinstance(fact, MailRefused) else "takes"
        place: NextPlace = "let go" if isinstance(fact, RunEnded) else "driving"
        must_release = driver.must_release or isinstance(fact, ReleaseAsked)
        rest = driver._replace(letters=(), must_release=must_release)
        facts, text = self._end_with_next(session, fact, f"{verb} {letter.describe()}")
        yield self._append(text, facts, place, rest)

    def _end_with_next(self, session: State, fact: Fact, text: str) -> tuple[Sequence[Fact], str]:
        """Return what an append writes: with an end, the prompt behind the run becomes a run."""
        waiting = untaken_letters(self._world.prompts, session.prompts_taken)
        if not isinstance(fact, RunEnded) or not waiting:
            return (fact,), text
        queued = make_queued(session, waiting[0])
        return (fact, queued), f"{text}, and queues {waiting[0].describe()}"

    def _remove_mail(self) -> Iterator[Step]:
        """Remove messages whose facts this driver knows to be durable. It need not happen."""
        world = self._world
        session = self._log[self._driver.log].state
        control = remove_letters(world.control, session.mail_taken)
        prompts = remove_letters(world.prompts, session.prompts_taken)
        if control != world.control or prompts != world.prompts:
            text = "removes the messages that it has taken"
            yield self._step(text, self._driver, control=control, prompts=prompts)

    # The loop

    def _go_on(self) -> Iterator[Step]:
        driver = self._driver
        if driver.must_take:
            taken = self._log[driver.log].state.mail_taken
            waiting = untaken_letters(self._world.control, taken)
            if waiting and waiting[0].number <= driver.must_take:
                return
        if driver.must_release:
            # A call that still runs had its grace period.
            yield self._append("releases the run", (RunReleased("asked"),), "let go")
        elif driver.call in CALL_RESULTS:
            yield self._append("records what became of the call", ())
        elif not driver.call:
            yield self._make_move(self._log[driver.log])

    def _make_move(self, node: LogNode) -> Step:  # noqa: C901 - an arm per move
        """Perform the move that the real decision chooses."""
        match node.move:
            case RequestReply():
                return self._append("gets a reply", self._log.reply_facts(node.state))
            case JudgeCalls(calls=(proposed, *_)):
                verdict = self._judge(node.state)
                if isinstance(verdict, Ask):
                    judged = CallJudged(proposed.call.id, verdict, digest=digest({}))
                    return self._append("asks a person about the call", (judged,))
                judged = CallJudged(proposed.call.id, verdict)
                return self._append("records the start of the call", (judged, CALL_START))
            case RunCalls(calls=(cleared, *_)) if cleared.interrupted and not cleared.repeatable:
                return self._step_to("asks the tool what became of the call", self._reconcile)
            case RunCalls():
                return self._append("records the start of the call", (CALL_START,))
            case TakeSteering():
                return self._append("shows the steering to the model", (SteeringTaken(),))
            case PauseRun() if self._bug == "poison_not_parked":
                return self._append("records the start of the call", (CALL_START,))
            case PauseRun(reason, needed, cause=cause):
                parked = RunPaused(reason, cause=cause, needed=needed)
                return self._append("parks the run", (parked,))
            case StayPaused():
                return self._append("lets go of the paused run", (RunReleased("paused"),), "let go")
            case DrawBudget() | AwaitBudget() | StayWaiting() as move:
                return self._ask_budget(move)
            case EndRun(outcome, reason):
                end = RunEnded(outcome, reason)
                facts, text = self._end_with_next(node.state, end, "ends the run")
                return self._append(text, facts, "let go")
            case WaitForAnswers():
                after = partial(self._let_go, self._world)
                return self._step_to("lets go: a person has to answer", after)
            case _:
                raise AssertionError(node.move)

    def _ask_budget(self, move: DrawBudget | AwaitBudget | StayWaiting) -> Step:
        match move:
            case DrawBudget(budget, wanted):
                if is_freed(self._scenario, self._world):
                    allotted = BudgetAllotted(budget.name, wanted)
                    return self._append("draws on the budget", (allotted,))
                dry = BudgetAllotted(budget.name, Amount(tokens=0), dry=True, held=wanted)
                return self._append("finds the budget dry", (dry,))
            case AwaitBudget(budget, held, wait_s):
                awaited = BudgetAwaited(budget, held, wait_s)
                return self._append("waits for the budget", (awaited,))
            case StayWaiting():
                released = RunReleased("waits for the budget")
                return self._append("lets go of the waiting run", (released,), "let go")

    def _judge(self, session: State) -> Allow | Ask:
        is_imported = any(call.imported for call in session.step_calls)
        return Ask("May it run here?") if is_imported or self._scenario.asks else Allow()

    # The call

    def _run_call(self) -> Iterator[Step]:
        driver = self._driver
        if driver.call == "inside":
            yield self._step_to("the call takes effect", self._take_effect)
            return
        if not self._is_still_driving():
            not_started = driver._replace(call="not_started", token=0)
            yield self._step("does not start the call: the session may be lost", not_started)
        elif self._scenario.can_stop_in_call:
            inside = driver._replace(call="inside")
            text = "confirms that it still drives, and enters the call"
            yield self._step(text, inside)
        else:
            text = "confirms that it still drives, and the call takes effect"
            yield self._step_to(text, self._take_effect)

    def _is_still_driving(self) -> bool:
        """As `runtime/leases.py`: confirm the lease, then look for an opening after our facts."""
        if self._bug == "confirm_skipped":
            return True
        has_lease = self._driver.is_connected and self._world.lock == self._me
        has_lease = has_lease and self._world.rewound == NOBODY
        return has_lease and self._drives_last_opening()

    def _drives_last_opening(self) -> bool:
        """Whether this process drives the run, and no other has taken it over."""
        run = self._log[self._world.log].state.run
        if self._driver.place != "driving" or run is None:
            return False
        return run.opening_seq <= self._log[self._driver.log].seq

    def _take_effect(self) -> WorldState:
        driver = self._driver
        world = self._world
        if self._scenario.is_poison:
            return self._die_in_call()
        if self._scenario.checks_token and driver.token < world.token:
            return self._change(driver._replace(call="not_started", token=0))
        if world.effects:
            raise RuleViolation("the effect of one call happened twice")
        if self._scenario.asks and "allow" not in world.told:
            raise RuleViolation("a call took effect that no person has allowed")
        done = driver._replace(call="done", token=0)
        token = max(world.token, driver.token) if self._scenario.checks_token else 0
        return self._change(done, effects=1, token=token)

    def _die_in_call(self) -> WorldState:
        """The call takes its process down, with its lock. Another process is started."""
        world = count_death(self._world, self._drives_last_opening())
        lock = NOBODY if world.lock == self._me else world.lock
        return world.with_driver(self._me, DriverState())._replace(lock=lock)

    def _reconcile(self) -> WorldState:
        world = self._world
        run = self._log[self._driver.log].state.run
        token = world.token
        if run is not None and self._scenario.checks_token and self._scenario.reconcile_shows_token:
            token = max(token, run.opening_seq)
        answer: CallPlace = "was_done" if world.effects else "was_not_done"
        if not self._scenario.can_reconcile:
            # The model is told that the outcome is unknown. The call is closed and never run again.
            answer = "not_started"
        return self._change(self._driver._replace(call=answer), token=token)

    # Appending

    def _append(
        self,
        text: str,
        facts: Sequence[Fact],
        place: NextPlace = "driving",
        driver: DriverState | None = None,
    ) -> Step:
        """Write facts after the last one that the driver knows, with what it knows of its call."""
        driver = driver or self._driver
        if driver.call in CALL_RESULTS:
            facts = (CALL_RESULTS[driver.call], *facts)
            driver = driver._replace(call="")
        return self._step_to(text, partial(self._write, text, facts, place, driver))

    def _write(
        self, name: Hashable, facts: Sequence[Fact], place: NextPlace, driver: DriverState
    ) -> WorldState:
        world = self._world
        if self._is_server and self._bug != "no_fence" and not driver.has_epoch:
            if self._bug != "epoch_unchecked":
                return self._let_go(world)
            raise RuleViolation("facts were accepted from a process that the row does not name")
        if driver.log != world.log:
            if not self._is_fenced_off(driver):
                raise RuleViolation("facts were accepted from a driver that had lost the session")
            return self._let_go(world)
        before = self._log[driver.log].state
        folded = facts
        if self._bug == "take_without_cursor":
            folded = [forget_repeated_mail(before, fact) for fact in facts]
        try:
            after = self._log.append(driver.log, (name, self._driver.call), folded)
        except IllegalFact as error:
            raise RuleViolation(f"the fold refuses what a driver decided: {error}") from None
        world = check_batch(world, before, facts, self._me)._replace(log=after)
        run = self._log[after].state.run
        driver = driver._replace(log=after)
        if CALL_START in facts and run is not None:
            token = run.opening_seq if self._scenario.checks_token else 0
            driver = driver._replace(call="recorded", token=token)
        if place != "let go":
            if self._driver.place == "opening" and world.control.kept:
                # What was posted while nobody drove is taken before anything is decided.
                driver = driver._replace(must_take=world.control.kept[-1].number)
            if run is not None and driver.must_take <= self._log[after].state.mail_taken:
                driver = driver._replace(must_take=0)
            return world.with_driver(self._me, driver._replace(place=place))
        has_ended = any(isinstance(fact, RunEnded) for fact in facts)
        if has_ended and driver.call == "inside":
            return self._abandon_call(world, driver)
        return self._let_go(world.with_driver(self._me, driver))

    def _is_fenced_off(self, driver: DriverState) -> bool:
        """Whether the sequence number refuses what a driver writes that missed something."""
        last = self._log[self._world.log].seq
        following = RunResumed(seq=self._log[driver.log].seq + 1)
        try:
            check_order(SESSION, last, (following,))
        except SessionBusy:
            return self._bug != "no_fence"
        return False

    def _abandon_call(self, world: WorldState, driver: DriverState) -> WorldState:
        """The end of the run closed the call: nobody runs it again, so it may act at any time."""
        if world.effects:
            raise RuleViolation("the effect of one call happened twice")
        world = world.with_driver(self._me, driver._replace(call=""))
        return self._let_go(world._replace(effects=1))
