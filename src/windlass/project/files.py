"""Settings files in, plain values out. No other module of the package reads one."""

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
MCP_FILE = ".mcp.json"
SYSTEM_FILE = Path("/etc/windlass/config.toml")


def load_settings(
    flags: Mapping[str, object] | None = None, *, folder: Path | None = None, agent: str = ""
) -> LoadedSettings:
    """The settings of a folder from files, environment and flags, and where each comes from.

    Raises ConfigError, with the file and the line, if one of them is wrong.
    """
    here = (folder or Path.cwd()).absolute()
    layers = [layer for path in settings_files(here) if (layer := _read_layer(path)) is not None]
    environ = layer_from_environ(read_environment(here), str(here))
    return merge_layers(layers, environ, layer_from_flags(flags or {}, str(here)), agent=agent)


def settings_files(folder: Path | None = None) -> tuple[Path, ...]:
    """The files that may hold settings, the weakest first: of the system, the user, the project.

    The project's file is the nearest one from the folder upwards.
    """
    here = (folder or Path.cwd()).absolute()
    candidates = (place / PROJECT_FILE for place in (here, *here.parents))
    project = next((path for path in candidates if path.is_file()), here / PROJECT_FILE)
    user = xdg_folder("CONFIG", ".config") / "config.toml"
    return (SYSTEM_FILE, user, project)


def _read_layer(path: Path) -> SettingsLayer | None:
    try:
        text = path.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {read_failure(error)}") from None
    return layer_from_toml(text, str(path), str(path.parent))


def read_failure(error: OSError | UnicodeDecodeError) -> str:
    """Why a text file cannot be read, in a few words."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    return error.strerror or str(error)


def read_mcp_servers(
    folder: Path | None = None, *, path: Path | None = None
) -> tuple[McpStdio | McpHttp, ...]:
    """The MCP servers in a file, or in the folder's `.mcp.json` if no file is named.

    Raises ConfigError if the file is not valid, or if a file that was named does not exist.
    """
    file = path or (folder or Path.cwd()) / MCP_FILE
    try:
        text = file.read_text("utf-8")
    except FileNotFoundError:
        if path is None:
            return ()
        raise ConfigError(f"{file} cannot be read: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {read_failure(error)}") from None
    return mcp_settings(text, read_environment(folder), source=str(file), of_project=True)
