"""What a project would run, send and allow if it were trusted, in words for a person.

Invariant: everything that takes effect is named, in full. A value of `.env` is shown only if it
becomes part of a command or an address, which cannot be judged without it. A value that is a secret
by its name or its shape is never shown.
"""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from windlass.core.errors import ConfigError
from windlass.core.phrases import format_count
from windlass.core.secrets.mask import Mask
from windlass.core.text_clip import reveal_line
from windlass.environ import (
    DOTENV_FILE,
    find_secrets,
    may_come_from_dotenv,
    read_process_environment,
)
from windlass.gates.policy_file import GuardedRules, parse_policy
from windlass.journals.wording import parse_journal_name
from windlass.knowledge.instructions import FILE_NAMES
from windlass.project.layers import SettingsLayer
from windlass.project.server_scripts import read_server_entries, server_command
from windlass.project.settings import SETTING_KEYS, Settings
from windlass.project.snapshot import MCP_FILE, ProjectSnapshot
from windlass.tools.mcp.entry_reader import VARIABLE


def describe_effects(snapshot: ProjectSnapshot) -> Iterator[str]:
    """What a project would do, one line each: run, connect, send, allow, set, tell.

    Words of the project cannot begin their own line, or hide in a line.
    """
    return map(reveal_line, _describe_all(snapshot))


def _describe_all(snapshot: ProjectSnapshot) -> Iterator[str]:
    for problem in snapshot.problems:
        yield f"refused: {problem}"
    if snapshot.broken:
        yield f"not valid: {snapshot.broken}"
    yield from _describe_servers(snapshot)
    yield from _describe_settings(snapshot, snapshot.layer, "")
    for name, layer in snapshot.layer.agents.items():
        yield from _describe_settings(snapshot, layer, f"agent {name}: ")
    yield from _describe_dotenv(snapshot)
    yield from _describe_texts(snapshot)


def _describe_servers(snapshot: ProjectSnapshot) -> Iterator[str]:
    tables = (snapshot.layer, *snapshot.layer.agents.values())
    named = [table.values["mcp_config"] for table in tables if "mcp_config" in table.values]
    for path in dict.fromkeys((snapshot.folder / MCP_FILE, *map(Path, map(str, named)))):
        data = snapshot.read(path)
        for name, entry in read_server_entries(data or b"{}").items():
            yield from _describe_server(name, entry)
            yield from _describe_own_words(snapshot, name, entry)


def _describe_server(name: str, entry: Mapping[str, Any]) -> Iterator[str]:
    if url := entry.get("url"):
        yield f"connects to {url} (MCP server {name})"
        for variable in _find_variables(url, entry.get("headers")):
            yield f"sends the value of ${variable} to {url}"
        yield from _describe_auth(name, url, entry.get("auth"))
        yield from _describe_overrides(name, entry)
        return
    words = server_command(entry)
    place = f" in {entry['cwd']}" if entry.get("cwd") else ""
    yield f"runs {shlex.join(words)}{place} (MCP server {name})"
    given = entry.get("env")
    if isinstance(given, dict):
        pairs = cast("dict[str, object]", given)
    else:
        pairs = {}
    for key, value in pairs.items():
        yield f"sets {key}={value} for the MCP server {name}"
    for variable in _find_variables(words, pairs):
        yield f"gives the value of ${variable} to the MCP server {name}"
    yield from _describe_overrides(name, entry)


def _describe_auth(name: str, url: str, auth: object) -> Iterator[str]:
    """What the file says about signing in at a server."""
    if not isinstance(auth, dict):
        return
    entry = cast("dict[str, object]", auth)
    issuer = entry.get("issuer")
    if issuer:
        yield f"connects to {issuer} (for tokens of the MCP server {name})"
    for variable in _find_variables(entry):
        yield f"sends the value of ${variable} to {issuer or f'whoever {url} names'}"


def _describe_own_words(
    snapshot: ProjectSnapshot, name: str, entry: Mapping[str, Any]
) -> Iterator[str]:
    """What the project's own `.env` puts into the command or the address of a server."""
    words = (server_command(entry), entry.get("cwd"), entry.get("url"))
    added = snapshot.variables
    environ = read_process_environment()
    for variable in _find_variables(*words):
        if variable in added and variable not in environ:
            value = added[variable]
            if find_secrets({variable: value}) or Mask(hold=False).mask_text(value) != value:
                yield f"uses the secret {variable} ({DOTENV_FILE}) to start the MCP server {name}"
            else:
                yield f"uses {variable}={value} ({DOTENV_FILE}) to start the MCP server {name}"


def _describe_overrides(name: str, entry: Mapping[str, Any]) -> Iterator[str]:
    """What the file says about the tools of a server. By default a tool writes and sends data."""
    given = entry.get("tools")
    if not isinstance(given, dict):
        return
    for pattern, override in cast("dict[str, object]", given).items():
        if not isinstance(override, dict):
            continue
        table = cast("dict[str, object]", override)
        tools = f"the tools {pattern!r} of the MCP server {name}"
        effect = table.get("effect")
        if effect is not None and effect != "write":
            yield f"allows {tools} as {effect}: they are not asked about like writes"
        if "labels" in table:
            words = ", ".join(_read_words(table["labels"])) or "none"
            yield f"allows {tools} the labels {words} instead of untrusted, external, private"


def _read_words(value: object) -> list[str]:
    return [str(word) for word in cast("list[object]", value)] if isinstance(value, list) else []


def _find_variables(*values: object) -> list[str]:
    """The names of all variables that some values expand."""
    found = [match[1] for value in values for match in VARIABLE.finditer(str(value))]
    return list(dict.fromkeys(found))


def _describe_settings(
    snapshot: ProjectSnapshot, layer: SettingsLayer, where: str
) -> Iterator[str]:
    for key, value in layer.values.items():
        if key == "policy":
            yield from _describe_policy(snapshot, str(value), where)
            continue
        about = SETTING_KEYS[key]
        if about.of_person:
            yield f"{where}never has an effect: {key}"
            continue
        default = getattr(Settings(), key)
        is_looser = about.strictness is not None and about.strictness(value) < about.strictness(
            default
        )
        verb = "allows" if is_looser else "sets"
        if key == "base_url":
            verb = "sends the requests to the model to"
        if key == "journal":
            verb = _describe_journal_use(str(value))
        shown = ", ".join(map(str, value)) if isinstance(value, tuple) else about.show(value)  # pyright: ignore[reportUnknownArgumentType]
        yield f"{where}{verb} {key} = {shown}"


def _describe_journal_use(name: str) -> str:
    """What a project does with the sessions of the person who trusts it."""
    if parse_journal_name(name).kind == "postgres":
        return "sends all sessions, and your Postgres login, to the server:"
    return "sets"


def _describe_policy(snapshot: ProjectSnapshot, path: str, where: str) -> Iterator[str]:
    data = snapshot.read(Path(path))
    if data is None:
        yield f"{where}sets policy = {path}, which cannot be read"
        return
    try:
        gate = parse_policy(data.decode("utf-8", "replace"), source=path)
    except ConfigError as error:
        yield f"{where}sets policy = {path}, which is not valid: {error}"
        return
    guard = ", with the flow guard" if isinstance(gate, GuardedRules) else ""
    count = format_count(len(gate.rules), "rule")
    yield f"{where}sets policy = {path}: {count}, default {gate.default}{guard}"
    for rule in gate.rules:
        if rule.decision == "allow":
            yield f"{where}allows {rule.pattern} without a question"


def _describe_dotenv(snapshot: ProjectSnapshot) -> Iterator[str]:
    names = list(snapshot.dotenv)
    usable = [name for name in names if may_come_from_dotenv(name)]
    ignored = [name for name in names if not may_come_from_dotenv(name)]
    if usable:
        yield f"adds the variables {', '.join(usable)} ({DOTENV_FILE})"
    if ignored:
        yield f"never has an effect: {', '.join(ignored)} ({DOTENV_FILE})"


def _describe_texts(snapshot: ProjectSnapshot) -> Iterator[str]:
    for path in snapshot.weights:
        yield f"may load the model weights {path}"
    for path, data in snapshot.content.items():
        if Path(path).name in FILE_NAMES:
            yield f"tells the model {path} ({len(data):,} bytes)"
    for path, data in snapshot.command_files.items():
        yield f"offers you the command /{path.stem} ({len(data):,} bytes)"
    for skill in snapshot.load_skills():
        yield f"offers the model the skill {skill.name}: {skill.description}"
