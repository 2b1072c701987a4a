"""The command line: `windlass COMMAND`.

Invariant: an error of ours is one line that says what to do, never a traceback.
"""

import builtins
import errno
import sys
from keyword import iskeyword
from typing import Any

import click
import click.shell_completion
from typing_extensions import override

from windlass.cli import commands
from windlass.cli.commands import COMMANDS
from windlass.cli.exit_codes import FAILED, INTERRUPTED, USAGE, exit_code_for
from windlass.core.errors import WindlassError
from windlass.core.suggestions import suggest_names


class LazyCommands(click.Group):
    """A group whose commands are imported when they are run."""

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        # `raise` and `eval` are words of the language: their functions are `raise_` and `eval_`.
        is_taken = iskeyword(cmd_name) or hasattr(builtins, cmd_name)
        return getattr(commands, f"{cmd_name}_" if is_taken else cmd_name)

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
            formatter.write_dl(list(COMMANDS.items()))

    @override
    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        """The names from the table, so that Tab does not wait for an import."""
        names = [
            click.shell_completion.CompletionItem(name, help=help_line)
            for name, help_line in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    @override
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            raise _suggest_format(error) from None
        except WindlassError as error:
            raise _error_with_code(str(error), exit_code_for(error)) from error
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # The reader of our output has gone; click then exits quietly.
            raise _file_error(error) from error


def _suggest_format(error: click.NoSuchOption) -> click.UsageError:
    """Some commands have `--json`; those with more than one format of JSON have another option."""
    options = error.ctx.command.params if error.ctx is not None else ()
    if error.option_name == "--json" and any("--output-format" in each.opts for each in options):
        return click.UsageError(f"{error.message} Did you mean '--output-format json'?", error.ctx)
    return error


def _file_error(error: OSError) -> click.ClickException:
    """The error for a failed system call. A file that cannot be opened is a usage error."""
    if error.filename is None or error.strerror is None:
        return _error_with_code(str(error), FAILED)
    is_usage_error = isinstance(
        error, FileNotFoundError | IsADirectoryError | NotADirectoryError | PermissionError
    )
    code = USAGE if is_usage_error else FAILED
    return _error_with_code(f"{error.filename}: {error.strerror}", code)


def _error_with_code(message: str, code: int) -> click.ClickException:
    """An error that click prints in one line, with this exit code."""
    kind = type("CodedError", (click.ClickException,), {"exit_code": code})
    return kind(message)


def _show_version(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from importlib import metadata  # noqa: PLC0415 - costs more than the rest of this module

    try:
        version = metadata.version("windlass")
    except metadata.PackageNotFoundError:
        version = "(not installed as a package)"
    click.echo(f"windlass {version}")
    ctx.exit()


@click.group(
    cls=LazyCommands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
First steps:
  windlass                            a chat in this folder
  windlass demo                       needs no key
  windlass run "what is in here?"     asks before it changes anything
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
@click.pass_context
def main(ctx: click.Context) -> None:
    """Run agents whose journal is the run: kill one anywhere, and it finishes.

    Without a command, it opens a chat in this folder.
    """
    if ctx.invoked_subcommand is not None:
        return
    if sys.stdin.isatty() and sys.stdout.isatty():
        commands.chat.main(args=[], prog_name="windlass chat", standalone_mode=False)
    else:
        click.echo(ctx.get_help())
