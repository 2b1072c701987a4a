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
def migrate(place: str, check: bool, finish: bool) -> None:
    """Bring a journal that an older version made up to date, while others use it.

    Programs of the previous version can keep using the journal. When all of them are stopped or
    upgraded, run it again with --finish to enable everything that this version can do.
    """
    if check and finish:
        raise ConfigError("give --check or --finish, not both: --check changes nothing")
    status = run_on_journal(place, partial(_migrate, check=check, finish=finish))
    click.echo(_describe(status))
    if check and (not status.is_finished or status.sessions_left):
        sys.exit(UNFINISHED_CODE)


async def _migrate(journal: ManagedJournal, *, check: bool, finish: bool) -> UpgradeStatus:
    if not isinstance(journal, UpgradableJournal):
        return UpgradeStatus(0, is_finished=True)
    if check:
        return await journal.upgrade_status()
    return await journal.migrate(finish=finish)


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
