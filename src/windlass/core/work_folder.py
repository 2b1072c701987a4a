"""The folder that the tools of a session work in, if it is not their agent's own."""

import hashlib
import re

import msgspec

NAME_CHARS_MAX = 48
"""How much of a caller's name is part of the name of its folder."""
_UNUSUAL = re.compile(r"[^A-Za-z0-9_@-]")
_FOLDER_NAME = re.compile(r"[A-Za-z0-9_@-]{0,48}-[0-9a-f]{16}")


class WorkFolder(msgspec.Struct, frozen=True, gc=False):
    """A folder of a caller's own, as a run records it. It is not a path: stores can be moved."""

    store: str
    """The random id of the store that holds the folder."""
    name: str
    """The name of the folder in the store."""

    @property
    def is_sound(self) -> bool:
        """Whether the name is one that `name_folder` makes, so that it cannot lead elsewhere."""
        return _FOLDER_NAME.fullmatch(self.name) is not None


def name_folder(caller: str) -> str:
    """Return the name of a caller's folder: readable, and different for different callers."""
    readable = _UNUSUAL.sub("_", caller)[:NAME_CHARS_MAX]
    return f"{readable}-{hashlib.sha256(caller.encode()).hexdigest()[:16]}"
