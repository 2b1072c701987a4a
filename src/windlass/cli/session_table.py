"""Which journal is meant, and how a list of its sessions looks.

On a terminal a list is a table; in a pipe, or with `NO_COLOR`, it is the same words in columns.
"""

import asyncio
import re
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from windlass.cli.screen import Screen
from windlass.core.errors import ConfigError
from windlass.core.session_summary import SessionSummary
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.project.files import default_journal_path, load_settings

T = TypeVar("T")
COLUMNS = ("SESSION", "UPDATED", "STATE", "RUNS", "STEPS", "TITLE")
STATE_STYLES = {"completed": "green", "open": "yellow", "waiting": "bold yellow"}
"""The other states are ends that one may want to look into."""

_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_AGE_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def resolve_journal_path(given: str | None = None) -> Path:
    """The journal that a flag, a file or the environment names; else the user's own."""
    named = given or load_settings().settings.journal
    return Path(named).expanduser() if named else default_journal_path()


def _resolve_journal_option(
    _context: click.Context, _option: click.Parameter, given: str | None
) -> Path:
    return resolve_journal_path(given)


journal_option = click.option(
    "--journal",
    "path",
    metavar="PATH",
    callback=_resolve_journal_option,
    help="The file that keeps the sessions; without it, the one of the settings.",
)


def run_on_journal(
    path: Path, work: Callable[[SqliteJournal], Coroutine[Any, Any, T]], *, create: bool = False
) -> T:
    """Do something with a journal; one that is not there is made only if that is wanted."""
    if not create and not path.exists():
        raise ConfigError(f"there is no journal {path}; name another one with --journal")
    with SqliteJournal(path) as journal:
        return asyncio.run(work(journal))


def parse_age_s(text: str) -> float:
    """The seconds of `90m`, `12h`, `30d` or `4w`."""
    found = _AGE.fullmatch(text.strip().lower())
    if found is None:
        raise ConfigError(f"{text!r} is no age: write it as 90m, 12h, 30d or 4w")
    return float(found[1]) * _AGE_SECONDS[found[2]]


def show_session_list(found: Sequence[SessionSummary], *, as_json: bool) -> None:
    """Print the sessions, each in a line."""
    if as_json:
        listed = [{**msgspec.to_builtins(one), "state": one.state} for one in found]
        click.echo(msgspec.json.format(msgspec.json.encode(listed)).decode())
    elif not found:
        click.echo("No sessions.")
    elif Screen().styled:
        _show_table(found)
    else:
        _show_columns([COLUMNS, *map(_session_row, found)])


def _session_row(one: SessionSummary) -> tuple[str, ...]:
    updated = datetime.fromtimestamp(one.updated, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
    counts = (str(one.runs), str(one.steps))
    return (printable_text(one.session), updated, one.state, *counts, printable_text(one.title))


def _show_table(found: Sequence[SessionSummary]) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
    for name in COLUMNS:
        # The title gets what the others leave.
        table.add_column(
            name,
            justify="right" if name in ("RUNS", "STEPS") else "left",
            ratio=1 if name == "TITLE" else None,
            no_wrap=True,
            overflow="ellipsis",
        )
    for one in found:
        cells = [Text(cell) for cell in _session_row(one)]
        cells[2].stylize(STATE_STYLES.get(one.state, "red"))
        table.add_row(*cells)
    Console(highlight=False).print(table)


def _show_columns(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def printable_text(text: str) -> str:
    """A text without what could steer a terminal; its lines stay."""
    return "".join(char if char.isprintable() or char == "\n" else "?" for char in text)
