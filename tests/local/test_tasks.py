"""A real model of 1.5 billion weights gets its work done, by default and without a key (P9, P10).

`make bench-local` runs the same tasks for more models and protocols.
"""

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from windlass import Agent, Limits, ModelInfo, RunFailed
from windlass.models.resolve import resolve_model

pytestmark = [pytest.mark.local, pytest.mark.slow, pytest.mark.realtime]
ROOT = Path(__file__).resolve().parents[2]
WEIGHTS = ROOT / ".cache" / "local" / "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"
FIVE = ("weather", "add", "chain", "compare", "no tool")


def load_tasks() -> ModuleType:
    """The tasks of the benchmark, which is no package."""
    spec = importlib.util.spec_from_file_location("tasks", ROOT / "bench" / "local" / "tasks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["tasks"] = module  # Dataclasses look their module up.
    spec.loader.exec_module(module)
    return module


async def is_done(name: str, folder: Path) -> bool:
    """Run a task with the model's default protocol; return whether its effect is there."""
    (task,) = [task for task in load_tasks().TASKS if task.name == name]
    for file, content in task.files:
        (folder / file).write_text(content, "utf-8")
    model_name = f"local:{WEIGHTS}"
    info = ModelInfo(model_name, window=6_144, output_max=400)
    model = resolve_model(model_name, environ=os.environ, info=info)
    tools = task.tools(folder)
    agent = Agent(
        model,
        instructions="You are a helpful assistant. Use the tools to do what you are asked.",
        tools=tools,
        limits=Limits(steps=8),
    )
    try:
        result = await agent.run(task.prompt)
    except RunFailed as error:
        result = error.result
    return task.check(result, folder)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    if not WEIGHTS.is_file():
        pytest.skip(
            f"SKIPPED: there are no weights {WEIGHTS.name}. "
            "Run: python tools/local_weights.py qwen2.5-coder-1.5b"
        )
    return tmp_path


@pytest.mark.timeout(1_800)
async def test_four_of_five_tasks_with_three_tools_are_done(workspace: Path) -> None:
    done: list[str] = []
    for name in FIVE:
        folder = workspace / name
        folder.mkdir()
        if await is_done(name, folder):
            done.append(name)
    assert len(done) >= 4, f"done: {done}"


@pytest.mark.timeout(1_800)
async def test_a_bug_is_fixed_with_the_coding_tools(workspace: Path) -> None:
    """The file itself is fixed, whatever the model says about it."""
    assert await is_done("fix a bug", workspace)
