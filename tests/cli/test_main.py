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
from windlass.core.errors import ConfigError, NothingToDo


def test_help_names_every_command() -> None:
    said = CliRunner().invoke(main, ["--help"])
    assert said.exit_code == 0
    assert "demo" in said.output
    assert "kill one anywhere, and it finishes" in said.output


def test_each_command_has_help_of_its_own() -> None:
    for name in windlass.cli.COMMANDS:
        said = CliRunner().invoke(main, [name, "-h"])
        assert (said.exit_code, f"main {name}" in said.output) == (0, True)


@pytest.mark.slow
def test_help_loads_no_command() -> None:
    """What is not needed is not imported, so that help is quick."""
    program = (
        "import sys; from windlass.cli import main; main(['--help'], standalone_mode=False);"
        "print([name for name in sys.modules if name.split('.')[0] in {'rich', 'aiohttp', 'apsw'}"
        " or name.startswith(('windlass.testing', 'windlass.cli.'))"
        " and name not in ('windlass.cli.commands', 'windlass.cli.exit_codes')])"
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
    ("error", "told", "code"),
    [
        (ConfigError("the key is missing"), "Error: the key is missing\n", 2),
        (NothingToDo("no such session"), "Error: no such session\n", 12),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device\n", 1),
    ],
    ids=["ours", "nothing", "the machine's"],
)
def test_an_error_is_one_line(
    monkeypatch: pytest.MonkeyPatch, error: Exception, told: str, code: int
) -> None:
    @click.command()
    def broken() -> NoReturn:
        raise error

    def load(_group: object, _context: object, _name: str) -> click.Command:
        return broken

    monkeypatch.setattr(windlass.cli.LazyCommands, "get_command", load)
    said = CliRunner().invoke(main, ["demo"])
    assert said.exit_code == code
    assert said.output.count("\n") == 1
    assert said.output.endswith(told)


def test_ctrl_c_in_any_command_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def slow() -> NoReturn:
        raise KeyboardInterrupt

    def load(_group: object, _context: object, _name: str) -> click.Command:
        return slow

    monkeypatch.setattr(windlass.cli.LazyCommands, "get_command", load)
    assert CliRunner().invoke(main, ["demo"]).exit_code == 130


@pytest.mark.slow
def test_completion_names_commands_without_loading_them() -> None:
    program = (
        "import sys, click; from windlass.cli import main;"
        "found = main.shell_complete(click.Context(main), 're');"
        "print([item.value for item in found], 'windlass.cli.resume' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "['resume', 'restore'] False\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str) -> None:
    said = CliRunner().invoke(main, ["completion", shell])
    assert said.exit_code == 0
    assert f"_WINDLASS_COMPLETE={shell}_complete" in said.output
