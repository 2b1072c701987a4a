"""`windlass secrets`: keys by name, with values in the system's store or from a command."""

import shlex
import sys

import click

from windlass.core.errors import ConfigError
from windlass.project.secrets import SecretStore
from windlass.project.trust import open_project


@click.group()
def secrets() -> None:
    """Set, list and delete secrets.

    A name such as OPENAI_API_KEY is looked up in the environment, in the .env file of a trusted
    project, and then here. Values are kept by the system (its keyring), or printed by a command
    such as that of a password manager. They are never shown, and masked everywhere.
    """


@secrets.command(
    "set",
    epilog="""\b
Examples:
  windlass secrets set OPENAI_API_KEY                   asks for the value
  pass show openai | windlass secrets set OPENAI_API_KEY
  windlass secrets set OPENAI_API_KEY --command "op read op://team/openai/key\"""",
)
@click.argument("name")
@click.option("--command", metavar="COMMAND", help="What prints the value each time; no shell.")
def set_(name: str, command: str | None) -> None:
    """Set a secret. Its value is asked for, or read from standard input; it is no argument."""
    store = SecretStore()
    if command is not None:
        try:
            store.save_command(name, shlex.split(command))
        except ValueError as error:
            raise ConfigError(f"--command: {error}") from None
    elif sys.stdin.isatty():
        store.save_value(name, click.prompt(name, hide_input=True))
    else:
        store.save_value(name, sys.stdin.read().strip())
    click.echo(f"{name} is set.")


@secrets.command("list")
def list_() -> None:
    """List the names, and where each value comes from."""
    sources = SecretStore().list_sources()
    plain = open_project().plain_environ
    for name, source in sorted(sources.items()):
        note = "  (the environment goes first)" if name in plain else ""
        click.echo(f"{name}  {source.shown}{note}")
    if not sources:
        click.echo("There is no secret. Set one: windlass secrets set NAME")


@secrets.command()
@click.argument("name")
def delete(name: str) -> None:
    """Delete a secret, and its value in the system's store."""
    SecretStore().delete(name)
    click.echo(f"{name} is deleted.")
