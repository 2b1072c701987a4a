"""What a person says to a question, as a fact.

The law: an answer is for exactly the arguments that were asked about, and for no longer than the
question holds. It can be written by whoever has the journal; the run goes on when it is resumed.
"""

from collections.abc import Iterator

from windlass.agent import lazy_imports
from windlass.agent.secrets import build_mask
from windlass.core.errors import ConfigError, NothingToDo
from windlass.core.events import CallAnswered
from windlass.core.fold.run import fold
from windlass.core.result import Question
from windlass.core.run_report import open_questions
from windlass.core.schema import JsonSchema, outline_schema
from windlass.core.setup import digest as digest_of
from windlass.core.state import CallState, State, find_call
from windlass.core.verdicts import (
    Allow,
    AllowAlways,
    AnswerVerdict,
    Ask,
    Deny,
    Modify,
    PersonAnswer,
    is_sound_verdict,
)
from windlass.ports import Clock, Journal
from windlass.runtime.clock import RealClock
from windlass.runtime.leases import hold_session
from windlass.runtime.recorder import Recorder

EXPIRED_DENIAL = Deny("the question had expired", "expiry")


async def answer(
    journal: Journal,
    session: str,
    call_id: str,
    reply: PersonAnswer,
    *,
    digest: str | None = None,
    by: str = "",
    clock: Clock | None = None,
) -> tuple[Question, ...]:
    """Answer a question with nothing but the journal; returns those that still wait.

    Give the digest that the question showed, and the answer cannot be for anything else. The run
    goes on when somebody resumes it.
    """
    clock = clock or RealClock()
    with await hold_session(journal, session):
        state = fold(session, await journal.read(session))
        recorder = Recorder(journal, clock, state, build_mask(None, ()))
        await recorder.record(make_answer(state, call_id, reply, clock, digest=digest, by=by))
        return open_questions(recorder.state)


def make_answer(
    state: State,
    call_id: str,
    reply: PersonAnswer,
    clock: Clock,
    *,
    digest: str | None = None,
    by: str = "",
) -> CallAnswered:
    """The fact of an answer; raises ForOperator if it answers nothing that is asked."""
    call = find_call(state, call_id)
    if not state.is_active or call is None or call.question is None:
        message = f"no question about call {call_id} waits in session {state.session}"
        raise NothingToDo(message)
    asked_digest = digest_of(call.decoded_arguments)
    if digest is not None and digest != asked_digest:
        raise ConfigError(f"the answer is for other arguments than those of call {call_id}")
    if _is_expired(call.question, state, clock):
        return CallAnswered(call_id, EXPIRED_DENIAL, asked_digest, str(by))
    if isinstance(reply, AllowAlways):
        return _answer_always(state, call, reply, asked_digest, str(by))
    _check_reply(reply, call, state)
    return CallAnswered(call_id, reply, asked_digest, str(by))


def expired_answers(state: State, clock: Clock) -> Iterator[CallAnswered]:
    """The denials of the questions that nobody answered in time."""
    for call in state.step.calls if state.step else ():
        if call.question is not None and _is_expired(call.question, state, clock):
            yield CallAnswered(
                call.id, EXPIRED_DENIAL, digest_of(call.decoded_arguments), "the clock"
            )


def _is_expired(question: Ask, state: State, clock: Clock) -> bool:
    expires_at = question.expires_at
    return expires_at is not None and expires_at < max(clock.now(), state.at)


def _answer_always(
    state: State, call: CallState, reply: AllowAlways, asked_digest: str, by: str
) -> CallAnswered:
    if not (isinstance(reply.pattern, str) and isinstance(reply.rule, str)):  # pyright: ignore[reportUnnecessaryIsInstance] - anybody may have made it
        raise ConfigError(f"{reply!r} is no answer: its pattern and its rule are texts")
    spec = state.setup.find_tool(call.call.name) if state.setup else None
    if spec is None or (call.question and call.question.rule == "interrupted"):
        raise ConfigError(f"a yes for more than this one call of {call.call.name} cannot be given")
    grant = lazy_imports.grant_for(spec, call.decoded_arguments, reply.pattern, state.labels)
    return CallAnswered(call.id, Allow(reply.rule or "always"), asked_digest, by, grant)


def _check_reply(reply: AnswerVerdict, call: CallState, state: State) -> None:
    if not is_sound_verdict(reply, AnswerVerdict):
        hint = "give Allow(), Deny(…), Modify(…) or Always(…)"
        raise ConfigError(f"{reply!r} is no answer: {hint}")
    spec = state.setup.find_tool(call.call.name) if state.setup else None
    schema = JsonSchema(spec.parameters) if spec else None
    if isinstance(reply, Modify) and schema and not schema.accepts(reply.arguments):
        raise ConfigError(
            f"the new arguments do not fit {call.call.name}: {outline_schema(schema)}"
        )
