"""The random plan of a session, in a prompt that the provider can read. Each effect has a name."""

import random
import secrets
from collections.abc import Iterator
from typing import Any

import msgspec

HEAD = "Plan:"
MARKS = "marks.txt"
"""The file in the workspace where each effect leaves its name."""
EFFECTS = ("note", "send", "bash")
"""The tools whose effect may happen at most once for each call."""
ECHO = "peer__echo"
"""The tool of the MCP server."""

Call = tuple[str, dict[str, Any]]


class SoakPlan(msgspec.Struct, frozen=True):
    """The calls of each reply. The reply after them is the answer."""

    steps: list[list[Call]]

    @property
    def prompt(self) -> str:
        return f"{HEAD}{msgspec.json.encode(self).decode()}"

    @property
    def calls(self) -> Iterator[Call]:
        for step in self.steps:
            yield from step


def parse_plan(prompt: str) -> SoakPlan | None:
    """Return the last plan in a prompt, which may be joined from several; None if it has none."""
    found = [line for line in prompt.splitlines() if line.startswith(HEAD)]
    return msgspec.json.decode(found[-1].removeprefix(HEAD), type=SoakPlan) if found else None


def roll_plan(rolls: random.Random) -> SoakPlan:
    """Draw a plan of up to five replies with calls."""
    steps = [_roll_step(rolls) for _ in range(rolls.choice((0, 1, 1, 2, 2, 3, 4, 5)))]
    return SoakPlan(steps)


def mark_name(tool: str, arguments: dict[str, Any], key: str) -> str:
    """Return the mark that a call leaves: its key, or the name in its command."""
    return str(arguments["command"]).split()[1] if tool == "bash" else key


def _roll_step(rolls: random.Random) -> list[Call]:
    kinds = rolls.choices(
        ("look", "note", "send", "bash", "helper", ECHO),
        weights=(6, 5, 2, 2, 2, 2),
        k=rolls.choice((1, 1, 1, 2, 3)),
    )
    return [_roll_call(rolls, kind) for kind in kinds]


def _roll_call(rolls: random.Random, kind: str) -> Call:
    name = secrets.token_hex(6)
    match kind:
        case "bash":
            return "bash", _roll_command(rolls, name)
        case "helper":
            inner = [[("look", _new_name())], [("note", _new_name())]]
            return "helper", {"task": SoakPlan(inner[: rolls.choice((1, 2))]).prompt}
        case _:
            return kind, {"what": name}


def _new_name() -> dict[str, Any]:
    return {"what": secrets.token_hex(6)}


def _roll_command(rolls: random.Random, name: str) -> dict[str, Any]:
    """Draw a command: plain, slow, leaving a process behind, too slow, or in the background."""
    mark = f"echo {name} >> {MARKS}"
    return rolls.choice(
        (
            {"command": mark},
            {"command": f"{mark}; sleep 0.2"},
            {"command": f"{mark}; sleep 300 & true"},
            {"command": f"{mark}; sleep 300", "timeout_s": 0.3},
            {"command": f"{mark}; sleep 300", "timeout_s": 0.5, "background": True},
        )
    )
