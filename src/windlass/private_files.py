"""The files of this process that no command and no tool of a model may see: sessions and notes.

The law: whoever opens such a file names it here first. A person's answer is a record in a journal,
so what can write into the file could answer in that person's place. A file stays private when it
is closed, because it is opened again later and believed.
"""

import os
import threading
from pathlib import Path

SIDE_FILE_SUFFIXES = ("", "-wal", "-shm", "-journal", "-drivers")
"""What stands beside a SQLite file of ours: its logs, and the locks of the drivers."""

_paths: set[str] = set()
_mutex = threading.Lock()


def mark_private(path: str | os.PathLike[str]) -> None:
    """Hide a SQLite file, and what stands beside it, from the commands and tools of a model."""
    with _mutex:
        # SQLite puts the side files beside the file that a link leads to.
        _paths.add(os.path.realpath(path))


def list_private_files() -> list[Path]:
    """Return the private files with their side files, whether they exist or not."""
    with _mutex:
        paths = sorted(_paths)
    return [Path(f"{path}{suffix}") for path in paths for suffix in SIDE_FILE_SUFFIXES]


def is_private_file(path: Path) -> bool:
    """Whether a path, with its links resolved, is one of the private files."""
    with _mutex:
        return any(str(path).removesuffix(suffix) in _paths for suffix in SIDE_FILE_SUFFIXES)
