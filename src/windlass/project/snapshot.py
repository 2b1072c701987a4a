"""What a project folder says about agents, read once.

The law: what is digested and what is parsed are the same bytes. Each file is read one time, into a
snapshot. Settings, servers, policies, instructions and skills are taken from there, so a file that
changes after a person looked at it has no effect. Nothing here blocks: a pipe, a device, a link out
of the project or a file that is too large is a problem, with its reason.
"""

import hashlib
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import msgspec

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
from windlass.tools.mcp.config import VARIABLE

PROJECT_FILE = "windlass.toml"
MCP_FILE = ".mcp.json"
FILE_BYTES_MAX = 1_048_576
SCRIPT_BYTES_MAX = 512 * 1_048_576
CHUNK_BYTES = 1_048_576
WEIGHTS_CACHE = Path(".cache") / "local"
"""Where `make local-weights` puts the weights, in its project."""
WORDS_MAX = 2_000
"""Words of all commands that are looked up as files."""
RUNNER_FILES: Mapping[str, tuple[str, ...]] = {
    "bun": ("package.json",),
    "bunx": ("package.json",),
    "cargo": ("Cargo.toml",),
    "deno": ("deno.json", "deno.jsonc"),
    "docker": ("compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml"),
    "hatch": ("pyproject.toml",),
    "just": ("justfile", "Justfile", ".justfile"),
    "make": ("GNUmakefile", "makefile", "Makefile"),
    "node": ("package.json",),
    "npm": ("package.json", ".npmrc"),
    "npx": ("package.json", ".npmrc"),
    "pdm": ("pyproject.toml",),
    "pnpm": ("package.json", ".npmrc"),
    "poetry": ("pyproject.toml",),
    "uv": ("pyproject.toml", "uv.toml"),
    "uvx": ("uv.toml",),
    "yarn": ("package.json", ".yarnrc", ".yarnrc.yml"),
}
"""The files in which programs that run other programs look up what to run."""

_NODE_PROGRAMS = ("node_modules/.bin",)
_PYTHON_PROGRAMS = (".venv/bin",)
RUNNER_FOLDERS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("bun", "bunx", "npm", "npx", "pnpm", "yarn"), _NODE_PROGRAMS),
    **dict.fromkeys(("hatch", "pdm", "poetry", "uv"), _PYTHON_PROGRAMS),
}
"""The folders of a project in which such programs look for what they run, before any other."""

_WORD_BREAKS = re.compile(r"[\s;&|<>()'\"`=,:]+")


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

    def load_skills(self) -> Skills:
        return Skills(skill_folders(self.folder), within=self.root, read=self.read_inside)


def find_project_file(folder: Path) -> Path:
    """The nearest `windlass.toml` from a folder upwards, or the folder's own if there is none."""
    candidates = (place / PROJECT_FILE for place in (folder, *folder.parents))
    # Whatever has this name counts: a pipe must be refused, and not silently passed over.
    return next((path for path in candidates if os.path.lexists(path)), folder / PROJECT_FILE)


def find_repository(folder: Path) -> Path:
    """The root of the repository that a folder is in, or the folder itself."""
    places = (folder, *folder.parents)
    return next((place for place in places if (place / ".git").exists()), folder)


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
        self.words_left = WORDS_MAX

    def take(self) -> ProjectSnapshot:
        layer, broken = self._read_settings()
        self._read_dotenv()
        for path in self._read_named_files(layer):
            data = self.content.get(str(path))
            if data is not None:
                for script in self._find_scripts(data):
                    self._digest_script(script)
        read_instructions(find_repository(self.folder), self.folder, read=self._record_inside)
        Skills(skill_folders(self.folder), within=self.root, read=self._record_inside)
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

    def _read_dotenv(self) -> None:
        path = self.folder / DOTENV_FILE
        self._read_file(path)
        try:
            decode_env_file(self.content.get(str(path), b""), path)
        except ConfigError as error:
            self.problems.append(str(error))
            del self.content[str(path)]

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
        # A path outside of the project can only be one that the settings name. It is shown.
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

    def _find_scripts(self, data: bytes) -> Iterator[Path]:
        """The files in the project that the commands of servers name."""
        for entry in read_server_entries(data).values():
            command = [_expand(word) for word in server_command(entry)]
            if not command:
                continue
            place = Path(os.path.normpath(self.folder / _expand(str(entry.get("cwd") or "."))))
            # A relative folder on the server's PATH is one of the project.
            program = shutil.which(command[0], path=_search_path(entry))
            if program is not None:
                yield Path(program)
            runner = Path(command[0]).name
            for name in RUNNER_FILES.get(runner, ()):
                yield place / name
            for folder in RUNNER_FOLDERS.get(runner, ()):
                yield from (place / folder / word for word in command[1:] if "/" not in word)
            yield from self._find_named(place, command)

    def _find_named(self, place: Path, command: list[str]) -> Iterator[Path]:
        for before, word in zip(["", *command], command, strict=False):
            if before == "-m":
                module = word.replace(".", "/")
                yield from (
                    place / name
                    for name in (f"{module}.py", f"{module}/__main__.py", f"{module}/__init__.py")
                )
            for part in dict.fromkeys((word, *_WORD_BREAKS.split(word))):
                self.words_left -= 1
                if part and self.words_left > 0 and len(part) < os.pathconf("/", "PC_PATH_MAX"):
                    yield Path(os.path.normpath(place / part))

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


def read_server_entries(data: bytes) -> dict[str, dict[str, Any]]:
    """The servers of an `.mcp.json` as they are written; empty if it cannot be understood.

    Only to show and to look up what is named: starting a server reads them strictly.
    """
    try:
        found = msgspec.json.decode(data, type=dict[str, dict[str, Any]]).get("mcpServers", {})
    except (msgspec.MsgspecError, RecursionError):
        return {}
    return {name: entry for name, entry in found.items() if isinstance(entry, dict)}


def server_command(entry: Mapping[str, Any]) -> list[str]:
    """The words of the command that starts a server; empty if there is none."""
    given = entry.get("args")
    args = cast("list[object]", given) if isinstance(given, list) else []
    words = [entry.get("command"), *args]
    return [str(word) for word in words] if words[0] else []


def _search_path(entry: Mapping[str, Any]) -> str | None:
    """The PATH on which a server's program is looked for: its own, or that of this process."""
    variables = entry.get("env")
    own = cast("dict[str, object]", variables).get("PATH") if isinstance(variables, dict) else None
    return _expand(own) if isinstance(own, str) else read_process_environment().get("PATH")


def _expand(text: str) -> str:
    """The text with its variables as they are now, so that files are found behind them."""
    environ = read_process_environment()
    return VARIABLE.sub(lambda found: environ.get(found[1], found[2] or ""), text)


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
