"""A list of sessions: a table on a terminal; in a pipe, or with `NO_COLOR`, plain columns."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from windlass.cli.screen import Screen
from windlass.core.session_summary import SessionPage, SessionSummary
from windlass.core.text_clip import printable_chars

COLUMNS = ("SESSION", "UPDATED", "STATE", "RUNS", "STEPS", "TITLE")
STATE_COLUMN = COLUMNS.index("STATE")
STATE_STYLES = {"completed": "green", "open": "yellow", "waiting": "bold yellow"}
"""All other states are ends that a person may want to look into."""


def show_session_page(page: SessionPage, queued: Mapping[str, int], *, as_json: bool) -> None:
    """Print the sessions of a page, and say on standard error if there are more.

    `queued` says how many prompts wait in the queue of a session.
    """
    rows = [_session_row(summary, queued.get(summary.session, 0)) for summary in page]
    if as_json:
        listed = [
            {
                **msgspec.to_builtins(summary),
                "state": summary.state,
                "queued": queued.get(summary.session, 0),
            }
            for summary in page
        ]
        click.echo(msgspec.json.format(msgspec.json.encode(listed)).decode())
    elif not page:
        click.echo("No sessions.")
    elif Screen().styled:
        _show_table(rows)
    else:
        show_columns([COLUMNS, *rows])
    if page.cursor is not None:
        click.echo(f"There are more: --cursor {page.cursor}", err=True)


def _session_row(summary: SessionSummary, queued: int) -> tuple[str, ...]:
    state = f"{summary.state}, {queued} queued" if queued else summary.state
    tags = "".join(f" [{key}={value}]" for key, value in summary.tags.items())
    updated = datetime.fromtimestamp(summary.updated, UTC).astimezone()
    return (
        printable_chars(summary.session),
        updated.strftime("%Y-%m-%d %H:%M"),
        state,
        str(summary.runs),
        str(summary.steps),
        printable_chars(summary.title + tags),
    )


def _show_table(rows: Sequence[tuple[str, ...]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
    for name in COLUMNS:
        table.add_column(
            name,
            justify="right" if name in ("RUNS", "STEPS") else "left",
            # The title gets the width that the other columns leave.
            ratio=1 if name == "TITLE" else None,
            no_wrap=True,
            overflow="ellipsis",
        )
    for row in rows:
        cells = [Text(cell) for cell in row]
        state = row[STATE_COLUMN].partition(",")[0]
        cells[STATE_COLUMN].stylize(STATE_STYLES.get(state, "red"))
        table.add_row(*cells)
    Console(highlight=False).print(table)


def show_columns(rows: Sequence[Sequence[str]]) -> None:
    """Print rows of text in columns, for a pipe as for a terminal."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())
