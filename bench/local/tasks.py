"""The ten tool tasks of `make bench-local`: what each one asks, its tools, and how it is checked.

The law: a task is done if its effect is there. A reply that only says so does not count, and how
the model got there does not matter, as long as it used the tools that the task is about.
"""

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windlass import tool
from windlass.core.messages import ToolResults
from windlass.core.result import RunResult
from windlass.tools.core_toolset import core_tools
from windlass.tools.files.file_tools import file_tools
from windlass.tools.files.workspace import Workspace
from windlass.tools.function import Tool

WEATHER = {"paris": (18, "sunny"), "oslo": (4, "rain"), "rome": (27, "clear")}
CODE_WORD = "heliotrope"
NOTES = f"The meeting is on Friday.\nThe code word is {CODE_WORD}.\n"
BUGGY = "def add(a, b):\n    return a - b\n\n\ndef double(a):\n    return a * 2\n"


@tool(effect="read")
def get_weather(city: str) -> str:
    """The current weather in a city.

    Args:
        city: The name of the city.
    """
    known = WEATHER.get(city.split(",", maxsplit=1)[0].strip().lower())
    if known is None:
        return f"Nothing is known about {city}."
    return f"It is {known[0]} degrees and {known[1]} in {city}."


@tool(effect="read")
def add(a: float, b: float) -> float:
    """Add two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return a + b


@tool(effect="read")
def multiply(a: float, b: float) -> float:
    """Multiply two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return a * b


def simple_tools(_: Path) -> Sequence[Tool[..., Any]]:
    return (get_weather, add, multiply)


def three_file_tools(folder: Path) -> Sequence[Tool[..., Any]]:
    return [
        made for made in file_tools(Workspace(folder)) if made.name in ("read", "write", "edit")
    ]


@dataclass(frozen=True)
class LocalTask:
    """A prompt, the tools for it, and the check of what came of it."""

    name: str
    prompt: str
    check: Callable[[RunResult[Any], Path], bool]
    tools: Callable[[Path], Sequence[Tool[..., Any]]] = simple_tools
    files: tuple[tuple[str, str], ...] = ()


def _called(result: RunResult[Any]) -> list[str]:
    """Return the names of the tools that gave a value, in the order of the calls."""
    return [
        item.call.name
        for message in result.messages
        if isinstance(message, ToolResults)
        for item in message.items
        if item.result.kind == "value"
    ]


def _says(result: RunResult[Any], *words: str) -> bool:
    text = result.text.lower().replace(",", "")
    is_call = '"name"' in text and '"arguments"' in text
    return result.outcome == "completed" and not is_call and all(word in text for word in words)


def _content(folder: Path, name: str) -> str:
    path = folder / name
    return path.read_text("utf-8") if path.is_file() else ""


def _adds(folder: Path) -> bool:
    """Whether the function adds now. It is parsed and never run, because a model wrote it."""
    try:
        module = ast.parse(_content(folder, "calc.py"))
    except SyntaxError:
        return False
    functions = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}
    returned = [
        ast.unparse(node.value)
        for name in ("add", "double")
        if name in functions
        for node in functions[name].body[:1]
        if isinstance(node, ast.Return) and node.value is not None
    ]
    return returned in (["a + b", "a * 2"], ["b + a", "a * 2"])


TASKS = (
    LocalTask(
        "weather",
        "What is the weather in Paris?",
        lambda result, _: _says(result, "18") and "get_weather" in _called(result),
    ),
    LocalTask(
        "add",
        "What is 1234 plus 8765? Use the tool.",
        lambda result, _: _says(result, "9999") and "add" in _called(result),
    ),
    LocalTask(
        "chain",
        "Add 17 and 25, then multiply the result by 3. Use the tools for both.",
        lambda result, _: _says(result, "126") and {"add", "multiply"} <= set(_called(result)),
    ),
    LocalTask(
        "compare",
        "Which city is warmer right now, Oslo or Rome? Look up both.",
        lambda result, _: _says(result, "rome") and _called(result).count("get_weather") >= 2,
    ),
    LocalTask(
        "no tool",
        "What is the capital of France?",
        lambda result, _: _says(result, "paris"),
    ),
    LocalTask(
        "read",
        "Read notes.txt and tell me the code word.",
        lambda result, _: _says(result, CODE_WORD),
        three_file_tools,
        (("notes.txt", NOTES),),
    ),
    LocalTask(
        "write",
        "Create the file hello.txt with the content: Hello, world!",
        lambda _, folder: "Hello, world!" in _content(folder, "hello.txt"),
        three_file_tools,
    ),
    LocalTask(
        "copy",
        "Read color.txt, then write what it says into copy.txt.",
        lambda _, folder: _content(folder, "copy.txt").strip() == "turquoise",
        three_file_tools,
        (("color.txt", "turquoise\n"),),
    ),
    LocalTask(
        "change",
        "In config.txt, change the port from 8080 to 9090 with the edit tool.",
        lambda _, folder: _content(folder, "config.txt") == "host = localhost\nport = 9090\n",
        three_file_tools,
        (("config.txt", "host = localhost\nport = 8080\n"),),
    ),
    LocalTask(
        "fix a bug",
        "Read calc.py, find the bug in add, and fix it with the edit tool.",
        lambda _, folder: _adds(folder),
        core_tools,
        (("calc.py", BUGGY),),
    ),
)
