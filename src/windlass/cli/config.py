"""`windlass config`: the settings, and where each comes from."""

import click

from windlass.cli.screen import GOOD, QUIET, TROUBLE, Screen
from windlass.cli.trust import describe_trust
from windlass.core.errors import ConfigError
from windlass.core.suggestions import suggest_names
from windlass.project.file_edits import write_setting
from windlass.project.files import load_settings, settings_files
from windlass.project.layers import DEFAULT_ORIGIN
from windlass.project.settings import SETTING_KEYS, Settings
from windlass.project.trust import keep_trust, open_project

VALUE_CHARS_MAX = 48


@click.group(
    epilog="""\b
Later places override earlier ones: defaults, the project's windlass.toml (searched
upwards), /etc/windlass/config.toml, the user's config.toml, WINDLASS_* variables, flags.
For permissions, the strictest setting applies. Those of a project apply after `windlass trust`."""
)
def config() -> None:
    """Show the settings and where each comes from; change them."""


@config.command()
@click.option("--agent", metavar="NAME", default="", help="The settings of this agent.")
def show(agent: str) -> None:
    """Show every setting, its value and its origin."""
    project = open_project()
    loaded = load_settings(agent=agent, project=project)
    screen = Screen()
    is_trusted, note = describe_trust(project)
    if not is_trusted:
        screen.write_line(note, TROUBLE, mark=screen.glyphs.trouble)
    for key in SETTING_KEYS:
        value = _shorten(_format_setting(key, loaded.settings), screen.glyphs.cut)
        origin = loaded.origins[key]
        style = QUIET if origin == DEFAULT_ORIGIN else ""
        screen.write_line(f"{key:<16} {value:<24} {origin}", style)
    if loaded.agents:
        screen.write_line(f"{'agents':<16} {', '.join(loaded.agents)}")


@config.command()
def path() -> None:
    """List the files that are read: of the system, the user and the project."""
    screen = Screen()
    for file in settings_files():
        if file.is_file():
            screen.write_line(str(file), mark=screen.glyphs.yes, mark_style=GOOD)
        else:
            line = f"{file}  (does not exist)"
            screen.write_line(line, QUIET, mark=screen.glyphs.dot, mark_style=GOOD)


@config.command()
@click.argument("key")
def get(key: str) -> None:
    """Print the value of one setting."""
    _check_key(key)
    click.echo(_format_setting(key, load_settings().settings))


@config.command(name="set")
@click.argument("key")
@click.argument("value")
@click.option("--user", is_flag=True, help="Write to the user's file instead of the project's.")
def set_(key: str, value: str, user: bool) -> None:
    """Write a setting into the project's windlass.toml, or into the user's file.

    Numbers, true, false and ["lists"] are written as they are; anything else as a string.
    """
    _check_key(key)
    _, user_file, project_file = settings_files()
    file = user_file if user else project_file
    with keep_trust(file):
        line = write_setting(file, key, value)
        shown = SETTING_KEYS[key].show(value)
        # What was written is shown, but no password in it.
        click.echo(f"{file}: {line if shown == value else f'{key} = {shown}'}")


def _format_setting(key: str, settings: Settings) -> str:
    """The value of a setting as a person reads it, without what is secret in it."""
    value = getattr(settings, key)
    return (
        SETTING_KEYS[key].show(value) if isinstance(value, str) and value else _format_value(value)
    )


def _format_value(value: object) -> str:
    match value:
        case None:
            return "none"
        case tuple():
            return ", ".join(map(str, value))  # pyright: ignore[reportUnknownArgumentType]
        case bool():
            return str(value).lower()
        case "":
            return "-"
        case _:
            return str(value)


def _shorten(text: str, cut: str) -> str:
    words = " ".join(text.split())
    if len(words) <= VALUE_CHARS_MAX:
        return words
    return words[:VALUE_CHARS_MAX] + cut


def _check_key(key: str) -> None:
    if key not in SETTING_KEYS:
        raise ConfigError(f"{key!r} is not a setting.{suggest_names(key, SETTING_KEYS)}")
