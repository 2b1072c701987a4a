"""Layers of settings, the later over the earlier, and for each value the place it comes from.

defaults < system < user < project < its [agents.NAME] < environment < flags
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
    """What one place says: values by key, and where in it each stands."""

    values: Mapping[str, object]
    places: Mapping[str, str]
    agents: Mapping[str, "SettingsLayer"] = field(default_factory=dict[str, "SettingsLayer"])


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """The settings in force, and where they come from."""

    settings: Settings
    origins: Mapping[str, str]
    """The place of each value, by key."""
    agents: Mapping[str, SettingsLayer]
    """The agents that files describe, by name."""


def merge_layers(
    files: Sequence[SettingsLayer],
    environ: SettingsLayer,
    flags: SettingsLayer,
    *,
    agent: str | None = None,
) -> LoadedSettings:
    """One set of settings of all layers; the agent that is named adds one of its own."""
    agents = {name: layer for file in files for name, layer in file.agents.items()}
    named = agent or _last_value("agent", [*files, environ, flags])
    chosen: list[SettingsLayer] = []
    if named:
        if named not in agents:
            known = suggest_names(named, agents) or " No file describes one: write [agents.NAME]."
            raise ConfigError(f"there is no agent {named!r}.{known}")
        chosen = [agents[named]]
    values: dict[str, object] = {}
    origins = dict.fromkeys(SETTING_KEYS, DEFAULT_ORIGIN)
    for layer in (*files, *chosen, environ, flags):
        values |= layer.values
        origins |= layer.places
    return LoadedSettings(Settings(**values), origins, agents)  # pyright: ignore[reportArgumentType]


def layer_from_toml(text: str, source: str, folder: str) -> SettingsLayer:
    """What a file says; raises ConfigError with the file and the line."""
    try:
        table: dict[str, object] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source} is not TOML: {error}") from None
    page = _TomlSource(text.splitlines(), source, folder)
    tables = table.pop("agents", {})
    if not isinstance(tables, dict):
        raise page.error_at("agents is a table: write [agents.NAME]", "agents")
    agents: dict[str, SettingsLayer] = {}
    for name, given in cast("dict[str, object]", tables).items():
        where = f"agents.{name}"
        if not isinstance(given, dict):
            raise page.error_at(f"{where} is a table: write [{where}]", name, "agents")
        agents[name] = page.read_table(cast("dict[str, object]", given), where)
    own = page.read_table(table, "")
    return SettingsLayer(own.values, own.places, agents)


def layer_from_environ(environ: Mapping[str, str], folder: str) -> SettingsLayer:
    """What `WINDLASS_*` variables say. Those that are no settings are other people's."""
    names = {key: f"{ENV_PREFIX}{key.upper()}" for key in SETTING_KEYS}
    given = {key: environ[name] for key, name in names.items() if environ.get(name)}
    return _layer_from_values(given, names, folder)


def layer_from_flags(given: Mapping[str, object], folder: str) -> SettingsLayer:
    """What the command line says: only what was given there."""
    return _layer_from_values(given, {key: f"--{key.replace('_', '-')}" for key in given}, folder)


def _layer_from_values(
    given: Mapping[str, object], names: Mapping[str, str], folder: str
) -> SettingsLayer:
    values: dict[str, object] = {}
    for key, value in given.items():
        try:
            values[key] = _parse_value(SETTING_KEYS[key], value, folder)
        except InvalidSetting as unfit:
            raise ConfigError(f"{names[key]}={value}: it must be {unfit}") from None
    return SettingsLayer(values, {key: names[key] for key in values})


def _parse_value(key: SettingKey, value: object, folder: str) -> object:
    read = key.parse(value)
    if key.is_path and isinstance(read, str) and read:
        return os.path.normpath(os.path.join(folder, os.path.expanduser(read)))  # noqa: PTH111, PTH118
    return read


def _last_value(key: str, layers: Sequence[SettingsLayer]) -> str:
    return next((str(one.values[key]) for one in reversed(layers) if key in one.values), "")


@dataclass(frozen=True, slots=True)
class _TomlSource:
    """The lines of a file, to say where something stands."""

    lines: Sequence[str]
    source: str
    folder: str

    def read_table(self, table: Mapping[str, object], where: str) -> SettingsLayer:
        known = [key for key, about in SETTING_KEYS.items() if about.per_agent or not where]
        values: dict[str, object] = {}
        for key, value in table.items():
            if key not in known:
                near = suggest_names(key, [*known, *([] if where else ["agents"])])
                raise self.error_at(f"{key!r} is not a setting.{near}", key, where)
            try:
                values[key] = _parse_value(SETTING_KEYS[key], value, self.folder)
            except InvalidSetting as unfit:
                raise self.error_at(f"{key} must be {unfit}", key, where) from None
        return SettingsLayer(values, {key: self.describe_place(key, where) for key in values})

    def describe_place(self, key: str, where: str = "") -> str:
        line = next(self._find_lines(key, where), 0)
        return f"{self.source}, line {line}" if line else self.source

    def error_at(self, told: str, key: str, where: str = "") -> ConfigError:
        return ConfigError(f"{self.describe_place(key, where)}: {told}")

    def _find_lines(self, key: str, where: str) -> Iterator[int]:
        """The lines where a key of a table is set, or where its own table begins."""
        form = re.compile(rf"""\s*["']?{re.escape(key)}["']?\s*[=.]""")
        whole = f"{where}.{key}" if where else key
        table = ""
        for at, line in enumerate(self.lines, 1):
            if header := _HEADER.match(line):
                table = header[1].replace('"', "").replace("'", "").replace(" ", "")
                if table == whole:
                    yield at
            elif table == where and form.match(line):
                yield at
