"""What the engine sees of a session, and what it can do to it."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("asyncpg", reason="needs the extra `postgres`")
pytest.importorskip("temporalio", reason="needs the extra `temporal`")

from temporal_server import Bench, Fleet, find_free_port, make_agent, open_fleet, run_servers
from windlass import Agent, Limits, tool
from windlass.agent.options import parts_of
from windlass.agent.sweeping import Sweeper
from windlass.core.errors import JournalFailed, MailRejected
from windlass.core.events import RunEnded, TextDelta
from windlass.core.messages import ToolResults
from windlass.core.view import Prompt
from windlass.fleet import LateEngine, session_workflow
from windlass.gates import ask
from windlass.server import Caller, Service, StartRequest
from windlass.testing import ScriptedModel, call, pause, say

__all__ = ["run_servers"]
pytestmark = [pytest.mark.realtime, pytest.mark.slow]
SECRET_WORDS = b"open sesame"


def make_long_agent(steps: int) -> Agent[str]:
    """An agent that calls a tool so many times in a run."""

    @tool(effect="read")
    async def look(number: int) -> str:
        """Look at something."""
        return f"open sesame {number}"

    def reply(prompt: Prompt) -> Any:
        done = sum(isinstance(message, ToolResults) for message in prompt.messages)
        return say("open sesame") if done == steps else call("look", {"number": done})

    model = ScriptedModel([reply] * (steps + 1))
    return Agent(model, tools=[look], name=f"agent-{steps}", limits=Limits(steps=steps + 1))


async def read_history(fleet: Fleet, session: str) -> list[bytes]:
    workflow_id = fleet.engine.address.workflow_id(session)
    handle = fleet.engine.client.get_workflow_handle(workflow_id)
    return [event.SerializeToString() async for event in handle.fetch_history_events()]


@pytest.mark.contract("F2")
async def test_the_record_of_a_run_does_not_grow_with_the_conversation(tmp_path: Path) -> None:
    """F2: two steps or forty make the same events, and none of them says what was said."""
    short = make_long_agent(2)
    long = make_long_agent(40)
    async with open_fleet(tmp_path) as fleet, fleet.working(short, long):
        histories: list[list[bytes]] = []
        for agent in (short, long):
            name = parts_of(agent).world.agent
            await fleet.start(agent, "open sesame, please", session=name, caller="ali")
            assert await fleet.result(name) == "completed"
            histories.append(await read_history(fleet, name))
        assert len(histories[0]) == len(histories[1]) <= 16
        assert max(sum(map(len, history)) for history in histories) < 4_000
        assert SECRET_WORDS not in b"".join(map(b"".join, histories))


async def test_the_engine_learns_the_kind_of_an_error_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error may quote what was said, so its text stays in the log of the worker."""

    async def fail(*_: object, **__: object) -> None:
        raise JournalFailed("it said: open sesame")

    agent = make_agent(Bench())
    monkeypatch.setattr(Sweeper, "drive_own", fail)
    async with open_fleet(tmp_path) as fleet, fleet.working(agent):
        handle = await fleet.start(agent)

        async def has_failed() -> bool:
            found = (await fleet.describe(handle.session)).pending_activities
            return any(each.HasField("last_failure") for each in found)

        await fleet.wait_for(has_failed)
        failure = (await fleet.describe(handle.session)).pending_activities[0].last_failure
        assert failure.application_failure_info.type == "JournalFailed"
        assert SECRET_WORDS not in failure.SerializeToString()


@pytest.mark.contract("F2")
async def test_a_session_that_is_looked_at_for_ever_has_a_short_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F2: after some rounds the workflow begins anew, and still answers."""
    monkeypatch.setattr(session_workflow, "ROUNDS_MAX", 2)
    bench = Bench()
    bench.may_go_on.set()
    agent = make_agent(bench, effect="write", gate=ask())
    async with open_fleet(tmp_path) as fleet, fleet.working(agent):
        handle = await fleet.start(agent, session="desk")
        assert (await handle.result()).outcome == "suspended"
        info = (await fleet.describe("desk")).workflow_execution_info
        first = info.first_run_id

        async def began_anew() -> bool:
            await fleet.engine.nudge("desk")
            now = (await fleet.describe("desk")).workflow_execution_info
            return now.execution.run_id != first

        await fleet.wait_for(began_anew)
        await handle.cancel()
        await fleet.engine.nudge("desk")
        assert await fleet.result("desk") == "cancelled"
        assert len(await read_history(fleet, "desk")) < 300


@pytest.mark.parametrize("is_waiting", [True, False], ids=["waiting", "working"])
async def test_a_cancel_in_the_engine_cancels_the_run(tmp_path: Path, *, is_waiting: bool) -> None:
    """Only a cancel that somebody asked for ends a run."""
    bench = Bench()
    gate = ask() if is_waiting else None
    agent = make_agent(bench, effect="write" if is_waiting else "read", gate=gate)
    async with open_fleet(tmp_path) as fleet, fleet.working(agent):
        handle = await fleet.start(agent)
        if is_waiting:
            await handle.result()
        else:
            await bench.begun.wait()
        assert await fleet.engine.cancel(handle.session)

        async def has_ended() -> bool:
            return isinstance((await fleet.journal.read(handle.session))[-1], RunEnded)

        await fleet.wait_for(has_ended)
        end = (await fleet.journal.read(handle.session))[-1]
        assert isinstance(end, RunEnded)
        assert end.outcome == "cancelled"


async def test_a_cancel_before_a_run_begins_refuses_its_prompt(tmp_path: Path) -> None:
    """Nobody revives what was cancelled while it waited for a worker.

    A worker may also begin the run before it hears of the cancel, and then cancels it. The reason
    is recorded only by a driver, which knows the secrets of the agent.
    """
    agent = make_agent(Bench())
    async with open_fleet(tmp_path) as fleet:
        handle = await fleet.start(agent)
        assert await fleet.engine.cancel(handle.session)
        async with fleet.working(agent):
            try:
                # The reason reaches a driver, and a run that had none is ended without it.
                assert (await handle.result()).outcome == "cancelled"
            except MailRejected as error:
                assert "cancelled in the engine" in str(error)  # noqa: PT017 - one of two ways


async def test_a_session_moves_to_the_agent_whose_turn_it_is(tmp_path: Path) -> None:
    """A workflow begins with one agent, and goes on with the queue of another."""
    benches = [Bench(), Bench()]
    for bench in benches:
        bench.may_go_on.set()
    first = make_agent(benches[0], "first")
    second = make_agent(benches[1], "second")
    async with open_fleet(tmp_path) as fleet:
        handles = [
            await fleet.start(agent, session="desk", on_busy="queue") for agent in (first, second)
        ]
        async with fleet.working(first), fleet.working(second, sweep_s=1000.0):
            texts = [(await handle.result()).text for handle in handles]
            assert texts == ["Done.", "Done."]
            assert await fleet.result("desk") == "completed"
        assert [bench.calls for bench in benches] == [1, 1]


async def test_a_workflow_that_is_terminated_ends_no_run(tmp_path: Path) -> None:
    """The journal says what is true: the run is let go of, and a look takes it up again."""
    bench = Bench()
    bench.may_go_on.set()
    agent = make_agent(bench, effect="write", gate=ask())
    async with open_fleet(tmp_path) as fleet, fleet.working(agent):
        handle = await fleet.start(agent)
        await handle.result()
        workflow_id = fleet.engine.address.workflow_id(handle.session)
        await fleet.engine.client.get_workflow_handle(workflow_id).terminate()
        steered = await handle.steer("Hurry up.")
        await steered.taken(timeout=30.0)
        # The message brought a new workflow, which waits with the run.
        assert await fleet.engine.nudge(handle.session)
        assert (await handle.result()).outcome == "suspended"


@pytest.mark.contract("F3")
async def test_workers_do_without_an_engine_that_is_away(tmp_path: Path) -> None:
    """F3: what was not told to the engine, or cannot be, is found in the journal."""
    bench = Bench()
    bench.may_go_on.set()
    agent = make_agent(bench)
    async with open_fleet(tmp_path) as fleet:
        nowhere = f"temporal://127.0.0.1:{find_free_port()}"
        async with fleet.working(agent, address=nowhere):
            kept = agent.with_journal(fleet.journal)
            handle = await kept.start("Go.", drive=False)
            assert (await handle.result()).text == "Done."
        async with fleet.working(agent):
            # Nobody tells the engine: a worker sees the message, and does.
            handle = await kept.start("Go.", session="untold", drive=False)
            assert (await handle.result()).text == "Done."
            assert await fleet.result("untold") == "completed"


@pytest.mark.contract("F1")
async def test_a_service_starts_runs_by_the_engine_and_streams_them(tmp_path: Path) -> None:
    """F1: whoever watches at the service sees the text of a run that a worker drives."""
    script = [[say("Half, "), pause(4.0), say("done.")]]
    caller = Caller("ali", frozenset({"start", "watch"}))
    async with open_fleet(tmp_path) as fleet:
        served = Agent(ScriptedModel(script), name="clerk")
        engine = LateEngine(fleet.address)
        async with (
            fleet.working(Agent(ScriptedModel(script), name="clerk")),
            Service([served], journal=fleet.journal, engine=engine) as service,
        ):
            handle = await service.start_run(caller, StartRequest(prompt="Go."))
            events: list[Any] = []
            async for event in handle.events():
                events.append(event)
                assert service.driven_sessions() == []
            text = "".join(event.text for event in events if isinstance(event, TextDelta))
            assert text == "Half, done."
            assert await fleet.result(handle.session) == "completed"


async def test_sessions_can_be_found_by_agent_state_and_caller(tmp_path: Path) -> None:
    """The lists of the engine know what people look for."""
    bench = Bench()
    agent = make_agent(bench, effect="write", gate=ask(), name=f"agent-{tmp_path.name}")
    async with open_fleet(tmp_path) as fleet, fleet.working(agent):
        handle = await fleet.start(agent, caller="ali baba")
        await handle.result()
        query = (
            f"WindlassAgent = '{parts_of(agent).world.agent}' AND WindlassState = 'waiting' "
            "AND WindlassCaller = 'ali baba'"
        )

        async def is_listed() -> bool:
            found = [each.id async for each in fleet.engine.client.list_workflows(query)]
            return found == [fleet.engine.address.workflow_id(handle.session)]

        await fleet.wait_for(is_listed)
