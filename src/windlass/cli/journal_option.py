"""The option that names a journal, and how a command works with the journal that it names."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

import click

from windlass.cli.options import CommandT
from windlass.journals.service_keys import ServiceKeys, load_service_keys
from windlass.logs import get_logger
from windlass.ports import Journal
from windlass.project.journals import (
    ManagedJournal,
    describe_unsigned,
    journal_name,
    open_existing_journal,
    open_journal,
)

T = TypeVar("T")
_log = get_logger(__name__)


def _resolve_journal(_context: click.Context, _option: click.Parameter, named: str | None) -> str:
    return journal_name(named=named)


journal_option = click.option(
    "--journal",
    "place",
    metavar="NAME",
    callback=_resolve_journal,
    help="Where the sessions are kept: a path or postgresql://…; by default, as the settings say.",
)


def key_options(command: CommandT) -> CommandT:
    """The options that name the keys of a Postgres journal."""
    for option in (
        click.option(
            "--verify-key",
            "verify_keys",
            multiple=True,
            metavar="KEY",
            help="The public key of a trusted service (Postgres); may be repeated.",
        ),
        click.option(
            "--signing-key",
            metavar="FILE",
            help="The private key that this service signs with (Postgres).",
        ),
    ):
        command = option(command)
    return command


def read_keys(given: Mapping[str, Any]) -> ServiceKeys:
    """Return the keys that the options name, or else the environment."""
    return load_service_keys(signing_key=given["signing_key"], verify_keys=given["verify_keys"])


async def log_journal_risks(journal: Journal) -> None:
    """Log whether a login of the database could forge answers, and what a failover may lose."""
    line = describe_unsigned(journal)
    if line is not None:
        _log.warning("%s", line)
    replication = (await journal.read_fleet()).replication
    if replication:
        _log.warning("%s", replication)


def show_unsigned(journal: Journal) -> None:
    """Print that line for a person, beside the output of a command."""
    line = describe_unsigned(journal)
    if line is not None:
        click.echo(f"note: {line}", err=True)


def run_on_journal(
    place: str,
    work: Callable[[ManagedJournal], Coroutine[Any, Any, T]],
    *,
    creates: bool = False,
    keys: ServiceKeys | None = None,
) -> T:
    """Do something with a journal, and return the result. It must exist, unless `creates`."""
    opens = open_journal if creates else open_existing_journal

    async def open_and_work() -> T:
        async with opens(place, keys) as journal:
            return await work(journal)

    return asyncio.run(open_and_work())
