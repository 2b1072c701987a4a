"""Questions and answers: what a person says becomes a fact, and the approver of a run is asked.

Invariant: an answer is for exactly the arguments that were asked about, and only until the question
expires. It is mail, also that of the run's own approver: the store decides which answer counts, and
the driver records it. An approver that fails has said no.
"""

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from contextvars import copy_context
from functools import partial
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from windlass.agent import lazy_imports
from windlass.core.errors import (
    AnswerNotQualified,
    ConfigError,
    NothingToDo,
    QuestionDecided,
)
from windlass.core.events import AnswerCounted, CallAnswered
from windlass.core.mail import AnswerMail, Letter
from windlass.core.messages import ToolSpec
from windlass.core.moves import WaitForAnswers
from windlass.core.question import Question
from windlass.core.result import open_questions
from windlass.core.schema import JsonSchema, outline_schema
from windlass.core.setup import digest as digest_of
from windlass.core.state import CallState, State, find_call
from windlass.core.verdicts import (
    APPROVER,
    CLOCK,
    EXPIRED_DENIAL,
    Allow,
    AllowAlways,
    AnswerVerdict,
    Deny,
    GivenAnswer,
    Modify,
    PersonAnswer,
    VerifiedPerson,
    classify_answer,
    find_disqualification,
    is_sound_verdict,
    tally,
    terms_of,
)
from windlass.journals.mail_rules import no_question_error, other_arguments_error
from windlass.logs import get_logger
from windlass.ports import Approver, Clock, World
from windlass.ports.gates import ApproverReply
from windlass.runtime.mailbox import TakeMail
from windlass.runtime.recorder import Recorder
from windlass.tools.attempts import ThreadPerJob

_log = get_logger(__name__)
EXPIRY_RETRY_S = 1.0
"""How long to wait for the store's clock, if a question has expired only by this one."""
ApproverAnswer = tuple[Question, PersonAnswer | KeyboardInterrupt | SystemExit | None]
"""A question, and what the approver said, or raised to end the program."""


def make_answer(
    state: State,
    call_id: str,
    reply: PersonAnswer,
    now: float,
    *,
    digest: str | None = None,
    by: str = "",
    person: VerifiedPerson | None = None,
) -> CallAnswered | AnswerCounted:
    """Return an answer, given at a time, as a fact.

    Raises NothingToDo, ConfigError or AnswerNotQualified if it does not fit.
    """
    call = find_asking_call(state, call_id, digest)
    asked_digest = digest_of(call.decoded_arguments)
    fact = fit_answer(state, call, reply, by=str(by))
    if call.question is None:
        return fact
    put_in = digest_of(reply.arguments) if isinstance(reply, Modify) else ""
    given = GivenAnswer(classify_answer(reply), str(by), now, person, put_in)
    terms = terms_of(call.question, asked_digest)
    decision = tally(terms, (*call.answers, given))
    if decision is not None and decision.answer == "expiry":
        return CallAnswered(call_id, EXPIRED_DENIAL, asked_digest, decision.by)
    if problem := find_disqualification(terms, given):
        raise AnswerNotQualified(call_id, problem)
    if decision is not None:
        return replace(fact, person=person)
    if isinstance(fact.verdict, Deny):
        raise ConfigError(f"the question about call {call_id} has not expired")
    return AnswerCounted(call_id, fact.verdict, asked_digest, str(by), person=person)


def fit_answer(state: State, call: CallState, reply: PersonAnswer, *, by: str = "") -> CallAnswered:
    """Return an answer as a fact, if it fits the call, whoever gives it and whenever.

    Raises ConfigError if it does not.
    """
    asked_digest = digest_of(call.decoded_arguments)
    if isinstance(reply, AllowAlways):
        return _answer_always(state, call, reply, asked_digest, by)
    _check_reply(reply, call, state)
    return CallAnswered(call.id, reply, asked_digest, by)


def find_asking_call(state: State, call_id: str, digest: str | None) -> CallState:
    """Return a call that waits for an answer.

    Raises NothingToDo if it does not, and ConfigError if the digest is not of its arguments.
    """
    call = find_call(state, call_id)
    if not state.is_active or call is None or call.question is None:
        raise no_question_error(call_id, state.session)
    if digest is not None and digest != digest_of(call.decoded_arguments):
        raise other_arguments_error(call_id)
    return call


def find_expired(state: State, clock: Clock) -> Sequence[Question]:
    """Return the open questions that have expired by this clock."""
    now = max(clock.now(), state.at)
    return [
        question
        for question in open_questions(state)
        if question.session == state.session
        and question.expires_at is not None
        and question.expires_at < now
    ]


async def deny_expired(world: World, recorder: Recorder, take_mail: TakeMail) -> None:
    """Deny the questions that were not answered in time."""
    for question in find_expired(recorder.state, world.clock):
        await _give_answer(world, recorder, question, EXPIRED_DENIAL, take_mail)


def _answer_always(
    state: State, call: CallState, reply: AllowAlways, asked_digest: str, by: str
) -> CallAnswered:
    """Return an answer that also grants later calls."""
    if not (isinstance(reply.pattern, str) and isinstance(reply.rule, str)):  # pyright: ignore[reportUnnecessaryIsInstance] - users need not check types
        raise ConfigError(f"{reply!r} is not a valid answer: its pattern and rule must be str")
    spec = _spec_of(call, state)
    if call.approvals:
        raise ConfigError(f"people have to agree to {call.call.name} each time it is called")
    if spec is None or (call.question and call.question.rule == "interrupted"):
        raise ConfigError(
            f"{call.call.name} can only be allowed for this one call, not for later ones"
        )
    grant = lazy_imports.make_grant(spec, call.decoded_arguments, reply.pattern, state.labels)
    return CallAnswered(call.id, Allow(reply.rule or "always"), asked_digest, by, grant)


def _check_reply(reply: AnswerVerdict, call: CallState, state: State) -> None:
    if not is_sound_verdict(reply, AnswerVerdict):
        raise ConfigError(
            f"{reply!r} is not an answer: pass Allow(), Deny(…), Modify(…) or AllowAlways(…)"
        )
    spec = _spec_of(call, state)
    if spec is None or not isinstance(reply, Modify):
        return
    schema = JsonSchema(spec.parameters)
    if not schema.accepts(reply.arguments):
        outline = outline_schema(schema)
        raise ConfigError(f"the new arguments do not fit {call.call.name}: {outline}")


def _spec_of(call: CallState, state: State) -> ToolSpec | None:
    return state.setup.find_tool(call.call.name) if state.setup else None


def answer_from_mail(state: State, letter: Letter) -> CallAnswered | AnswerCounted:
    """Return an answer that came by mail as a fact; it counts from when the store accepted it.

    Raises NothingToDo or ConfigError if it does not fit the question, or none waits.
    """
    message = letter.message
    if not isinstance(message, AnswerMail):
        raise ConfigError("the message is not an answer")
    # An answer for a sub-agent was accepted where it was given, at the top.
    accepted_at = min(message.accepted_at or letter.at, letter.at)
    fact = make_answer(
        state,
        message.call_id,
        message.verdict,
        accepted_at,
        digest=message.digest,
        by=letter.by,
        person=message.person,
    )
    given = message.grant
    if isinstance(fact, CallAnswered) and fact.grant is not None and given is not None:
        # As the person gave it: the session may hold more labels by now. All else must be the same.
        if replace(given, labels=fact.grant.labels) != fact.grant:
            raise ConfigError("the tool is described differently since the answer was given")
        fact = replace(fact, grant=given)
    return replace(fact, mail=letter.number, accepted_at=accepted_at, signature=letter.signature)


async def consult_approver(
    waiting: WaitForAnswers, world: World, recorder: Recorder, take_mail: TakeMail
) -> bool:
    """Ask the approver all questions at once. Returns whether each has its answer on record.

    An answer is recorded as soon as it is given, so that it is not lost if the process dies while
    other questions are still open. If another answer is accepted first, that one counts, and the
    approver is cancelled. `take_mail` takes the messages that were posted up to now: a question has
    not expired if its answer was accepted in time.
    """
    approver = world.approver
    if approver is None:
        return False
    call_ids = {call.id for call, _ in waiting.questions}
    # Those that certain people have to answer are theirs: an approver is nobody in particular.
    questions = [
        one
        for one in open_questions(recorder.state)
        if one.session == recorder.state.session and one.call_id in call_ids and not one.approvals
    ]
    now = world.clock.now()
    asking = {asyncio.create_task(ask_approver(approver, one, now)): one for one in questions}
    try:
        while asking:
            await _wait_for_answer(recorder, asking)
            for task, question in tuple(asking.items()):
                if task.done():
                    del asking[task]
                    await _take_reply(world, recorder, task.result(), take_mail)
                elif not _is_open(recorder.state, question):
                    task.cancel()
                    del asking[task]
    finally:
        for task in asking:
            task.cancel()
    return not any(call.question is not None for call in recorder.state.step_calls)


async def _wait_for_answer(
    recorder: Recorder, asking: Mapping[asyncio.Task[ApproverAnswer], Question]
) -> None:
    """Wait until the approver answers, or something else is written in the session."""
    written = asyncio.ensure_future(recorder.wait_for_fact(recorder.state.seq))
    try:
        await asyncio.wait({*asking, written}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        written.cancel()


def _is_open(state: State, question: Question) -> bool:
    call = find_call(state, question.call_id)
    return call is not None and call.question is not None


async def _take_reply(
    world: World, recorder: Recorder, answered: ApproverAnswer, take_mail: TakeMail
) -> None:
    """Post what an approver answered, and take it as any other answer."""
    question, reply = answered
    if isinstance(reply, BaseException):
        raise reply
    if reply is EXPIRED_DENIAL:
        # If the store accepted an answer in time, it refuses this with that decision.
        while _is_open(recorder.state, question) and not await _give_answer(
            world, recorder, question, EXPIRED_DENIAL, take_mail
        ):
            await world.clock.sleep(EXPIRY_RETRY_S)
    elif reply is not None:
        await _give_answer(world, recorder, question, reply, take_mail)


async def _give_answer(
    world: World, recorder: Recorder, question: Question, reply: PersonAnswer, take_mail: TakeMail
) -> bool:
    """Post the answer of this driver, and take what was posted. Returns whether one was accepted.

    If the question was decided elsewhere first, that decision counts.
    """
    journal = world.journal
    state = recorder.state
    by = CLOCK if reply is EXPIRED_DENIAL else APPROVER
    if not _is_open(state, question) or state.run is None:
        return True
    now = max(world.clock.now(), state.at)
    call_id = question.call_id
    fact = recorder.mask.mask_fact(_answer_or_deny(state, question, reply, now, by))
    grant = fact.grant if isinstance(fact, CallAnswered) else None
    message = AnswerMail(
        run=state.run.number,
        call_id=call_id,
        digest=question.digest,
        verdict=fact.verdict if isinstance(fact, CallAnswered) and grant is None else reply,
        grant=grant,
    )
    try:
        await journal.post_mail(state.session, message, by=by)
    except QuestionDecided as decided:
        _log.info("call %s was answered elsewhere first: %s", question.call_id, decided)
    except NothingToDo:
        return False
    await take_mail()
    # A mailbox that fails stops no run, but a journal that could not keep the answer does.
    recorder.raise_failure()
    return True


def _answer_or_deny(
    state: State, question: Question, reply: PersonAnswer, now: float, by: str
) -> CallAnswered | AnswerCounted:
    """Return the answer as a fact; an answer that does not fit counts as a no."""
    answer_with = partial(
        make_answer, state, question.call_id, now=now, digest=question.digest, by=by
    )
    try:
        return answer_with(reply)
    except ConfigError as error:
        return answer_with(Deny(f"the approver's answer is not valid: {error}", "approver-failure"))


async def ask_approver(approver: Approver, question: Question, now: float) -> ApproverAnswer:
    """Return the answer to a question, or what the approver raised to end the program.

    As data, because asyncio raises such an exception of a task out of the event loop at once.
    """
    timeout_s = None
    if question.expires_at is not None:
        timeout_s = max(0.0, question.expires_at - now)
    try:
        async with asyncio.timeout(timeout_s):
            reply = await call_approver(approver, question)
    except TimeoutError:
        return question, EXPIRED_DENIAL
    except (KeyboardInterrupt, SystemExit) as error:
        return question, error
    except Exception as error:  # noqa: BLE001 - an approver that fails has said no
        _log.exception("the approver failed, so the call of %s is denied", question.tool)
        return question, Deny(f"the approver failed: {type(error).__name__}", "approver-failure")
    if reply is None or isinstance(reply, AllowAlways) or is_sound_verdict(reply, AnswerVerdict):
        return question, reply
    _log.error(
        "the approver returned a %s, which is not an answer, so the call of %s is denied",
        type(reply).__name__,
        question.tool,
    )
    return question, Deny("the approver did not return an answer", "approver-failure")


async def call_approver(approver: Approver, question: Question) -> PersonAnswer | None:
    """Ask an approver; True means Allow, and False means Deny."""
    reply = approver(question)
    if inspect.isawaitable(reply):
        reply = await reply
    if isinstance(reply, bool):
        return Allow("approver") if reply else Deny("the approver said no", "approver")
    return reply


def as_async_approver(approver: Approver | None) -> Approver | None:
    """Return an approver that never blocks the event loop, or None if none was given."""
    if approver is None or isinstance(approver, _ThreadApprover):
        return approver
    call = getattr(approver, "__call__", None)  # noqa: B004 - an object with `__call__`
    if inspect.iscoroutinefunction(approver) or inspect.iscoroutinefunction(call):
        return approver
    return _ThreadApprover(approver)


class _ThreadApprover:
    """An approver that is not async. It may wait for a person, as `input` does, so in a thread.

    It is asked one question after the other: two threads that print and read at a terminal would
    mix their lines, and a person could not tell which question they answer.
    """

    def __init__(self, approver: Approver) -> None:
        self._approver = approver
        # An agent may be used in several event loops, and a lock belongs to one.
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
            WeakKeyDictionary()
        )

    async def __call__(self, question: Question) -> ApproverReply:
        async with self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            # A daemon: a person who does not answer must not keep the program from ending.
            context = copy_context()
            reply = await asyncio.get_running_loop().run_in_executor(
                ThreadPerJob(), lambda: context.run(self._approver, question)
            )
        return await reply if inspect.isawaitable(reply) else reply
