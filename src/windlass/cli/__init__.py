"""The command line: `windlass COMMAND`.

The law: a command's module is imported when the command is run, so that `--help` is quick; and an
error of ours is one line, never a traceback.
"""

import errno
from importlib import import_module
from typing import Any

import click
import click.shell_completion
from typing_extensions import override

from windlass.cli.exit_codes import FAILED, INTERRUPTED, USAGE, exit_code_for
from windlass.core.errors import WindlassError
from windlass.core.suggestions import suggest_names

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("windlass.cli.run", "Run a task to its end in this folder."),
    "chat": ("windlass.cli.chat", "Talk with an agent, prompt by prompt."),
    "resume": ("windlass.cli.resume", "Go on with a run that was killed or waits."),
    "approve": ("windlass.cli.approve", "Say yes to a call that waits, and go on."),
    "deny": ("windlass.cli.approve", "Say no to a call that waits, and go on."),
    "tools": ("windlass.cli.tools", "List the tools that an agent would have here."),
    "models": ("windlass.cli.models", "List providers, models and what they cost."),
    "mcp": ("windlass.cli.mcp", "Add, list, remove and try MCP servers."),
    "config": ("windlass.cli.config", "Show the settings, and where each comes from."),
    "demo": (
        "windlass.cli.demo.command",
        "Watch an agent stall, be killed and finish. Needs no key.",
    ),
    "doctor": ("windlass.cli.doctor", "Say what this machine can do, and what is missing."),
    "policy": ("windlass.cli.policy", "Check a policy file, and ask it about a call."),
    "sessions": (
        "windlass.cli.sessions",
        "List, show, explain, check, copy and delete sessions.",
    ),
    "completion": ("windlass.cli.completion", "Print the completion script of a shell."),
}
"""The module of each command, which holds it under its own name, and its line in the help."""


class LazyCommands(click.Group):
    """A group whose commands are loaded when they are run."""

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = getattr(import_module(COMMANDS[cmd_name][0]), cmd_name)
        assert isinstance(command, click.Command)  # noqa: S101 - the table is ours
        return command

    @override
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            ctx.fail(f"There is no command {name!r}.{suggest_names(name, COMMANDS)}")
        return super().resolve_command(ctx, args)

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, told) for name, (_, told) in COMMANDS.items()])

    @override
    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        """The names from the table: whoever presses Tab waits for no import."""
        item = click.shell_completion.CompletionItem
        own = click.Command.shell_complete(self, ctx, incomplete)
        fits = ((name, told) for name, (_, told) in COMMANDS.items() if name.startswith(incomplete))
        return [*(item(name, help=told) for name, told in fits), *own]

    @override
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except WindlassError as error:
            raise _error_with_code(str(error), exit_code_for(error)) from error
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # Whoever read our output has gone; click ends quietly.
            raise _file_error(error) from error


def _file_error(error: OSError) -> click.ClickException:
    """A file that was named and cannot be had is the caller's to mend; another trouble is not."""
    if error.filename is None or error.strerror is None:
        return _error_with_code(str(error), FAILED)
    mistaken = isinstance(
        error, FileNotFoundError | IsADirectoryError | NotADirectoryError | PermissionError
    )
    return _error_with_code(f"{error.filename}: {error.strerror}", USAGE if mistaken else FAILED)


def _error_with_code(message: str, code: int) -> click.ClickException:
    """An error in a line, with an exit code of its own."""
    kind = type("Told", (click.ClickException,), {"exit_code": code})
    return kind(message)


def _show_version(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from importlib import metadata  # noqa: PLC0415 - costs more than the rest of this module

    try:
        version = metadata.version("windlass")
    except metadata.PackageNotFoundError:
        version = "(not installed: run from its source)"
    click.echo(f"windlass {version}")
    ctx.exit()


@click.group(
    cls=LazyCommands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
First steps:
  windlass demo                       no key needed
  windlass run "what is in here?"     asks before it changes anything
  windlass chat
  windlass doctor                     what this machine can do""",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
def main() -> None:
    """Run agents whose journal is the run: kill one anywhere, and it finishes."""
