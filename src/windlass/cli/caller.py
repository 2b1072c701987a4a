"""`windlass caller`: the callers of the service of a journal."""

import click

from windlass.cli.journal_option import journal_option, run_on_journal
from windlass.core.phrases import format_count
from windlass.environ import find_login_name
from windlass.project.journals import ManagedJournal
from windlass.server.caller_end import CallerEnd, RunChoice, end_caller
from windlass.server.tokens import TokenStore


@click.group()
def caller() -> None:
    """End callers of the service."""


@caller.command(
    epilog="""\b
Examples:
  windlass caller end ann
  windlass caller end ann --runs cancel"""
)
@click.argument("name")
@click.option(
    "--runs",
    type=click.Choice(["keep", "cancel"]),
    default="keep",
    show_default=True,
    help="What becomes of runs that have not ended.",
)
@journal_option
def end(name: str, runs: RunChoice, place: str) -> None:
    """End all that acts for a caller, within seconds and at all services.

    Tokens, logged-in browsers, login links, webhooks with the links that they have sent, and
    schedules are deleted. Sessions stay on record. Tokens of an identity provider end there.
    """

    async def work(journal: ManagedJournal) -> CallerEnd:
        by = find_login_name()
        return await end_caller(journal, TokenStore(journal), name, runs=runs, by=by)

    ended = run_on_journal(place, work)
    deleted = (
        format_count(ended.tokens, "token"),
        format_count(ended.logins, "login link"),
        format_count(ended.webhooks, "webhook"),
        format_count(ended.schedules, "schedule"),
    )
    click.echo(f"{name} is ended. Deleted: {', '.join(deleted)}.")
    if runs == "cancel":
        click.echo(f"Cancelled: {format_count(ended.runs, 'run')}.")
    if ended.open:
        click.echo(f"Still open: {format_count(ended.open, 'run')}. To see them: windlass sessions")
    if ended.queued:
        click.echo(f"Still waiting in queues: {format_count(ended.queued, 'prompt')}.")
