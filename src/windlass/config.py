"""Files and environment in, plain values out. Nothing else in the package reads either."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from windlass.core.errors import ConfigError
from windlass.settings.layers import Layer, Loaded, from_environ, from_flags, from_toml, merged
from windlass.tools.mcp.config import McpHttp, McpStdio, mcp_settings

PROJECT = "windlass.toml"
SYSTEM = Path("/etc/windlass/config.toml")

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
CAPTURES = ("true", "1", "span_only", "span_and_event")

SECRET_CHARS_MIN = 8
SECRET_ENDS = ("APIKEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE")
SECRET_WORDS = frozenset((*SECRET_ENDS, "KEY", "CREDENTIAL", "CREDENTIALS", "COOKIE"))
NOT_SECRET = frozenset(("FILE", "PATH", "DIR", "URL", "URI", "NAME", "USER", "TYPE", "ID", "COUNT"))
PASSWORD = re.compile(r"://[^\s/@:]*+:([^\s/@]++)@")
LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*)")


def environment(folder: Path | None = None) -> Mapping[str, str]:
    """The environment, with what a `.env` file adds to it; what is set already stays as it is."""
    path = (folder or Path.cwd()) / ".env"
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return os.environ
    return {**dict(assignments(text)), **os.environ}


def settings(
    flags: Mapping[str, object] | None = None, *, folder: Path | None = None, agent: str = ""
) -> Loaded:
    """What is set for this folder, by files, the environment and flags, and where."""
    here = (folder or Path.cwd()).absolute()
    files = [layer for path in settings_files(here) if (layer := _file(path)) is not None]
    environ = from_environ(environment(here), str(here))
    return merged(files, environ, from_flags(flags or {}, str(here)), agent=agent)


def settings_files(folder: Path | None = None) -> tuple[Path, ...]:
    """Where settings may stand, the weakest first: for the system, the user and the project."""
    here = (folder or Path.cwd()).absolute()
    found = (place / PROJECT for place in (here, *here.parents) if (place / PROJECT).is_file())
    user = xdg_folder("CONFIG", ".config") / "config.toml"
    return (SYSTEM, user, next(found, here / PROJECT))


def xdg_folder(kind: str, otherwise: str) -> Path:
    """The user's folder of a kind (CONFIG, STATE, CACHE) for Windlass."""
    named = os.environ.get(f"XDG_{kind}_HOME", "")
    return (Path(named) if Path(named).is_absolute() else Path.home() / otherwise) / "windlass"


def _file(path: Path) -> Layer | None:
    try:
        text = path.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        told = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{path} cannot be read: {told}") from None
    return from_toml(text, str(path), str(path.parent))


def mcp_servers(
    folder: Path | None = None, *, path: Path | None = None
) -> tuple[McpStdio | McpHttp, ...]:
    """The servers of a file; without one, of the project's `.mcp.json`, if it is there."""
    named = path is not None
    path = path or (folder or Path.cwd()) / ".mcp.json"
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        if named:
            raise ConfigError(f"{path} cannot be read: there is no such file") from None
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    return mcp_settings(text, environment(folder), source=str(path))


def journal_path(environ: Mapping[str, str] | None = None) -> Path:
    """The file that keeps the sessions of the command line, unless another is named."""
    environ = environment() if environ is None else environ
    named, data = environ.get("WINDLASS_JOURNAL", ""), environ.get("XDG_DATA_HOME", "")
    if named:
        return Path(named).expanduser()
    # What is no absolute path does not count, as the XDG specification has it.
    home = Path(data) if Path(data).is_absolute() else Path.home() / ".local" / "share"
    return home / "windlass" / "sessions.db"


def captures_content(environ: Mapping[str, str] | None = None) -> bool:
    """Whether traces may hold what was said, as OpenTelemetry's own variable says."""
    environ = environment() if environ is None else environ
    return environ.get(CAPTURE, "").strip().lower() in CAPTURES


def secrets_of(environ: Mapping[str, str]) -> dict[str, str]:
    """The values that must not be seen, by the names of their variables, which say so.

    The password inside an address is one too, whatever its variable is called.
    """
    found = {name: value for name, value in environ.items() if _is_secret(name, value)}
    for name, value in environ.items():
        address = PASSWORD.search(value) if "://" in value else None
        if address and len(address[1]) >= SECRET_CHARS_MIN:
            found.setdefault(name, address[1])
    return found


def _is_secret(name: str, value: str) -> bool:
    words = name.upper().split("_")
    says_so = words[-1] not in NOT_SECRET and (
        not SECRET_WORDS.isdisjoint(words) or words[-1].endswith(SECRET_ENDS)
    )
    # Some variables name the file that the secret is in.
    return says_so and len(value) >= SECRET_CHARS_MIN and not _is_path(value)


def _is_path(value: str) -> bool:
    try:
        return "/" in value and Path(value).expanduser().exists()
    except (OSError, ValueError, RuntimeError):
        return False


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
