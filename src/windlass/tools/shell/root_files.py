"""What only root may read, for a runtime that works as root.

In the sandbox, a command has the id of an ordinary user, but the files of root still belong to it.
Without this, it would read what root keeps from all other users. An ordinary user has no such
files outside of the home folder, which is hidden as a whole.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

DEPTH_MAX = 3
"""How many folders deep this looks below the folders at the top."""
ENTRIES_MAX = 5_000
"""How many entries it looks at, the outer folders first."""
SYSTEM_FOLDERS = frozenset(
    ("bin", "boot", "dev", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "sys", "usr")
)
"""Folders of the system, whose files every user may read."""


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
