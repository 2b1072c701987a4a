"""Takes the messages that others post to a run, while this process drives it.

Invariant: messages are taken in order, and each becomes one fact that carries its number, or a
refusal with a reason. It is removed from the mailbox once that fact is durable; if the process dies
in between, the cursor in the state keeps it from counting twice. The driver remains the only writer
of the run's facts.

A prompt in the queue becomes a run (`RunQueued`) once no open run is before it, in the order of the
queue: its acceptor writes the fact if the session is free, else the append that ends the run.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from windlass.core.errors import ForOperator, NothingToDo, WindlassError
from windlass.core.events import (
    RULES_VERSION,
    AnswerCounted,
    AnswerForwarded,
    BudgetWaitEnded,
    CallAnswered,
    Fact,
    LimitsRaised,
    MailRefused,
    PromptWithdrawn,
    ReleaseAsked,
    RunContinued,
    RunEnded,
    RunPaused,
    RunQueued,
    RunResumed,
    SteeringGiven,
)
from windlass.core.fold.control import find_start, name_message, raises_limits
from windlass.core.fold.run import fold
from windlass.core.mail import (
    AnswerMail,
    BudgetFreedMail,
    CancelMail,
    ContinueMail,
    Letter,
    PauseMail,
    PromptMail,
    RaiseLimitsMail,
    ReleaseMail,
    SteerMail,
    WithdrawMail,
    kind_of,
)
from windlass.core.setup import digest
from windlass.core.state import State, find_call
from windlass.logs import get_logger
from windlass.ports import Clock, Journal
from windlass.runtime.leases import works_for
from windlass.runtime.leftover_tasks import LeftoverTasks
from windlass.runtime.recorder import Recorder
from windlass.runtime.run_control import RunControl

RETRY_S = 1.0
"""How long to wait before a mailbox that failed is read again."""
READ_S = 1.0
"""How long the queue may take to be read when a run ends."""
NOT_TO_A_RUN = "it is not a message to a run"
_log = get_logger(__name__)

TakeMail = Callable[[], Awaitable[None]]
"""Takes the messages to a run that were posted up to now."""

MakeAnswer = Callable[[State, Letter], CallAnswered | AnswerCounted]
"""Returns an answer by mail as a fact; raises ForOperator if it does not fit the question."""


class MailTaker:
    """Takes the control messages of one session."""

    def __init__(
        self,
        journal: Journal,
        recorder: Recorder,
        control: RunControl,
        clock: Clock,
        make_answer: MakeAnswer,
    ) -> None:
        self._journal = journal
        self._recorder = recorder
        self._session = recorder.session
        self._control = control
        self._clock = clock
        self._make_answer = make_answer
        self._taking = asyncio.Lock()
        self._removed_upto = 0
        self._listener: asyncio.Task[None] | None = None

    async def catch_up(self) -> None:
        """Take what was posted up to now. A mailbox that fails stops no run."""
        try:
            await self._take_new()
        except ForOperator as error:
            _log.warning("session %s: its mailbox cannot be read: %s", self._session, error)

    def listen(self) -> None:
        """Take messages from now on, until `close`."""
        self._listener = asyncio.create_task(self._listen())

    def close(self, leftovers: LeftoverTasks) -> None:
        """Take nothing more, and have the messages removed whose facts are durable."""
        if self._listener is not None:
            self._listener.cancel()
            leftovers.track(self._listener)
            if self._recorder.state.mail_taken > self._removed_upto:
                leftovers.start_task(self._remove_taken())

    async def _remove_taken(self) -> None:
        """Remove the messages whose facts are durable. Doing it again is harmless."""
        taken = self._recorder.state.mail_taken
        try:
            await self._journal.remove_mail(self._session, "control", taken)
        except WindlassError as error:
            _log.warning("session %s: its mailbox cannot be emptied: %s", self._session, error)
            return
        self._removed_upto = taken

    async def _listen(self) -> None:
        can_take = True
        while can_take:
            taken = self._recorder.state.mail_taken
            if taken > self._removed_upto:
                await self._remove_taken()
            try:
                await self._journal.wait_for_mail(self._session, "control", taken)
                can_take = await self._take_new()
            except ForOperator as error:
                if self._recorder.is_closed:
                    return
                _log.warning("session %s: its mailbox fails: %s", self._session, error)
                await self._clock.sleep(RETRY_S)

    async def _take_new(self) -> bool:
        """Take the messages that are there. Returns False once the run takes no more."""
        # The listener and `catch_up` may both come here, and a message must be taken once.
        async with self._taking:
            taken = self._recorder.state.mail_taken
            for letter in await self._journal.read_mail(self._session, "control", taken):
                if not await self._take_letter(letter):
                    return False
        return True

    async def _take_letter(self, letter: Letter) -> bool:
        state = self._recorder.state
        message = letter.message
        problem = self._journal.find_letter_problem(self._session, letter)
        is_for_this_run = problem is None and find_refusal(state, letter) is None
        if isinstance(message, CancelMail) and is_for_this_run:
            end = RunEnded("cancelled", message.reason, by=letter.by, mail=letter.number)
            self._control.stop.request_end(end)
            return False
        if isinstance(message, AnswerMail) and message.session and is_for_this_run:
            problem = await self._forward_answer(letter, message)
        taken: list[Fact] = []

        def make_facts(state: State) -> Sequence[Fact]:
            taken[:] = make_mail_facts(state, letter, self._make_answer, problem)
            return taken

        if not await self._control.write(make_facts):
            return False
        self._control.heed(taken[-1])
        return True

    async def _forward_answer(self, letter: Letter, message: AnswerMail) -> str | None:
        """Pass an answer on to the sub-agent that asked. Returns why it cannot be passed on.

        The key makes it arrive once, although a crash may come before the fact about it. It also
        shows the store that this is the answer that decided the question.
        """
        session = message.session
        if not await works_for(self._journal, session, self._session):
            return f"{session} does not work for this session"
        child = fold(session, await self._journal.read(session))
        call = find_call(child, message.call_id)
        key = name_message(self._session, letter.number)
        if child.run is None or not child.is_active or call is None or call.question is None:
            return f"no question about call {message.call_id} waits in {session}"
        if digest(call.decoded_arguments) != message.digest:
            return "it is for other arguments than those of the question"
        forwarded = AnswerMail(
            run=child.run.number,
            call_id=message.call_id,
            digest=message.digest,
            verdict=message.verdict,
            accepted_at=letter.at,
            signature=letter.signature,
            grant=message.grant,
            person=message.person,
        )
        with suppress(NothingToDo):
            await self._journal.post_mail(session, forwarded, by=letter.by, key=key)
        return None


def find_refusal(state: State, letter: Letter) -> str | None:
    """Return why a message is not for the open run of a session; None if it is."""
    message = letter.message
    if isinstance(message, PromptMail):
        return NOT_TO_A_RUN
    run = state.run
    if run is None or message.run != run.number:
        return f"it is for run {message.run}, and the last run is {run.number if run else 0}"
    return None if state.is_active else "the run has ended"


def make_mail_facts(
    state: State, letter: Letter, make_answer: MakeAnswer, problem: str | None = None
) -> Sequence[Fact]:
    """Return the fact that follows from a message, or its refusal. Pure.

    `problem` is why the message cannot be taken, if the caller knows a reason.
    """
    problem = problem or find_refusal(state, letter)
    if problem is None:
        made = _make_fact(state, letter, make_answer)
        if not isinstance(made, str):
            # In one append with the fact: a process that dies in between would leave a run that
            # waits for something that has come already.
            is_news = isinstance(made, AnswerForwarded | LimitsRaised | RunContinued)
            if is_news and any(call.phase == "waiting" for call in state.step_calls):
                return (RunResumed(rules=RULES_VERSION), made)
            return (made,)
        problem = made
    return (refuse_letter(letter, problem),)


def refuse_letter(letter: Letter, reason: str) -> MailRefused:
    """Return the fact that refuses a message."""
    kind = kind_of(letter.message)
    return MailRefused(letter.number, kind, reason, letter.lane, letter.by)


def _make_fact(state: State, letter: Letter, make_answer: MakeAnswer) -> Fact | str:  # noqa: C901 - an arm per message
    """Return the fact that follows from a message to the open run, or why it cannot be taken."""
    run, number, by = state.run, letter.number, letter.by
    is_paused = run is not None and run.pause is not None
    match letter.message:
        case SteerMail() if not state.takes_steering:
            return "the run undoes an earlier one and asks no model"
        case SteerMail(prompt=prompt):
            return SteeringGiven(prompt, by, number)
        case PauseMail() if is_paused:
            return "the run is paused already"
        case PauseMail(reason=reason):
            return RunPaused(reason, by, mail=number)
        case ContinueMail() if not is_paused:
            return "the run is not paused"
        case ContinueMail():
            return RunContinued(by, number)
        case AnswerMail(session=session, call_id=call_id) if session:
            return AnswerForwarded(session, call_id, by, number)
        case AnswerMail():
            try:
                return make_answer(state, letter)
            except ForOperator as error:
                return str(error)
        case BudgetFreedMail(budget=budget):
            return BudgetWaitEnded(budget, by, number)
        case RaiseLimitsMail(limits=limits) if not raises_limits(state, limits):
            return f"it raises no limit of this run ({limits.describe() or 'none is given'})"
        case RaiseLimitsMail(limits=limits):
            return LimitsRaised(limits, by, number)
        case ReleaseMail(opening=opening, reason=reason):
            if run is None or run.opening_seq != opening:
                return "another driver has taken the run already"
            return ReleaseAsked(reason, by, number)
        case WithdrawMail(prompt=prompt):
            if prompt <= state.prompts_taken or prompt in state.withdrawn:
                return f"prompt {prompt} does not wait in the queue any more"
            return PromptWithdrawn(prompt, by, number)
        case CancelMail():
            return "the run is about to end already"
        case PromptMail():
            return NOT_TO_A_RUN


def find_prompt_problem(journal: Journal, state: State, letter: Letter) -> str | None:
    """Return why a prompt begins no run: it is forged or withdrawn, or its key has begun one."""
    forged = journal.find_letter_problem(state.session, letter)
    message = letter.message
    if forged is not None or not isinstance(message, PromptMail):
        return forged
    if letter.number in state.withdrawn:
        return "it was withdrawn"
    start = find_start(state, message.key) if message.key else None
    if start is not None and not (state.run is not None and state.run.queued_mail == letter.number):
        return "a run with the same key has begun already"
    if message.earlier and state.has_conversation:
        return "it brings a conversation, and the session has one of its own already"
    return None


def queue_first(journal: Journal, state: State, letters: Sequence[Letter]) -> tuple[RunQueued, ...]:
    """Return the fact by which the first prompt becomes a run once the last run has ended.

    Returns nothing if no prompt waits. A first prompt that must begin no run is left to the next
    driver, which refuses it.
    """
    run = state.run
    taken = max(state.prompts_taken, run.queued_mail if run is not None else 0)
    for letter in letters:
        message = letter.message
        if letter.number <= taken or letter.number in state.withdrawn:
            continue
        problem = find_prompt_problem(journal, state, letter)
        if problem is not None or not isinstance(message, PromptMail):
            return ()
        queued = RunQueued(
            run=run.number + 1 if run is not None else 1,
            mail=letter.number,
            caller=message.caller,
            agent=message.agent,
            key=message.key,
            digest=digest(message.prompt) if message.key else "",
            labels=message.labels,
            context=message.context,
        )
        return (queued,)
    return ()


async def read_queue(journal: Journal, state: State) -> Sequence[Letter]:
    """Return the prompts that are to begin a run: of a run that was accepted, and behind a run."""
    letters = await journal.read_mail(state.session, "prompts", state.prompts_taken)
    return [letter for letter in letters if letter.number not in state.withdrawn]


async def read_next_run(
    journal: Journal, state: State, wait_s: float = READ_S
) -> tuple[RunQueued, ...]:
    """Return what the append that ends the open run also writes, for the prompt behind it.

    The session of a sub-agent has no queue. A mailbox that fails, or takes longer than `wait_s`
    seconds, holds up no end: then the next driver finds the prompt.
    """
    if state.parent or wait_s <= 0:
        return ()
    try:
        async with asyncio.timeout(wait_s):
            letters = await journal.read_mail(state.session, "prompts", state.prompts_taken)
    except (ForOperator, TimeoutError) as error:
        _log.warning("session %s: its queue cannot be read: %s", state.session, error)
        return ()
    return queue_first(journal, state, letters) if letters else ()
