"""`windlass key`: the keys that a service signs with, in a journal that many machines share."""

from pathlib import Path
from typing import Any

import click

from windlass.cli.journal_option import journal_option, key_options, read_keys, run_on_journal
from windlass.core.errors import ConfigError
from windlass.core.phrases import format_count
from windlass.journals.service_keys import (
    SIGNING_KEY_VARIABLE,
    VERIFY_KEYS_VARIABLE,
    make_signing_key,
    read_public_key,
)
from windlass.project.journals import KeyedJournal, ManagedJournal


@click.group()
def key() -> None:
    """Make and use keys: with them, a login of the database alone cannot answer for people.

    The service gets the file with the private key. Workers get the public key alone.
    """


@key.command()
@click.argument("file", type=click.Path(path_type=Path))
def new(file: Path) -> None:
    """Write a new private key to FILE, and print its public key."""
    public_key = make_signing_key(file)
    click.echo(public_key)
    click.echo(
        f"For services: {SIGNING_KEY_VARIABLE}={file}. "
        f"For workers: {VERIFY_KEYS_VARIABLE}={public_key}",
        err=True,
    )


@key.command()
@click.argument("file", type=click.Path(path_type=Path))
def show(file: Path) -> None:
    """Print the public key of a private key."""
    click.echo(read_public_key(file))


@key.command()
@journal_option
@key_options
@click.option(
    "--accept", is_flag=True, help="Also sign records that no trusted service has signed."
)
def sign(place: str, accept: bool, **given: Any) -> None:  # noqa: ANN401 - the flags of click
    """Sign the tokens, schedules, webhooks and quotas of a journal with the present key.

    Do this before an older key is retired. With --accept, do it once when a journal gets its first
    key: from then on, all records count that are in it now.
    """
    keys = read_keys(given)

    async def sign_all(journal: ManagedJournal) -> int:
        if not isinstance(journal, KeyedJournal):
            raise ConfigError("only the records of a Postgres journal are signed with such a key")
        return await journal.sign_records(accept=accept)

    count = run_on_journal(place, sign_all, keys=keys)
    click.echo(f"{format_count(count, 'record')}: signed with key {keys.key_id}")
