"""Settings files in, plain values out. No other module of the package reads one."""

from collections.abc import Mapping
from pathlib import Path

from windlass.core.errors import ConfigError
from windlass.environ import (
    read_environment,
    read_process_environment,
    read_regular_file,
    xdg_folder,
)
from windlass.journals.wording import parse_journal_name
from windlass.project.layers import (
    LoadedSettings,
    SettingsLayer,
    layer_from_environ,
    layer_from_flags,
    layer_from_toml,
    merge_layers,
)
from windlass.project.snapshot import (
    FILE_BYTES_MAX,
    MCP_FILE,
    ProjectSnapshot,
    find_project_file,
)
from windlass.project.trust import USER_FILE, ProjectFolder, open_project
from windlass.tools.mcp.config import McpHttp, McpStdio, mcp_settings

SYSTEM_FILE = Path("/etc/windlass/config.toml")


def load_settings(
    flags: Mapping[str, object] | None = None,
    *,
    folder: Path | None = None,
    agent: str = "",
    project: ProjectFolder | None = None,
) -> LoadedSettings:
    """The settings of a folder from files, environment and flags, and where each comes from.

    What the project says counts in full only if a person has trusted it; before that, it can only
    make things stricter. `project`: what was read and decided already. Raises ConfigError, with the
    file and the line, if one of the files is wrong.
    """
    here = (folder or Path.cwd()).absolute()
    project = project or open_project(here)
    snapshot = project.snapshot
    if snapshot.broken:
        raise ConfigError(snapshot.broken)
    system, user, _ = settings_files(here)
    layers = [layer for path in (system, user) if (layer := _read_layer(path)) is not None]
    loaded = merge_layers(
        layers,
        layer_from_environ(read_process_environment(), str(here)),
        layer_from_flags(flags or {}, str(here)),
        agent=agent,
        project=snapshot.layer,
        is_trusted=project.is_trusted,
    )
    _check_project_journal(loaded, snapshot)
    return loaded


def _check_project_journal(loaded: LoadedSettings, snapshot: ProjectSnapshot) -> None:
    """Raise ConfigError if a project wants its sessions in a file that is not its own.

    Such a file may be the journal of another project, or not be a journal at all.
    """
    if "journal" not in loaded.project_keys:
        return
    name = parse_journal_name(loaded.settings.journal)
    own = snapshot.settings_path.parent.resolve()
    if name.kind == "sqlite" and not Path(name.location).resolve().is_relative_to(own):
        raise ConfigError(
            f"{loaded.origins['journal']}: a project can keep its sessions only in its own folder, "
            f"{own}, and not in {name.shown}. Choose that file yourself: with --journal, "
            "WINDLASS_JOURNAL, or windlass config set --user journal PATH."
        )


def settings_files(folder: Path | None = None) -> tuple[Path, Path, Path]:
    """The files that may hold settings: of the system, the user, the project.

    The project's file is the nearest one from the folder upwards.
    """
    here = (folder or Path.cwd()).absolute()
    user = xdg_folder("CONFIG", ".config") / USER_FILE
    return (SYSTEM_FILE, user, find_project_file(here))


def _read_layer(path: Path) -> SettingsLayer | None:
    try:
        text = read_regular_file(path, bytes_max=FILE_BYTES_MAX).decode()
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
    folder: Path | None = None,
    *,
    path: Path | None = None,
    own: bool = False,
    environ: Mapping[str, str] | None = None,
) -> tuple[McpStdio | McpHttp, ...]:
    """The MCP servers in a file, or in the folder's `.mcp.json` if no file is named.

    For programs that have decided to use this file: it does not look up whether the folder is
    trusted. `own`: the file is the user's own and not a project's, so it may say that the hints of
    a server are to be trusted. `environ`: the values of variables; by default the environment with
    the folder's `.env`. Raises ConfigError if the file is not valid or must not be read, or if a
    file that was named does not exist.
    """
    here = folder or Path.cwd()
    file = path or here / MCP_FILE
    inside = here if path is None else None
    try:
        data = read_regular_file(file, inside=inside, bytes_max=FILE_BYTES_MAX)
    except FileNotFoundError:
        if path is None:
            return ()
        raise ConfigError(f"{file} cannot be read: there is no such file") from None
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {read_failure(error)}") from None
    if environ is None:
        environ = read_environment(folder)
    return parse_mcp_servers(data, environ, file, of_project=not own)


def parse_mcp_servers(
    data: bytes,
    environ: Mapping[str, str],
    source: Path,
    *,
    of_project: bool = True,
    was_shown: bool = True,
) -> tuple[McpStdio | McpHttp, ...]:
    """The MCP servers in the content of a file; raises ConfigError if it is not valid.

    `of_project`, `was_shown`: see `mcp_settings`.
    """
    try:
        return mcp_settings(
            data.decode(), environ, str(source), of_project=of_project, was_shown=was_shown
        )
    except UnicodeDecodeError as error:
        raise ConfigError(f"{source} cannot be read: {read_failure(error)}") from None


def project_servers(project: ProjectFolder) -> tuple[McpStdio | McpHttp, ...]:
    """The MCP servers of the project's own `.mcp.json`; none before the project is trusted."""
    path = project.snapshot.folder / MCP_FILE
    data = project.snapshot.read(path)
    if data is None or not project.is_trusted:
        return ()
    return parse_mcp_servers(data, project.environ, path, was_shown=project.was_shown)
