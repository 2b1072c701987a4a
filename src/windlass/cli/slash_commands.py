"""What the slash commands of a chat show."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from windlass.cli.renderer import QUIET
from windlass.cli.screen import Screen
from windlass.cli.session_picker import format_age
from windlass.cli.status import format_figures
from windlass.core.messages import Ledger, ToolSpec
from windlass.core.result import RunResult
from windlass.core.session_summary import SessionSummary

SLASH_COMMANDS: Mapping[str, str] = {
    "help": "this list",
    "tools": "what the agent can call",
    "model": "the model; with a name, another one from here on",
    "usage": "tokens, money and time of this chat",
    "cost": "the same",
    "sessions": "the last sessions",
    "resume": "go on with an open run; with a name, with another session",
    "clear": "a new session, on an empty page",
    "exit": "leave; so does Ctrl-D",
}
KEY_HELP = (
    ("Ctrl-C", "stops a run; twice leaves"),
    ("Tab", "completes a command"),
    ('""" or \\', "several lines: between three quotes, or after a backslash; or paste them"),
)


class ChatUsage:
    """What the runs of a chat came to."""

    def __init__(self) -> None:
        self.runs = self.steps = 0
        self._duration_s = 0.0
        self._ledger = Ledger()

    def add_run(self, result: RunResult[Any]) -> None:
        self.runs += 1
        self.steps += result.steps
        self._duration_s += result.duration_s
        for charge in result.ledger.charges:
            self._ledger = self._ledger.add(charge)

    def show_usage(self, screen: Screen) -> None:
        told = [f"{self.runs} runs, {self.steps} steps"]
        told += format_figures(self._ledger.usage, self._ledger.usd, self._duration_s)
        screen.write_line(f" {screen.glyphs.dot} ".join(told))
        for charge in self._ledger.charges:
            usage = charge.usage
            if usage is not None:
                price = "price unknown" if charge.usd is None else f"${charge.usd:f}"
                read = f"{usage.input:,} in ({usage.cache_read:,} cached)"
                told_of = f"{charge.model}, {charge.purpose}: {read}, {usage.output:,} out, {price}"
                screen.write_line(told_of, QUIET, indent=2)
        if self._ledger.usd == Decimal(0):
            screen.write_line("It cost nothing.", QUIET, indent=2)


def show_help(screen: Screen) -> None:
    for name, told in SLASH_COMMANDS.items():
        screen.write_line(told, mark=f"/{name:<10}", mark_style="cyan")
    for key, told in KEY_HELP:
        screen.write_line(told, mark=f"{key:<11}", mark_style="cyan")


def show_tools(screen: Screen, specs: Sequence[ToolSpec]) -> None:
    """A line for each tool: what it does to the world, and what it is for."""
    names = max((len(spec.name) for spec in specs), default=0)
    abouts = {spec.name: ", ".join((spec.effect, *spec.labels)) for spec in specs}
    wide = min(20, max(map(len, abouts.values()), default=0))
    for spec in specs:
        first = spec.description.strip().partition("\n")[0]
        screen.write_verbatim(f"{spec.name:<{names}}  ", "cyan")
        told = f"{abouts[spec.name]:<{wide}}  {first}"
        screen.write_verbatim(
            screen.trim_to_width(told, names + 2), QUIET if spec.effect == "read" else ""
        )
        screen.start_new_line()
    if not specs:
        screen.write_line("No tools.", QUIET)


def show_sessions(screen: Screen, found: Sequence[SessionSummary]) -> None:
    for one in found:
        told = f"{one.session}  {one.state}, {format_age(one.updated)}: {one.title}"
        screen.write_line(screen.clip_to_line(told), mark=screen.glyphs.progress)
    if not found:
        screen.write_line("No sessions yet.", QUIET)
