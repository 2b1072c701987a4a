"""Takes the messages that others post to a run, while this process drives it.

Invariant: messages are taken in order, and each becomes one fact that carries its number, or a
refusal with a reason. It is removed from the mailbox once that fact is durable; if the process dies
in between, the cursor in the state keeps it from counting twice. The driver remains the only writer
of the run's facts.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from windlass.core.errors import ForOperator, NothingToDo, WindlassError
from windlass.core.events import (
    RULES_VERSION,
    AnswerForwarded,
    CallAnswered,
    Fact,
    LimitsRaised,
    MailRefused,
    RunContinued,
    RunEnded,
    RunPaused,
    RunResumed,
    SteeringGiven,
)
from windlass.core.fold.control import name_message, raises_limits
from windlass.core.fold.run import fold
from windlass.core.mail import (
    AnswerMail,
    CancelMail,
    ContinueMail,
    Letter,
    PauseMail,
    PromptMail,
    RaiseLimitsMail,
    SteerMail,
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
_log = get_logger(__name__)

TakeMail = Callable[[], Awaitable[None]]
"""Takes the messages to a run that were posted up to now."""

MakeAnswer = Callable[[State, Letter], CallAnswered]
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
            leftovers.start_task(self.remove_taken())

    async def remove_taken(self) -> None:
        """Remove the messages whose facts are durable. Doing it again is harmless."""
        taken = self._recorder.state.mail_taken
        if taken <= self._removed_upto:
            return
        try:
            await self._journal.remove_mail(self._session, "control", taken)
        except WindlassError as error:
            _log.warning("session %s: its mailbox cannot be emptied: %s", self._session, error)
            return
        self._removed_upto = taken

    async def _listen(self) -> None:
        can_take = True
        while can_take:
            await self.remove_taken()
            try:
                taken = self._recorder.state.mail_taken
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
        )
        with suppress(NothingToDo):
            await self._journal.post_mail(session, forwarded, by=letter.by, key=key)
        return None


def find_refusal(state: State, letter: Letter) -> str | None:
    """Return why a message is not for the open run of a session; None if it is."""
    message = letter.message
    if isinstance(message, PromptMail):
        return "it is not a message to a run"
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
            return _wake_waiting_calls(state, made)
        problem = made
    return (refuse_letter(letter, problem),)


def refuse_letter(letter: Letter, reason: str) -> MailRefused:
    """Return the fact that refuses a message."""
    kind = kind_of(letter.message)
    return MailRefused(letter.number, kind, reason, letter.lane, letter.by)


def _make_fact(state: State, letter: Letter, make_answer: MakeAnswer) -> Fact | str:  # noqa: C901 - an arm per message
    """Return the fact that follows from a message to the open run, or why it cannot be taken."""
    run = state.run
    number = letter.number
    by = letter.by
    is_paused = run is not None and run.pause is not None
    match letter.message:
        case SteerMail() if not state.takes_steering:
            return "the run undoes an earlier one and asks no model"
        case SteerMail(prompt=prompt):
            return SteeringGiven(prompt, by, number)
        case PauseMail(reason=reason):
            if is_paused:
                return "the run is paused already"
            return RunPaused(reason, by, mail=number)
        case ContinueMail():
            if not is_paused:
                return "the run is not paused"
            return RunContinued(by, number)
        case AnswerMail(session=session, call_id=call_id) if session:
            return AnswerForwarded(session, call_id, by, number)
        case AnswerMail():
            try:
                return make_answer(state, letter)
            except ForOperator as error:
                return str(error)
        case RaiseLimitsMail(limits=limits):
            if not raises_limits(state, limits):
                return f"it raises no limit of this run ({limits.describe() or 'none is given'})"
            return LimitsRaised(limits, by, number)
        case CancelMail():
            return "the run is about to end already"
        case PromptMail():
            return "it is not a message to a run"


def _wake_waiting_calls(state: State, fact: Fact) -> Sequence[Fact]:
    """Let calls run again whose sub-agents wait, if the fact may be what they wait for.

    In one append with the fact: a process that dies in between would leave a run that waits for
    something that has come already.
    """
    is_news = isinstance(fact, AnswerForwarded | LimitsRaised | RunContinued)
    if is_news and any(call.phase == "waiting" for call in state.step_calls):
        return (RunResumed(rules=RULES_VERSION), fact)
    return (fact,)
