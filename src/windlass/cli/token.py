"""`windlass token` and `windlass caller`: who may call the service of a journal."""

import time
from typing import Any

import click

from windlass.agent.folder_store import FolderStore
from windlass.cli.journal_option import journal_option, key_options, read_keys, run_on_journal
from windlass.cli.options import read_duration, show_option
from windlass.cli.resource_commands import ResourceCommands
from windlass.cli.session_picker import format_age
from windlass.core.disclosure import check_parts
from windlass.core.phrases import format_count
from windlass.environ import find_login_name
from windlass.journals.wording import show_journal_name
from windlass.project.files import load_settings
from windlass.project.journals import ManagedJournal
from windlass.server.access import (
    LOCAL_OWNER,
    ROLES,
    TEAM_ROLES,
    TeamGrant,
    invited_person,
    make_grants,
)
from windlass.server.caller_end import CallerEnd, RunChoice, end_caller
from windlass.server.caller_export import export_caller
from windlass.server.erasure import CallerEraser, CallerErasure, RunFate
from windlass.server.tokens import DEFAULT_ROLES, INVITATION_S, TokenRecord, TokenStore

team_option = click.option(
    "--team",
    "team_roles",
    multiple=True,
    type=click.Choice(TEAM_ROLES),
    help="What a person may do with runs of others; may be repeated.",
)
agent_option = click.option(
    "--agent",
    "agents",
    multiple=True,
    metavar="NAME",
    help="The agents that --team applies to; may be repeated. By default all.",
)
COLUMNS = ("TOKEN", "CALLER", "ROLES", "SINCE", "UNTIL", "NOTE")


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
  windlass token create ann --person ann --team reviewer --agent billing
  windlass token create --role admin          for you, on your own journal"""
)
@click.argument("caller", default="")
@click.option(
    "--role",
    "roles",
    multiple=True,
    type=click.Choice(ROLES),
    help="What it may do; may be repeated. By default watch, start and answer.",
)
@click.option("--expires", metavar="TIME", help="How long it is valid: 12h, 30d.")
@click.option("--note", default="", metavar="TEXT", help="What it is for.")
@click.option("--person", default="", metavar="NAME", help="The person who uses it.")
@team_option
@agent_option
@journal_option
def create(
    caller: str,
    roles: tuple[str, ...],
    expires: str | None,
    note: str,
    person: str,
    team_roles: tuple[str, ...],
    agents: tuple[str, ...],
    place: str,
) -> None:
    """Make a token for a caller, and print it. It is not shown again."""
    seconds = read_duration("--expires", expires) if expires else None
    grants = _read_grants(team_roles, agents)

    async def make(journal: ManagedJournal) -> str:
        made = await TokenStore(journal).create(
            caller,
            roles or DEFAULT_ROLES,
            expires_in_s=seconds,
            note=note,
            person=person,
            grants=grants,
        )
        return made.secret

    secret = run_on_journal(place, make, creates=True)
    # On standard error, so that `TOKEN=$(windlass token create ann)` holds nothing but the token.
    click.echo(f"The token is valid for the journal {show_journal_name(place)}.", err=True)
    click.echo(secret)


@token.command()
@click.option(
    "--address", default="", metavar="URL", help="Address of the service, for a complete link."
)
@journal_option
def login(address: str, place: str) -> None:
    """Print a link that signs a browser in as you, once and within 10 minutes.

    The browser stays signed in until a week has passed without a request, for 30 days at most.
    """

    async def make(journal: ManagedJournal) -> str:
        return await TokenStore(journal).create_login(LOCAL_OWNER)

    code = run_on_journal(place, make, creates=True)
    click.echo(f"{address.rstrip('/')}/#login={code}")


@token.command(
    epilog="""\b
Examples:
  windlass token invite ann --team reviewer --agent billing --address https://agents.example
  windlass token invite ben --team operator"""
)
@click.argument("person")
@click.option(
    "--role",
    "roles",
    multiple=True,
    type=click.Choice(ROLES),
    help="What they may do with their own runs. By default watch, start and answer.",
)
@team_option
@agent_option
@click.option("--valid", default=None, metavar="TIME", help="How long the link works: 12h, 3d.")
@click.option(
    "--address", default="", metavar="URL", help="Address of the service, for a complete link."
)
@journal_option
def invite(
    person: str,
    roles: tuple[str, ...],
    team_roles: tuple[str, ...],
    agents: tuple[str, ...],
    valid: str | None,
    address: str,
    place: str,
) -> None:
    """Print a link that signs one browser in as a person, once.

    What the person does carries their name. A viewer reads the runs that others started, a reviewer
    sees and answers their questions and nothing else, an operator reads and controls them.
    """
    invited = invited_person(person, roles or DEFAULT_ROLES, _read_grants(team_roles, agents))
    seconds = read_duration("--valid", valid) if valid else INVITATION_S

    async def make(journal: ManagedJournal) -> str:
        return await TokenStore(journal).create_login(invited, seconds)

    code = run_on_journal(place, make, creates=True)
    click.echo(f"{address.rstrip('/')}/#login={code}")


def _read_grants(team_roles: tuple[str, ...], agents: tuple[str, ...]) -> tuple[TeamGrant, ...]:
    if agents and not team_roles:
        raise click.UsageError("--agent says which agents --team is for: pass --team as well.")
    return make_grants(team_roles, agents)


@click.group()
def caller() -> None:
    """End, export and erase callers of the service."""


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
    help="What to do with open runs.",
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


@caller.command(
    short_help="Erase all that is kept about a caller.",
    epilog="""\b
Examples:
  windlass caller erase ann
  windlass caller erase ann --runs wait""",
)
@click.argument("name")
@click.option(
    "--runs",
    type=click.Choice(["cancel", "wait"]),
    default="cancel",
    show_default=True,
    help="What to do with open runs: end them, or erase them once they have ended.",
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@journal_option
@key_options
def erase(name: str, runs: RunFate, yes: bool, place: str, **given: Any) -> None:  # noqa: ANN401 - the flags of click
    """Erase a caller: sessions, messages, uploads, its folder, and all that acts for it.

    What is left is a tombstone with a keyed hash of the name. If it is interrupted, a service
    finishes it, or the same command. What the caller answered in sessions of others stays there.
    """
    if not yes:
        click.confirm(f"Erase all that is kept about {name}?", abort=True, err=True)

    async def work(journal: ManagedJournal) -> CallerErasure:
        eraser = CallerEraser(journal, TokenStore(journal), _open_folders())
        await eraser.resume()
        return await eraser.erase(name, runs=runs, by=find_login_name())

    erased = run_on_journal(place, work, keys=read_keys(given))
    counts = (
        format_count(erased.sessions, "session"),
        format_count(erased.uploads, "upload"),
        format_count(erased.evaluations, "evaluation"),
        format_count(erased.folders, "folder"),
        format_count(erased.tokens, "token"),
    )
    click.echo(f"Erased: {', '.join(counts)}.")
    if erased.left:
        still = format_count(erased.left, "session")
        click.echo(f"{still} still at work: a service erases them once their runs have ended.")
    if erased.stores:
        machines = format_count(len(erased.stores), "other machine")
        click.echo(f"A folder of {name} is on {machines}: their workers delete it.")
    if not erased.scrubbed:
        click.echo("The database server keeps deleted bytes until it has cleaned up its files.")


@caller.command(short_help="Write all that is kept about a caller into a file.")
@click.argument("name")
@click.option("-o", "--output", default="-", metavar="FILE", help="The file; by default, stdout.")
@show_option("What the file has of agents, besides what was said")
@journal_option
def export(name: str, output: str, shows: tuple[str, ...], place: str) -> None:
    """Write all that is kept about a caller as a tar file.

    It has the sessions, the records of services as JSON, the uploads, and the files of the caller's
    folder if this machine has it. It has no secrets, and of agents only what is to be shown.
    """
    parts = check_parts(shows)

    async def work(journal: ManagedJournal) -> None:
        with click.open_file(output, "wb", atomic=output != "-") as file:
            async for piece in export_caller(journal, name, _open_folders(), parts):
                file.write(piece)

    run_on_journal(place, work)
    if output != "-":
        click.echo(f"{output}: all that is kept about {name}")


def _open_folders() -> FolderStore:
    """Return the folders of callers, where the settings say that they are."""
    return FolderStore(load_settings().settings.workspace_store or None)


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(at))


def _make_row(record: TokenRecord) -> list[str]:
    note = record.note
    if record.kind == "browser":
        note = f"browser, signed in {format_age(record.created)}"
    until = "-" if record.expires is None else _day(record.expires)
    caller = record.caller or "(you)"
    team = [f"{grant.role}:{'+'.join(grant.agents)}" for grant in record.grants]
    return [record.id, caller, ",".join([*record.roles, *team]), _day(record.created), until, note]


def _by_age(record: TokenRecord) -> float:
    return -record.created


TOKENS = ResourceCommands("token", TokenStore, COLUMNS, _make_row, _by_age)
token.add_command(
    TOKENS.make_list("List the tokens and the browsers that are signed in, without their secrets.")
)
token.add_command(
    TOKENS.make_delete(
        "Revoke a token, or sign a browser out, by its id. Services notice within seconds.",
        "revoke",
        "revoked",
        "ID",
    )
)
