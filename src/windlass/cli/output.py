"""What a run came to, for programs and for people.

A program gets one JSON object, or a line of JSON for each event and the same object at the end.
"""

import sys
from typing import Any, Literal, TypeAlias

import msgspec

from windlass.cli.exit_codes import OUTCOME_CODES
from windlass.cli.renderer import BAD, QUIET, TROUBLE, format_arguments
from windlass.cli.screen import Screen
from windlass.cli.status import format_figures
from windlass.core.events import Event
from windlass.core.result import Question, RunResult

OutputFormat: TypeAlias = Literal["text", "json", "stream-json"]
OUTPUT_FORMATS: tuple[OutputFormat, ...] = ("text", "json", "stream-json")

_encode_json = msgspec.json.Encoder(decimal_format="string").encode


def print_event(event: Event) -> None:
    """An event as a line of JSON on standard output, at once."""
    sys.stdout.buffer.write(_encode_json(event) + b"\n")
    sys.stdout.buffer.flush()


def print_result(result: RunResult[Any], model: str) -> None:
    """The result as a line of JSON on standard output."""
    sys.stdout.buffer.write(_encode_json(result_as_json(result, model)) + b"\n")
    sys.stdout.buffer.flush()


def result_as_json(result: RunResult[Any], model: str) -> dict[str, Any]:
    """All that a script may want to know of a run."""
    return {
        "type": "result",
        "outcome": result.outcome,
        "exit_code": OUTCOME_CODES[result.outcome],
        "reason": result.reason,
        "text": result.text or result.partial_text,
        "output": result.output,
        "session": result.session_id,
        "run": result.run,
        "model": model,
        "steps": result.steps,
        "model_calls": result.model_calls,
        "usage": result.usage,
        "cost_usd": result.cost,
        "duration_s": round(result.duration_s, 3),
        "error": result.error,
        "questions": [
            {
                "call": one.call.id,
                "tool": one.call.name,
                "arguments": one.arguments,
                "question": one.question,
                "digest": one.digest,
                "expires_at": one.expires_at,
            }
            for one in result.questions
        ],
    }


def show_summary(screen: Screen, result: RunResult[Any], *, show_session: bool = True) -> None:
    """The last line of a run: how it ended, what it took, and its name."""
    glyphs = screen.glyphs
    steps = f"{result.steps} step{'' if result.steps == 1 else 's'}"
    parts = [result.outcome.replace("_", " "), steps]
    parts += format_figures(result.usage, result.cost, result.duration_s)
    if show_session:
        parts.append(f"session {result.session_id}")
    mark = {"completed": glyphs.yes, "suspended": glyphs.trouble}.get(result.outcome, glyphs.no)
    style = {"completed": QUIET, "suspended": TROUBLE}.get(result.outcome, BAD)
    screen.write_line(f" {glyphs.dot} ".join(parts), style, mark=mark)


def show_answer_commands(screen: Screen, session: str, questions: tuple[Question, ...]) -> None:
    """What a run waits for, and the commands that answer it."""
    for one in questions:
        told = f"waits for your answer: {one.call.name}({format_arguments(one.arguments)})"
        screen.write_line(screen.clip_to_line(told), TROUBLE, mark=screen.glyphs.trouble)
        screen.write_line(f"windlass approve {session} {one.call.id}", indent=2)
        screen.write_line(f"windlass deny {session} {one.call.id} --reason WHY", indent=2)
