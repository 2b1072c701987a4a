"""Layers of settings: a stronger layer overrides a weaker one, and each value keeps its origin.

defaults < project < system < user < environment < flags

Invariant: a project never loosens what a person set. Of settings that allow things, the strictest
value wins, and all policies apply. What a project says before it is trusted can only restrict.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from windlass.core.errors import ConfigError
from windlass.core.suggestions import suggest_names
from windlass.core.toml_text import read_toml
from windlass.project.settings import SETTING_KEYS, InvalidSetting, SettingKey, Settings

ENV_PREFIX = "WINDLASS_"
DEFAULT_ORIGIN = "default"

_HEADER = re.compile(r"\s*\[+\s*([^\]]*?)\s*\]+")


@dataclass(frozen=True, slots=True)
class SettingsLayer:
    """The settings of one file, of the environment, or of the flags."""

    values: Mapping[str, object]
    places: Mapping[str, str]
    """Where each value is set, by key: a file and line, a variable, or a flag."""
    agents: Mapping[str, "SettingsLayer"] = field(default_factory=dict[str, "SettingsLayer"])


EMPTY_LAYER = SettingsLayer({}, {})


@dataclass(frozen=True, slots=True)
class PolicySource:
    """A policy file that is in force."""

    path: str
    by_project: bool = False
    """The project's settings name it: its bytes come from the project's snapshot."""
    restricts_only: bool = False
    """The project is not trusted: only what the file denies or asks about counts."""


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """The settings in force, and where they come from."""

    settings: Settings
    origins: Mapping[str, str]
    """Where each value comes from, by key."""
    agents: Mapping[str, SettingsLayer]
    """The agents that files describe, by name."""
    policies: tuple[PolicySource, ...] = ()
    """All policies that are in force. The strictest verdict wins."""
    uses_mode: bool = True
    """Whether the permission mode is in force too. A policy alone replaces it."""
    project_keys: frozenset[str] = frozenset()
    """The settings whose value is the project's."""


def merge_layers(
    files: Sequence[SettingsLayer],
    environ: SettingsLayer,
    flags: SettingsLayer,
    *,
    agent: str | None = None,
    project: SettingsLayer | None = None,
    is_trusted: bool = True,
) -> LoadedSettings:
    """Merge all layers into one set of settings.

    `files` are the user's own and the machine's, `project` is what a project says. The agent that
    is chosen, by `agent` or by the strongest layer that names one, adds its own layer. Raises
    ConfigError if no file describes that agent.
    """
    of_project = project or EMPTY_LAYER
    own_agents = {name: layer for file in files for name, layer in file.agents.items()}
    agents = {**(of_project.agents if is_trusted else {}), **own_agents}
    named = agent or _last_value("agent", [*files, environ, flags])
    name = named or (str(of_project.values.get("agent", "")) if is_trusted else "")
    merger = _LayerMerger(list(files), environ, flags, [of_project], is_trusted=is_trusted)
    if name:
        if name not in agents:
            hint = suggest_names(name, agents) or " No file has one: write [agents.NAME]."
            raise ConfigError(f"there is no agent {name!r}.{hint}")
        merger.add_agent(agents[name], by_project=name not in own_agents, chosen=bool(named))
    return merger.merge(agents)


@dataclass(slots=True)
class _LayerMerger:
    """Layers by whose they are: a project's values never loosen what a person set."""

    files: list[SettingsLayer]
    environ: SettingsLayer
    flags: SettingsLayer
    project: list[SettingsLayer]
    is_trusted: bool
    chosen: SettingsLayer | None = None
    """The project's agent that a person chose by name: so its preferences go before the user's."""

    def add_agent(self, layer: SettingsLayer, *, by_project: bool, chosen: bool) -> None:
        if not by_project:
            self.files.append(layer)
            return
        self.project.append(layer)
        if chosen:
            self.chosen = layer

    def merge(self, agents: Mapping[str, SettingsLayer]) -> LoadedSettings:
        values: dict[str, object] = {}
        origins = dict.fromkeys(SETTING_KEYS, DEFAULT_ORIGIN)
        project_keys: set[str] = set()
        for key, about in SETTING_KEYS.items():
            person = _find_layer(key, self.person_layers)
            project = _find_layer(key, self.project)
            layer = person
            if project is not None and self._prefers_project(key, about, person, project):
                layer = project
                project_keys.add(key)
            if layer is not None:
                values[key] = layer.values[key]
                origins[key] = layer.places[key]
        settings = Settings(**values)  # pyright: ignore[reportArgumentType]
        policies, uses_mode = self._find_policies(takes_mode="permission_mode" in project_keys)
        return LoadedSettings(
            settings, origins, agents, policies, uses_mode, frozenset(project_keys)
        )

    @property
    def person_layers(self) -> list[SettingsLayer]:
        return [*self.files, self.environ, self.flags]

    def _prefers_project(
        self, key: str, about: SettingKey, person: SettingsLayer | None, project: SettingsLayer
    ) -> bool:
        """Whether the project's value of a setting is the one in force."""
        if about.of_person:
            return False
        if about.strictness is None:
            if not self.is_trusted:
                return False
            if person is None:
                return True
            of_file = any(person is layer for layer in self.files)
            return self.chosen is project and of_file
        if person is self.flags:
            return False
        if person is None and self.is_trusted:
            return True
        if person is None:
            current = getattr(Settings(), key)
        else:
            current = person.values[key]
        return about.strictness(project.values[key]) > about.strictness(current)

    def _find_policies(self, *, takes_mode: bool) -> tuple[tuple[PolicySource, ...], bool]:
        """The policies in force, and whether the permission mode counts next to them.

        `takes_mode`: whether the mode in force is the project's.
        """
        own_policy, own_mode = _find_permission(self.person_layers)
        policy, mode = _find_permission(self.project)
        policies: list[PolicySource] = []
        if own_policy:
            policies.append(PolicySource(own_policy))
        if policy:
            restricts_only = not self.is_trusted
            policies.append(PolicySource(policy, by_project=True, restricts_only=restricts_only))
        is_replaced = bool(own_policy or (policy and self.is_trusted))
        return tuple(policies), own_mode or (mode and takes_mode) or not is_replaced


def _find_permission(layers: Sequence[SettingsLayer]) -> tuple[str, bool]:
    """The policy of some layers, and whether their permission mode counts too.

    In one layer a policy replaces a mode; a mode in a stronger layer adds to the policy.
    """
    policy_layer = _find_layer("policy", layers)
    mode_layer = _find_layer("permission_mode", layers)
    if policy_layer is not None:
        policy = str(policy_layer.values["policy"])
    else:
        policy = ""
    if mode_layer is None:
        return policy, False
    if not policy or policy_layer is None:
        return "", True
    is_stronger = _position(layers, mode_layer) > _position(layers, policy_layer)
    return policy, is_stronger


def _position(layers: Sequence[SettingsLayer], layer: SettingsLayer) -> int:
    return next(at for at, each in enumerate(layers) if each is layer)


def _find_layer(key: str, layers: Sequence[SettingsLayer]) -> SettingsLayer | None:
    """The strongest layer that sets a key."""
    return next((layer for layer in reversed(layers) if key in layer.values), None)


def layer_from_toml(text: str, source: str, folder: str) -> SettingsLayer:
    """The layer of a TOML file; raises ConfigError with the file and the line.

    Relative paths in it are resolved against `folder`.
    """
    try:
        table: dict[str, object] = read_toml(text)
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
            shown = SETTING_KEYS[key].show(value)
            raise ConfigError(f"{names[key]}={shown}: it must be {error}") from None
    return SettingsLayer(values, {key: names[key] for key in values})


def _parse_value(key: SettingKey, value: object, folder: str) -> object:
    parsed = key.parse(value)
    if key.resolve is not None and isinstance(parsed, str) and parsed:
        return key.resolve(parsed, folder)
    if key.resolve is not None and isinstance(parsed, tuple):
        return tuple(key.resolve(path, folder) for path in cast("tuple[str, ...]", parsed))
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

        tomllib does not report where a value is, so the lines are searched again.
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
