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
from windlass.core.suggestions import did_you_mean
from windlass.project.settings import KEYS, Key, Settings, Unfit

PREFIX = "WINDLASS_"
DEFAULT = "default"

_HEADER = re.compile(r"\s*\[+\s*([^\]]*?)\s*\]+")


@dataclass(frozen=True, slots=True)
class Layer:
    """What one place says: values by key, and where in it each stands."""

    values: Mapping[str, object]
    places: Mapping[str, str]
    agents: Mapping[str, "Layer"] = field(default_factory=dict[str, "Layer"])


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings in force, and where they come from."""

    settings: Settings
    origins: Mapping[str, str]
    """The place of each value, by key."""
    agents: Mapping[str, Layer]
    """The agents that files describe, by name."""


def merged(
    files: Sequence[Layer], environ: Layer, flags: Layer, *, agent: str | None = None
) -> Loaded:
    """One set of settings of all layers; the agent that is named adds one of its own."""
    agents = {name: layer for file in files for name, layer in file.agents.items()}
    named = agent or _last("agent", [*files, environ, flags])
    chosen: list[Layer] = []
    if named:
        if named not in agents:
            known = did_you_mean(named, agents) or " No file describes one: write [agents.NAME]."
            raise ConfigError(f"there is no agent {named!r}.{known}")
        chosen = [agents[named]]
    values: dict[str, object] = {}
    origins = dict.fromkeys(KEYS, DEFAULT)
    for layer in (*files, *chosen, environ, flags):
        values |= layer.values
        origins |= layer.places
    return Loaded(Settings(**values), origins, agents)  # pyright: ignore[reportArgumentType]


def from_toml(text: str, source: str, folder: str) -> Layer:
    """What a file says; raises ConfigError with the file and the line."""
    try:
        table: dict[str, object] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source} is not TOML: {error}") from None
    page = _Page(text.splitlines(), source, folder)
    tables = table.pop("agents", {})
    if not isinstance(tables, dict):
        raise page.error("agents is a table: write [agents.NAME]", "agents")
    agents: dict[str, Layer] = {}
    for name, given in cast("dict[str, object]", tables).items():
        where = f"agents.{name}"
        if not isinstance(given, dict):
            raise page.error(f"{where} is a table: write [{where}]", name, "agents")
        agents[name] = page.layer(cast("dict[str, object]", given), where)
    own = page.layer(table, "")
    return Layer(own.values, own.places, agents)


def from_environ(environ: Mapping[str, str], folder: str) -> Layer:
    """What `WINDLASS_*` variables say. Those that are no settings are other people's."""
    names = {key: f"{PREFIX}{key.upper()}" for key in KEYS}
    given = {key: environ[name] for key, name in names.items() if environ.get(name)}
    return _plain(given, names, folder)


def from_flags(given: Mapping[str, object], folder: str) -> Layer:
    """What the command line says: only what was given there."""
    return _plain(given, {key: f"--{key.replace('_', '-')}" for key in given}, folder)


def _plain(given: Mapping[str, object], names: Mapping[str, str], folder: str) -> Layer:
    values: dict[str, object] = {}
    for key, value in given.items():
        try:
            values[key] = _value(KEYS[key], value, folder)
        except Unfit as unfit:
            raise ConfigError(f"{names[key]}={value}: it must be {unfit}") from None
    return Layer(values, {key: names[key] for key in values})


def _value(key: Key, value: object, folder: str) -> object:
    read = key.read(value)
    if key.path and isinstance(read, str) and read:
        return os.path.normpath(os.path.join(folder, os.path.expanduser(read)))  # noqa: PTH111, PTH118
    return read


def _last(key: str, layers: Sequence[Layer]) -> str:
    return next((str(one.values[key]) for one in reversed(layers) if key in one.values), "")


@dataclass(frozen=True, slots=True)
class _Page:
    """The lines of a file, to say where something stands."""

    lines: Sequence[str]
    source: str
    folder: str

    def layer(self, table: Mapping[str, object], where: str) -> Layer:
        known = [key for key, about in KEYS.items() if about.of_agent or not where]
        values: dict[str, object] = {}
        for key, value in table.items():
            if key not in known:
                near = did_you_mean(key, [*known, *([] if where else ["agents"])])
                raise self.error(f"{key!r} is not a setting.{near}", key, where)
            try:
                values[key] = _value(KEYS[key], value, self.folder)
            except Unfit as unfit:
                raise self.error(f"{key} must be {unfit}", key, where) from None
        return Layer(values, {key: self.place(key, where) for key in values})

    def place(self, key: str, where: str = "") -> str:
        line = next(self._lines_of(key, where), 0)
        return f"{self.source}, line {line}" if line else self.source

    def error(self, told: str, key: str, where: str = "") -> ConfigError:
        return ConfigError(f"{self.place(key, where)}: {told}")

    def _lines_of(self, key: str, where: str) -> Iterator[int]:
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
