"""Changes to a project's files: one setting in `windlass.toml`, the servers in `.mcp.json`.

Invariant: a file that could not be read back is not written.
"""

import os
import re
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from typing_extensions import override

from windlass.core.errors import ConfigError
from windlass.environ import read_process_environment, read_regular_file
from windlass.private_files import make_private_folder
from windlass.project.files import read_failure
from windlass.project.layers import layer_from_toml
from windlass.project.snapshot import FILE_BYTES_MAX, MCP_FILE, PROJECT_FILE
from windlass.tools.mcp.config import mcp_settings

_TABLE_HEADER = re.compile(r"\s*\[")
_PLAIN_LITERAL = re.compile(r"-?\d+(\.\d+)?|true|false|\[.*\]")


def write_setting(file: Path, key: str, value: str) -> str:
    """Write a setting into a TOML file, and return the line that was written.

    Numbers, true, false and lists are written as they are, anything else as a string. Raises
    ConfigError if the value is not valid or the file cannot be written.
    """
    line = f"{key} = {_toml_literal(value)}"
    try:
        before = _read_before(file)
        after = _replace_line(before, key, line)
        layer_from_toml(after, str(file), str(file.parent))
        _write_settings(file, after)
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from None
    return line


def _write_settings(file: Path, text: str) -> None:
    """Write a settings file. The user's own is for them only; a project's is as the project has it.

    Raises OSError.
    """
    if file.name == PROJECT_FILE:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
        return
    make_private_folder(file.parent)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        os.fchmod(descriptor, 0o600)
        opened.write(text)


def _read_before(file: Path) -> str:
    """The text of a settings file; empty if there is none. Raises OSError or ConfigError.

    A project's file may be a link that leads out of it, or a pipe, and would be written there.
    """
    inside = file.parent if file.name == PROJECT_FILE else None
    try:
        return read_regular_file(file, inside=inside, bytes_max=FILE_BYTES_MAX).decode()
    except FileNotFoundError:
        if not file.is_symlink():
            return ""
        raise ConfigError(f"{file} cannot be written: it is a link to nothing") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} cannot be read: {read_failure(error)}") from None


def _replace_line(text: str, key: str, line: str) -> str:
    """The text with the setting's line in its place; all other lines stay as they were."""
    lines = text.splitlines()
    tables = (number for number, each in enumerate(lines) if _TABLE_HEADER.match(each))
    # Settings of the project come before the first table: below it, they would be an agent's.
    end = next(tables, len(lines))
    for number in range(end):
        if re.match(rf"\s*{re.escape(key)}\s*=", lines[number]):
            lines[number] = line
            return "\n".join(lines) + "\n"
    while end and not lines[end - 1].strip():
        end -= 1
    lines.insert(end, line)
    return "\n".join(lines) + "\n"


def _toml_literal(value: str) -> str:
    if _PLAIN_LITERAL.fullmatch(value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def read_mcp_entries() -> dict[str, Any]:
    """The servers in this folder's `.mcp.json` as they are written, with `${NAME}` unexpanded."""
    path = Path(MCP_FILE)
    try:
        data = read_regular_file(path, inside=Path.cwd(), bytes_max=FILE_BYTES_MAX)
        text = data.decode()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{MCP_FILE} cannot be read: {read_failure(error)}") from None
    try:
        servers = msgspec.json.decode(text, type=dict[str, dict[str, dict[str, Any]]])
        return dict(servers["mcpServers"])
    except (msgspec.MsgspecError, KeyError, RecursionError):
        raise ConfigError(
            f'{MCP_FILE} is not valid: it must be JSON of the form {{"mcpServers": {{…}}}}. '
            "Correct the file first."
        ) from None


def write_mcp_entries(servers: dict[str, Any]) -> None:
    """Replace this folder's `.mcp.json`, all of it or nothing; raises ConfigError.

    Without any server, the file is removed.
    """
    if not servers:
        Path(MCP_FILE).unlink(missing_ok=True)
        return
    text = msgspec.json.format(msgspec.json.encode({"mcpServers": servers}), indent=2).decode()
    # A variable that is not set here may be set where the server is used.
    mcp_settings(text, _AnyEnvironment(read_process_environment()), source=MCP_FILE)
    try:
        # Temporary files are private (0600), and so it stays: an entry may hold headers and keys.
        with tempfile.NamedTemporaryFile("w", dir=".", delete=False, encoding="utf-8") as file:
            file.write(text + "\n")
        os.replace(file.name, MCP_FILE)  # noqa: PTH105 - atomic: no reader sees half a file
    except OSError as error:
        raise ConfigError(f"{MCP_FILE} cannot be written: {error.strerror}") from None


class _AnyEnvironment(dict[str, str]):
    """An environment in which every variable is set."""

    @override
    def __contains__(self, name: object) -> bool:
        return True

    @override
    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name, f"${name}")

    def __missing__(self, name: str) -> str:
        return f"${name}"
