"""`windlass config`: what is set, and where."""

import re

import click

from windlass.cli.renderer import GOOD, QUIET
from windlass.cli.screen import Screen
from windlass.core.errors import ConfigError
from windlass.core.suggestions import suggest_names
from windlass.project.files import load_settings, settings_files
from windlass.project.layers import DEFAULT_ORIGIN, layer_from_toml
from windlass.project.settings import SETTING_KEYS

VALUE_CHARS_MAX = 48

_TABLE_HEADER = re.compile(r"\s*\[")


@click.group(
    epilog="""\b
The order, the later over the earlier: defaults, /etc/windlass/config.toml, the user's
config.toml, the project's windlass.toml (found upwards), its [agents.NAME], WINDLASS_*
variables (also in .env), flags."""
)
def config() -> None:
    """Show the settings and where each comes from; change them."""


@config.command()
@click.option("--agent", metavar="NAME", default="", help="As this agent has them.")
def show(agent: str) -> None:
    """Show every setting, its value and its place."""
    loaded, screen = load_settings(agent=agent), Screen()
    for key in SETTING_KEYS:
        value, place = getattr(loaded.settings, key), loaded.origins[key]
        shown = _shorten(_format_value(value), screen.glyphs.cut)
        style = QUIET if place == DEFAULT_ORIGIN else ""
        screen.write_line(f"{key:<16} {shown:<24} {place}", style)
    if loaded.agents:
        screen.write_line(f"{'agents':<16} {', '.join(loaded.agents)}")


@config.command()
def path() -> None:
    """List the files that are read, the strongest last."""
    screen = Screen()
    for one in settings_files():
        there = one.is_file()
        mark = screen.glyphs.yes if there else screen.glyphs.dot
        told = f"{one}{'' if there else '  (is not there)'}"
        screen.write_line(told, "" if there else QUIET, mark=mark, mark_style=GOOD)


@config.command()
@click.argument("key")
def get(key: str) -> None:
    """Print the value of one setting."""
    _check_key(key)
    click.echo(_format_value(getattr(load_settings().settings, key)))


@config.command(name="set")
@click.argument("key")
@click.argument("value")
@click.option("--user", is_flag=True, help="In the user's file, not the project's.")
def set_(key: str, value: str, user: bool) -> None:
    """Write a setting into the project's windlass.toml, or the user's file.

    Numbers, true, false and ["lists"] are written as they are; anything else as a text.
    """
    _check_key(key)
    _, mine, project = settings_files()
    file = mine if user else project
    try:
        before = file.read_text("utf-8") if file.is_file() else ""
        after = _set_line(before, key, value)
        # What would not be read back is not written.
        layer_from_toml(after, str(file), str(file.parent))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(after, "utf-8")
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from None
    click.echo(f"{file}: {key} = {_toml_literal(value)}")


def _set_line(text: str, key: str, value: str) -> str:
    """The file with the setting in its place; all else stays as it was written."""
    line, lines = f"{key} = {_toml_literal(value)}", text.splitlines()
    top = next((at for at, one in enumerate(lines) if _TABLE_HEADER.match(one)), len(lines))
    for at in range(top):
        if re.match(rf"\s*{re.escape(key)}\s*=", lines[at]):
            lines[at] = line
            return "\n".join(lines) + "\n"
    while top and not lines[top - 1].strip():
        top -= 1
    lines.insert(top, line)
    return "\n".join(lines) + "\n"


def _toml_literal(value: str) -> str:
    if re.fullmatch(r"-?\d+(\.\d+)?|true|false|\[.*\]", value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


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
    return words if len(words) <= VALUE_CHARS_MAX else words[:VALUE_CHARS_MAX] + cut


def _check_key(key: str) -> None:
    if key not in SETTING_KEYS:
        raise ConfigError(f"{key!r} is not a setting.{suggest_names(key, SETTING_KEYS)}")
