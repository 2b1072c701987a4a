"""Which project folders a person has trusted, and what a folder may do before that.

Invariant: nothing of a project takes effect until a person has trusted it; before that it can only
make things stricter. Trust is bound to a digest of all files that count. It is kept in the user's
own data folder, where no project can write.
"""

import os
import stat
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from windlass.core.errors import ConfigError, FolderNotTrusted
from windlass.core.text_clip import reveal_line
from windlass.environ import read_process_environment, read_regular_file, xdg_folder
from windlass.private_files import make_private_folder
from windlass.project.effects import describe_effects
from windlass.project.secrets import SecretEnvironment, SecretStore
from windlass.project.snapshot import ProjectSnapshot, take_snapshot

STORE_FILE = "trust.json"
USER_FILE = "config.toml"
USER_FOLDERS = {"CONFIG": ".config", "DATA": ".local/share", "STATE": ".local/state"}
"""The user's own folders, which hold what Windlass believes: by XDG's name, and their place."""
STORE_BYTES_MAX = 16 * 1_048_576
OTHERS_CAN_WRITE = stat.S_IWGRP | stat.S_IWOTH


class TrustEntry(msgspec.Struct, frozen=True):
    """What a person saw when they trusted a folder."""

    digest: str
    at: float
    """Seconds since the epoch."""
    files: dict[str, str] = {}
    """The digest of each file, by its path."""
    effects: tuple[str, ...] = ()
    """What the project would do, in words, as it was shown."""


class _TrustFile(msgspec.Struct):
    folders: dict[str, TrustEntry] = {}


@dataclass(frozen=True, slots=True)
class TrustStore:
    """The folders that the user has trusted, in their own file."""

    path: Path = field(default_factory=lambda: xdg_folder("DATA", ".local/share") / STORE_FILE)

    def read_entries(self) -> dict[str, TrustEntry]:
        """The entries by folder. Raises ConfigError if the file cannot be believed."""
        try:
            data = read_regular_file(self.path, bytes_max=STORE_BYTES_MAX)
            found = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be read: {error.strerror}") from None
        if found.st_uid != os.geteuid() or found.st_mode & OTHERS_CAN_WRITE:
            raise ConfigError(
                f"{self.path} says which folders you trust, but others can write it. Check it, "
                f"then: chmod 600 {self.path}"
            )
        try:
            return msgspec.json.decode(data, type=_TrustFile).folders
        except msgspec.MsgspecError as error:
            raise ConfigError(
                f"{self.path} is damaged ({error}). Remove it; folders are then asked about again."
            ) from None

    def find_entry(self, folder: Path) -> TrustEntry | None:
        """Return what was trusted for a folder; None if nothing was."""
        return self.read_entries().get(str(folder))

    def covers(self, snapshot: ProjectSnapshot) -> bool:
        """Whether a person has trusted exactly what the snapshot holds.

        A folder that was trusted also covers the folders in it, as long as all of their files are
        among those that were trusted.
        """
        if snapshot.is_empty:
            return True
        if snapshot.problems:
            return False
        entries = self.read_entries()
        own = entries.get(str(snapshot.folder))
        if own is not None:
            return own.digest == snapshot.digest
        above = [entries[str(place)] for place in snapshot.folder.parents if str(place) in entries]
        return bool(snapshot.digests) and all(
            any(entry.files.get(path) == digest for entry in above)
            for path, digest in snapshot.digests.items()
        )

    def remember(self, snapshot: ProjectSnapshot) -> TrustEntry:
        """Remember that a person trusts this snapshot. Raises ConfigError if it cannot be kept."""
        effects = tuple(describe_effects(snapshot))
        entry = TrustEntry(snapshot.digest, time.time(), dict(snapshot.digests), effects)
        self._write_entries({**self.read_entries(), str(snapshot.folder): entry})
        return entry

    def forget(self, folder: Path) -> bool:
        """Forget a folder; whether it was there."""
        entries = self.read_entries()
        found = entries.pop(str(folder), None)
        if found is not None:
            self._write_entries(entries)
        return found is not None

    def _write_entries(self, entries: Mapping[str, TrustEntry]) -> None:
        data = msgspec.json.format(msgspec.json.encode(_TrustFile(dict(entries))), indent=1)
        try:
            make_private_folder(self.path.parent)
            # A temporary file is private (0600), and so is the file that it becomes.
            with tempfile.NamedTemporaryFile(dir=self.path.parent, delete=False) as file:
                file.write(data)
            os.replace(file.name, self.path)  # noqa: PTH105 - atomic: no reader sees half a file
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be written: {error.strerror}") from None


@dataclass(frozen=True, slots=True)
class ProjectFolder:
    """A folder to work in, what its project says, and whether a person trusts that."""

    snapshot: ProjectSnapshot
    is_trusted: bool
    was_shown: bool = True
    """Whether the person who trusts it has seen what it does: not so with `--trust`."""
    secrets: SecretStore = field(default_factory=SecretStore, compare=False, repr=False)
    """What the person has declared outside any project."""

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment, with what a trusted project's `.env` adds, and the person's secrets."""
        return SecretEnvironment(self.plain_environ, self.secrets)

    @property
    def plain_environ(self) -> Mapping[str, str]:
        """The environment, with what the project's `.env` adds if the project is trusted."""
        environ = read_process_environment()
        added = self.snapshot.variables if self.is_trusted else {}
        return {**added, **environ} if added else environ

    @property
    def weights(self) -> tuple[Path, ...]:
        """The weights of small models that a trusted project holds."""
        return self.snapshot.weights if self.is_trusted else ()

    def as_trusted(self, *, was_shown: bool = False) -> "ProjectFolder":
        """The same folder, trusted for as long as this object lives."""
        self.refuse_problems()
        return replace(self, is_trusted=True, was_shown=was_shown)

    def without_trust(self) -> "ProjectFolder":
        """The same folder, of which only what makes things stricter has an effect."""
        return replace(self, is_trusted=self.snapshot.is_empty)

    def refuse_problems(self) -> None:
        """Raise ConfigError if the project has a file that must not be read."""
        if self.snapshot.problems:
            raise ConfigError(self.snapshot.problems[0])
        if self.snapshot.broken:
            raise ConfigError(self.snapshot.broken)

    def require_trust(self) -> "ProjectFolder":
        """The folder, if it is trusted. Raises FolderNotTrusted, with what to do, if it is not."""
        self.refuse_problems()
        if not self.is_trusted:
            raise FolderNotTrusted(explain_no_trust(self.snapshot))
        return self


def hide_own_files(workspace: Path) -> tuple[Path, ...]:
    """Keep an agent that works in a folder around them away from the user's own settings and trust.

    Someone may let an agent work in their home folder. Returns the folders that commands must not
    see.
    """
    folders = tuple(xdg_folder(kind, default) for kind, default in USER_FOLDERS.items())
    for folder in folders:
        # A folder that does not exist cannot be hidden, and a command could make it.
        if folder.resolve().is_relative_to(workspace.resolve()):
            make_private_folder(folder)
    return folders


def own_files() -> tuple[Path, ...]:
    """The user's own files that decide what agents may do, whether they exist or not."""
    data = xdg_folder("DATA", ".local/share")
    return (data / STORE_FILE, xdg_folder("CONFIG", ".config") / USER_FILE)


def open_project(folder: Path | None = None, *, store: TrustStore | None = None) -> ProjectFolder:
    """Read what the project around a folder says, and look up whether it is trusted."""
    snapshot = take_snapshot((folder or Path.cwd()).absolute())
    return ProjectFolder(snapshot, (store or TrustStore()).covers(snapshot))


@contextmanager
def keep_trust(file: Path, *, store: TrustStore | None = None) -> Generator[None]:
    """Keep the current folder trusted through a change that a person makes to one of its files.

    A folder that was not trusted before is not trusted after. If anything else changed in the
    meantime, the person is asked again.
    """
    store = store or TrustStore()
    folder = Path.cwd()
    before = open_project(folder, store=store)
    yield
    after = take_snapshot(folder)
    edited = str(file.absolute().parent.resolve() / file.name)
    others = {path: digest for path, digest in after.digests.items() if path in after.content}
    others.pop(edited, None)
    is_same = all(before.snapshot.digests.get(path) == digest for path, digest in others.items())
    if before.is_trusted and is_same and not after.problems:
        store.remember(after)


def explain_no_trust(snapshot: ProjectSnapshot) -> str:
    """Why a command stops in a folder that is not trusted, and what to do, in three lines."""
    names = ", ".join(list_files(snapshot, snapshot.digests))
    root = reveal_line(str(snapshot.root))
    return (
        f"the project {root} is not trusted, so its settings have no effect: {names}.\n"
        "To see what they would do, and to trust them: windlass trust\n"
        "For this run only: --trust. To run without them: --no-trust"
    )


def list_files(snapshot: ProjectSnapshot, paths: Mapping[str, str] | Sequence[str]) -> list[str]:
    """Files by their path from the root of the project."""
    found: list[str] = []
    for path in sorted(paths):
        is_inside = Path(path).is_relative_to(snapshot.root)
        name = str(Path(path).relative_to(snapshot.root)) if is_inside else path
        found.append(reveal_line(name))
    return found


def describe_changes(snapshot: ProjectSnapshot, entry: TrustEntry) -> list[str]:
    """The files that differ from those that were trusted, one line each."""
    before = entry.files
    now = snapshot.digests
    groups = {
        "new": [path for path in now if path not in before],
        "changed": [path for path in now if path in before and now[path] != before[path]],
        "gone": [path for path in before if path not in now],
    }
    return [
        f"{word}: {name}" for word, paths in groups.items() for name in list_files(snapshot, paths)
    ]
