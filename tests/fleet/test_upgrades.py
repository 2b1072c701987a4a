"""Rolling upgrades: workers with two configurations of an agent share a journal and an engine."""

from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("asyncpg", reason="needs the extra `postgres`")
pytest.importorskip("temporalio", reason="needs the extra `temporal`")

import windlass
from temporal_server import Bench, Fleet, make_agent, open_fleet, run_servers
from windlass import Agent, Allow
from windlass.agent.options import parts_of
from windlass.core.events import Fact, RunPaused, RunResumed
from windlass.core.setup import digest_configuration
from windlass.fleet import DriftPolicy, TakingRules, engine, session_workflow
from windlass.gates import ask

__all__ = ["run_servers"]
pytestmark = [
    pytest.mark.contract("F5"),
    pytest.mark.realtime,
    pytest.mark.slow,
]


def make_version(instructions: str) -> Agent[str]:
    bench = Bench()
    bench.may_go_on.set()
    return make_agent(bench, effect="write", gate=ask(), instructions=instructions)


async def start_waiting_run(fleet: Fleet, agent: Agent[str], session: str) -> str:
    """Start a run that waits for a person, and return the call that it asks about."""
    handle = await fleet.start(agent, session=session)
    result = await handle.result()
    assert result.outcome == "suspended"
    return result.questions[0].call_id


async def answer(fleet: Fleet, session: str, call_id: str) -> None:
    await windlass.answer(fleet.journal, session, call_id, Allow())
    await fleet.engine.nudge(session)


async def find_drift(fleet: Fleet, session: str) -> list[str]:
    facts = await fleet.journal.read(session)
    return [change for fact in facts if isinstance(fact, RunResumed) for change in fact.drift]


async def test_runs_in_flight_go_on_with_their_own_configuration(tmp_path: Path) -> None:
    """F5: during the upgrade, each worker takes only runs whose configuration it has."""
    old = make_version("Version 1.")
    new = make_version("Version 2.")
    names = [f"run-{number}" for number in range(6)]
    async with open_fleet(tmp_path) as fleet:
        async with fleet.working(old):
            calls = {name: await start_waiting_run(fleet, old, name) for name in names}
        # No sweep: the queues of the engine alone must bring runs to the right worker, also if
        # another one, which gets some of them first, would take them.
        consent = TakingRules(drift="consent")
        async with (
            fleet.working(new, rules=consent, sweep_s=1000.0),
            fleet.working(old, sweep_s=1000.0),
        ):
            calls["later"] = await start_waiting_run(fleet, new, "later")
            for name, call_id in calls.items():
                await answer(fleet, name, call_id)
            for name in calls:
                assert await fleet.result(name) == "completed"
                assert await find_drift(fleet, name) == []


@pytest.mark.parametrize("policy", ["refuse", "same-digest-only", "consent"])
async def test_runs_whose_workers_are_gone_follow_the_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: DriftPolicy
) -> None:
    """F5: paused with the reason, left as they are, or gone on with, and then on record."""
    monkeypatch.setattr(session_workflow, "UNCLAIMED_S", 0.5)
    # A worker that has just been stopped counts as gone at once.
    monkeypatch.setattr(engine, "POLLER_FRESH_S", -60.0)
    old = make_version("Version 1.")
    new = make_version("Version 2.")
    async with open_fleet(tmp_path) as fleet:
        async with fleet.working(old):
            call_id = await start_waiting_run(fleet, old, "run")
        async with fleet.working(new, rules=TakingRules(drift=policy)):
            await answer(fleet, "run", call_id)
            if policy == "consent":
                assert await fleet.result("run") == "completed"
                assert await find_drift(fleet, "run") == ["the instructions differ"]
                return

            async def is_settled() -> bool:
                facts = await fleet.journal.read("run")
                if policy == "refuse":
                    return find_pause(facts) is not None
                return bool(await fleet.list_waiting_on(old, "run"))

            await fleet.wait_for(is_settled)
        facts = await fleet.journal.read("run")
        pause = find_pause(facts)
        if policy == "refuse":
            assert pause is not None
            assert "the instructions differ" in pause.reason
        else:
            assert pause is None
            # The worker that has the configuration comes back, and goes on.
            async with fleet.working(old):
                assert await fleet.result("run") == "completed"
        assert await find_drift(fleet, "run") == []


def find_pause(facts: Sequence[Fact]) -> RunPaused | None:
    return next((fact for fact in facts if isinstance(fact, RunPaused)), None)


def test_the_name_of_a_configuration_tells_what_drift_tells() -> None:
    """F5: two set-ups have one queue exactly if a run of one may go on with the other."""
    setup = parts_of(make_version("Version 1.")).setup
    same = parts_of(make_version("Version 1.")).setup
    other = parts_of(make_version("Version 2.")).setup
    assert digest_configuration(setup) == digest_configuration(same)
    assert digest_configuration(setup) != digest_configuration(other)
