"""`windlass secrets`: keys by name, with values in the system's store or from a command."""

import shlex
import sys
from collections.abc import Iterator, Mapping

import click

from windlass.core.errors import ConfigError
from windlass.environ import find_secrets, read_process_environment
from windlass.project.secrets import SecretStore
from windlass.project.trust import ProjectFolder, open_project


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
@click.option(
    "--command",
    metavar="COMMAND",
    help="The command that prints the value; it is not run by a shell.",
)
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
    """List the names, and where each value comes from; never a value.

    Variables of the environment and of the project's .env file are listed if their name or value
    is that of a secret. What goes first is used.
    """
    lines = sorted(set(_list_lines(open_project(), SecretStore())))
    for line in lines:
        click.echo(line)
    if not lines:
        click.echo("There is no secret. Set one: windlass secrets set NAME")


def _list_lines(project: ProjectFolder, store: SecretStore) -> Iterator[str]:
    environ = read_process_environment()
    dotenv = project.snapshot.variables
    for name, source in store.list_sources().items():
        yield f"{name}  {source.shown}{_note_first(name, environ, dotenv, project)}"
    for name in find_secrets(dotenv):
        if not project.is_trusted:
            note = "  (not used: windlass trust)"
        else:
            note = _note_first(name, environ, {}, project)
        yield f"{name}  .env{note}"
    for name in find_secrets(environ):
        yield f"{name}  environment"


def _note_first(
    name: str, environ: Mapping[str, str], dotenv: Mapping[str, str], project: ProjectFolder
) -> str:
    if name in environ:
        return "  (the environment goes first)"
    return "  (.env goes first)" if name in dotenv and project.is_trusted else ""


@secrets.command()
@click.argument("name")
def delete(name: str) -> None:
    """Delete a secret, and its value in the system's store.

    What the environment or a .env file sets stays: it is not kept here.
    """
    store = SecretStore()
    project = open_project()
    if name not in store.list_sources() and name in {
        **project.snapshot.variables,
        **read_process_environment(),
    }:
        place = "the environment" if name in read_process_environment() else "the file .env"
        raise ConfigError(f"{name} is set in {place}, not here: remove it there")
    store.delete(name)
    click.echo(f"{name} is deleted.")
