"""`windlass config`: what is set, and where."""

import re

import click

from windlass.cli.renderer import GOOD, QUIET
from windlass.cli.screen import Screen
from windlass.core.errors import ConfigError
from windlass.core.suggestions import did_you_mean
from windlass.project.files import settings, settings_files
from windlass.project.layers import DEFAULT, from_toml
from windlass.project.settings import KEYS

SHOWN_MAX = 48

_TABLE = re.compile(r"\s*\[")


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
    loaded, screen = settings(agent=agent), Screen()
    for key in KEYS:
        value, place = getattr(loaded.settings, key), loaded.origins[key]
        shown = _brief(_written(value), screen.glyphs.cut)
        style = QUIET if place == DEFAULT else ""
        screen.line(f"{key:<16} {shown:<24} {place}", style)
    if loaded.agents:
        screen.line(f"{'agents':<16} {', '.join(loaded.agents)}")


@config.command()
def path() -> None:
    """List the files that are read, the strongest last."""
    screen = Screen()
    for one in settings_files():
        there = one.is_file()
        mark = screen.glyphs.yes if there else screen.glyphs.dot
        told = f"{one}{'' if there else '  (is not there)'}"
        screen.line(told, "" if there else QUIET, mark=mark, marked=GOOD)


@config.command()
@click.argument("key")
def get(key: str) -> None:
    """Print the value of one setting."""
    _check(key)
    click.echo(_written(getattr(settings().settings, key)))


@config.command(name="set")
@click.argument("key")
@click.argument("value")
@click.option("--user", is_flag=True, help="In the user's file, not the project's.")
def set_(key: str, value: str, user: bool) -> None:
    """Write a setting into the project's windlass.toml, or the user's file.

    Numbers, true, false and ["lists"] are written as they are; anything else as a text.
    """
    _check(key)
    _, mine, project = settings_files()
    file = mine if user else project
    try:
        before = file.read_text("utf-8") if file.is_file() else ""
        after = _with(before, key, value)
        # What would not be read back is not written.
        from_toml(after, str(file), str(file.parent))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(after, "utf-8")
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from None
    click.echo(f"{file}: {key} = {_literal(value)}")


def _with(text: str, key: str, value: str) -> str:
    """The file with the setting in its place; all else stays as it was written."""
    line, lines = f"{key} = {_literal(value)}", text.splitlines()
    top = next((at for at, one in enumerate(lines) if _TABLE.match(one)), len(lines))
    for at in range(top):
        if re.match(rf"\s*{re.escape(key)}\s*=", lines[at]):
            lines[at] = line
            return "\n".join(lines) + "\n"
    while top and not lines[top - 1].strip():
        top -= 1
    lines.insert(top, line)
    return "\n".join(lines) + "\n"


def _literal(value: str) -> str:
    if re.fullmatch(r"-?\d+(\.\d+)?|true|false|\[.*\]", value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _written(value: object) -> str:
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


def _brief(text: str, cut: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= SHOWN_MAX else words[:SHOWN_MAX] + cut


def _check(key: str) -> None:
    if key not in KEYS:
        raise ConfigError(f"{key!r} is not a setting.{did_you_mean(key, KEYS)}")
