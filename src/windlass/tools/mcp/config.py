"""The usual `mcpServers` JSON (`.mcp.json`) in, frozen settings out (T15).

The law: what is not understood is refused, with the place where it stands and what may have been
meant; nothing here reads a file or the environment, both are handed in.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, TypeAlias, TypeVar, cast, get_args

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.messages import Effect, Label
from windlass.core.suggestions import did_you_mean

TIMEOUT_S = 60.0
TIMEOUT_S_MAX = 24 * 3600.0
"""More than a day is a number that somebody meant as milliseconds."""
INHERITED = [
    "HOME",
    "LANG",
    "LC_ALL",
    "LOGNAME",
    "NODE_EXTRA_CA_CERTS",
    "PATH",
    "REQUESTS_CA_BUNDLE",
    "SHELL",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
]
"""What a server gets of our environment. Keys and tokens it gets only if its `env` says so."""

_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(?::-([^}]*))?\}")
_COMMON = ("type", "timeout", "include", "exclude", "tools", "required")
_STDIO = (*_COMMON, "command", "args", "env", "cwd")
_HTTP = (*_COMMON, "url", "headers")
_OVERRIDE = ("effect", "labels", "timeout")
_TYPES = {"stdio": "stdio", "http": "http", "streamable-http": "http", "streamableHttp": "http"}
_FIELDS: tuple[tuple[str, str], ...] = (("command", "stdio"), ("url", "http"))

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class McpOverride:
    """What we say of the tools whose name matches a pattern, whatever their server says."""

    pattern: str
    effect: Effect | None = None
    labels: tuple[Label, ...] | None = None
    """Exactly these. None leaves them as the server's hints have them."""
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class McpStdio:
    """A server that we start, and talk to over its standard input and output."""

    name: str
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """The whole environment of the server."""
    cwd: str | None = None
    timeout_s: float | None = TIMEOUT_S
    """For a call, reconnecting included, and for making the connection."""
    include: tuple[str, ...] = ("*",)
    """Patterns over the server's own names of its tools."""
    exclude: tuple[str, ...] = ()
    overrides: tuple[McpOverride, ...] = ()
    required: bool = True
    """Whether there are no tools at all without this server's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpHttp:
    """A server at an address, over streamable HTTP."""

    name: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    timeout_s: float | None = TIMEOUT_S
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    overrides: tuple[McpOverride, ...] = ()
    required: bool = True


McpSettings: TypeAlias = McpStdio | McpHttp


def passes(settings: McpSettings, tool: str) -> bool:
    """Whether a tool is offered, by its server's own name for it."""
    included = any(fnmatchcase(tool, pattern) for pattern in settings.include)
    return included and not any(fnmatchcase(tool, pattern) for pattern in settings.exclude)


def override_of(settings: McpSettings, tool: str) -> McpOverride | None:
    """What we say of a tool: the first pattern that matches, as with any ordered rules."""
    found = (one for one in settings.overrides if fnmatchcase(tool, one.pattern))
    return next(found, None)


def mcp_settings(
    given: str | bytes | Mapping[str, Any],
    environ: Mapping[str, str],
    source: str = ".mcp.json",
) -> tuple[McpSettings, ...]:
    """The servers that a configuration names; `source` is what errors call it.

    `${NAME}` and `${NAME:-otherwise}` stand for what `environ` holds.
    """
    whole = given if isinstance(given, Mapping) else _decoded(given, source)
    _known(source, whole, ("mcpServers",))
    servers = _mapping(f"{source}: mcpServers", whole.get("mcpServers", {}))
    return tuple(
        _server(_Place(f"{source}: server {name!r}", environ), name, entry)
        for name, entry in servers.items()
    )


def _decoded(text: str | bytes, source: str) -> Mapping[str, Any]:
    try:
        return _mapping(source, msgspec.json.decode(text))
    except msgspec.DecodeError as error:
        raise ConfigError(f"{source} is no JSON: {error}") from None


def _mapping(where: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}: an object in braces is needed, not {_kind(value)}")
    return cast("Mapping[str, Any]", value)


def _known(where: str, entry: Mapping[str, Any], keys: Sequence[str]) -> None:
    for key in entry:
        if key not in keys:
            raise ConfigError(f"{where}: there is no setting {key!r}.{did_you_mean(key, keys)}")


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "a yes or no", int: "a number"}
    return next((name for of, name in names.items() if isinstance(value, of)), "this")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an entry stands, and what its variables stand for."""

    where: str
    environ: Mapping[str, str] = field(repr=False)

    def wrong(self, key: str, needed: str) -> ConfigError:
        return ConfigError(f"{self.where}: {key!r} must be {needed}")

    def text(self, key: str, value: object) -> str:
        if not isinstance(value, str) or not value:
            raise self.wrong(key, "a text")
        return _VARIABLE.sub(self._value, value)

    def _value(self, found: re.Match[str]) -> str:
        name, otherwise = found[1], cast("str | None", found[2])
        value = self.environ.get(name, otherwise)
        if value is None:
            raise ConfigError(
                f"{self.where} needs the variable {name}, which is not set: "
                f"set it, or write ${{{name}:-otherwise}}"
            )
        return value

    def texts(self, key: str, value: object) -> tuple[str, ...]:
        if not isinstance(value, list):
            raise self.wrong(key, 'a list of texts, as in ["a", "b"]')
        items = cast("list[object]", value)
        # An empty argument is one; an empty pattern matches nothing.
        return tuple(self.text(key, item) if item != "" else "" for item in items)

    def pairs(self, key: str, value: object) -> dict[str, str]:
        given = _mapping(f"{self.where}: {key}", value).items()
        return {name: self.text(f"{key}.{name}", one) if one != "" else "" for name, one in given}

    def seconds(self, key: str, value: object) -> float | None:
        match value:
            case None:
                return None
            case int() | float() if not isinstance(value, bool) and 0 < value <= TIMEOUT_S_MAX:
                return float(value)
            case _:
                raise self.wrong(key, "a number of seconds above zero, or null for no limit")

    def flag(self, key: str, value: object) -> bool:
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def choice(self, key: str, value: object, among: Sequence[str]) -> str:
        if value not in among:
            near = did_you_mean(str(value), among)
            raise ConfigError(f"{self.where}: there is no {key} {value!r}.{near}")
        return cast("str", value)


def _server(place: _Place, name: str, given: object) -> McpSettings:
    entry = _mapping(place.where, given)
    if not name.strip():
        raise ConfigError(f"{place.where}: a server needs a name")
    if _transport(place, entry) == "http":
        return _http(place, name, entry)
    return _stdio(place, name, entry)


def _transport(place: _Place, entry: Mapping[str, Any]) -> str:
    """Which kind of server an entry means: by its type, or by the setting that only one has."""
    given = entry.get("type")
    if given == "sse":
        raise ConfigError(
            f'{place.where}: type "sse" is the transport that MCP gave up: use "http", if the '
            "server speaks it"
        )
    if given is not None:
        return _TYPES[place.choice("type", given, [*_TYPES])]
    kinds = [kind for key, kind in _FIELDS if key in entry]
    if len(kinds) != 1:
        raise ConfigError(f"{place.where} must have either a 'command' to start, or a 'url'")
    return kinds[0]


def _stdio(place: _Place, name: str, entry: Mapping[str, Any]) -> McpStdio:
    _known(place.where, entry, _STDIO)
    inherited = {key: place.environ[key] for key in INHERITED if key in place.environ}
    return McpStdio(
        name=name,
        command=place.text("command", entry.get("command")),
        args=place.texts("args", entry.get("args", [])),
        env={**inherited, **place.pairs("env", entry.get("env", {}))},
        cwd=_optional(place.text, "cwd", entry, None),
        **_common(place, entry),
    )


def _http(place: _Place, name: str, entry: Mapping[str, Any]) -> McpHttp:
    _known(place.where, entry, _HTTP)
    url = place.text("url", entry.get("url"))
    if not url.startswith(("http://", "https://")):
        raise place.wrong("url", "an address that begins with http:// or https://")
    headers = place.pairs("headers", entry.get("headers", {}))
    return McpHttp(name=name, url=url, headers=headers, **_common(place, entry))


def _common(place: _Place, entry: Mapping[str, Any]) -> dict[str, Any]:
    """What servers of both kinds have."""
    tools = _mapping(f"{place.where}: tools", entry.get("tools", {}))
    return {
        "timeout_s": _optional(place.seconds, "timeout", entry, TIMEOUT_S),
        "include": _optional(place.texts, "include", entry, ("*",)),
        "exclude": _optional(place.texts, "exclude", entry, ()),
        "required": _optional(place.flag, "required", entry, True),  # noqa: FBT003 - a default
        "overrides": tuple(_override(place, *item) for item in tools.items()),
    }


def _override(place: _Place, pattern: str, given: object) -> McpOverride:
    here = _Place(f"{place.where}: tools {pattern!r}", place.environ)
    entry = _mapping(here.where, given)
    _known(here.where, entry, _OVERRIDE)
    labels = _optional(here.texts, "labels", entry, None)
    for label in labels or ():
        here.choice("label", label, get_args(Label))
    effect = entry.get("effect")
    if effect is not None:
        here.choice("effect", effect, get_args(Effect))
    return McpOverride(
        pattern=pattern,
        effect=cast("Effect | None", effect),
        labels=cast("tuple[Label, ...] | None", labels),
        timeout_s=_optional(here.seconds, "timeout", entry, None),
    )


def _optional(
    read: Callable[[str, object], T], key: str, entry: Mapping[str, Any], otherwise: T
) -> T:
    return read(key, entry[key]) if key in entry else otherwise
