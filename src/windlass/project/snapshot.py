"""What a project folder says about agents, read once.

Invariant: what is digested and what is parsed are the same bytes. Each file is read one time, into
a snapshot. Settings, servers, policies, instructions and skills are taken from there, so a file
that changes after a person looked at it has no effect. Nothing here blocks: a pipe, a device, a
link out of the project or a file that is too large is a problem, with its reason.
"""

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from windlass.core.errors import ConfigError
from windlass.environ import (
    DOTENV_FILE,
    decode_env_file,
    may_come_from_dotenv,
    parse_assignments,
    read_process_environment,
    read_regular_file,
)
from windlass.knowledge.instructions import read_file_inside, read_instructions
from windlass.knowledge.skills import SKILL_FOLDERS, Skills
from windlass.models.local.model import KNOWN_MODELS
from windlass.project.layers import SettingsLayer, layer_from_toml
from windlass.project.server_scripts import ScriptFinder
from windlass.tools.helper_programs import find_repository

PROJECT_FILE = "windlass.toml"
MCP_FILE = ".mcp.json"
COMMANDS_FOLDER = Path(".windlass") / "commands"
COMMANDS_MAX = 200
FILE_BYTES_MAX = 1_048_576
SCRIPT_BYTES_MAX = 512 * 1_048_576
CHUNK_BYTES = 1_048_576
WEIGHTS_CACHE = Path(".cache") / "local"
"""Where `make local-weights` puts the weights, in its project."""


@dataclass(frozen=True, slots=True)
class ProjectSnapshot:
    """The files of a project that say something about agents, as they were at one moment."""

    folder: Path
    """Where the agent works."""
    root: Path
    """The outermost folder whose files count here: the project."""
    content: Mapping[str, bytes]
    """The bytes of each file that is parsed, by its path."""
    digests: Mapping[str, str]
    """The digest of each file that counts, by its path: also of scripts that are only named."""
    problems: Sequence[str] = ()
    """Files that must not be read, and why, one line each."""
    layer: SettingsLayer = field(default_factory=lambda: SettingsLayer({}, {}))
    """What the project's `windlass.toml` says."""
    broken: str = ""
    """Why the project's `windlass.toml` is not valid; empty if it is."""
    weights: tuple[Path, ...] = ()
    """Weights of small models in the project, which may be loaded if no model is set up."""

    @property
    def is_empty(self) -> bool:
        """Whether the project says nothing at all, so that there is nothing to trust."""
        return not self.digests and not self.problems

    @property
    def digest(self) -> str:
        """One digest of all files that count."""
        lines = "\n".join(f"{digest} {path}" for path, digest in sorted(self.digests.items()))
        return hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()

    @property
    def settings_path(self) -> Path:
        """The project's `windlass.toml`, whether it exists or not."""
        return find_project_file(self.folder)

    def read(self, path: Path) -> bytes | None:
        """The bytes of a file of the snapshot; None if it is not part of it."""
        return self.content.get(str(path))

    def read_inside(self, root: Path, path: Path, bytes_max: int) -> bytes | None:  # noqa: ARG002
        """The same, as `read_instructions` and `Skills` read files."""
        data = self.content.get(str(path))
        return data if data is None else data[:bytes_max]

    @property
    def dotenv(self) -> dict[str, str]:
        """The variables of the project's `.env` file, also those that it may not set."""
        path = self.folder / DOTENV_FILE
        return dict(parse_assignments(decode_env_file(self.read(path) or b"", path)))

    @property
    def variables(self) -> dict[str, str]:
        """The variables that the project's `.env` file adds once it is trusted."""
        return {name: value for name, value in self.dotenv.items() if may_come_from_dotenv(name)}

    def read_instructions(self) -> str:
        """AGENTS.md and its like, from the root of the repository down to the folder."""
        top = find_repository(self.folder)
        return read_instructions(top, self.folder, read=self.read_inside).text

    @property
    def command_files(self) -> dict[Path, bytes]:
        """The commands of the project's chats: prompts in files, by their path."""
        place = str(self.folder / COMMANDS_FOLDER)
        named = {Path(path): data for path, data in self.content.items()}
        return {path: data for path, data in named.items() if str(path.parent) == place}

    def load_skills(self) -> Skills:
        return Skills(skill_folders(self.folder), within=self.root, read=self.read_inside)


def find_project_file(folder: Path) -> Path:
    """The nearest `windlass.toml` from a folder upwards, or the folder's own if there is none."""
    candidates = (place / PROJECT_FILE for place in (folder, *folder.parents))
    # Whatever has this name counts: a pipe must be refused, and not silently passed over.
    return next((path for path in candidates if os.path.lexists(path)), folder / PROJECT_FILE)


def skill_folders(folder: Path) -> list[Path]:
    return [folder / name for name in SKILL_FOLDERS]


def take_snapshot(folder: Path) -> ProjectSnapshot:
    """Read everything that a folder and the project around it say about agents. Never raises.

    What cannot be read is in `problems`.
    """
    return _SnapshotTaker(folder.resolve()).take()


class _SnapshotTaker:
    """Reads the files of a project, each one once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings_path = find_project_file(folder)
        has_settings = os.path.lexists(self.settings_path)
        places = [folder, find_repository(folder)]
        if has_settings:
            places.append(self.settings_path.parent)
        self.root = min(places, key=lambda place: len(place.parts))
        self.content: dict[str, bytes] = {}
        self.digests: dict[str, str] = {}
        self.problems: list[str] = []

    def take(self) -> ProjectSnapshot:
        layer, broken = self._read_settings()
        variables = {**self._read_dotenv(), **read_process_environment()}
        scripts = ScriptFinder(self.folder, self.root, variables)
        for path in self._read_named_files(layer):
            data = self.content.get(str(path))
            if data is not None:
                for script in scripts.find_scripts(data):
                    self._digest_script(script)
        self.problems += scripts.problems
        read_instructions(find_repository(self.folder), self.folder, read=self._record_inside)
        Skills(skill_folders(self.folder), within=self.root, read=self._record_inside)
        for path in sorted((self.folder / COMMANDS_FOLDER).glob("*.md"))[:COMMANDS_MAX]:
            self._read_file(path)
        return ProjectSnapshot(
            self.folder,
            self.root,
            self.content,
            self.digests,
            tuple(self.problems),
            layer,
            broken,
            tuple(self._find_weights()),
        )

    def _find_weights(self) -> Iterator[Path]:
        for place in (self.folder, *self.folder.parents):
            if not place.is_relative_to(self.root):
                return
            for _, name in KNOWN_MODELS.values():
                path = place / WEIGHTS_CACHE / name
                if path.is_file():
                    found = path.stat()
                    # Hundreds of megabytes are not hashed each time. A program cannot set ctime.
                    stamp = (
                        f"{found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"
                    )
                    self.digests[str(path)] = f"weights {stamp}"
                    yield path

    def _read_settings(self) -> tuple[SettingsLayer, str]:
        """What `windlass.toml` says, and why it is not valid."""
        path = self.settings_path
        self._read_file(path)
        data = self.content.get(str(path))
        if data is None:
            return SettingsLayer({}, {}), ""
        try:
            return layer_from_toml(data.decode(), str(path), str(path.parent)), ""
        except UnicodeDecodeError:
            return SettingsLayer({}, {}), f"{path} cannot be read: it is not UTF-8"
        except ConfigError as error:
            return SettingsLayer({}, {}), str(error)

    def _read_dotenv(self) -> dict[str, str]:
        """The variables that the `.env` file may set."""
        path = self.folder / DOTENV_FILE
        self._read_file(path)
        try:
            text = decode_env_file(self.content.get(str(path), b""), path)
        except ConfigError as error:
            self.problems.append(str(error))
            del self.content[str(path)]
            return {}
        pairs = dict(parse_assignments(text))
        return {name: value for name, value in pairs.items() if may_come_from_dotenv(name)}

    def _read_named_files(self, layer: SettingsLayer) -> list[Path]:
        """Read policies and files of servers; returns the latter."""
        server_files = [self.folder / MCP_FILE]
        self._read_file(server_files[0])
        for table in (layer, *layer.agents.values()):
            if policy := table.values.get("policy"):
                self._read_file(Path(str(policy)))
            if config := table.values.get("mcp_config"):
                server_files.append(Path(str(config)))
                self._read_file(server_files[-1])
        return server_files

    def _read_file(self, path: Path) -> None:
        if not os.path.lexists(path):
            return
        # A path outside the project can only be one that the settings name. It is shown.
        inside = self.root if path.is_relative_to(self.root) else None
        try:
            data = read_regular_file(path, inside=inside, bytes_max=FILE_BYTES_MAX)
        except OSError as error:
            self.problems.append(f"{path} cannot be read: {error.strerror}")
            return
        self._keep(path, data)

    def _keep(self, path: Path, data: bytes) -> None:
        self.content[str(path)] = data
        self.digests[str(path)] = hashlib.sha256(data).hexdigest()

    def _record_inside(self, root: Path, path: Path, bytes_max: int) -> bytes | None:
        data = read_file_inside(root, path, bytes_max)
        if data is not None:
            self._keep(path, data)
            # A skill is found through its folder, and later read from where that folder really is.
            self.content[str(path.parent.resolve() / path.name)] = data
        return data

    def _digest_script(self, path: Path) -> None:
        """Add a script to the digest, if it is a file of the project."""
        path = Path(os.path.normpath(self.folder / path))
        try:
            if "\0" in str(path) or not path.is_relative_to(self.root) or not path.is_file():
                return
            real = path.resolve(strict=True)
            if not real.is_relative_to(self.root.resolve()):
                # The link is the project's, what it leads to is not.
                self.digests[str(path)] = f"link to {real}"
                return
            self.digests.setdefault(str(path), _hash_file(real))
        except OSError as error:
            self.problems.append(f"{path} cannot be read: {error.strerror}")


def _hash_file(path: Path) -> str:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    hashed = hashlib.sha256()
    size = 0
    with os.fdopen(os.open(path, flags), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(0, "it is not a regular file", str(path))
        while chunk := file.read(CHUNK_BYTES):
            size += len(chunk)
            if size > SCRIPT_BYTES_MAX:
                raise OSError(0, "it is too large to be checked", str(path))
            hashed.update(chunk)
    return hashed.hexdigest()
