"""Layers of settings: a later layer overrides an earlier one, and each value keeps its origin.

defaults < system < user < project < [agents.NAME] in any file < environment < flags
"""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from windlass.core.errors import ConfigError
from windlass.core.suggestions import suggest_names
from windlass.project.settings import SETTING_KEYS, InvalidSetting, SettingKey, Settings

ENV_PREFIX = "WINDLASS_"
DEFAULT_ORIGIN = "default"

_HEADER = re.compile(r"\s*\[+\s*([^\]]*?)\s*\]+")


@dataclass(frozen=True, slots=True)
class SettingsLayer:
    """The settings of one file, of the environment, or of the flags."""

    values: Mapping[str, object]
    places: Mapping[str, str]
    """Where each value stands, by key: a file and line, a variable, or a flag."""
    agents: Mapping[str, "SettingsLayer"] = field(default_factory=dict[str, "SettingsLayer"])


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """The settings in force, and where they come from."""

    settings: Settings
    origins: Mapping[str, str]
    """Where each value comes from, by key."""
    agents: Mapping[str, SettingsLayer]
    """The agents that files describe, by name."""


def merge_layers(
    files: Sequence[SettingsLayer],
    environ: SettingsLayer,
    flags: SettingsLayer,
    *,
    agent: str | None = None,
) -> LoadedSettings:
    """Merge all layers into one set of settings.

    The agent that is chosen, by `agent` or by the last layer that names one, adds its own layer
    above the files. Raises ConfigError if no file describes that agent.
    """
    agents = {name: layer for file in files for name, layer in file.agents.items()}
    name = agent or _last_value("agent", [*files, environ, flags])
    agent_layers: list[SettingsLayer] = []
    if name:
        if name not in agents:
            hint = suggest_names(name, agents) or " No file has one: write [agents.NAME]."
            raise ConfigError(f"there is no agent {name!r}.{hint}")
        agent_layers = [agents[name]]
    values: dict[str, object] = {}
    origins = dict.fromkeys(SETTING_KEYS, DEFAULT_ORIGIN)
    for layer in (*files, *agent_layers, environ, flags):
        values |= layer.values
        origins |= layer.places
    return LoadedSettings(Settings(**values), origins, agents)  # pyright: ignore[reportArgumentType]


def layer_from_toml(text: str, source: str, folder: str) -> SettingsLayer:
    """The layer of a TOML file; raises ConfigError with the file and the line.

    Relative paths in it are resolved against `folder`.
    """
    try:
        table: dict[str, object] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source} is not valid TOML: {error}") from None
    file = _TomlSource(text.splitlines(), source, folder)
    tables = table.pop("agents", {})
    if not isinstance(tables, dict):
        raise file.error_at("agents must be a table: write [agents.NAME]", "agents")
    agents: dict[str, SettingsLayer] = {}
    for name, values in cast("dict[str, object]", tables).items():
        where = f"agents.{name}"
        if not isinstance(values, dict):
            raise file.error_at(f"{where} must be a table: write [{where}]", name, "agents")
        agents[name] = file.read_table(cast("dict[str, object]", values), where)
    top = file.read_table(table, "")
    return SettingsLayer(top.values, top.places, agents)


def layer_from_environ(environ: Mapping[str, str], folder: str) -> SettingsLayer:
    """The layer of the `WINDLASS_*` variables. Those that are not settings are ignored."""
    names = {key: f"{ENV_PREFIX}{key.upper()}" for key in SETTING_KEYS}
    given = {key: environ[name] for key, name in names.items() if environ.get(name)}
    return _layer_from_values(given, names, folder)


def layer_from_flags(given: Mapping[str, object], folder: str) -> SettingsLayer:
    """The layer of the command line. `given` holds only the flags that were given."""
    return _layer_from_values(given, {key: f"--{key.replace('_', '-')}" for key in given}, folder)


def _layer_from_values(
    given: Mapping[str, object], names: Mapping[str, str], folder: str
) -> SettingsLayer:
    values: dict[str, object] = {}
    for key, value in given.items():
        try:
            values[key] = _parse_value(SETTING_KEYS[key], value, folder)
        except InvalidSetting as error:
            raise ConfigError(f"{names[key]}={value}: it must be {error}") from None
    return SettingsLayer(values, {key: names[key] for key in values})


def _parse_value(key: SettingKey, value: object, folder: str) -> object:
    parsed = key.parse(value)
    if key.is_path and isinstance(parsed, str) and parsed:
        # Not `Path.resolve`: a path that goes through a link stays as it was written.
        return os.path.normpath(os.path.join(folder, os.path.expanduser(parsed)))  # noqa: PTH111, PTH118
    return parsed


def _last_value(key: str, layers: Sequence[SettingsLayer]) -> str:
    return next((str(layer.values[key]) for layer in reversed(layers) if key in layer.values), "")


@dataclass(frozen=True, slots=True)
class _TomlSource:
    """A TOML file, with its lines, so that an error can name the line."""

    lines: Sequence[str]
    source: str
    folder: str

    def read_table(self, table: Mapping[str, object], where: str) -> SettingsLayer:
        """The settings of one table; `where` is its name, or empty for the top of the file."""
        known = [name for name, key in SETTING_KEYS.items() if key.per_agent or not where]
        values: dict[str, object] = {}
        for key, value in table.items():
            if key not in known:
                hint = suggest_names(key, known if where else [*known, "agents"])
                raise self.error_at(f"{key!r} is not a setting.{hint}", key, where)
            try:
                values[key] = _parse_value(SETTING_KEYS[key], value, self.folder)
            except InvalidSetting as error:
                raise self.error_at(f"{key} must be {error}", key, where) from None
        return SettingsLayer(values, {key: self.describe_place(key, where) for key in values})

    def describe_place(self, key: str, where: str = "") -> str:
        line = next(self._find_lines(key, where), 0)
        return f"{self.source}, line {line}" if line else self.source

    def error_at(self, message: str, key: str, where: str = "") -> ConfigError:
        return ConfigError(f"{self.describe_place(key, where)}: {message}")

    def _find_lines(self, key: str, where: str) -> Iterator[int]:
        """The lines that set a key of a table, or that begin the key's own table.

        tomllib does not say where a value stands, so the lines are searched again.
        """
        assignment = re.compile(rf"""\s*["']?{re.escape(key)}["']?\s*[=.]""")
        full_name = f"{where}.{key}" if where else key
        table = ""
        for number, line in enumerate(self.lines, 1):
            if header := _HEADER.match(line):
                table = header[1].replace('"', "").replace("'", "").replace(" ", "")
                if table == full_name:
                    yield number
            elif table == where and assignment.match(line):
                yield number
