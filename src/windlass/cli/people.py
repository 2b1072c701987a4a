"""`windlass person`, `windlass group` and `windlass audit`: who may answer, and who did."""

import sys
import time

import click

from windlass.cli.journal_option import journal_option, run_on_journal
from windlass.cli.options import read_duration
from windlass.cli.resource_commands import ResourceCommands
from windlass.cli.token import agent_option, team_option
from windlass.core.audit.trail import AUDIT_FORMATS, encode_entries
from windlass.project.journals import ManagedJournal
from windlass.server.access import make_grants
from windlass.server.audit_trail import read_trail
from windlass.server.people import Group, GroupStore, PeopleStore, PersonRecord


@click.group()
def person() -> None:
    """Put people into groups, and say who stands in for them while they are away.

    A rule can ask for people of a group: ask(role="finance", people=2). A person has the name that
    they sign in with.
    """


@person.command(
    "set",
    epilog="""\b
Examples:
  windlass person set bea --group finance
  windlass person set bea                      takes bea out of all groups""",
)
@click.argument("name")
@click.option("--group", "groups", multiple=True, metavar="NAME", help="Can be given repeatedly.")
@journal_option
def set_person(name: str, groups: tuple[str, ...], place: str) -> None:
    """Say which groups a person belongs to. Services notice within seconds."""

    async def work(journal: ManagedJournal) -> PersonRecord:
        return await PeopleStore(journal).put(name, groups)

    record = run_on_journal(place, work, creates=True)
    click.echo(f"{record.person} belongs to {', '.join(record.groups) or 'no group'}.")


@person.command(
    epilog="""\b
Examples:
  windlass person away bea --to carl --for 2w
  windlass person away bea                     bea is back"""
)
@click.argument("name")
@click.option(
    "--to", "stand_in", default="", metavar="PERSON", help="The person who answers for them."
)
@click.option("--for", "span", default=None, metavar="TIME", help="How long: 3d, 2w.")
@journal_option
def away(name: str, stand_in: str, span: str | None, place: str) -> None:
    """Let somebody answer in place of a person, with the person's groups."""
    until = None if span is None else time.time() + read_duration("--for", span)

    async def work(journal: ManagedJournal) -> PersonRecord:
        return await PeopleStore(journal).send_away(name, stand_in, until)

    run_on_journal(place, work, creates=True)
    click.echo(f"{stand_in} stands in for {name}." if stand_in else f"{name} is back.")


@person.command()
@click.argument("name")
@journal_option
def remove(name: str, place: str) -> None:
    """Take a person out of all groups. Their tokens stay: see `windlass caller end`."""
    run_on_journal(place, lambda journal: PeopleStore(journal).remove_person(name))
    click.echo(f"{name} belongs to no group.")


@click.group()
def group() -> None:
    """Say what the people of a group may do with the runs that others started."""


@group.command(
    "set",
    epilog="""\b
Examples:
  windlass group set finance --team reviewer --agent billing""",
)
@click.argument("name")
@team_option
@agent_option
@journal_option
def set_group(name: str, team_roles: tuple[str, ...], agents: tuple[str, ...], place: str) -> None:
    """Make a group, or change what its people may do."""
    made = Group(name=name, grants=make_grants(team_roles, agents))
    run_on_journal(place, lambda journal: GroupStore(journal).put(made), creates=True)
    click.echo(f"The group {name} is set.")


@click.command(
    epilog="""\b
Examples:
  windlass audit --since 30d > audit.jsonl
  windlass audit --since 7d --format csv"""
)
@click.option("--since", default="30d", show_default=True, metavar="TIME", help="How far back.")
@click.option("--until", default=None, metavar="TIME", help="Up to how long ago; by default now.")
@click.option("--format", "form", type=click.Choice(AUDIT_FORMATS), default="jsonl")
@journal_option
def audit(since: str, until: str | None, form: str, place: str) -> None:
    """Write down who asked, answered and changed what: who, when, from where.

    A line for each start, question, answer, message and end, in the order of time. An answer has
    the digest of the arguments that it is bound to, and its signature where a service signs.
    """
    now = time.time()
    begin = now - read_duration("--since", since)
    end = now if until is None else now - read_duration("--until", until)
    entries = run_on_journal(place, lambda journal: read_trail(journal, begin, end))
    sys.stdout.write(encode_entries(entries, form))


def _make_row(record: PersonRecord) -> list[str]:
    away_until = ""
    if record.stand_in:
        until = record.away_until
        day = "" if until is None else time.strftime(" until %Y-%m-%d", time.localtime(until))
        away_until = f"{record.stand_in}{day}"
    return [record.person, ",".join(record.groups), away_until]


def _make_group_row(made: Group) -> list[str]:
    return [made.name, ",".join(f"{one.role}:{'+'.join(one.agents)}" for one in made.grants)]


PEOPLE = ResourceCommands("person", PeopleStore, ("PERSON", "GROUPS", "STAND-IN"), _make_row)
GROUPS = ResourceCommands("group", GroupStore, ("GROUP", "MAY"), _make_group_row)
person.add_command(PEOPLE.make_list("List people with their groups."))
group.add_command(GROUPS.make_list("List groups."))
group.add_command(GROUPS.make_delete("Delete a group."))
