"""Files of settings in, plain values out. Nothing else in the package reads any."""

from collections.abc import Mapping
from pathlib import Path

from windlass.core.errors import ConfigError
from windlass.environ import read_environment, xdg_folder
from windlass.project.layers import (
    LoadedSettings,
    SettingsLayer,
    layer_from_environ,
    layer_from_flags,
    layer_from_toml,
    merge_layers,
)
from windlass.tools.mcp.config import McpHttp, McpStdio, mcp_settings

PROJECT_FILE = "windlass.toml"
SYSTEM_FILE = Path("/etc/windlass/config.toml")


def load_settings(
    flags: Mapping[str, object] | None = None, *, folder: Path | None = None, agent: str = ""
) -> LoadedSettings:
    """What is set for this folder, by files, the environment and flags, and where."""
    here = (folder or Path.cwd()).absolute()
    files = [layer for path in settings_files(here) if (layer := _read_layer(path)) is not None]
    environ = layer_from_environ(read_environment(here), str(here))
    return merge_layers(files, environ, layer_from_flags(flags or {}, str(here)), agent=agent)


def settings_files(folder: Path | None = None) -> tuple[Path, ...]:
    """Where settings may stand, the weakest first: for the system, the user and the project."""
    here = (folder or Path.cwd()).absolute()
    found = (
        place / PROJECT_FILE for place in (here, *here.parents) if (place / PROJECT_FILE).is_file()
    )
    user = xdg_folder("CONFIG", ".config") / "config.toml"
    return (SYSTEM_FILE, user, next(found, here / PROJECT_FILE))


def _read_layer(path: Path) -> SettingsLayer | None:
    try:
        text = path.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        told = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{path} cannot be read: {told}") from None
    return layer_from_toml(text, str(path), str(path.parent))


def read_mcp_servers(
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
    return mcp_settings(text, read_environment(folder), source=str(path))


def default_journal_path(environ: Mapping[str, str] | None = None) -> Path:
    """The file that keeps the sessions of the command line, unless another is named."""
    environ = read_environment() if environ is None else environ
    named, data = environ.get("WINDLASS_JOURNAL", ""), environ.get("XDG_DATA_HOME", "")
    if named:
        return Path(named).expanduser()
    # What is no absolute path does not count, as the XDG specification has it.
    home = Path(data) if Path(data).is_absolute() else Path.home() / ".local" / "share"
    return home / "windlass" / "sessions.db"
