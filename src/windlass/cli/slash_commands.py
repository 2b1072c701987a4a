"""The slash commands of a chat: their help, and what they show."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from windlass.cli.screen import CALL_STYLE, QUIET, Screen
from windlass.cli.session_picker import format_age
from windlass.cli.status import format_figures
from windlass.core.messages import Ledger, ToolSpec
from windlass.core.result import RunResult
from windlass.core.session_summary import SessionSummary

SLASH_COMMANDS: Mapping[str, str] = {
    "help": "this list",
    "tools": "the tools of the agent",
    "model": "the model; with a name, change it",
    "usage": "tokens, money and time of this chat",
    "cost": "the same as /usage",
    "sessions": "the latest sessions",
    "resume": "resume an open run; with a name, switch to that session",
    "undo": "undo what the last run did; again, the run before it",
    "clear": "start a new session, and clear the screen",
    "exit": "leave; so does Ctrl-D",
}
KEY_HELP = (
    ("Ctrl-C", "stops a run; at the prompt, twice leaves"),
    ("Tab", "completes a command"),
    ('""" or \\', "several lines: between triple quotes, after a backslash, or pasted"),
)


class ChatUsage:
    """The steps, tokens, money and time of all runs of a chat."""

    def __init__(self) -> None:
        self.runs = 0
        self.steps = 0
        self._duration_s = 0.0
        self._ledger = Ledger()

    def add_run(self, result: RunResult[Any]) -> None:
        self.runs += 1
        self.steps += result.steps
        self._duration_s += result.duration_s
        for charge in result.ledger.charges:
            self._ledger = self._ledger.add(charge)

    def show_usage(self, screen: Screen) -> None:
        """Write the totals, and a line for each model and purpose."""
        parts = [f"{self.runs} runs, {self.steps} steps"]
        parts += format_figures(self._ledger.usage, self._ledger.usd, self._duration_s)
        screen.write_line(f" {screen.glyphs.dot} ".join(parts))
        for charge in self._ledger.charges:
            usage = charge.usage
            if usage is None:
                continue
            price = "price unknown" if charge.usd is None else f"${charge.usd:f}"
            tokens = f"{usage.input:,} in ({usage.cache_read:,} cached), {usage.output:,} out"
            line = f"{charge.model}, {charge.purpose}: {tokens}, {price}"
            screen.write_line(line, QUIET, indent=2)
        if self._ledger.usd == Decimal(0):
            screen.write_line("It cost nothing.", QUIET, indent=2)


def show_help(screen: Screen) -> None:
    for name, text in SLASH_COMMANDS.items():
        screen.write_line(text, mark=f"/{name:<10}", mark_style=CALL_STYLE)
    for key, text in KEY_HELP:
        screen.write_line(text, mark=f"{key:<11}", mark_style=CALL_STYLE)


def show_tools(screen: Screen, specs: Sequence[ToolSpec]) -> None:
    """Write a line for each tool: its name, its effect and labels, and what it is for."""
    name_width = max((len(spec.name) for spec in specs), default=0)
    effects = {spec.name: ", ".join((spec.effect, *spec.labels)) for spec in specs}
    effect_width = min(20, max(map(len, effects.values()), default=0))
    for spec in specs:
        first_line = spec.description.strip().partition("\n")[0]
        screen.write_verbatim(f"{spec.name:<{name_width}}  ", CALL_STYLE)
        line = f"{effects[spec.name]:<{effect_width}}  {first_line}"
        style = QUIET if spec.effect == "read" else ""
        screen.write_verbatim(screen.trim_to_width(line, name_width + 2), style)
        screen.start_new_line()
    if not specs:
        screen.write_line("No tools.", QUIET)


def show_sessions(screen: Screen, found: Sequence[SessionSummary]) -> None:
    for summary in found:
        age = format_age(summary.updated)
        line = f"{summary.session}  {summary.state}, {age}: {summary.title}"
        screen.write_line(screen.clip_to_line(line), mark=screen.glyphs.progress)
    if not found:
        screen.write_line("No sessions yet.", QUIET)
