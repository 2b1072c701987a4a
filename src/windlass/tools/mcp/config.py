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
from windlass.core.suggestions import suggest_names

TIMEOUT_S = 60.0
TIMEOUT_S_MAX = 24 * 3600.0
"""More than a day is a number that somebody meant as milliseconds."""
INHERITED_VARIABLES = [
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
_COMMON_KEYS = ("type", "timeout", "include", "exclude", "tools", "required")
_STDIO_KEYS = (*_COMMON_KEYS, "command", "args", "env", "cwd")
_HTTP_KEYS = (*_COMMON_KEYS, "url", "headers")
_OVERRIDE_KEYS = ("effect", "labels", "timeout")
_TRANSPORT_TYPES = {
    "stdio": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamableHttp": "http",
}
_TRANSPORT_FIELDS: tuple[tuple[str, str], ...] = (("command", "stdio"), ("url", "http"))

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


def is_tool_offered(settings: McpSettings, tool: str) -> bool:
    """Whether a tool is offered, by its server's own name for it."""
    included = any(fnmatchcase(tool, pattern) for pattern in settings.include)
    return included and not any(fnmatchcase(tool, pattern) for pattern in settings.exclude)


def find_override(settings: McpSettings, tool: str) -> McpOverride | None:
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
    whole = given if isinstance(given, Mapping) else _decode_json(given, source)
    _check_keys(source, whole, ("mcpServers",))
    servers = _require_mapping(f"{source}: mcpServers", whole.get("mcpServers", {}))
    return tuple(
        _read_server(_EntryReader(f"{source}: server {name!r}", environ), name, entry)
        for name, entry in servers.items()
    )


def _decode_json(text: str | bytes, source: str) -> Mapping[str, Any]:
    try:
        return _require_mapping(source, msgspec.json.decode(text))
    except msgspec.DecodeError as error:
        raise ConfigError(f"{source} is no JSON: {error}") from None


def _require_mapping(where: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}: an object in braces is needed, not {_describe_type(value)}")
    return cast("Mapping[str, Any]", value)


def _check_keys(where: str, entry: Mapping[str, Any], keys: Sequence[str]) -> None:
    for key in entry:
        if key not in keys:
            raise ConfigError(f"{where}: there is no setting {key!r}.{suggest_names(key, keys)}")


def _describe_type(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "a yes or no", int: "a number"}
    return next((name for of, name in names.items() if isinstance(value, of)), "this")


@dataclass(frozen=True, slots=True)
class _EntryReader:
    """Where an entry stands, and what its variables stand for."""

    where: str
    environ: Mapping[str, str] = field(repr=False)

    def value_error(self, key: str, needed: str) -> ConfigError:
        return ConfigError(f"{self.where}: {key!r} must be {needed}")

    def read_text(self, key: str, value: object) -> str:
        if not isinstance(value, str) or not value:
            raise self.value_error(key, "a text")
        return _VARIABLE.sub(self._expand_variable, value)

    def _expand_variable(self, found: re.Match[str]) -> str:
        name, otherwise = found[1], cast("str | None", found[2])
        value = self.environ.get(name, otherwise)
        if value is None:
            raise ConfigError(
                f"{self.where} needs the variable {name}, which is not set: "
                f"set it, or write ${{{name}:-otherwise}}"
            )
        return value

    def read_texts(self, key: str, value: object) -> tuple[str, ...]:
        if not isinstance(value, list):
            raise self.value_error(key, 'a list of texts, as in ["a", "b"]')
        items = cast("list[object]", value)
        # An empty argument is one; an empty pattern matches nothing.
        return tuple(self.read_text(key, item) if item != "" else "" for item in items)

    def read_pairs(self, key: str, value: object) -> dict[str, str]:
        given = _require_mapping(f"{self.where}: {key}", value).items()
        return {
            name: self.read_text(f"{key}.{name}", one) if one != "" else "" for name, one in given
        }

    def read_seconds(self, key: str, value: object) -> float | None:
        match value:
            case None:
                return None
            case int() | float() if not isinstance(value, bool) and 0 < value <= TIMEOUT_S_MAX:
                return float(value)
            case _:
                raise self.value_error(key, "a number of seconds above zero, or null for no limit")

    def read_flag(self, key: str, value: object) -> bool:
        if not isinstance(value, bool):
            raise self.value_error(key, "true or false")
        return value

    def check_choice(self, key: str, value: object, among: Sequence[str]) -> str:
        if value not in among:
            near = suggest_names(str(value), among)
            raise ConfigError(f"{self.where}: there is no {key} {value!r}.{near}")
        return cast("str", value)


def _read_server(reader: _EntryReader, name: str, given: object) -> McpSettings:
    entry = _require_mapping(reader.where, given)
    if not name.strip():
        raise ConfigError(f"{reader.where}: a server needs a name")
    if _transport_kind(reader, entry) == "http":
        return _read_http(reader, name, entry)
    return _read_stdio(reader, name, entry)


def _transport_kind(reader: _EntryReader, entry: Mapping[str, Any]) -> str:
    """Which kind of server an entry means: by its type, or by the setting that only one has."""
    given = entry.get("type")
    if given == "sse":
        raise ConfigError(
            f'{reader.where}: type "sse" is the transport that MCP gave up: use "http", if the '
            "server speaks it"
        )
    if given is not None:
        return _TRANSPORT_TYPES[reader.check_choice("type", given, [*_TRANSPORT_TYPES])]
    kinds = [kind for key, kind in _TRANSPORT_FIELDS if key in entry]
    if len(kinds) != 1:
        raise ConfigError(f"{reader.where} must have either a 'command' to start, or a 'url'")
    return kinds[0]


def _read_stdio(reader: _EntryReader, name: str, entry: Mapping[str, Any]) -> McpStdio:
    _check_keys(reader.where, entry, _STDIO_KEYS)
    inherited = {key: reader.environ[key] for key in INHERITED_VARIABLES if key in reader.environ}
    return McpStdio(
        name=name,
        command=reader.read_text("command", entry.get("command")),
        args=reader.read_texts("args", entry.get("args", [])),
        env={**inherited, **reader.read_pairs("env", entry.get("env", {}))},
        cwd=_read_optional(reader.read_text, "cwd", entry, None),
        **_read_common(reader, entry),
    )


def _read_http(reader: _EntryReader, name: str, entry: Mapping[str, Any]) -> McpHttp:
    _check_keys(reader.where, entry, _HTTP_KEYS)
    url = reader.read_text("url", entry.get("url"))
    if not url.startswith(("http://", "https://")):
        raise reader.value_error("url", "an address that begins with http:// or https://")
    headers = reader.read_pairs("headers", entry.get("headers", {}))
    return McpHttp(name=name, url=url, headers=headers, **_read_common(reader, entry))


def _read_common(reader: _EntryReader, entry: Mapping[str, Any]) -> dict[str, Any]:
    """What servers of both kinds have."""
    tools = _require_mapping(f"{reader.where}: tools", entry.get("tools", {}))
    return {
        "timeout_s": _read_optional(reader.read_seconds, "timeout", entry, TIMEOUT_S),
        "include": _read_optional(reader.read_texts, "include", entry, ("*",)),
        "exclude": _read_optional(reader.read_texts, "exclude", entry, ()),
        "required": _read_optional(reader.read_flag, "required", entry, True),  # noqa: FBT003 - a default
        "overrides": tuple(_read_override(reader, *item) for item in tools.items()),
    }


def _read_override(reader: _EntryReader, pattern: str, given: object) -> McpOverride:
    here = _EntryReader(f"{reader.where}: tools {pattern!r}", reader.environ)
    entry = _require_mapping(here.where, given)
    _check_keys(here.where, entry, _OVERRIDE_KEYS)
    labels = _read_optional(here.read_texts, "labels", entry, None)
    for label in labels or ():
        here.check_choice("label", label, get_args(Label))
    effect = entry.get("effect")
    if effect is not None:
        here.check_choice("effect", effect, get_args(Effect))
    return McpOverride(
        pattern=pattern,
        effect=cast("Effect | None", effect),
        labels=cast("tuple[Label, ...] | None", labels),
        timeout_s=_read_optional(here.read_seconds, "timeout", entry, None),
    )


def _read_optional(
    read: Callable[[str, object], T], key: str, entry: Mapping[str, Any], otherwise: T
) -> T:
    return read(key, entry[key]) if key in entry else otherwise
