"""`windlass sessions prune` and `windlass sessions delete`."""

from functools import partial

import click

from windlass.cli.journal_option import journal_option, run_on_journal
from windlass.cli.options import read_duration
from windlass.cli.session_picker import format_age
from windlass.core.errors import ConfigError
from windlass.core.phrases import format_count
from windlass.core.retention import Retention, RetentionRules
from windlass.core.session_summary import SessionSummary
from windlass.project.files import load_settings
from windlass.project.journals import ManagedJournal
from windlass.project.session_names import find_session
from windlass.server.retention import list_due, prune_due


@click.command(short_help="Delete old sessions that have ended.")
@journal_option
@click.option(
    "--older-than",
    "age",
    metavar="AGE",
    help="Such as 12h, 30d or 4w; by default, the setting `retention`.",
)
@click.option("--keep", type=click.IntRange(0), default=0, help="Keep the latest N in any case.")
@click.option("--dry-run", is_flag=True, help="List what would be deleted, and delete nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def prune(place: str, age: str | None, keep: int, dry_run: bool, yes: bool) -> None:
    """Delete the sessions that have ended and were last used before AGE.

    A session goes together with those of its sub-agents, and stays while one of them is driven. A
    service and a worker do the same by themselves, every ten minutes, if `retention` is set.
    """
    rules = _find_rules(age)
    due = run_on_journal(place, partial(_list_old, rules, keep))
    if dry_run:
        for session in due:
            click.echo(f"{session.session}  {session.state}, {format_age(session.changed)}")
    if due and not yes and not dry_run:
        click.confirm(f"Delete {format_count(len(due), 'session')}?", abort=True, err=True)
    deleted = 0
    if due and not dry_run:
        deleted = run_on_journal(place, partial(_prune, rules, keep))
    done = "would be deleted" if dry_run else "deleted"
    click.echo(f"{format_count(len(due) if dry_run else deleted, 'session')} {done}")


def _find_rules(age: str | None) -> RetentionRules:
    """Return how long sessions are kept: as the option says, or else the settings."""
    if age is not None:
        return RetentionRules(Retention(read_duration("--older-than", age)))
    loaded = load_settings()
    agents = {name: load_settings(agent=name).settings.retention for name in loaded.agents}
    rules = RetentionRules(loaded.settings.retention, agents)
    if rules.shortest_s is None:
        raise ConfigError(
            "it is not said how old: add --older-than 30d, or set it for good with "
            "windlass config set --user retention 30d"
        )
    return rules


async def _list_old(
    rules: RetentionRules, keep: int, journal: ManagedJournal
) -> list[SessionSummary]:
    latest = await journal.sessions(parent="", limit=keep) if keep else ()
    kept = {session.session for session in latest}
    return [each async for each in list_due(journal, rules) if each.session not in kept]


async def _prune(rules: RetentionRules, keep: int, journal: ManagedJournal) -> int:
    return await prune_due(journal, rules, keep=keep)


@click.command(short_help="Delete sessions.")
@click.argument("names", metavar="SESSION...", nargs=-1, required=True)
@journal_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def delete(names: tuple[str, ...], place: str, yes: bool) -> None:
    """Delete sessions, those of their sub-agents, and attachments that no other session uses."""

    async def find_names(journal: ManagedJournal) -> list[str]:
        return [(await find_session(journal, name)).session for name in names]

    async def delete_sessions(journal: ManagedJournal) -> None:
        for name in found:
            if not await journal.delete(name):
                raise ConfigError(f"session {name} was deleted by another process")

    found = list(dict.fromkeys(run_on_journal(place, find_names)))
    if not yes:
        click.confirm(f"Delete {', '.join(found)}?", abort=True, err=True)
    run_on_journal(place, delete_sessions)
    click.echo(f"{format_count(len(found), 'session')} deleted")
