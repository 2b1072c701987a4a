"""What a run came to, for programs and for people.

A program gets one JSON object, or a line of JSON for each event and the same object at the end.
"""

import sys
from typing import Any, Literal, TypeAlias

import msgspec

from windlass.cli.exit_codes import OUTCOMES
from windlass.cli.renderer import BAD, QUIET, TROUBLE, pairs
from windlass.cli.screen import Screen
from windlass.cli.status import figures
from windlass.core.events import Event
from windlass.core.result import Question, RunResult

Format: TypeAlias = Literal["text", "json", "stream-json"]
FORMATS: tuple[Format, ...] = ("text", "json", "stream-json")

_encode = msgspec.json.Encoder(decimal_format="string").encode


def event_line(event: Event) -> None:
    """An event as a line of JSON on standard output, at once."""
    sys.stdout.buffer.write(_encode(event) + b"\n")
    sys.stdout.buffer.flush()


def result_line(result: RunResult[Any], model: str) -> None:
    """The result as a line of JSON on standard output."""
    sys.stdout.buffer.write(_encode(as_json(result, model)) + b"\n")
    sys.stdout.buffer.flush()


def as_json(result: RunResult[Any], model: str) -> dict[str, Any]:
    """All that a script may want to know of a run."""
    return {
        "type": "result",
        "outcome": result.outcome,
        "exit_code": OUTCOMES[result.outcome],
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


def summary(screen: Screen, result: RunResult[Any], *, named: bool = True) -> None:
    """The last line of a run: how it ended, what it took, and its name."""
    glyphs = screen.glyphs
    steps = f"{result.steps} step{'' if result.steps == 1 else 's'}"
    parts = [result.outcome.replace("_", " "), steps]
    parts += figures(result.usage, result.cost, result.duration_s)
    if named:
        parts.append(f"session {result.session_id}")
    mark = {"completed": glyphs.yes, "suspended": glyphs.trouble}.get(result.outcome, glyphs.no)
    style = {"completed": QUIET, "suspended": TROUBLE}.get(result.outcome, BAD)
    screen.line(f" {glyphs.dot} ".join(parts), style, mark=mark)


def how_to_answer(screen: Screen, session: str, questions: tuple[Question, ...]) -> None:
    """What a run waits for, and the commands that answer it."""
    for one in questions:
        told = f"waits for your answer: {one.call.name}({pairs(one.arguments)})"
        screen.line(screen.clip(told), TROUBLE, mark=screen.glyphs.trouble)
        screen.line(f"windlass approve {session} {one.call.id}", indent=2)
        screen.line(f"windlass deny {session} {one.call.id} --reason WHY", indent=2)
