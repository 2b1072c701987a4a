"""A Windlass agent in Inspect: it really runs there, and its logs are read back."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from windlass import Agent, ModelInfo, RunEnded, tool
from windlass.evaluation import inspect_solver
from windlass.journals import MemoryJournal
from windlass.testing import ScriptedModel

pytestmark = [
    pytest.mark.contract("Q1"),
    pytest.mark.slow,
    pytest.mark.timeout(120),
    # Of packages that Inspect uses.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
]
inspect_ai = pytest.importorskip("inspect_ai", reason="needs the extra `inspect`")


def register_model() -> str:
    """Make a small model known to Inspect: it calls the tool, and then says what it got."""
    from inspect_ai.model import (  # noqa: PLC0415 - takes seconds
        ChatMessageTool,
        ModelAPI,
        ModelOutput,
        ModelUsage,
        modelapi,
    )

    class EchoApi(ModelAPI):
        async def generate(  # pyright: ignore[reportImplicitOverride]
            self,
            input: Any,  # noqa: A002 - the name that Inspect gives it
            tools: Any,
            tool_choice: Any,
            config: Any,
        ) -> ModelOutput:
            last = input[-1]
            if isinstance(last, ChatMessageTool):
                output = ModelOutput.from_content(self.model_name, f"It says: {last.text}")
            else:
                name = tools[0].name
                output = ModelOutput.for_tool_call(self.model_name, name, {"word": last.text})
            output.usage = ModelUsage(input_tokens=7, output_tokens=3, total_tokens=10)
            return output

    modelapi("windlasstest")(lambda: EchoApi)
    return "windlasstest/echo"


@tool(effect="read")
def turn_around(word: str) -> str:
    """Turn a word around."""
    return word[::-1]


@pytest.mark.realtime
def test_inspect_runs_the_agent_and_its_log_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its dataset, epochs and scorer; our loop, tools and journal."""
    from inspect_ai import Task  # noqa: PLC0415 - takes seconds
    from inspect_ai import eval as run_inspect  # noqa: PLC0415
    from inspect_ai.dataset import Sample  # noqa: PLC0415
    from inspect_ai.log import read_eval_log  # noqa: PLC0415
    from inspect_ai.scorer import includes  # noqa: PLC0415

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    journal = MemoryJournal()
    agent = Agent(
        ScriptedModel([], info=ModelInfo("scripted:never-asked")),
        tools=[turn_around],
        journal=journal,
    )
    task = Task(
        dataset=[Sample(input="heron", target="noreh"), Sample(input="crane", target="wrong")],
        solver=inspect_solver(agent),
        scorer=includes(),
        epochs=2,
    )
    [log] = run_inspect(
        task, model=register_model(), log_dir=str(tmp_path / "logs"), display="none"
    )
    assert log.status == "success", log.error
    read = read_eval_log(log.location)
    assert read.samples is not None
    assert len(read.samples) == 4
    values = sorted(
        str(sample.scores["includes"].value) for sample in read.samples if sample.scores
    )
    assert values == ["C", "C", "I", "I"]
    first = read.samples[0]
    assert [message.role for message in first.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert first.output.completion == "It says: noreh"
    # Each request was one of Inspect's own, so it is in its transcript, and its usage is counted.
    assert sum(event.event == "model" for event in first.events) == 2
    assert sum(used.total_tokens for used in first.model_usage.values()) == 20
    facts = asyncio.run(journal.read(first.metadata["windlass_session"]))
    assert isinstance(facts[-1], RunEnded)
