"""The front door: help, version, and errors in one line."""

import errno
import subprocess
import sys
from typing import NoReturn

import click
import pytest
from click.testing import CliRunner

import windlass.cli
from windlass.cli import main
from windlass.core.errors import ConfigError


def test_help_names_every_command() -> None:
    said = CliRunner().invoke(main, ["--help"])
    assert said.exit_code == 0
    assert "demo" in said.output
    assert "kill one anywhere, and it finishes" in said.output


def test_each_command_has_help_of_its_own() -> None:
    for name in windlass.cli.COMMANDS:
        said = CliRunner().invoke(main, [name, "-h"])
        assert (said.exit_code, f"main {name}" in said.output) == (0, True)


def test_help_loads_no_command() -> None:
    """What is not needed is not imported, so that help is quick."""
    program = (
        "import sys; from windlass.cli import main; main(['--help'], standalone_mode=False);"
        "print([name for name in sys.modules if name.split('.')[0] in {'rich', 'aiohttp', 'apsw'}"
        " or name.startswith(('windlass.testing', 'windlass.cli.'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_version() -> None:
    said = CliRunner().invoke(main, ["--version"])
    assert said.exit_code == 0
    assert said.output.startswith("windlass ")


def test_a_mistyped_command_is_guessed() -> None:
    said = CliRunner().invoke(main, ["dmo"])
    assert said.exit_code == 2
    assert "There is no command 'dmo'. Did you mean demo?" in said.output


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ConfigError("the key is missing"), "Error: the key is missing\n"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device\n"),
    ],
    ids=["ours", "the machine's"],
)
def test_an_error_is_one_line(monkeypatch: pytest.MonkeyPatch, error: Exception, told: str) -> None:
    @click.command()
    def broken() -> NoReturn:
        raise error

    def load(_group: object, _context: object, _name: str) -> click.Command:
        return broken

    monkeypatch.setattr(windlass.cli.Commands, "get_command", load)
    said = CliRunner().invoke(main, ["demo"])
    assert said.exit_code == 1
    assert said.output.count("\n") == 1
    assert said.output.endswith(told)
