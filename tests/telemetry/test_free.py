"""Whoever does not use telemetry has none of it (O1)."""

import subprocess
import sys

import pytest
from msgspec.structs import replace

from windlass.agent.build import OutputType, build_parts
from windlass.agent.event_stream import begin_observation
from windlass.agent.runs import LiveRuns
from windlass.core.state import State
from windlass.runtime.leftover_tasks import LeftoverTasks
from windlass.runtime.recorder import Recorder
from windlass.runtime.run_control import RunControl
from windlass.testing import ScriptedModel

pytestmark = pytest.mark.contract("O1")

RUN = """
import sys
from windlass import Agent, tool
from windlass.testing import ScriptedModel, call

@tool
def work() -> str:
    "Work."
    return "Done."

agent = Agent(ScriptedModel([call("work"), "Done."]), tools=[work])
assert agent.run_sync("Go.").text == "Done."
loaded = [name for name in sys.modules if "opentelemetry" in name or "windlass.telemetry" in name]
assert loaded == [], loaded
import windlass.telemetry
loaded = [name for name in sys.modules if "opentelemetry" in name]
assert loaded == [], loaded
"""
MISSING = """
import sys
sys.modules["opentelemetry"] = None
from windlass import ConfigError
from windlass.telemetry import Telemetry
try:
    Telemetry()
except ConfigError as error:
    print(error)
"""


def run_program(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_run_without_telemetry_loads_none_of_it() -> None:
    run_program(RUN)


def test_the_extra_is_named_when_it_is_missing() -> None:
    told = run_program(MISSING)
    assert told == "telemetry needs an extra package: pip install 'windlass[otel]'\n"


async def test_a_run_that_nobody_observes_is_as_it_was() -> None:
    parts = build_parts(ScriptedModel([]), OutputType(str), {})
    recorder = Recorder(parts.world.journal, parts.world.clock, State("s"), parts.mask)
    observation = begin_observation(None, parts.world, "s")
    assert observation is None
    runs = LiveRuns(parts)
    control = RunControl(recorder, LeftoverTasks(), runs.undriven.end_children)
    world = runs._world_for(recorder, observation, control)
    assert replace(world, run=None) == parts.world
    assert world.tools is parts.world.tools
