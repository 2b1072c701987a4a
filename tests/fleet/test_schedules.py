"""Schedules that the engine fires, from the command line."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

pytest.importorskip("asyncpg", reason="needs the extra `postgres`")
pytest.importorskip("temporalio", reason="needs the extra `temporal`")

from postgres import dsn_of
from temporal_server import Bench, make_agent, open_fleet, run_servers, start_temporal
from windlass.cli.schedule import schedule
from windlass.core.errors import ConfigError
from windlass.core.events import RunEnded
from windlass.fleet import EngineSchedules, EngineTimes, ScheduledPrompt

__all__ = ["run_servers"]
pytestmark = [
    pytest.mark.contract("F4"),
    pytest.mark.realtime,
    pytest.mark.slow,
]


def run_command(place: str, address: str, *words: str) -> Result:
    command = [*words, "--journal", place, "--engine", address]
    return CliRunner().invoke(schedule, command)


def list_schedules(place: str, address: str) -> dict[str, dict[str, Any]]:
    listed = msgspec.json.decode(run_command(place, address, "list", "--json").output)
    return {each["name"]: each for each in listed}


def test_schedules_are_made_listed_paused_and_deleted(tmp_path: Path) -> None:
    """F4: by cron with a time zone, at an interval, and once."""
    place = dsn_of(tmp_path)
    address = start_temporal().address("cli")
    given = {
        "cron": ("--cron", "30 8 * * MON-FRI", "--timezone", "Europe/Berlin", "--jitter", "5m"),
        "often": ("--every", "15m", "--overlap", "queue", "--catch-up", "1h"),
        "once": ("--at", "2099-12-31T18:00", "--timezone", "Europe/Berlin"),
    }
    for name, options in given.items():
        made = run_command(place, address, "create", name, *options, "--agent", "clerk", "Go.")
        assert made.exit_code == 0, made.output
    again = run_command(place, address, "create", "cron", "--every", "1h", "Go.")
    assert isinstance(again.exception, ConfigError)
    assert "already" in str(again.exception)
    assert run_command(place, address, "pause", "cron", "--reason", "holidays").exit_code == 0
    found = list_schedules(place, address)
    assert set(found) == set(given)
    assert found["cron"]["is_paused"]
    assert found["cron"]["note"] == "holidays"
    assert found["once"]["next_time"] == 4_102_419_600.0
    assert found["often"]["next_time"] % 900 == 0
    assert run_command(place, address, "resume", "cron").exit_code == 0
    assert not list_schedules(place, address)["cron"]["is_paused"]
    for name in given:
        assert run_command(place, address, "delete", name).exit_code == 0
    assert "No schedules" in run_command(place, address, "list").output


async def test_a_firing_can_cancel_the_run_before_it(tmp_path: Path) -> None:
    """F4: the engine's cancel of the workflow before ends its run, and only that."""
    bench = Bench()
    agent = make_agent(bench)
    async with open_fleet(tmp_path) as fleet, fleet.working(agent):
        schedules = EngineSchedules(fleet.engine, fleet.journal)
        prompt = ScheduledPrompt(prompt="Go.", agent="clerk")
        await schedules.create("tick", prompt, EngineTimes(every_s=1, overlap="cancel"))

        async def was_cancelled() -> bool:
            return bool(await fleet.journal.sessions(state="cancelled"))

        await fleet.wait_for(was_cancelled)
        await schedules.delete("tick")
        bench.may_go_on.set()

        async def have_all_ended() -> bool:
            return not await fleet.journal.sessions(state="open")

        await fleet.wait_for(have_all_ended)
        for summary in await fleet.journal.sessions(state="cancelled"):
            end = (await fleet.journal.read(summary.session))[-1]
            assert isinstance(end, RunEnded)
            assert end.reason == "cancelled in the engine"


@pytest.mark.parametrize(
    ("name", "times", "problem"),
    [
        ("a/b", EngineTimes(every_s=60), "cannot be the name"),
        ("both", EngineTimes(every_s=60, cron="* * * * *"), "give one of"),
        ("bad", EngineTimes(cron="99 * * * *"), "the engine refuses the schedule"),
        ("zone", EngineTimes(cron="0 8 * * *", timezone="Mars"), "the engine refuses the schedule"),
    ],
)
async def test_a_schedule_that_cannot_be_used_is_refused_and_leaves_nothing(
    tmp_path: Path, name: str, times: EngineTimes, problem: str
) -> None:
    async with open_fleet(tmp_path) as fleet:
        schedules = EngineSchedules(fleet.engine, fleet.journal)
        with pytest.raises(ConfigError, match=problem):
            await schedules.create(name, ScheduledPrompt(prompt="Go."), times)
        assert [known async for known in schedules.walk()] == []
