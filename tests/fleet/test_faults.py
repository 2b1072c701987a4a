"""Seven faults of a fleet on an engine, each of which once ended, doubled or lost runs."""

from datetime import timedelta
from pathlib import Path

import pytest

pytest.importorskip("asyncpg", reason="needs the extra `postgres`")
pytest.importorskip("temporalio", reason="needs the extra `temporal`")

import windlass
from temporal_server import HEARTBEAT_S, Bench, Fleet, make_agent, open_fleet, run_servers
from windlass import Allow
from windlass.agent import driving
from windlass.core.events import RunReleased, RunStarted
from windlass.fleet import (
    EngineSchedules,
    EngineTimes,
    ScheduledPrompt,
    TakingRules,
    TemporalWorker,
    activities,
    session_workflow,
)
from windlass.gates import ask
from windlass.runtime.leases import hold_session

__all__ = ["run_servers"]
pytestmark = [pytest.mark.realtime, pytest.mark.slow]


async def wait_for_release(fleet: Fleet, session: str) -> None:
    async def is_released() -> bool:
        return any(isinstance(fact, RunReleased) for fact in await fleet.journal.read(session))

    await fleet.wait_for(is_released)


@pytest.mark.contract("F3")
async def test_a_heartbeat_time_out_releases_a_run_and_does_not_cancel_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F3, fault 1: the engine's time-out comes as a cancel, which nobody asked for."""
    bench = Bench()
    agent = make_agent(bench)
    async with open_fleet(tmp_path) as fleet:
        # One sign of life, and then none before the time-out.
        monkeypatch.setattr(activities, "HEARTBEATS", 0.01)
        monkeypatch.setattr(driving, "RELEASE_GRACE_S", 0.1)
        async with fleet.working(agent):
            handle = await fleet.start(agent)
            await bench.begun.wait()
            await wait_for_release(fleet, handle.session)
            monkeypatch.undo()
            bench.may_go_on.set()
            assert (await handle.result()).outcome == "completed"


async def test_signs_of_life_come_from_a_timer_and_are_not_held_back(tmp_path: Path) -> None:
    """Fault 2: a call that says nothing for longer than the time-out keeps its one attempt."""
    bench = Bench()
    agent = make_agent(bench)
    async with open_fleet(tmp_path) as fleet, fleet.working(agent) as worker:
        beat_s = HEARTBEAT_S / activities.HEARTBEATS
        for each in worker.open_queues(fleet.engine, agent.with_journal(fleet.journal)):
            intervals = (
                each.config().get("max_heartbeat_throttle_interval", timedelta()),
                each.config().get("default_heartbeat_throttle_interval", timedelta()),
            )
            assert [interval.total_seconds() for interval in intervals] == [beat_s, beat_s]
        handle = await fleet.start(agent)
        await bench.begun.wait()
        beats = set[float]()

        async def has_outlived_its_time_out() -> bool:
            pending = (await fleet.describe(handle.session)).pending_activities[0]
            assert pending.attempt == 1
            beats.add(pending.last_heartbeat_time.ToNanoseconds())
            return max(beats) - min(beats) > 1.5 * HEARTBEAT_S * 1e9

        await fleet.wait_for(has_outlived_its_time_out)
        bench.may_go_on.set()
        assert (await handle.result()).outcome == "completed"


async def test_a_busy_session_is_tried_again_and_fails_no_workflow(tmp_path: Path) -> None:
    """Fault 3: somebody else may hold the session for a while; that is no failure."""
    bench = Bench()
    bench.may_go_on.set()
    agent = make_agent(bench)
    async with open_fleet(tmp_path) as fleet, fleet.working(agent):
        with await hold_session(fleet.journal, "desk"):
            handle = await fleet.start(agent, session="desk")

            async def was_refused() -> bool:
                found = (await fleet.describe("desk")).pending_activities
                reasons = [each.last_failure.application_failure_info.type for each in found]
                return reasons == ["SessionBusy"]

            await fleet.wait_for(was_refused)
        assert (await handle.result()).text == "Done."
        assert await fleet.result("desk") == "completed"


@pytest.mark.parametrize("is_told", [True, False], ids=["by signal", "by looking"])
async def test_no_activity_is_held_while_a_run_waits_for_a_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_told: bool
) -> None:
    """Fault 4: the answer wakes the workflow; without a word, it looks by itself."""
    bench = Bench()
    bench.may_go_on.set()
    agent = make_agent(bench, effect="write", gate=ask())
    monkeypatch.setattr(session_workflow, "LOOK_MIN_S", 600.0 if is_told else 1.0)
    # No sweep: the workflow alone must find the answer.
    async with open_fleet(tmp_path) as fleet, fleet.working(agent, sweep_s=1000.0):
        handle = await fleet.start(agent)
        waiting = await handle.result()
        assert waiting.outcome == "suspended"

        async def is_idle() -> bool:
            return not (await fleet.describe(handle.session)).pending_activities

        await fleet.wait_for(is_idle)
        question = waiting.questions[0]
        await windlass.answer(fleet.journal, handle.session, question.call_id, Allow())
        if is_told:
            assert await fleet.engine.nudge(handle.session)
        assert await fleet.result(handle.session) == "completed"
        assert bench.calls == 1


@pytest.mark.contract("F4")
async def test_each_firing_of_a_schedule_has_a_session_of_its_own(tmp_path: Path) -> None:
    """F4, fault 5: the session is named by the workflow, whose id carries the time."""
    bench = Bench()
    bench.may_go_on.set()
    agent = make_agent(bench)
    async with open_fleet(tmp_path) as fleet, fleet.working(agent):
        schedules = EngineSchedules(fleet.engine, fleet.journal)
        prompt = ScheduledPrompt(prompt="Open sesame.", agent="clerk")
        await schedules.create("tick", prompt, EngineTimes(every_s=1, overlap="queue"))

        async def has_fired_twice() -> bool:
            return len(await fleet.journal.sessions(state="completed")) >= 2

        await fleet.wait_for(has_fired_twice)
        await schedules.delete("tick")
        names = [summary.session for summary in await fleet.journal.sessions(state="completed")]
        assert all(name.startswith("schedule-tick-20") for name in names)
        for name in names:
            facts = await fleet.journal.read(name)
            assert sum(isinstance(fact, RunStarted) for fact in facts) == 1
            assert await fleet.result(name) == "completed"


@pytest.mark.contract("F3")
async def test_the_sweep_leaves_sessions_alone_that_are_not_the_fleets(tmp_path: Path) -> None:
    """F3, fault 6: abandoned runs of other agents, set-ups and people stay as they are."""
    own = Bench()
    agent = make_agent(own)
    others = {
        "other agent": make_agent(Bench(), "cook"),
        "other set-up": make_agent(Bench(), instructions="Be brief."),
        "terminal": agent,
    }
    async with open_fleet(tmp_path) as fleet:
        for name, other in {**others, "fleet": agent}.items():
            context = {} if name == "terminal" else {"fleet": True}
            kept = other.with_journal(fleet.journal)
            await kept.start("Go.", session=name, context=context)
            await kept.aclose()
        before = {name: len(await fleet.journal.read(name)) for name in others}
        own.may_go_on.set()
        rules = TakingRules(accepts=lambda start: bool(start.context.get("fleet")))
        async with fleet.working(agent, rules=rules) as worker:

            async def is_finished() -> bool:
                done = await fleet.journal.sessions(state="completed")
                return [summary.session for summary in done] == ["fleet"]

            await fleet.wait_for(is_finished)
            await fleet.wait_for(lambda: has_visited_all(worker, set(others) - {"other agent"}))
        assert {name: len(await fleet.journal.read(name)) for name in others} == before


async def has_visited_all(worker: TemporalWorker, names: set[str]) -> bool:
    """Return whether the worker had a look at sessions, and could do nothing for them."""
    return names <= worker._sessions._rest_until.keys()
