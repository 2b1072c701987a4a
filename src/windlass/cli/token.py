"""`windlass token` and `windlass caller`: who may call the service of a journal."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import click

from windlass.cli.journal_option import journal_option, run_on_journal
from windlass.cli.session_picker import format_age
from windlass.core.errors import ConfigError, NothingToDo
from windlass.core.phrases import format_count
from windlass.environ import find_login_name
from windlass.journals.names import show_journal_name
from windlass.project.journals import ManagedJournal, open_journal
from windlass.project.settings import InvalidSetting, parse_age
from windlass.server.access import LOCAL_OWNER, ROLES
from windlass.server.caller_end import CallerEnd, RunChoice, end_caller
from windlass.server.tokens import DEFAULT_ROLES, TokenRecord, TokenStore

T = TypeVar("T")


@click.group()
def token() -> None:
    """Make, list and revoke tokens for the service.

    A token has a caller, who owns the sessions that it begins, and roles: watch reads, start begins
    runs and speaks to them, answer answers questions, admin may do all and sees every session.
    """


@token.command(
    epilog="""\b
Examples:
  windlass token create ann
  windlass token create dashboard --role watch --expires 30d
  windlass token create --role admin          for you, on your own journal"""
)
@click.argument("caller", default="")
@click.option(
    "--role",
    "roles",
    multiple=True,
    type=click.Choice(ROLES),
    help="What it may do; can be given more than once. By default watch, start and answer.",
)
@click.option("--expires", metavar="TIME", help="How long it is valid: 12h, 30d.")
@click.option("--note", default="", metavar="TEXT", help="What it is for.")
@journal_option
def create(caller: str, roles: tuple[str, ...], expires: str | None, note: str, place: str) -> None:
    """Make a token for a caller, and print it. It is not shown again."""
    seconds = _read_age(expires) if expires else None

    async def make(store: TokenStore) -> str:
        made = await store.create(caller, roles or DEFAULT_ROLES, expires_in_s=seconds, note=note)
        return made.secret

    secret = _with_tokens(place, make)
    # On standard error, so that `TOKEN=$(windlass token create ann)` holds nothing but the token.
    click.echo(f"The token is valid for the journal {show_journal_name(place)}.", err=True)
    click.echo(secret)


@token.command("list")
@journal_option
def list_(place: str) -> None:
    """List the tokens and the browsers that are signed in, without their secrets."""

    async def read(store: TokenStore) -> list[TokenRecord]:
        return await store.list_tokens()

    tokens = _with_tokens(place, read)
    for record in tokens:
        roles = ",".join(record.roles)
        until = f"until {_day(record.expires)}" if record.expires is not None else ""
        caller = record.caller or "(you)"
        is_browser = record.kind == "browser"
        note = f"browser, signed in {format_age(record.created)}" if is_browser else record.note
        parts = (record.id, caller, roles, f"since {_day(record.created)}", until, note)
        click.echo("  ".join(part for part in parts if part))
    if not tokens:
        click.echo("There is no token. Make one: windlass token create NAME")


@token.command()
@click.argument("token_id", metavar="ID")
@journal_option
def revoke(token_id: str, place: str) -> None:
    """Revoke a token, or sign a browser out, by its id. Services notice within seconds."""

    async def forget(store: TokenStore) -> bool:
        return await store.revoke(token_id)

    if not _with_tokens(place, forget):
        raise NothingToDo(f"there is no token {token_id}. To list them: windlass token list")
    click.echo(f"{token_id} is revoked")


@token.command()
@click.option("--address", default="", metavar="URL", help="Of the service, for a whole link.")
@journal_option
def login(address: str, place: str) -> None:
    """Print a link that signs a browser in as you, once and within 10 minutes.

    The browser stays signed in until a week has passed without a request, for 30 days at most.
    """

    async def make(store: TokenStore) -> str:
        return await store.create_login(LOCAL_OWNER)

    click.echo(f"{address.rstrip('/')}/#login={_with_tokens(place, make)}")


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


def _with_tokens(place: str, work: Callable[[TokenStore], Coroutine[Any, Any, T]]) -> T:
    """Do something with the tokens of a journal, which is created if it does not exist."""

    async def open_and_work() -> T:
        async with open_journal(place) as journal:
            return await work(TokenStore(journal))

    return asyncio.run(open_and_work())


def _read_age(text: str) -> float:
    try:
        seconds = parse_age(text)
    except InvalidSetting:
        seconds = None
    if seconds is None:
        raise ConfigError(f"--expires {text!r} is not a time: write 12h or 30d")
    return seconds


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(at))
