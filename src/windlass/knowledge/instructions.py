"""`AGENTS.md`: what a project wants every agent that works in it to know.

Invariant: the same files give the same text, byte for byte. Nothing outside the root is read,
not even through a link.
"""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import msgspec

from windlass.core.errors import ConfigError
from windlass.logs import get_logger

FILE_NAMES = ("AGENTS.md", "CLAUDE.md")
"""The first of these that a folder has is read."""
FILE_BYTES_MAX = 32_768
BYTES_MAX = 98_304

_log = get_logger(__name__)

FileReader: TypeAlias = Callable[[Path, Path, int], bytes | None]
"""Reads the first bytes of a file inside a folder: see `read_file_inside`."""


class ProjectInstructions(msgspec.Struct, frozen=True):
    """The text of all files, and their paths, from the root down."""

    text: str = ""
    sources: tuple[str, ...] = ()


def read_instructions(
    root: str | os.PathLike[str],
    folder: str | os.PathLike[str] | None = None,
    *,
    bytes_max: int = BYTES_MAX,
    read: FileReader | None = None,
) -> ProjectInstructions:
    """The instructions for an agent that works in a folder of a project; the nearest come last.

    `folder`: the root if not given. `bytes_max`: what does not fit is left out, and the text says
    so. `read`: where the bytes come from, by default from the disk. Raises ConfigError if the
    folder is not inside the root.
    """
    top = Path(root).resolve()
    place = top if folder is None else Path(folder).resolve()
    if not place.is_relative_to(top):
        raise ConfigError(
            f"{place} is not inside of {top}: instructions are read from the root down"
        )
    parts: list[str] = []
    sources: list[str] = []
    left = bytes_max
    for path in _find_files(top, place):
        data = (read or read_file_inside)(top, path, FILE_BYTES_MAX + 1)
        if data is None:
            continue
        name = path.relative_to(top).as_posix()
        text = _clip_text(data, min(left, FILE_BYTES_MAX), name)
        left -= min(len(data), FILE_BYTES_MAX)
        parts.append(f"# From {name}\n\n{text}")
        sources.append(name)
        if left <= 0:
            break
    return ProjectInstructions("\n\n".join(parts), tuple(sources))


def read_file_inside(root: Path, path: Path, bytes_max: int) -> bytes | None:
    """The first bytes of a regular file inside a resolved root; else None, with a warning."""
    try:
        real = path.resolve(strict=True)
        if not real.is_relative_to(root):
            _log.warning("%s is not read: it leads out of %s", path, root)
            return None
        # The path may have been replaced since: a link is not followed, and a pipe does not block.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(real, flags), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                _log.warning("%s is not read: it is not a regular file", path)
                return None
            return file.read(bytes_max)
    except OSError as error:
        _log.warning("%s is not read: %s", path, error.strerror)
        return None


def _find_files(top: Path, place: Path) -> Iterator[Path]:
    """The instruction file of each folder from the root down."""
    above = reversed(place.relative_to(top).parents)
    for folder in [*(top / part for part in above), place]:
        found = (folder / name for name in FILE_NAMES if os.path.lexists(folder / name))
        if (path := next(found, None)) is not None:
            yield path


def _clip_text(data: bytes, bytes_max: int, name: str) -> str:
    text = data[:bytes_max].decode("utf-8-sig", "replace").replace("\r\n", "\n").strip()
    if len(data) <= bytes_max:
        return text
    return f"{text.rstrip(chr(0xFFFD))}\n\n[{name} is longer; the rest was left out]"
