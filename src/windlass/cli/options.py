"""The options that commands share, and what was given by them.

An option that was not given is None, and leaves its setting to the files and the environment.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from windlass.core.errors import ConfigError
from windlass.project.settings import PERMISSION_MODES, SETTING_KEYS, THINKING_MODES

CommandT = TypeVar("CommandT", bound=Callable[..., Any])
SETTING_OF_OPTION = {"system": "instructions", "no_flow_guard": "flow_guard"}
"""Options that are called otherwise than their setting."""


def _apply_options(command: CommandT, options: list[Callable[[CommandT], CommandT]]) -> CommandT:
    for option in reversed(options):
        command = option(command)
    return command


def agent_options(command: CommandT) -> CommandT:
    """Which agent runs, with which tools, and what it may do."""
    return _apply_options(
        command,
        [
            click.option("-m", "--model", metavar="PROVIDER:MODEL", help="The model to ask."),
            click.option("--agent", metavar="NAME", help="An agent that windlass.toml describes."),
            click.option(
                "-s", "--system", metavar="TEXT", help="The system prompt; @FILE reads one."
            ),
            click.option(
                "--tools",
                metavar="LIST",
                help="all, none, core, read-only, or names and patterns; -NAME leaves one out.",
            ),
            click.option("--mcp-config", metavar="FILE", help="MCP servers (mcpServers JSON)."),
            click.option("--policy", metavar="FILE", help="Rules for calls: windlass policy -h."),
            click.option(
                "--permission-mode",
                type=click.Choice(PERMISSION_MODES),
                help="Calls that change things: ask, deny them, or let them run.",
            ),
            click.option(
                "--no-flow-guard",
                is_flag=True,
                default=None,
                help="Do not ask before private data could leave along with outside text.",
            ),
        ],
    )


def limit_options(command: CommandT) -> CommandT:
    """Where a run ends at the latest."""
    return _apply_options(
        command,
        [
            click.option("--max-usd", metavar="USD", help="Money for the run."),
            click.option("--max-steps", metavar="N", help="Replies of the model; none: no limit."),
            click.option("--max-tokens", metavar="N", help="Tokens, in and out together."),
            click.option("--timeout", metavar="TIME", help="Time at work: 90, 90s, 15m, 2h."),
        ],
    )


def show_options(command: CommandT) -> CommandT:
    """How a run is shown, and where it is kept."""
    return _apply_options(
        command,
        [
            click.option(
                "--thinking",
                type=click.Choice(THINKING_MODES),
                help="The model's thinking: in full, as one line, or not at all.",
            ),
            click.option("-q", "--quiet", is_flag=True, help="Show the reply and nothing else."),
            click.option("--journal", metavar="FILE", help="The file that keeps the sessions."),
        ],
    )


def collect_flags(given: Mapping[str, Any]) -> dict[str, object]:
    """The settings that were given on the command line."""
    flags: dict[str, object] = {}
    for option, value in given.items():
        key = SETTING_OF_OPTION.get(option, option)
        if key in SETTING_KEYS and value is not None:
            flags[key] = not value if option.startswith("no_") else value
    system = flags.get("instructions")
    if isinstance(system, str) and system.startswith("@"):
        flags["instructions"] = read_option_file(system[1:], "--system")
    return flags


def read_option_file(path: str, option: str) -> str:
    """The text of a file that an option names."""
    try:
        return Path(path).expanduser().read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        told = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{option} {path}: {told}") from None
