"""Read the usual `mcpServers` JSON (`.mcp.json`) into settings objects.

Invariant: an entry that is not understood raises ConfigError, which names its place and suggests
what may have been meant. Nothing here reads a file or the environment: both are passed in.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeAlias, cast, get_args

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.messages import Effect, Label
from windlass.tools.mcp.entry_reader import (
    EntryReader,
    check_keys,
    read_optional,
    require_mapping,
)
from windlass.tools.mcp.oauth.settings import McpAuth, read_auth
from windlass.tools.search import matches_patterns

ANSWER_BYTES_MAX = 16 * 2**20
"""The longest answer of a server that is read. A server could fill the memory otherwise."""
TIMEOUT_S = 60.0
NAME_CHARS_MAX = 64
PREFIX_CHARS_MAX = 24
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
"""The variables that a server inherits. It gets keys and tokens only if its `env` names them."""

_PREFIX_PATTERN = re.compile(r"[a-zA-Z0-9-]+(?:_[a-zA-Z0-9-]+)*")
_TOOL_PATTERN = re.compile(r"[a-zA-Z0-9_-]+")
_INVALID_CHARS = re.compile(r"[^a-zA-Z0-9-]+")
_COMMON_KEYS = (
    *("type", "timeout", "include", "exclude", "tools", "required"),
    *("trustHints", "elicitation", "sampling", "roots"),
)
_STDIO_KEYS = (*_COMMON_KEYS, "command", "args", "env", "cwd")
_HTTP_KEYS = (*_COMMON_KEYS, "url", "headers", "auth")
_OVERRIDE_KEYS = ("effect", "labels", "timeout")
_EFFECTS_BY_STRICTNESS: tuple[Effect, ...] = ("read", "idempotent", "write")
_TRANSPORT_TYPES = {
    "stdio": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamableHttp": "http",
    "sse": "http",
}
_TRANSPORT_FIELDS: tuple[tuple[str, str], ...] = (("command", "stdio"), ("url", "http"))


@dataclass(frozen=True, slots=True, kw_only=True)
class McpOverride:
    """Settings for the tools whose name matches a pattern. They overrule defaults and hints."""

    pattern: str
    effect: Effect | None = None
    labels: tuple[Label, ...] | None = None
    """Exactly these labels. None keeps `untrusted` and `external`, or what trusted hints say."""
    timeout_s: float | None = None
    """Seconds for a call. None keeps the server's."""
    only_tightens: bool = False
    """The override comes from a project, and no person has seen it: it can make a tool count as
    more than by default (`write`, another label), and never as less."""

    def apply(self, effect: Effect, labels: tuple[Label, ...]) -> tuple[Effect, tuple[Label, ...]]:
        """Return effect and labels of a tool that has these by default."""
        wanted_effect = self.effect or effect
        wanted_labels = labels if self.labels is None else self.labels
        if not self.only_tightens:
            return wanted_effect, wanted_labels
        if _EFFECTS_BY_STRICTNESS.index(wanted_effect) < _EFFECTS_BY_STRICTNESS.index(effect):
            wanted_effect = effect
        return wanted_effect, tuple(dict.fromkeys((*labels, *wanted_labels)))


@dataclass(frozen=True, slots=True, kw_only=True)
class McpStdio:
    """A server that Windlass starts, and talks to over its standard input and output."""

    name: str
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """The whole environment of the server."""
    cwd: str | None = None
    timeout_s: float | None = TIMEOUT_S
    """Seconds for a call, reconnecting included, and for connecting. None for no limit."""
    include: tuple[str, ...] = ("*",)
    """Patterns for the server's own names of its tools. A tool must match one of them."""
    exclude: tuple[str, ...] = ()
    overrides: tuple[McpOverride, ...] = ()
    required: bool = True
    """Whether `McpServers.tools` raises if this server cannot be reached."""
    trust_hints: bool = False
    """Whether a tool may count as `read` or `idempotent`, or as not `external`, because the server
    says so. A hint is a server's own word, so only the user's own settings can trust it."""
    elicitation: bool = True
    """Whether the server may ask the person of a run something while a call runs."""
    sampling: bool = False
    """Whether the server may ask for replies of the run's model. Each is judged by the gate, and
    the run pays for it. Only the user's own settings can allow it."""
    roots: tuple[Path, ...] = ()
    """Folders that the server is told to work in, if it asks. It is told their paths, and is not
    kept to them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpHttp:
    """A server at an address, over HTTP. The fields mean the same as in `McpStdio`."""

    name: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    sse: bool = False
    """Whether it speaks the older transport, with a stream of events beside the requests."""
    auth: McpAuth | None = None
    """How to get a token, if the server asks for one. None: a person signs in."""
    timeout_s: float | None = TIMEOUT_S
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    overrides: tuple[McpOverride, ...] = ()
    required: bool = True
    trust_hints: bool = False
    elicitation: bool = True
    sampling: bool = False
    roots: tuple[Path, ...] = ()


McpSettings: TypeAlias = McpStdio | McpHttp
"""How a server is reached: as a process, or by HTTP."""


def is_tool_offered(settings: McpSettings, tool: str) -> bool:
    """Whether the settings offer a tool, given the server's own name for it."""
    return matches_patterns(tool, settings.include, settings.exclude)


def find_override(settings: McpSettings, tool: str) -> McpOverride | None:
    """Return the first override whose pattern matches a tool."""
    overrides = settings.overrides
    return next((one for one in overrides if fnmatchcase(tool, one.pattern)), None)


def mcp_settings(
    given: str | bytes | Mapping[str, Any],
    environ: Mapping[str, str],
    source: str = ".mcp.json",
    *,
    of_project: bool = False,
    was_shown: bool = True,
) -> tuple[McpSettings, ...]:
    """Read the settings of all servers in a configuration.

    Args:
        given: The configuration, as JSON or already decoded.
        environ: The values for `${NAME}` and `${NAME:-default}`.
        source: What errors call the configuration.
        of_project: The configuration comes with a project, which may be a stranger's: it cannot
            declare that a server's hints are to be trusted.
        was_shown: A person has seen what the project says about `tools`. If not, it can make tools
            stricter only.

    Raises:
        ConfigError: An entry is not understood, or a variable is not set.
    """
    if isinstance(given, Mapping):
        config = given
    else:
        config = _decode_json(given, source)
    check_keys(source, config, ("mcpServers",))
    servers = require_mapping(f"{source}: mcpServers", config.get("mcpServers", {}))
    found: list[McpSettings] = []
    for name, entry in servers.items():
        reader = EntryReader(
            f"{source}: server {name!r}",
            environ,
            of_project=of_project,
            only_tightens=of_project and not was_shown,
        )
        found.append(_read_server(reader, name, entry))
    return tuple(found)


def _decode_json(text: str | bytes, source: str) -> Mapping[str, Any]:
    try:
        return require_mapping(source, msgspec.json.decode(text))
    except msgspec.DecodeError as error:
        raise ConfigError(f"{source} is not valid JSON: {error}") from None
    except RecursionError:
        raise ConfigError(f"{source} is not valid: its values are nested too deeply") from None


def _read_server(reader: EntryReader, name: str, given: object) -> McpSettings:
    entry = require_mapping(reader.where, given)
    if not name.strip():
        raise ConfigError(f"{reader.where}: a server needs a name")
    if _transport_kind(reader, entry) == "http":
        return _read_http(reader, name, entry)
    return _read_stdio(reader, name, entry)


def _transport_kind(reader: EntryReader, entry: Mapping[str, Any]) -> str:
    """Return the kind of a server, by its type or by the setting that only one kind has."""
    transport = entry.get("type")
    if transport is not None:
        return _TRANSPORT_TYPES[reader.check_choice("type", transport, [*_TRANSPORT_TYPES])]
    kinds = [kind for key, kind in _TRANSPORT_FIELDS if key in entry]
    if len(kinds) != 1:
        raise ConfigError(f"{reader.where} must have either a 'command' to start or a 'url'")
    return kinds[0]


def _read_stdio(reader: EntryReader, name: str, entry: Mapping[str, Any]) -> McpStdio:
    check_keys(reader.where, entry, _STDIO_KEYS)
    inherited = {key: reader.environ[key] for key in INHERITED_VARIABLES if key in reader.environ}
    return McpStdio(
        name=name,
        command=reader.read_text("command", entry.get("command")),
        args=reader.read_texts("args", entry.get("args", [])),
        env={**inherited, **reader.read_pairs("env", entry.get("env", {}))},
        cwd=read_optional(reader.read_text, "cwd", entry, None),
        **_read_common(reader, entry),
    )


def _read_http(reader: EntryReader, name: str, entry: Mapping[str, Any]) -> McpHttp:
    check_keys(reader.where, entry, _HTTP_KEYS)
    url = reader.read_text("url", entry.get("url"))
    if not url.startswith(("http://", "https://")):
        raise reader.value_error("url", "a URL that begins with http:// or https://")
    headers = reader.read_pairs("headers", entry.get("headers", {}))
    return McpHttp(
        name=name,
        url=url,
        headers=headers,
        sse=entry.get("type") == "sse",
        auth=read_auth(reader, entry["auth"]) if "auth" in entry else None,
        **_read_common(reader, entry),
    )


def _read_common(reader: EntryReader, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Read the settings that servers of both kinds have."""
    tools = require_mapping(f"{reader.where}: tools", entry.get("tools", {}))
    return {
        "timeout_s": read_optional(reader.read_seconds, "timeout", entry, TIMEOUT_S),
        "include": read_optional(reader.read_texts, "include", entry, ("*",)),
        "exclude": read_optional(reader.read_texts, "exclude", entry, ()),
        "required": read_optional(reader.read_flag, "required", entry, True),  # noqa: FBT003 - a default
        "trust_hints": read_optional(reader.read_trust, "trustHints", entry, False),  # noqa: FBT003 - a default
        "elicitation": read_optional(reader.read_flag, "elicitation", entry, True),  # noqa: FBT003 - a default
        "sampling": read_optional(reader.read_sampling, "sampling", entry, False),  # noqa: FBT003 - a default
        "roots": tuple(map(Path, read_optional(reader.read_texts, "roots", entry, ()))),
        "overrides": tuple(_read_override(reader, *item) for item in tools.items()),
    }


def _read_override(reader: EntryReader, pattern: str, given: object) -> McpOverride:
    here = EntryReader(f"{reader.where}: tools {pattern!r}", reader.environ)
    entry = require_mapping(here.where, given)
    check_keys(here.where, entry, _OVERRIDE_KEYS)
    labels = read_optional(here.read_texts, "labels", entry, None)
    for label in labels or ():
        here.check_choice("label", label, get_args(Label))
    effect = entry.get("effect")
    if effect is not None:
        here.check_choice("effect", effect, get_args(Effect))
    return McpOverride(
        pattern=pattern,
        effect=cast("Effect | None", effect),
        labels=cast("tuple[Label, ...] | None", labels),
        timeout_s=read_optional(here.read_seconds, "timeout", entry, None),
        only_tightens=reader.only_tightens,
    )


def tool_name(server: str, tool: str, *, taken: bool = False) -> str:
    """Return the name under which a server's tool is offered to the model.

    Two tools never have the same name, and a name depends only on the tool and its server. One that
    is too long or has invalid characters gets a hash. The prefix of a server has no double
    underscore, so that an unchanged name can be split again. `taken` means that another tool has
    the plain name, so this one gets a hash.
    """
    prefix = server
    if len(server) > PREFIX_CHARS_MAX or not _PREFIX_PATTERN.fullmatch(server):
        prefix = _shorten_with_hash(server, PREFIX_CHARS_MAX)
    name = f"{prefix}__{tool}"
    if not taken and len(name) <= NAME_CHARS_MAX and _TOOL_PATTERN.fullmatch(tool):
        return name
    return f"{prefix}__{_shorten_with_hash(tool, NAME_CHARS_MAX - len(prefix) - len('__'))}"


def _shorten_with_hash(name: str, chars_max: int) -> str:
    """Return as much of a name as fits, and a hash that makes it unique."""
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    head = _INVALID_CHARS.sub("_", name).strip("_")[: chars_max - len(digest) - 1].rstrip("_")
    return f"{head}_{digest}" if head else digest
