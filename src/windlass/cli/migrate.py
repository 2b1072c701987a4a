"""`windlass migrate`: bring a journal of an older version up to date, and report its state."""

import sys
from functools import partial

import click

from windlass.cli.journal_option import journal_option, run_on_journal
from windlass.core.errors import ConfigError
from windlass.core.phrases import format_count
from windlass.journals.upgrades import UpgradeStatus
from windlass.project.journals import ManagedJournal, UpgradableJournal

UNFINISHED_CODE = 1
"""The exit code of `--check` for a journal whose upgrade is not finished."""


@click.command(short_help="Bring a journal of an older version up to date.")
@journal_option
@click.option("--check", is_flag=True, help="Only print the status; exit code 1 if unfinished.")
@click.option(
    "--finish", is_flag=True, help="Finish: older versions refuse the journal afterwards."
)
@click.option(
    "--sessions",
    type=click.IntRange(min=1),
    help="Stop after about so many sessions; the next call continues with the rest.",
)
def migrate(place: str, check: bool, finish: bool, sessions: int | None) -> None:
    """Bring a journal that an older version made up to date, while others use it.

    Programs of the previous version can keep using the journal. When all of them are stopped or
    upgraded, run it again with --finish to enable everything that this version can do. A few
    sessions are done at a time, so it can be interrupted: the next call continues with the rest.
    """
    if check and finish:
        raise ConfigError("give --check or --finish, not both: --check changes nothing")
    if check and sessions is not None:
        raise ConfigError("give --check or --sessions, not both: --check changes nothing")
    work = _check if check else partial(_migrate, finish=finish, limit=sessions)
    status = run_on_journal(place, work)
    click.echo(_describe(status))
    if check and (not status.is_finished or status.sessions_left):
        sys.exit(UNFINISHED_CODE)


async def _check(journal: ManagedJournal) -> UpgradeStatus:
    if not isinstance(journal, UpgradableJournal):
        return UpgradeStatus(0, is_finished=True)
    return await journal.upgrade_status()


async def _migrate(journal: ManagedJournal, *, finish: bool, limit: int | None) -> UpgradeStatus:
    before = await _check(journal)
    if not isinstance(journal, UpgradableJournal):
        return before

    def show(done: int) -> None:
        click.echo(f"{done:,} of {max(done, before.sessions_left):,} sessions", err=True)

    return await journal.migrate(finish=finish, limit=limit, on_progress=show)


def _describe(status: UpgradeStatus) -> str:
    if status.is_finished:
        return "The journal is up to date. Programs of older versions refuse it."
    left = ""
    if status.sessions_left:
        left = f" {format_count(status.sessions_left, 'session')} must still be brought up to date."
    return (
        f"The journal can be used by this version and by the one before it.{left} When no program "
        "of the older version runs any more, finish the upgrade: windlass migrate --finish"
    )
