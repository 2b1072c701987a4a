"""Reads a manifest of tools, in TOML or YAML, and makes tools of it.

    [[tool]]
    name = "weather"
    description = "The weather in a city."
    effect = "read"
    labels = ["untrusted", "external"]
    parameters = [{ name = "city", type = "string", required = true }]
    [tool.http]
    url = "https://api.example.org/weather/{city}"
    headers = { Authorization = "Bearer ${WEATHER_KEY}" }

Invariant: all that can be found wrong without a call is found here, with the name of the tool. A
secret is named and never written; it is looked up when the tool is called, and is in no result.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.messages import Effect, Label
from windlass.environ import read_environment
from windlass.tools.declared.runners import (
    CommandAction,
    HttpAction,
    SecretLookup,
    run_command,
    send_request,
)
from windlass.tools.declared.templates import PLACEHOLDER, check_names, find_secret_names
from windlass.tools.function import Tool, ToolTraits

_YAML_SUFFIXES = (".yaml", ".yml")


class DeclaredTool(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One entry of a manifest."""

    name: str
    description: str
    parameters: dict[str, Any] | list[dict[str, Any]] = {}
    """A JSON Schema, or a list of {name, type, description, required}."""
    effect: Effect = "write"
    labels: list[Label] = []
    timeout: float = 60.0
    http: HttpAction | None = None
    command: CommandAction | None = None


class _Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tool: list[DeclaredTool]


def load_tools(
    path: str | Path, *, secrets: Callable[[str], str | None] | None = None
) -> tuple[Tool[..., Any], ...]:
    """Return the tools that a manifest declares. Nothing of them runs yet.

    `secrets` returns the secret of a name; by default, the environment and the file `.env` are
    asked. Raises ConfigError, naming the tool, if an entry is wrong.
    """
    file = Path(path)
    try:
        text = file.read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from None
    look_up = secrets or _read_variable
    manifest = _parse_manifest(text, file)
    names = [entry.name for entry in manifest.tool]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{file}: two tools have the name {name!r}")
    return tuple(_make_tool(entry, file, look_up) for entry in manifest.tool)


def _read_variable(name: str) -> str | None:
    return read_environment().get(name)


def _parse_manifest(text: str, file: Path) -> _Manifest:
    import tomllib  # noqa: PLC0415 - only for users of a manifest

    try:
        content: object = _load_yaml(text) if file.suffix in _YAML_SUFFIXES else tomllib.loads(text)
        return msgspec.convert(content, _Manifest)
    except (ValueError, msgspec.ValidationError) as error:
        raise ConfigError(f"{file}: {' '.join(str(error).split())}") from None


def _load_yaml(text: str) -> object:
    try:
        import yaml  # noqa: PLC0415 - only for manifests in YAML
    except ImportError:
        raise ConfigError("a manifest in YAML needs PyYAML: pip install pyyaml") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


def _make_tool(entry: DeclaredTool, file: Path, secrets: SecretLookup) -> Tool[..., Any]:
    where = f"{file}: tool {entry.name!r}"
    if (entry.http is None) == (entry.command is None):
        raise ConfigError(f"{where}: give it either [tool.http] or [tool.command]")
    if entry.command is not None:
        _check_command(entry.command, where)
    if entry.http is not None:
        _check_http(entry.http, where)
    command, http = entry.command, entry.http

    async def run(**arguments: Any) -> str:  # noqa: ANN401 - the parameters are in the schema
        if command is not None:
            return await run_command(command, arguments, secrets, file.parent)
        assert http is not None  # noqa: S101 - checked above
        return await send_request(http, arguments, secrets)

    traits: ToolTraits = {
        "effect": entry.effect,
        "timeout": entry.timeout,
        "untrusted": "untrusted" in entry.labels,
        "private": "private" in entry.labels,
        "external": "external" in entry.labels,
    }
    made = Tool[..., Any].from_schema(
        entry.name, entry.description, entry.parameters, run, **traits
    )
    known = cast("Mapping[str, Any]", made.spec.parameters.get("properties", {}))
    check_names(msgspec.to_builtins(entry.command or entry.http), known, where)
    return made


def _check_command(command: CommandAction, where: str) -> None:
    if not command.argv or PLACEHOLDER.search(command.argv[0]):
        raise ConfigError(f"{where}: argv must begin with a program, which no argument can name")
    for name, value in (("argv", command.argv), ("stdin", command.stdin)):
        if [*find_secret_names(value)] or any("${" in word for word in command.argv):
            # Other processes can read a command line.
            raise ConfigError(f"{where}: {name} must not hold a secret; put it into environ")
    if any(PLACEHOLDER.search(value.replace("${", "")) for value in command.environ.values()):
        raise ConfigError(f"{where}: environ must not hold arguments")


def _check_http(http: HttpAction, where: str) -> None:
    parts = urlsplit(http.url)
    fixed = f"{parts.scheme}://{parts.netloc}"
    if parts.scheme not in {"http", "https"} or not parts.hostname or PLACEHOLDER.search(fixed):
        raise ConfigError(f"{where}: url must begin with https:// and a host that is fixed")
    if parts.query or parts.fragment or "${" in http.url:
        raise ConfigError(f"{where}: url must have no query and no secret; use query and headers")
    if http.body is not None and http.method == "GET":
        raise ConfigError(f"{where}: a GET has no body")
