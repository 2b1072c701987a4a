"""What a person says to a question, as a fact.

The law: an answer is for exactly the arguments that were asked about, and for no longer than the
question holds. It can be written by whoever has the journal; the run goes on when it is resumed.
"""

from collections.abc import Iterator

from windlass.agent.lazy_imports import grant_for
from windlass.agent.secrets import mask_of
from windlass.core.errors import ConfigError, NothingToDo
from windlass.core.events import CallAnswered
from windlass.core.fold.run import fold
from windlass.core.result import Question
from windlass.core.run_report import questions
from windlass.core.schema import Schema, outline
from windlass.core.setup import digest as digest_of
from windlass.core.state import Call, State, call_of
from windlass.core.verdicts import Allow, Always, Answer, Ask, Deny, Modify, Reply, sound
from windlass.ports import Clock, Journal
from windlass.runtime.clock import RealClock
from windlass.runtime.leases import held
from windlass.runtime.recorder import Recorder

EXPIRED = Deny("the question had expired", "expiry")


async def answer(
    journal: Journal,
    session: str,
    call_id: str,
    reply: Reply,
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
    with await held(journal, session):
        state = fold(session, await journal.read(session))
        recorder = Recorder(journal, clock, state, mask_of(None, ()))
        await recorder.record(answered(state, call_id, reply, clock, digest=digest, by=by))
        return questions(recorder.state)


def answered(
    state: State,
    call_id: str,
    reply: Reply,
    clock: Clock,
    *,
    digest: str | None = None,
    by: str = "",
) -> CallAnswered:
    """The fact of an answer; raises ForOperator if it answers nothing that is asked."""
    call = call_of(state, call_id)
    if not state.active or call is None or call.question is None:
        told = f"no question about call {call_id} waits in session {state.session}"
        raise NothingToDo(told)
    asked = digest_of(call.decoded)
    if digest is not None and digest != asked:
        raise ConfigError(f"the answer is for other arguments than those of call {call_id}")
    if _expired(call.question, state, clock):
        return CallAnswered(call_id, EXPIRED, asked, str(by))
    if isinstance(reply, Always):
        return _for_all(state, call, reply, asked, str(by))
    _check(reply, call, state)
    return CallAnswered(call_id, reply, asked, str(by))


def expirations(state: State, clock: Clock) -> Iterator[CallAnswered]:
    """The denials of the questions that nobody answered in time."""
    for call in state.step.calls if state.step else ():
        if call.question is not None and _expired(call.question, state, clock):
            yield CallAnswered(call.id, EXPIRED, digest_of(call.decoded), "the clock")


def _expired(question: Ask, state: State, clock: Clock) -> bool:
    expires_at = question.expires_at
    return expires_at is not None and expires_at < max(clock.now(), state.at)


def _for_all(state: State, call: Call, reply: Always, asked: str, by: str) -> CallAnswered:
    if not (isinstance(reply.pattern, str) and isinstance(reply.rule, str)):  # pyright: ignore[reportUnnecessaryIsInstance] - anybody may have made it
        raise ConfigError(f"{reply!r} is no answer: its pattern and its rule are texts")
    spec = state.setup.tool(call.call.name) if state.setup else None
    if spec is None or (call.question and call.question.rule == "interrupted"):
        raise ConfigError(f"a yes for more than this one call of {call.call.name} cannot be given")
    grant = grant_for(spec, call.decoded, reply.pattern, state.labels)
    return CallAnswered(call.id, Allow(reply.rule or "always"), asked, by, grant)


def _check(reply: Answer, call: Call, state: State) -> None:
    if not sound(reply, Answer):
        told = "give Allow(), Deny(…), Modify(…) or Always(…)"
        raise ConfigError(f"{reply!r} is no answer: {told}")
    spec = state.setup.tool(call.call.name) if state.setup else None
    schema = Schema(spec.parameters) if spec else None
    if isinstance(reply, Modify) and schema and not schema.accepts(reply.arguments):
        raise ConfigError(f"the new arguments do not fit {call.call.name}: {outline(schema)}")
