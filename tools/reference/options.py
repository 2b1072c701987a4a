"""Every setting with its default and its sources."""

import click
import msgspec

from reference.cells import table_cell
from windlass.cli import main as windlass
from windlass.project.settings import SETTING_KEYS, SettingKey, Settings

INTRO = """\
# Settings

One name is used everywhere: `max_usd` in a file is `WINDLASS_MAX_USD` in the environment and
`--max-usd` on the command line. `windlass config show` shows each value with the place that it
comes from.

Later places override earlier ones: the defaults below, the project's `windlass.toml` (searched
upwards), `/etc/windlass/config.toml`, `~/.config/windlass/config.toml`, `WINDLASS_*` variables,
flags. An `[agents.NAME]` that you choose by name goes before the files. Of what allows things, the
strictest value counts, so a project can only make it stricter; and a project's settings have no
effect before you [trust its folder](../trust.md).
"""
NONE = "none"
"""In the cell of a setting that has no default."""


def build_settings() -> str:
    """Return the page."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(Settings)}
    flags = _command_flags()
    rows = ["| setting | default | variable, flag | |", "|---|---|---|---|"]
    for name, key in SETTING_KEYS.items():
        words = table_cell(key.description[:1].upper() + key.description[1:])
        flag = f"--{name.replace('_', '-')}"
        cells = [
            f"`{name}`",
            _setting_default(defaults[name]),
            f"`WINDLASS_{name.upper()}`" + (f"<br>`{flag}`" if flag in flags else ""),
            f"{words}.{_setting_rules(key)}",
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return f"{INTRO}\n" + "\n".join(rows) + "\n"


def _setting_default(value: object) -> str:
    match value:
        case None:
            return "no limit"
        case "" | ():
            return NONE
        case tuple():
            return f"`{', '.join(value)}`"
        case bool():
            return f"`{str(value).lower()}`"
        case _:
            return f"`{value}`"


def _setting_rules(key: SettingKey) -> str:
    said: list[str] = []
    if key.strictness:
        said.append("A project can only make it stricter.")
    if key.of_person:
        said.append("A project cannot set it.")
    if not key.per_agent:
        said.append("Not in `[agents.NAME]`.")
    return "".join(f" {sentence}" for sentence in said)


def _command_flags() -> set[str]:
    context = click.Context(windlass)
    commands = (windlass.get_command(context, name) for name in windlass.list_commands(context))
    options = [option for command in commands if command for option in command.params]
    return {flag for option in options for flag in (*option.opts, *option.secondary_opts)}
