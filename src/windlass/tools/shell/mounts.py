"""What a command sees of the file system inside the sandbox, as flags of bubblewrap.

Invariant: a command can change the workspace, and nothing that Windlass reads back and believes.
What this Python loads code from is read-only even inside the workspace, and files of Windlass with
sessions or notes in them are hidden. The folders around such a path cannot be renamed, so another
file cannot take its place.

If the runtime works as root, the files that only root may read are hidden too: in the sandbox, a
command has the id of an ordinary user, but the files of root still belong to it. An ordinary user
has no such files outside the home folder, which is hidden as a whole.
"""

import os
import pwd
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from windlass.environ import (
    live_socket_folder,
    private_registry_folder,
    signing_key_folder,
    workspaces_folder,
)
from windlass.private_files import (
    list_private_files,
    list_workspaces,
    make_private_folder,
    mark_private_in,
    mark_registered,
    reserve_side_file,
)

DEPTH_MAX = 3
"""How many folders deep this looks below the folders at the top."""
ENTRIES_MAX = 5_000
"""How many entries it looks at, the outer folders first."""
SYSTEM_FOLDERS = frozenset(
    ("bin", "boot", "dev", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "sys", "usr")
)
"""Folders of the system, whose files every user may read."""
_HIDDEN_FOLDERS = ("/home", "/root", "/run", "/tmp", "/var/run", "/var/tmp")  # noqa: S108 - hidden, not used
# Settings of the whole machine, which bubblewrap leaves writable for root. One is `core_pattern`,
# by which a process can run a program outside the sandbox.
_KERNEL_SETTINGS = tuple(
    f"/proc/{name}"
    for name in ("acpi", "bus", "fs", "irq", "mtrr", "pressure", "scsi", "sys", "sysrq-trigger")
)
_SECRET_FILES = ("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-")
_PACKAGE = str(Path(__file__).parents[2])
_PACKAGE_FOLDERS = frozenset(("site-packages", "dist-packages"))
_SOCKET_LIST = "/proc/net/unix"
_SOCKET_LIST_PATH_FIELD = 7
_MOUNT_LIST = "/proc/self/mountinfo"
_MOUNT_LIST_PATH_FIELD = 4


def find_root_files(opened: Iterable[Path], covered: Iterable[Path]) -> Iterator[Path]:
    """Yield the files and folders that other users cannot read, if this process is root's.

    `opened`: what a command is meant to see. `covered`: what is hidden already. At most ENTRIES_MAX
    entries are looked at, down to DEPTH_MAX folders below those at the top.
    """
    if os.geteuid() != 0:
        return
    skipped = {*map(str, opened), *map(str, covered)}
    # A folder with something in it that a command is meant to see stays, and is looked into.
    kept = {str(folder) for path in opened for folder in path.parents}
    places = [("/", -1)]
    entries_left = ENTRIES_MAX
    for place, depth in places:  # Grows meanwhile.
        for entry in _list_folder(place):
            entries_left -= 1
            if entries_left < 0:
                return
            if entry.path in skipped or (depth < 0 and entry.name in SYSTEM_FOLDERS):
                continue
            found = entry.stat(follow_symlinks=False)
            if _is_private(found) and entry.path not in kept:
                yield Path(entry.path)
            elif stat.S_ISDIR(found.st_mode) and depth + 1 < DEPTH_MAX:
                places.append((entry.path, depth + 1))


def _is_private(found: os.stat_result) -> bool:
    """Whether root may read a file, or enter a folder, and users at large may not."""
    if found.st_uid != 0 and found.st_gid != 0:
        return False  # Without its capabilities, root cannot read it either.
    if stat.S_ISDIR(found.st_mode):
        return not found.st_mode & stat.S_IXOTH
    return stat.S_ISREG(found.st_mode) and not found.st_mode & stat.S_IROTH


def _list_folder(folder: str) -> "list[os.DirEntry[str]]":
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


@dataclass(frozen=True, slots=True, kw_only=True)
class MountPlan:
    """Which paths a command may read or change."""

    root: Path
    """The workspace."""
    network: bool = False
    writable: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    protected: tuple[Path, ...] = ()
    homes: tuple[Path, ...] = ()
    """Home folders besides that of the present user."""

    def to_flags(self) -> list[str]:
        """Return the flags, the mount of a folder before those inside it."""
        writable = [_resolve_path(path) for path in (*self.writable, self.root)]
        empty = [path for path in self._empty_folders() if path.is_dir()]
        # A later entry for the same path replaces an earlier one.
        mounts: dict[Path, str] = {_resolve_path(path): "--tmpfs" for path in empty}
        covered = list(mounts)
        if self.network:
            # This file is often a link into /run, which is hidden.
            mounts[_resolve_path(Path("/etc/resolv.conf"))] = "--ro-bind-try"
        readable = [_resolve_path(path) for path in self.readable]
        mounts |= dict.fromkeys(readable, "--ro-bind-try")
        mounts |= {Path("/"): "--ro-bind", Path("/proc"): "--proc", Path("/dev"): "--dev"}
        mounts |= {Path(path): "--ro-bind-try" for path in _KERNEL_SETTINGS}
        mounts |= dict.fromkeys(writable, "--bind")
        guarded = self._guard_paths(readable, writable, covered)
        mounts |= _pin_folders(guarded, writable) | guarded
        flags: list[str] = []
        # Deeper paths are mounted later, so that the folders above do not cover them.
        for path in sorted(mounts, key=lambda path: len(path.parts)):
            flags += _mount_arguments(mounts[path], str(path))
        return flags

    def list_guards(self) -> dict[Path, str]:
        """Return what is hidden or protected in the paths that are opened, and by which mount.

        For a container, in which there is nothing else of this machine.
        """
        writable = [_resolve_path(path) for path in (*self.writable, self.root)]
        readable = [_resolve_path(path) for path in self.readable]
        guarded = self._guard_paths(readable, writable, [Path("/")])
        opened = (*readable, *writable)
        return {
            path: mount
            for path, mount in guarded.items()
            if _is_below(path, opened) and path not in opened
        }

    def _guard_paths(
        self, readable: Sequence[Path], writable: Sequence[Path], covered: Sequence[Path]
    ) -> dict[Path, str]:
        """Return the mounts that keep a command from what the others would let it see or change."""
        opened = (*readable, *writable)
        guarded: dict[Path, str] = {
            path: "--tmpfs"
            for path in _find_workspaces()
            if path not in writable and (_is_below(path, opened) or not _is_below(path, covered))
        }
        guarded |= dict.fromkeys(self._code_paths(writable), "--ro-bind")
        protected = [_resolve_path(path) for path in self.protected if path.exists()]
        guarded |= {path: "--ro-bind" for path in protected if _is_below(path, writable)}
        sockets = _find_sockets(covered, opened)
        for place in _own_folders():
            own = _resolve_path(place)
            if own.is_dir() and (_is_below(own, opened) or not _is_below(own, covered)):
                # All of it: a driver may make a socket or a key there while the command runs.
                guarded[own] = "--tmpfs"
                sockets = [path for path in sockets if not path.is_relative_to(own)]
        guarded |= dict.fromkeys(sockets, "mask")
        guarded |= dict.fromkeys(_visible_private_files(covered, opened), "mask")
        seen = [*opened, *own_code_paths()]
        secret = (*map(Path, _SECRET_FILES), *find_root_files(seen, covered), *self.hidden)
        for path in secret:
            if path.exists():
                guarded[_resolve_path(path)] = "--tmpfs" if path.is_dir() else "mask"
        return guarded

    def shows(self, path: Path) -> bool:
        """Whether a command finds the file at this path, and what a link there leads to."""
        opened = [_resolve_path(one) for one in (*self.readable, *self.writable, self.root)]
        covered = [_resolve_path(one) for one in (*self._empty_folders(), *self.hidden)]
        places = (path.parent.resolve() / path.name, path.resolve())
        return all(_is_below(one, opened) or not _is_below(one, covered) for one in places)

    def _empty_folders(self) -> Iterator[Path]:
        yield from map(Path, _HIDDEN_FOLDERS)
        yield Path(pwd.getpwuid(os.geteuid()).pw_dir)
        yield from self.homes

    def _code_paths(self, writable: Sequence[Path]) -> list[Path]:
        """Return the outermost paths of our own code that a command could otherwise change.

        A path that `writable` names itself, or that is inside one it names, was opened on
        purpose.
        """
        opened = [_resolve_path(path) for path in self.writable]
        found = {
            path
            for path in own_code_paths()
            if _is_below(path, writable)
            and path not in writable
            and not any(path.is_relative_to(other) for other in opened if other != self.root)
        }
        return [path for path in sorted(found) if not _is_below(path, found - {path})]


def _find_workspaces() -> Iterator[Path]:
    """Yield the folders with the folders of callers, the usual one of this user among them."""
    for path in {*list_workspaces(), _resolve_path(workspaces_folder())}:
        if path.is_dir():
            yield path


def own_code_paths() -> set[Path]:
    """Return what this Python loads code from: interpreter, environment, packages, Windlass.

    Only paths that exist, with links resolved.
    """
    places: set[str] = {sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix, _PACKAGE}
    places.update(path for path in sys.path if Path(path).name in _PACKAGE_FOLDERS)
    # An environment may have been made in the workspace itself (`python -m venv .`), which has to
    # stay writable. Then these are its parts.
    parts = ("", "bin", "lib", "lib64", "pyvenv.cfg")
    places.update(str(Path(sys.prefix, part)) for part in parts)
    if sys.executable:
        places.add(str(Path(sys.executable).parent))
    return {_resolve_path(Path(place)) for place in places if Path(place).exists()}


def is_changeable(program: Path, root: Path) -> bool:
    """Whether a command in the workspace `root` could have put this program in its place."""
    path = program.resolve()
    return path.is_relative_to(root.resolve()) and not _is_below(path, own_code_paths() - {root})


def reserve_private_files(writable: Iterable[Path]) -> None:
    """Find the journals and notes in folders that a command may change, and make their side files.

    Also those of other processes. Also files that do not exist are to be hidden, because SQLite
    would believe a `-wal` file that a command made. So is the folder for the sockets of drivers.
    """
    folders = [_resolve_path(path) for path in writable]
    for own in _own_folders():
        if _is_below(_resolve_path(own), folders):
            with suppress(OSError):
                make_private_folder(own)
    mark_registered(private_registry_folder())
    for folder in folders:
        mark_private_in(folder)
    for path in list_private_files():
        if _is_below(path, folders) and path.parent.is_dir():
            reserve_side_file(path)


def _visible_private_files(covered: Sequence[Path], opened: Sequence[Path]) -> list[Path]:
    """Return the files of journals and notes that a command could otherwise read or change.

    `reserve_private_files` has made those that were missing where a command may write.
    """
    return [
        path
        for path in list_private_files()
        if (_is_below(path, opened) or not _is_below(path, covered)) and _is_within_reach(path)
    ]


def _is_within_reach(path: Path) -> bool:
    """Whether a path is a file that a command, and bubblewrap, can get to."""
    try:
        return path.is_file() and all(map(_lets_through, path.parents))
    except OSError:
        return False


def _own_folders() -> tuple[Path, ...]:
    """Return the folders of Windlass that no command may see, whatever it works in."""
    return live_socket_folder(), signing_key_folder(), private_registry_folder()


def _find_sockets(covered: Sequence[Path], opened: Sequence[Path]) -> list[Path]:
    """Return the sockets that a command would see, and could talk to a service by.

    A read-only mount does not stop that. Listed are the sockets of this network namespace, and
    sockets of other ones that were mounted here as a single file, as is done with a container
    engine's.
    """
    listed = set(_read_fields(_SOCKET_LIST, _SOCKET_LIST_PATH_FIELD))
    listed.update(_read_fields(_MOUNT_LIST, _MOUNT_LIST_PATH_FIELD))
    found: list[Path] = []
    for name in sorted(listed):
        path = Path(os.path.realpath(name))
        is_covered = _is_below(path, covered) and not _is_below(path, opened)
        if name.startswith("/") and not is_covered and _is_reachable_socket(path):
            found.append(path)
    return found


def _read_fields(file: str, index: int) -> Iterator[str]:
    """Yield one field of each line, up to the end of the line if it is the last one."""
    try:
        text = Path(file).read_text(errors="surrogateescape")
    except OSError:
        return
    for line in text.splitlines():
        if file == _MOUNT_LIST:
            fields = line.split(" ")
        else:
            fields = line.split(None, index)
        if len(fields) > index:
            # mountinfo writes a space in a path as \040.
            yield fields[index].replace("\\040", " ")


def _is_reachable_socket(path: Path) -> bool:
    """Whether a path is a socket to which the folders above let a command through."""
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            return False
        return all(map(_lets_through, path.parents))
    except OSError:
        return False


def _lets_through(folder: Path) -> bool:
    """Whether a command may enter a folder, as the present user without further power.

    Root has no power over the folders of others in the sandbox. Nor has bubblewrap, which would
    fail at a path inside them.
    """
    found = folder.stat()
    allowed = stat.S_IXOTH
    if found.st_gid in {os.getegid(), *os.getgroups()}:
        allowed |= stat.S_IXGRP
    return found.st_uid == os.geteuid() or bool(found.st_mode & allowed)


def _pin_folders(guarded: Iterable[Path], writable: Sequence[Path]) -> dict[Path, str]:
    """Return mounts of the folders between a writable path and each guarded path inside it.

    The kernel refuses to rename a mount point, but not a folder that has one inside it: a
    command could move such a folder away, and put its own in that place.
    """
    pinned: dict[Path, str] = {}
    for path in guarded:
        for folder in path.parents:
            if folder in writable or not _is_below(folder, writable):
                break
            pinned[folder] = "--bind"
    return pinned


def _is_below(path: Path, folders: Iterable[Path]) -> bool:
    """Whether a path is one of these folders, or inside one."""
    return any(path.is_relative_to(folder) for folder in folders)


def _mount_arguments(kind: str, path: str) -> list[str]:
    match kind:
        case "mask":
            return ["--ro-bind", os.devnull, path]
        case "--tmpfs" | "--proc" | "--dev":
            return [kind, path]
        case _:
            return [kind, path, path]


def _resolve_path(path: Path) -> Path:
    return path.expanduser().resolve()
