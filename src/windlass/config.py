"""Files and environment in, plain values out. Nothing else in the package reads either."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from windlass.core.errors import ConfigError
from windlass.tools.mcp.config import McpHttp, McpStdio, mcp_settings

LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*)")


def environment(folder: Path | None = None) -> Mapping[str, str]:
    """The environment, with what a `.env` file adds to it; what is set already stays as it is."""
    path = (folder or Path.cwd()) / ".env"
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return os.environ
    return {**dict(assignments(text)), **os.environ}


def mcp_servers(folder: Path | None = None) -> tuple[McpStdio | McpHttp, ...]:
    """The servers of the project's `.mcp.json`; none if there is no such file."""
    path = (folder or Path.cwd()) / ".mcp.json"
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    return mcp_settings(text, environment(folder), source=str(path))


def assignments(text: str) -> Iterator[tuple[str, str]]:
    """The names and values of a `.env` file."""
    for line in text.splitlines():
        found = LINE.fullmatch(line)
        if found:
            yield found[1], _value(found[2].strip())


def _value(text: str) -> str:
    if text[:1] in ("'", '"'):
        end = text.find(text[0], 1)
        return text[1:end] if end > 0 else text[1:]
    return re.split(r"\s+#", text, maxsplit=1)[0].strip()
