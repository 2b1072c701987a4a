"""A call that takes its process down is parked, and a run whose sub-agent gets further is not."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import killable_tools
import windlass
from windlass import Agent, tool
from windlass.core.events import CallStarted, RunPaused
from windlass.core.fold.run import fold
from windlass.core.messages import ToolResults
from windlass.core.state import State
from windlass.core.view import Prompt
from windlass.journals.memory import MemoryJournal
from windlass.runtime.running_calls import PROCESS_TURN, SuspectTurn
from windlass.testing import ScriptedModel, call, pause, say
from windlass.tools.shell.interpreter import python_tool
from windlass.tools.shell.shell_tools import shell_tools

STEPS = 9
pytestmark = pytest.mark.contract("D15")


class Process:
    """Something that dies: all that its agent does ends, and nothing is recorded."""

    def __init__(self, work: Any) -> None:
        PROCESS_TURN.set(SuspectTurn())
        self._others = asyncio.all_tasks()
        self.task = asyncio.create_task(work)

    async def die(self) -> None:
        for task in asyncio.all_tasks() - self._others:
            task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await asyncio.sleep(5)

    async def live(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.die()


class Tools:
    """Calls that are counted while they run."""

    def __init__(self) -> None:
        self.began: Counter[str] = Counter()
        self.running: set[str] = set()
        self.most_at_once = 0
        self.seconds = 10.0

    def make(self) -> Any:
        @tool(effect="read")
        async def look(at: str) -> str:
            """Look at something for a while."""
            self.began[at] += 1
            self.running.add(at)
            self.most_at_once = max(self.most_at_once, len(self.running))
            try:
                await asyncio.sleep(self.seconds)
            finally:
                self.running.discard(at)
            return "seen"

        return look


def answer_once(prompt: Prompt) -> Any:
    """Look at what the prompt names, and answer."""
    if isinstance(prompt.messages[-1], ToolResults):
        return say("Done.")
    return call("look", {"at": prompt.messages[-1].text})


async def read(journal: Any, session: str) -> State:
    return fold(session, await journal.read(session))


def make_looker(journal: Any, tools: Tools) -> Agent[str]:
    model = ScriptedModel([answer_once] * 50)
    return Agent(model, tools=[tools.make()], journal=journal, name="looker")


async def test_suspects_of_all_sessions_run_one_at_a_time_in_a_process() -> None:
    """D15: so the next death has one suspect; the others wait, and no death counts for them."""
    journal = MemoryJournal()
    tools = Tools()
    for name in "abc":
        await make_looker(journal, tools).start(name, session=name, drive=False)
    await Process(make_looker(journal, tools).sweep()).live(5)
    assert tools.most_at_once == 3
    tools.most_at_once = 0
    await Process(make_looker(journal, tools).sweep()).live(5)
    assert tools.most_at_once == 1
    assert sorted(tools.began.values()) == [1, 1, 2]
    report = await make_looker(journal, tools).sweep()
    assert len(report.parked) == 1
    assert len(report.driven) == 2
    assert tools.began[report.parked[0]] == 2
    assert (await read(journal, report.parked[0])).is_paused


async def test_a_parked_call_runs_once_more_if_somebody_resumes_its_run() -> None:
    """D15: and the run then ends as if nothing had happened."""
    journal = MemoryJournal()
    tools = Tools()
    await make_looker(journal, tools).start("a", session="a", drive=False)
    for _ in range(2):
        await Process(make_looker(journal, tools).sweep()).live(5)
    agent = make_looker(journal, tools)
    assert (await agent.sweep()).parked == ("a",)
    assert (await agent.sweep()).parked == ()
    (parked,) = [fact for fact in await journal.read("a") if isinstance(fact, RunPaused)]
    assert "2 drivers died while look ran (call " in parked.reason
    await windlass.resume(journal, "a", by="ann")
    assert (await agent.sweep()).driven == ("a",)
    assert (await read(journal, "a")).is_active is False
    assert tools.began["a"] == 3


async def test_a_program_that_resumes_by_itself_is_told_that_the_run_is_paused() -> None:
    """D15: a restart that resumes its session does not run the call a third time."""
    journal = MemoryJournal()
    tools = Tools()
    await Process(make_looker(journal, tools).run("a", session="a")).live(5)
    await Process(make_looker(journal, tools).resume("a")).live(5)
    result = await make_looker(journal, tools).resume("a")
    assert result.outcome == "paused"
    assert "look" in result.reason
    assert tools.began["a"] == 2


def delegate_once(prompt: Prompt) -> Any:
    """Let the helper do it, and answer."""
    if isinstance(prompt.messages[-1], ToolResults):
        return say("All done.")
    return call("helper", {"task": "a"})


def make_boss(journal: Any, tools: Tools) -> Agent[str]:
    helper = Agent(ScriptedModel([answer_once] * 9), tools=[tools.make()], name="helper")
    model = ScriptedModel([delegate_once] * 9)
    return Agent(model, tools=[helper.as_tool()], journal=journal, name="boss")


async def test_a_poison_call_of_a_sub_agent_parks_the_whole_tree() -> None:
    """D15: the root says which call it is, and nobody runs it again before a person resumes."""
    journal = MemoryJournal()
    tools = Tools()
    await make_boss(journal, tools).start("Go.", session="s", drive=False)
    for _ in range(2):
        await Process(make_boss(journal, tools).sweep()).live(5)
    boss = make_boss(journal, tools)
    assert (await boss.sweep()).parked == ("s",)
    root = await read(journal, "s")
    assert root.is_paused
    assert root.run is not None
    assert root.run.pause is not None
    assert "2 drivers died while look ran" in root.run.pause.reason
    assert root.run.pause.by == "helper"
    assert (await boss.sweep()).driven == ()
    assert tools.began["a"] == 2
    await windlass.resume(journal, "s", by="ann")
    last = make_boss(journal, tools)
    assert (await last.sweep()).driven == ("s",)
    assert tools.began["a"] == 3
    assert (await read(journal, "s")).is_active is False


def test_a_tool_says_whether_its_calls_run_in_a_process_or_session_of_their_own(
    tmp_path: Path,
) -> None:
    """D15: their own death counts, and not that of the driver."""
    helper = Agent(ScriptedModel([]), name="helper").as_tool()
    bash = next(each for each in shell_tools(tmp_path) if each.name == "bash")
    isolated = [tool(killable_tools.multiply, executor="process"), helper, bash]
    assert all(each.spec.isolated for each in isolated)
    inside = [tool(killable_tools.multiply), python_tool(tmp_path, call_tools=True)]
    assert not any(each.spec.isolated for each in inside)
    assert python_tool(tmp_path).spec.isolated


def take_next_step(prompt: Prompt) -> Any:
    """Take one step after the other, with some time before each."""
    done = sum(isinstance(message, ToolResults) for message in prompt.messages)
    if done == STEPS:
        return [pause(10), say("Enough.")]
    return [pause(10), call("step", {"number": done})]


def make_long_task(journal: Any) -> Agent[str]:
    @tool(effect="read")
    async def step(number: int) -> str:
        """Take a step."""
        return f"step {number} is taken"

    helper = Agent(ScriptedModel([take_next_step] * 99), tools=[step], name="helper")

    model = ScriptedModel([delegate_once] * 9)
    return Agent(model, tools=[helper.as_tool()], journal=journal, name="boss")


async def test_a_run_whose_sub_agent_gets_further_in_each_life_is_not_parked() -> None:
    """D15: progress counts over the whole tree, however often its drivers die."""
    journal = MemoryJournal()
    await make_long_task(journal).start("Go.", session="s", drive=False)
    for _ in range(7):
        await Process(make_long_task(journal).sweep()).live(15)
    report = await make_long_task(journal).sweep()
    assert (report.driven, report.parked) == (("s",), ())
    state = await read(journal, "s")
    assert state.run is not None
    assert (state.run.outcome, state.run.text) == ("completed", "All done.")


async def test_a_run_whose_sub_agent_gets_nowhere_is_parked() -> None:
    """D8: one life begins the task, one shows how far it has come, and five lead nowhere."""
    journal = MemoryJournal()
    await make_long_task(journal).start("Go.", session="s", drive=False)
    for _ in range(7):
        await Process(make_long_task(journal).sweep()).live(5)
    assert (await make_long_task(journal).sweep()).parked == ("s",)
    starts = [fact for fact in await journal.read("s") if isinstance(fact, CallStarted)]
    assert len(starts) == 7
