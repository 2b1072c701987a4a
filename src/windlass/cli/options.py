"""The options that several commands share, and the settings that were given with them.

An option that was not given is None: its setting then comes from the files and the environment.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from windlass.cli.session_picker import PICK
from windlass.cli.trust import trust_option
from windlass.core.disclosure import AGENT_PARTS
from windlass.core.errors import ConfigError
from windlass.project.files import read_failure
from windlass.project.settings import (
    ON_FAILURE,
    PERMISSION_MODES,
    SANDBOX_MODES,
    SETTING_KEYS,
    THINKING_MODES,
    WORKSPACE_SETTINGS,
    InvalidSetting,
    parse_age,
)

CommandT = TypeVar("CommandT", bound=Callable[..., Any])
SETTING_OF_OPTION = {"system": "instructions", "no_flow_guard": "flow_guard"}
"""Options whose name differs from their setting."""


def _apply_options(command: CommandT, options: list[Callable[[CommandT], CommandT]]) -> CommandT:
    # click lists the options of a command from the last decorator to the first.
    for option in reversed(options):
        command = option(command)
    return command


def agent_options(command: CommandT) -> CommandT:
    """Which agent runs, with which tools, and what it may do."""
    return _agent_choice(_permission_options(command))


def _agent_choice(command: CommandT) -> CommandT:
    return _apply_options(
        command,
        [
            click.option("-m", "--model", metavar="PROVIDER:MODEL", help="The model to use."),
            click.option(
                "--base-url", metavar="URL", help="The model's server: http://localhost:8000/v1."
            ),
            click.option("--agent", metavar="NAME", help="An agent from windlass.toml."),
            click.option(
                "-s",
                "--system",
                metavar="TEXT",
                help="The system prompt, or @FILE to read it.",
            ),
            click.option(
                "--tools",
                metavar="LIST",
                help="all, none, core, read-only, or names and patterns; -NAME excludes one.",
            ),
            click.option("--mcp-config", metavar="FILE", help="MCP servers (mcpServers JSON)."),
        ],
    )


def _permission_options(command: CommandT) -> CommandT:
    return _apply_options(
        command,
        [
            click.option("--policy", metavar="FILE", help="Rules for calls: windlass policy -h."),
            click.option(
                "--permission-mode",
                type=click.Choice(PERMISSION_MODES),
                help="For calls that change things: ask, deny them, or allow them.",
            ),
            click.option(
                "--sandbox",
                type=click.Choice(SANDBOX_MODES),
                help="require: do not start where commands cannot be confined.",
            ),
            click.option(
                "--no-flow-guard",
                is_flag=True,
                default=None,
                help="Turn off the question before untrusted text could send private data out.",
            ),
            trust_option,
        ],
    )


def workspace_options(command: CommandT) -> CommandT:
    """Where the runs of callers work."""
    return _apply_options(
        command,
        [
            click.option(
                "--workspace",
                type=click.Choice(WORKSPACE_SETTINGS),
                help="per-caller, the default: each caller works in its own folder. shared: "
                "all callers read and change the files of this folder.",
            ),
            workspace_store_option,
        ],
    )


workspace_store_option = click.option(
    "--workspace-store",
    metavar="FOLDER",
    help="The parent of the callers' folders; use a shared mount for workers on other machines.",
)


def limit_options(command: CommandT) -> CommandT:
    """When a run ends at the latest, and what becomes of one that does not complete."""
    return _apply_options(
        command,
        [
            click.option("--max-usd", metavar="USD", help="Money for the run."),
            click.option(
                "--max-steps", metavar="N", help="Replies of the model; `none` for no limit."
            ),
            click.option("--max-tokens", metavar="N", help="Tokens, input and output together."),
            click.option("--timeout", metavar="TIME", help="Working time: 90, 90s, 15m, 2h."),
            click.option(
                "--on-failure",
                type=click.Choice(ON_FAILURE),
                help="undo: undo the run if it does not complete.",
            ),
        ],
    )


def session_options(command: CommandT) -> CommandT:
    """Which session a run belongs to."""
    return _apply_options(
        command,
        [
            click.option(
                "-c",
                "--continue",
                "latest",
                is_flag=True,
                help="Continue this folder's latest session.",
            ),
            click.option(
                "-r",
                "--resume",
                "session",
                metavar="[SESSION]",
                is_flag=False,
                flag_value=PICK,
                help="Continue a session: part of its name is enough; without one, you choose.",
            ),
            click.option("--no-session", is_flag=True, help="Record nothing."),
        ],
    )


def show_options(command: CommandT) -> CommandT:
    """How a run is shown, and where it is recorded."""
    return _apply_options(
        command,
        [
            click.option(
                "--thinking",
                type=click.Choice(THINKING_MODES),
                help="The model's thinking: in full, as one line, or not at all.",
            ),
            click.option("-q", "--quiet", is_flag=True, help="Show only the reply."),
            click.option(
                "--journal",
                metavar="NAME",
                help="Where the sessions are kept: a path, memory: or postgresql://…",
            ),
        ],
    )


drain_option = click.option(
    "--drain",
    type=click.FloatRange(0),
    default=20.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds for running replies and calls to finish after SIGTERM.",
)


def show_option(summary: str) -> Callable[[CommandT], CommandT]:
    """What callers see of agents."""
    names = (*AGENT_PARTS, "all")
    return click.option(
        "--show",
        "shows",
        multiple=True,
        type=click.Choice(names),
        metavar="PART",
        help=f"{summary}: {', '.join(AGENT_PARTS)}, or all.",
    )


def log_option(summary: str) -> Callable[[CommandT], CommandT]:
    """How a command that runs for long writes its log."""
    return click.option(
        "--log-format",
        type=click.Choice(("text", "json")),
        default="text",
        show_default=True,
        help=summary,
    )


def refuse_without_session(
    *, no_session: bool, latest: bool, session: str | None, fork: bool = False
) -> None:
    """Raise ConfigError if `--no-session` is combined with an option that needs a session."""
    if no_session and (latest or session or fork):
        raise ConfigError(
            "--no-session records nothing, so it cannot be combined with "
            "--continue, --resume or --fork"
        )


def collect_flags(given: Mapping[str, Any]) -> dict[str, object]:
    """The settings that were given on the command line, by their key."""
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
    """The text of a file that an option names; raises ConfigError if it cannot be read."""
    try:
        return Path(path).expanduser().read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{option} {path}: {read_failure(error)}") from None


def read_duration(option: str, text: str) -> float:
    """Return the seconds that an option such as `--expires 30d` gives. Raises ConfigError."""
    try:
        seconds = parse_age(text)
    except InvalidSetting:
        seconds = None
    if seconds is None:
        raise ConfigError(f"{option} {text!r} is not a time: write 90s, 15m, 12h, 30d or 4w")
    return seconds
