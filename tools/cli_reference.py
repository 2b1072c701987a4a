"""Write `docs/cli_reference.md` from the help of each command: `python tools/cli_reference.py`.

With `--check` nothing is written, and the exit code is 1 if the page is out of date.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from windlass.cli import main as windlass

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli_reference.md"
WIDTH = 90
HEAD = """\
<!-- Written by tools/cli_reference.py; do not edit. -->

# Command line reference

What `windlass COMMAND --help` prints, for every command; [the guide](cli.md) says how to use them.
"""


def command_sections(
    command: click.Command, name: str, parent: click.Context | None
) -> Iterator[str]:
    """Yield the section of a command, and then those of its subcommands."""
    context = click.Context(
        command,
        info_name=name,
        parent=parent,
        terminal_width=WIDTH,
        max_content_width=WIDTH,
        **({} if parent else command.context_settings),
    )
    lines = (line.rstrip() for line in command.get_help(context).splitlines())
    help_text = "\n".join(lines)
    yield f"## {context.command_path}\n\n```text\n{help_text}\n```\n"
    if isinstance(command, click.Group):
        for subname in command.list_commands(context):
            subcommand = command.get_command(context, subname)
            if subcommand is not None and not subcommand.hidden:
                yield from command_sections(subcommand, subname, context)


def build_page() -> str:
    return "\n".join((HEAD, *command_sections(windlass, "windlass", None)))


def main() -> int:
    text = build_page()
    if "--check" in sys.argv[1:]:
        if PAGE.is_file() and PAGE.read_text("utf-8") == text:
            return 0
        sys.stderr.write(f"{PAGE.name} is out of date: run `make cli-reference`\n")
        return 1
    PAGE.write_text(text, "utf-8")
    sys.stdout.write(f"{PAGE.name}: {len(text.splitlines())} lines\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
