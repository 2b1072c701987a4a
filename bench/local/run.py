"""How many tool tasks small local models get done, by model and protocol: `make bench-local`.

Each task is one run at temperature 0 with eight steps at most. Models whose weights are not there
are left out, and the table says so. Nothing is asserted.
"""

import argparse
import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from tasks import TASKS, LocalTask

from windlass import Agent, Limits, ModelInfo, RunFailed
from windlass.core.messages import AssistantMessage, ToolResults
from windlass.core.result import RunResult
from windlass.models.http.model import HttpModel
from windlass.models.options import ModelOptions, ToolProtocol
from windlass.models.resolve import resolve_model

WEIGHTS = Path(__file__).resolve().parents[2] / ".cache" / "local"
MODELS = {
    "SmolLM2-135M": "SmolLM2-135M-Instruct.Q4_1.gguf",
    "Qwen2.5-Coder-0.5B": "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    "Qwen2.5-Coder-1.5B": "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
}
PROTOCOLS = ("native", "text", "grammar", "default")
INSTRUCTIONS = "You are a helpful assistant. Use the tools to do what you are asked."
STEPS_MAX = 8
WINDOW = 6_144
OUTPUT_MAX = 400
"""Tokens of one reply. A small model that has lost its way would else fill its window."""


@dataclass(frozen=True)
class TaskResult:
    """What became of one task."""

    task: str
    done: bool
    outcome: str
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", action="append", help=f"{', '.join(MODELS)}, or provider:model")
    parser.add_argument("--protocol", action="append", choices=PROTOCOLS)
    parser.add_argument("--task", action="append", choices=[task.name for task in TASKS])
    parser.add_argument("--base-url", help="of a server that is already running")
    parser.add_argument("--show", action="store_true", help="print what was said and called")
    given = parser.parse_args()
    tasks = [task for task in TASKS if not given.task or task.name in given.task]
    protocols = given.protocol or PROTOCOLS[:3]
    rows = [f"| model | {' | '.join(protocols)} |", "|---|" + "---|" * len(protocols)]
    for label in given.model or MODELS:
        name = find_model(label)
        if name is None:
            rows.append(f"| {label} | {' | '.join(['no weights'] * len(protocols))} |")
            continue
        cells: list[str] = []
        for protocol in protocols:
            model = make_model(name, protocol, given.base_url)
            results = asyncio.run(run_suite(label, protocol, tasks, model, show=given.show))
            cells.append(f"{sum(result.done for result in results)} of {len(results)}")
        rows.append(f"| {label} | {' | '.join(cells)} |")
    print("\n" + "\n".join(rows))


def find_model(label: str) -> str | None:
    """Return the name to resolve; None if the weights of the model are not there."""
    if label not in MODELS:
        return label
    path = WEIGHTS / MODELS[label]
    return f"local:{path}" if path.is_file() else None


def make_model(name: str, protocol: str, base_url: str | None) -> HttpModel:
    chosen = None if protocol == "default" else cast("ToolProtocol", protocol)
    options = ModelOptions(temperature=0, tool_protocol=chosen)
    info = ModelInfo(name, window=WINDOW, output_max=OUTPUT_MAX)
    return resolve_model(name, base_url=base_url, options=options, info=info)


async def run_suite(
    label: str, protocol: str, tasks: Sequence[LocalTask], model: HttpModel, *, show: bool
) -> list[TaskResult]:
    results: list[TaskResult] = []
    for task in tasks:
        result = await run_task(task, model, show=show)
        done = "done" if result.done else "not done"
        took = f"{result.outcome}, {result.seconds:.0f} s"
        print(f"{label}, {protocol}: {task.name}: {done} ({took})", flush=True)
        results.append(result)
    return results


async def run_task(task: LocalTask, model: HttpModel, *, show: bool) -> TaskResult:
    """Run one task in a folder of its own."""
    began = time.monotonic()
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name, content in task.files:
            (folder / name).write_text(content, "utf-8")
        agent = Agent(
            model,
            instructions=INSTRUCTIONS,
            tools=task.tools(folder),
            limits=Limits(steps=STEPS_MAX),
        )
        try:
            result = await agent.run(task.prompt)
        except RunFailed as error:
            result = error.result
        done = task.check(result, folder)
    if show:
        print("\n".join(_transcript_lines(task, result)), flush=True)
    return TaskResult(task.name, done, result.outcome, time.monotonic() - began)


def _transcript_lines(task: LocalTask, result: RunResult[Any]) -> Iterator[str]:
    yield f"--- {task.name}: {task.prompt}"
    for message in result.messages[1:]:
        match message:
            case AssistantMessage():
                yield f"model: {message.text!r}"
                for call in message.calls:
                    yield f"call: {call.name} {call.arguments} ({call.origin or 'made'})"
            case ToolResults(items):
                yield from (f"{item.result.kind}: {item.result.text[:300]!r}" for item in items)
            case _:
                yield f"note: {message.text!r}"
    yield f"{result.outcome}: {result.reason}"


if __name__ == "__main__":
    main()
