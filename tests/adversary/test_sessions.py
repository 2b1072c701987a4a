"""What a session must survive: mistaken callers, mistaken doubles, slow disks."""

import asyncio
import datetime as dt
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from windlass import (
    Agent,
    Allow,
    Ask,
    CallLate,
    Event,
    Fact,
    Limits,
    NothingToDo,
    RunEnded,
    RunFailed,
    RunUnfinished,
    SessionBusy,
    StepProposed,
    TextDelta,
    ToolResults,
    UserMessage,
    WindlassError,
    tool,
)
from windlass.agent.event_stream import EventStream
from windlass.core.errors import (
    ConfigError,
    ForOperator,
    JournalFailed,
    ModelError,
    QuestionDecided,
)
from windlass.core.events import AttemptDiscarded, CallFinished, ReplyPiece, ThinkingDelta
from windlass.core.session_summary import SessionSummary
from windlass.core.setup import LoopPolicy, ModelInfo, Price, RetryPolicy
from windlass.core.verdicts import Deny, Verdict
from windlass.core.view import Prompt
from windlass.journals.memory import MemoryJournal
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.ports import GateRequest
from windlass.testing import (
    BareJournal,
    FixedGate,
    PowerCutJournal,
    ScriptedModel,
    VirtualClock,
    WaitingJournal,
    call,
    drop,
    pause,
    say,
)

SESSION = "s"
Broken = Any


@tool
def send(number: int) -> str:
    """Send something."""
    return f"sent {number}"


@tool(effect="read")
def look(number: int) -> str:
    """Look at something."""
    return "seen"


class SlowJournal:
    """Takes its time over appends that hold a fact of one kind."""

    def __init__(self, kind: type[Fact], delay_s: float = 0.5) -> None:
        self._journal = MemoryJournal()
        self._kind = kind
        self._delay_s = delay_s

    async def read(self, session: str, after: int = 0) -> Sequence[Fact]:
        return await self._journal.read(session, after)

    async def append(self, session: str, facts: Sequence[Fact], row: SessionSummary) -> None:
        if any(isinstance(fact, self._kind) for fact in facts):
            await asyncio.sleep(self._delay_s)
        await self._journal.append(session, facts, row)


# ── What is written must be readable ─────────────────────────────────────────


async def _run(journal: SqliteJournal, **parts: Any) -> None:
    parts.setdefault("model", ScriptedModel([call("send", {"number": 1}), "Done."]))
    parts.setdefault("tools", [send])
    await Agent(**parts, journal=journal).run("Go.", session=SESSION)


async def _resource(journal: SqliteJournal) -> None:
    @tool(resource=lambda arguments: arguments["number"])  # An int, as an account number is.
    def send(number: int) -> str:
        """Send something."""
        return "sent"

    await _run(journal, tools=[send])


async def _expiry(journal: SqliteJournal) -> None:
    at: Broken = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
    await _run(journal, gate=FixedGate(Ask("May it?", expires_at=at)))


async def _denial(journal: SqliteJournal) -> None:
    nothing: Broken = None
    await _run(journal, gate=FixedGate(Deny(nothing)))


async def _rules(journal: SqliteJournal) -> None:
    typo: Broken = "anwser"
    await _run(journal, rules=LoopPolicy(on_limit=typo))


async def _limits(journal: SqliteJournal) -> None:
    million: Broken = 1e6
    await _run(journal, limits=Limits(tokens=million))


async def _reason(journal: SqliteJournal) -> None:
    reason: Broken = 42
    agent = Agent(ScriptedModel([[say("x"), pause(1)]]), journal=journal)
    run = asyncio.create_task(agent.run("Go.", session=SESSION))
    await asyncio.sleep(0.2)
    assert agent.cancel(SESSION, reason)
    await run


async def _answerer(journal: SqliteJournal) -> None:
    model = ScriptedModel([call("send", {"number": 1}), "Done."])
    agent = Agent(model, tools=[send], gate=FixedGate(Ask("May it?")), journal=journal)
    held = await agent.run("Go.", session=SESSION)
    user_id: Broken = 42
    await agent.answer(SESSION, held.questions[0].call_id, Allow(), by=user_id)


@pytest.mark.realtime
@pytest.mark.parametrize(
    "mistake", [_resource, _expiry, _denial, _rules, _limits, _reason, _answerer]
)
async def test_what_a_journal_takes_it_can_read_again(
    mistake: Callable[[SqliteJournal], Awaitable[None]], tmp_path: Path
) -> None:
    """J10: a mistake of a caller is refused, or kept so that it can be read; it costs no session.

    The run completes, nobody hears of anything, and from then on the session cannot be read.
    """
    with SqliteJournal(tmp_path / "sessions.db") as journal:
        with suppress(WindlassError, ValueError):  # Refusing is as good.
            await mistake(journal)
        await journal.read(SESSION)


# ── A call that was not accepted must change nothing ─────────────────────────


@pytest.mark.parametrize("verdict", [True, None, "allow", Allow, Ask("Really?")])
async def test_an_answer_that_is_none_is_refused_and_the_question_stays(verdict: Broken) -> None:
    """G6: a run may have waited for days; `answer(…, True)` must not be its end."""
    model = ScriptedModel([call("send", {"number": 1}), "Done."])
    agent = Agent(model, tools=[send], gate=FixedGate(Ask("May it?")))
    held = await agent.run("Go.", session=SESSION)
    with pytest.raises((ConfigError, TypeError)):
        await agent.answer(SESSION, held.questions[0].call_id, verdict)
    done = await agent.answer(SESSION, held.questions[0].call_id, Allow())
    assert done.outcome == "completed"


async def test_an_answer_after_the_clock_was_set_back(clock: VirtualClock) -> None:
    """G6: expiry denies; it never ends the run.

    An answer looks at the clock, the fold at the journal's time, which does not go back.
    """

    class SetBack:
        ahead_s = 10.0
        sleep, random_fraction = clock.sleep, clock.random_fraction

        def now(self) -> float:
            return clock.now() + self.ahead_s

    watch = SetBack()
    gate = FixedGate(Ask("May it?", expires_at=clock.now() + 5))
    model = ScriptedModel([call("send", {"number": 1}), "Done."])
    agent = Agent(model, tools=[send], gate=gate, clock=watch)
    held = await agent.run("Go.", session=SESSION)
    watch.ahead_s = 0.0
    done = await agent.answer(SESSION, held.questions[0].call_id, Allow())
    assert done.outcome == "completed"


@pytest.mark.parametrize("action", ["resume", "answer"])
async def test_whoever_takes_over_second_is_refused(action: str) -> None:
    """L14: the run is driven elsewhere, or its question is decided; no watcher sees an end."""
    journal = MemoryJournal()
    gate = FixedGate(Ask("May it?"))
    first = ScriptedModel([call("send", {"number": 1})])
    held = await Agent(first, tools=[send], gate=gate, journal=journal).run("Go.", session=SESSION)
    seen: list[Event] = []

    async def take_over() -> object:
        slow = WaitingJournal(journal, 0.01)
        agent = Agent(ScriptedModel(["Done."]), tools=[send], gate=gate, journal=slow)
        if action == "resume":
            return await agent.resume(SESSION, on_event=seen.append)
        call_id = held.questions[0].call_id
        return await agent.answer(SESSION, call_id, Allow(), on_event=seen.append)

    ends = await asyncio.gather(take_over(), take_over(), return_exceptions=True)
    assert sum(isinstance(end, SessionBusy | QuestionDecided) for end in ends) == 1
    assert not any(isinstance(event, RunEnded) and event.outcome == "failed" for event in seen)


async def test_a_run_that_is_being_driven_is_not_abandoned(clock: VirtualClock) -> None:
    """`abandon` is for a run that nobody drives any more."""
    agent = Agent(ScriptedModel([[say("One "), pause(1), say("two.")]]), clock=clock)
    run = asyncio.create_task(agent.run("Go.", session=SESSION))
    await asyncio.sleep(0.5)
    try:
        with pytest.raises((SessionBusy, NothingToDo)):
            await agent.abandon(SESSION)
    finally:
        ended = (await asyncio.gather(run, return_exceptions=True))[0]
    assert getattr(ended, "outcome", ended) == "completed"


async def test_a_second_run_of_a_live_session_is_told_so(clock: VirtualClock) -> None:
    """L14: `RunUnfinished` says "resume, answer or abandon it first", which would kill it."""
    agent = Agent(ScriptedModel([[say("One "), pause(1), say("two.")]]), clock=clock)
    run = asyncio.create_task(agent.run("Go.", session=SESSION))
    await asyncio.sleep(0.5)
    try:
        with pytest.raises(SessionBusy):
            await agent.run("And more.", session=SESSION)
    finally:
        await run


async def test_a_run_that_is_stopped_at_once_is_simply_cancelled() -> None:
    """C2, L5: no fault, and `recorded` is False "only when the journal failed or hung"."""
    agent = Agent(ScriptedModel([]))
    run = asyncio.create_task(agent.run("Go.", session=SESSION))
    await asyncio.sleep(0)
    assert agent.cancel(SESSION)
    result = await run
    assert (result.outcome, result.error, result.recorded) == ("cancelled", None, True)


@pytest.mark.parametrize("prompt", ["\ud800", ["hello", 7], [None], b"bytes", None])
async def test_a_prompt_that_is_none_is_refused_in_words(prompt: Broken) -> None:
    """A person acts: they must be told what to change, by a ConfigError."""
    with pytest.raises(ForOperator):
        await Agent(ScriptedModel(["Done."])).run(prompt)


HALF = "half \ud83d of an emoji"


def go() -> str:
    return "gone"


@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("instructions", lambda: Agent(ScriptedModel([]), instructions=HALF)),
        ("name", lambda: Agent(ScriptedModel([]), name=HALF)),
        ("replies", lambda: ScriptedModel([HALF])),
        ("caller", lambda: Agent(ScriptedModel([])).run_sync("Go.", caller=HALF)),
        ("caller", lambda: Agent(ScriptedModel([])).run_sync("Go.", caller=HALF, key="k")),
        ("key", lambda: Agent(ScriptedModel([])).run_sync("Go.", key=HALF)),
        ("session", lambda: Agent(ScriptedModel([])).run_sync("Go.", session=HALF)),
        (
            "instructions",
            lambda: Agent(ScriptedModel([]), instructions=lambda _: HALF).run_sync("Go."),
        ),
        ("prompt", lambda: Agent(ScriptedModel([])).run_sync(["Go.", HALF])),
        ("context", lambda: Agent(ScriptedModel([])).run_sync("Go.", context={"user": HALF})),
        ("description", lambda: Agent(ScriptedModel([]), tools=[tool(go, description=HALF)])),
        ("model", lambda: Agent(HALF, key="k")),
        ("by", lambda: asyncio.run(Agent(ScriptedModel([])).steer("s", "Go.", by=HALF))),
    ],
)
def test_half_of_a_character_is_refused_where_it_is_given(
    name: str, use: Callable[[], object]
) -> None:
    """A person acts: no journal can keep it, so they are told which argument has it."""
    with pytest.raises(ConfigError, match=rf"{name}= cannot be recorded: .* at 5"):
        use()


@pytest.mark.realtime
async def test_a_bad_session_name_is_no_damaged_file(tmp_path: Path) -> None:
    """J10: to restore the file from a copy is the worst advice for this mistake."""
    with SqliteJournal(tmp_path / "sessions.db") as journal:
        agent = Agent(ScriptedModel(["Done."]), journal=journal)
        with pytest.raises((ConfigError, JournalFailed)):
            await agent.run("Go.", session="\ud800")


@pytest.mark.contract("B4")
async def test_a_price_in_floats_is_exact() -> None:
    """B4: `Price(0.1, 0.3)` is a tenth and three tenths, in the price and in what a run costs."""
    tenth: Broken = 0.1
    three_tenths: Broken = 0.3
    price = Price(tenth, three_tenths, cache_read=tenth)
    assert (price.input, price.output, price.cache_read) == (
        Decimal("0.1"),
        Decimal("0.3"),
        Decimal("0.1"),
    )
    model = ScriptedModel(["Done."], info=ModelInfo("scripted:model", price), truthful=True)
    result = await Agent(model).run("Go.")
    (billed,) = model.billed
    million = Decimal(1_000_000)
    expected = (billed.input * Decimal("0.1") + billed.output * Decimal("0.3")) / million
    assert result.cost == expected
    assert "0.1000000000000000055" not in repr(price)


# ── Limits ───────────────────────────────────────────────────────────────────


async def test_the_limits_of_whoever_goes_on_are_kept() -> None:
    """B1, J9: `Limits(steps=2)` makes ten steps, and no drift is told."""
    gate = FixedGate(lambda one: Allow() if one.arguments["number"] else Ask("May it?"))
    journal = MemoryJournal()
    first = ScriptedModel([call("send", {"number": 0})])
    held = await Agent(first, tools=[send], gate=gate, journal=journal).run("Go.", session=SESSION)
    model = ScriptedModel([*(call("send", {"number": at}) for at in range(1, 9)), "Done."])
    limits = Limits(steps=2)
    agent = Agent(model, tools=[send], gate=gate, journal=journal, limits=limits)
    try:
        result = await agent.answer(SESSION, held.questions[0].call_id, Allow())
    except ForOperator:
        return  # To say that the set-up drifted is as good.
    assert result.steps <= 2


async def test_an_abandoned_attempt_was_paid_for() -> None:
    """S12, B2: "if the process dies in it, all that was reserved counts as spent"."""
    journal = MemoryJournal()
    dying = Agent(ScriptedModel(["Done."]), journal=PowerCutJournal(journal, at=3))
    with pytest.raises(RunFailed):
        await dying.run("Go.", session=SESSION)
    result = await Agent(ScriptedModel([]), journal=journal).abandon(SESSION)
    assert result.model_calls == 1
    assert result.usage is not None


async def test_who_goes_round_in_circles_is_told_before_the_end() -> None:
    """L11: three times in a row earn a note; only two more after it end the run."""
    model = ScriptedModel([[call("look", {"number": 1})] * 5, "Done."])
    result = await Agent(model, tools=[look]).run("Go.")
    assert any(isinstance(message, UserMessage) and message.note for message in result.messages)
    assert result.outcome == "completed"


# ── What is lost when a run is stopped ───────────────────────────────────────


@tool
async def partly() -> str:
    """Do some of it, and say so when it is stopped."""
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        return "3 of 5"
    return "5 of 5"


async def test_a_late_result_is_kept_while_the_end_is_being_written(clock: VirtualClock) -> None:
    """C4: a tool that stops in good order answers within a turn; a disk takes a millisecond."""
    journal = MemoryJournal()
    model = ScriptedModel([call("partly")])
    agent = Agent(model, tools=[partly], journal=WaitingJournal(journal), clock=clock)
    run = asyncio.create_task(agent.run("Go.", session=SESSION))
    await asyncio.sleep(1)
    agent.cancel(SESSION)
    await run
    await agent.aclose()
    await asyncio.sleep(1)
    facts = await journal.read(SESSION)
    assert [fact.result.text for fact in facts if isinstance(fact, CallLate)]


async def test_a_late_result_does_not_refuse_the_next_run(clock: VirtualClock) -> None:
    """C4, L14: nobody else writes this session, and yet it is said to be busy."""

    @tool
    async def stubborn() -> str:
        """Take a while to stop."""
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(1)
        return "late"

    refused: list[str] = []
    for lead in range(-5, 6):
        journal = WaitingJournal(MemoryJournal(), 0.01)
        model = ScriptedModel([call("stubborn"), "Done."])
        agent = Agent(model, tools=[stubborn], journal=journal, clock=clock)
        run = asyncio.create_task(agent.run("Go.", session=SESSION))
        await asyncio.sleep(1)
        stopped_s = clock.elapsed_s
        agent.cancel(SESSION)
        await run
        await asyncio.sleep(stopped_s + 1 + lead * 0.005 - clock.elapsed_s)
        try:
            await agent.run("And more.", session=SESSION)
        except SessionBusy as error:
            refused.append(f"{lead}: {error}")
        await agent.aclose()
    assert not refused


@pytest.mark.leaves_tasks
async def test_text_on_its_way_to_a_slow_disk_is_not_lost(clock: VirtualClock) -> None:
    """L5: the watcher saw the words, the journal gets them, and the result has none of them."""
    journal = SlowJournal(StepProposed)
    agent = Agent(ScriptedModel(["Hello."]), journal=journal, clock=clock)
    run = asyncio.create_task(agent.run("Go.", session=SESSION))
    await asyncio.sleep(0.1)
    agent.cancel(SESSION)
    result = await run
    assert "Hello." in (result.text, result.partial_text)
    assert result.usage is not None


@pytest.mark.leaves_tasks
async def test_a_result_on_its_way_to_a_slow_disk_is_not_lost(clock: VirtualClock) -> None:
    """C3: the transcript of the result and the one of the journal differ."""
    journal = SlowJournal(CallFinished)
    model = ScriptedModel([call("look", {"number": 1})])
    agent = Agent(model, tools=[look], journal=journal, clock=clock)
    run = asyncio.create_task(agent.run("Go.", session=SESSION))
    await asyncio.sleep(0.1)
    agent.cancel(SESSION)
    result = await run
    told = [
        item
        for message in result.messages
        if isinstance(message, ToolResults)
        for item in message.items
    ]
    assert [item.result.kind for item in told] == ["value"]


# ── Watching ─────────────────────────────────────────────────────────────────


async def test_what_a_late_watcher_heard_is_not_told_again(clock: VirtualClock) -> None:
    """S5, S6: text is delivered exactly once, or the watcher is told to drop it."""
    model = ScriptedModel([[say("Hello wor"), pause(2), drop()], "Hello world"])
    agent = Agent(model, rules=LoopPolicy(on_partial="restart"), clock=clock)
    run = asyncio.create_task(agent.run("Go.", session=SESSION))
    await asyncio.sleep(1)
    text = ""
    async for event in agent.watch(SESSION):
        if isinstance(event, AttemptDiscarded):
            text = ""
        elif isinstance(event, TextDelta):
            text += event.text
    await run
    assert text == "Hello world"


@pytest.mark.leaves_tasks
async def test_a_watcher_that_comes_at_the_end_is_let_go(clock: VirtualClock) -> None:
    """E5: the last event was told, and the driver is still on the list of the living."""
    agent = Agent(ScriptedModel(["Done."]), clock=clock)
    async with agent.stream("Go.", session=SESSION) as events:
        async for event in events:
            if isinstance(event, RunEnded):
                async with asyncio.timeout(10):
                    assert [_ async for _ in agent.watch(SESSION)]


@pytest.mark.leaves_tasks
async def test_a_watcher_of_a_refused_run_is_let_go(clock: VirtualClock) -> None:
    """E5, L14: the driver raises, and its watchers get nothing but their end."""
    journal = MemoryJournal()
    bare = WaitingJournal(BareJournal(journal), 0.2)
    slow = Agent(ScriptedModel(["Two."]), journal=bare, clock=clock)
    second = asyncio.create_task(slow.run("Go.", session=SESSION))
    await asyncio.sleep(0.3)

    async def watch() -> list[Event]:
        return [event async for event in slow.watch(SESSION)]

    watching = asyncio.create_task(watch())
    long = ScriptedModel([[pause(30.0), say("One.")]])
    first = asyncio.create_task(
        Agent(long, journal=journal, clock=clock).run("Go.", session=SESSION)
    )
    with pytest.raises((RunUnfinished, SessionBusy)):
        await second
    assert not first.done()
    async with asyncio.timeout(100):
        await watching
    await first


async def test_the_result_is_there_when_the_events_are_over() -> None:
    """L5: the error says "read the events to their end first", which was just done."""
    async with Agent(ScriptedModel(["Done."])).stream("Go.") as events:
        async for _ in events:
            pass
        assert events.result.text == "Done."


async def test_a_full_buffer_keeps_signatures() -> None:
    """E4: fragments are merged; nothing that they hold is dropped."""
    events: EventStream[str] = EventStream(capacity=1)
    for event in (ThinkingDelta("Hm"), ThinkingDelta("."), ThinkingDelta("", "signed")):
        events.push(event)
    events.push(RunEnded("completed"))
    events.close()
    seen = [event async for event in events]
    assert any(isinstance(event, ThinkingDelta) and event.signature for event in seen)


# ── Gates and models that misbehave ──────────────────────────────────────────


class OddGate:
    """A gate that gives what it should not."""

    name = "odd"
    judges_replies = True

    async def judge(self, request: GateRequest) -> Verdict:
        raise asyncio.CancelledError

    async def judge_reply(self, session: str, text: str) -> Broken:
        return None


async def test_a_gate_that_is_cancelled_inside_denies() -> None:
    """G1: a gate that raises denies; one that asks a server can meet a cancelled future."""
    model = ScriptedModel([call("send", {"number": 1}), "Done."])

    class Gate(OddGate):
        judges_replies = False

    result = await Agent(model, tools=[send], gate=Gate()).run("Go.")
    assert result.outcome == "completed"


async def test_a_gate_that_gives_no_verdict_on_a_reply_denies() -> None:
    """G1: as it does for a call; now it is an UnboundLocalError in the fold."""
    result = await Agent(ScriptedModel(["Done."] * 3), gate=OddGate()).run("Go.")
    assert result.outcome == "policy_denied"


async def test_a_denied_reply_is_withheld_from_the_watcher() -> None:
    """G3: nothing of it is passed on before the gate has seen it."""
    gate = FixedGate(replies=lambda text: Deny("no") if "secret" in text else Allow())
    seen: list[Event] = []
    await Agent(ScriptedModel(["secret", "fine"]), gate=gate).run("Go.", on_event=seen.append)
    text = "".join(event.text for event in seen if isinstance(event, TextDelta))
    assert "secret" not in text


async def test_a_model_that_refuses_at_once_is_asked_again(clock: VirtualClock) -> None:
    """S1, S2: `stream` may be a plain function that returns a generator; what it raises counts."""

    class Refusing:
        info = ModelInfo("odd:model")
        inner = ScriptedModel(["Done."])
        asked = 0

        def stream(self, prompt: Prompt) -> Any:
            self.asked += 1
            if self.asked == 1:
                raise ModelError("rate_limit", "slow down")
            return self.inner.stream(prompt)

    result = await Agent(Refusing(), retries=RetryPolicy(), clock=clock).run("Go.")
    assert result.outcome == "completed"


async def test_a_piece_that_is_none_means_the_same_watched_or_not(clock: VirtualClock) -> None:
    """E4: whether somebody looks on must not decide how a run ends."""

    class Garbled:
        info = ModelInfo("odd:model")

        async def stream(self, prompt: Prompt) -> AsyncGenerator[ReplyPiece]:
            nothing: Broken = None
            pieces: list[ReplyPiece] = [nothing, TextDelta("Done.")]
            for piece in pieces:
                yield piece
            async for piece in ScriptedModel([""]).stream(prompt):
                yield piece

    ends: list[object] = []
    for watcher in (None, lambda _: None):
        try:
            result = await Agent(Garbled(), clock=clock).run("Go.", on_event=watcher)
        except RunFailed as error:
            result = error.result
        ends.append(result.outcome)
    assert ends[0] == ends[1]


async def test_a_journal_that_raises_at_once_has_failed() -> None:
    """J1: "after a failure nothing more is written": the end is, after a gap of one fact."""

    class Raising:
        appends = 0
        inner = MemoryJournal()

        async def read(self, session: str, after: int = 0) -> Sequence[Fact]:
            return await self.inner.read(session, after)

        def append(
            self, session: str, facts: Sequence[Fact], row: SessionSummary
        ) -> Awaitable[None]:
            self.appends += 1
            if self.appends == 2:
                raise OSError("no space left on device")
            return self.inner.append(session, facts, row)

    with pytest.raises(RunFailed) as failed:
        await Agent(ScriptedModel(["Done."]), journal=Raising()).run("Go.")
    assert failed.value.fault.kind == "journal"
