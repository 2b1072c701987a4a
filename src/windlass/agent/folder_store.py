"""The folders that callers of a service work in, each in one of its own.

Invariant: a folder is found only in the store that the run recorded. A store has a random id, which
is kept inside it, so a machine that lost its disk, or never had it, does not take an empty folder
for the one that a run has worked in.
"""

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import final

from windlass.core.errors import ConfigError
from windlass.core.setup import WorkFolder, name_folder
from windlass.environ import workspaces_folder
from windlass.private_files import hide_workspaces, make_private_folder

ID_FILE = ".windlass-store"
ID_CHARS = 32


@final
class FolderStore:
    """The callers' folders below one folder: on this machine, or on a mount that workers share."""

    def __init__(self, root: str | os.PathLike[str] | None = None) -> None:
        """Use the folder `root`, by default one of the user's own. Nothing is made until needed."""
        self.root = Path(root) if root is not None else workspaces_folder()
        hide_workspaces(self.root)

    def create(self, caller: str) -> WorkFolder:
        """Return the folder of a caller, made for its owner only. Raises ConfigError if it cannot.

        The same caller always gets the same folder.
        """
        folder = WorkFolder(self.read_id() or self._make_store(), name_folder(caller))
        path = self.root / folder.name
        try:
            path.mkdir(mode=0o700, exist_ok=True)
            _require_own_folder(path)
        except OSError as error:
            raise self._cannot_use(error) from None
        return folder

    def find(self, folder: WorkFolder) -> Path | None:
        """Return the path of a folder; None if this store does not have it."""
        if not folder.is_sound or not folder.store or folder.store != self.read_id():
            return None
        path = self.root / folder.name
        with suppress(OSError):
            if stat.S_ISDIR(path.lstat().st_mode):
                return path.resolve()
        return None

    def remove(self, caller: str) -> bool:
        """Delete the folder of a caller with all that is in it. Returns whether there was one.

        Blocks. Raises OSError if some of it cannot be deleted.
        """
        path = self.root / name_folder(caller)
        try:
            if not stat.S_ISDIR(path.lstat().st_mode):
                return False
        except OSError:
            return False
        folder = _open_folder(str(path))
        try:
            _empty_folder(folder)
        finally:
            os.close(folder)
        path.rmdir()
        return True

    def read_id(self) -> str:
        """Return the id of this store; empty if it has none yet."""
        with suppress(OSError):
            # Read again each time: what was mounted here may be gone, or be another store.
            return (self.root / ID_FILE).read_text(errors="replace").strip()
        return ""

    def _make_store(self) -> str:
        """Make the folder and its id, or return the id that another process has made."""
        draft = self.root / f"{ID_FILE}.{secrets.token_hex(8)}"
        try:
            make_private_folder(self.root)
            _require_own_folder(self.root)
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(secrets.token_hex(ID_CHARS // 2))
                file.flush()
                os.fsync(descriptor)
            with suppress(FileExistsError):
                # A link is made whole or not at all, and never replaces the id of a store.
                os.link(draft, self.root / ID_FILE)
            draft.unlink()
        except OSError as error:
            raise self._cannot_use(error) from None
        return self.read_id()

    def _cannot_use(self, error: OSError) -> ConfigError:
        reason = error.strerror or str(error)
        return ConfigError(f"the folders of callers cannot be kept in {self.root}: {reason}")


def _empty_folder(top: int) -> None:
    """Delete all that is in a folder, by its descriptor. Raises OSError.

    What is in it was made by commands of a caller, who may not want it to be deleted. So folders
    are moved to the top one by one: however deep they are, neither the stack nor a path grows.
    """
    while names := _delete_files(top):
        for name in names:
            folder = _open_folder(name, top)
            try:
                for below in _delete_files(folder):
                    os.close(_open_folder(below, folder))
                    os.rename(below, secrets.token_hex(16), src_dir_fd=folder, dst_dir_fd=top)
            finally:
                os.close(folder)
            os.rmdir(name, dir_fd=top)


def _delete_files(folder: int) -> list[str]:
    """Delete what is not a folder, also links, and return the names of the folders."""
    with os.scandir(folder) as found:
        entries = list(found)
    for entry in entries:
        if not entry.is_dir(follow_symlinks=False):
            os.unlink(entry.name, dir_fd=folder)
    return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]


def _open_folder(name: str, within: int | None = None) -> int:
    """Return the descriptor of a folder, which its owner may then change. Follows no link."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        folder = os.open(name, flags, dir_fd=within)
    except PermissionError:
        if not hasattr(os, "O_PATH"):
            raise
        # Its mode forbids to open it. By this descriptor it is not mistaken for another one.
        place = os.open(name, os.O_PATH | flags, dir_fd=within)
        try:
            Path(f"/proc/self/fd/{place}").chmod(0o700)
        finally:
            os.close(place)
        folder = os.open(name, flags, dir_fd=within)
    with suppress(PermissionError):
        os.fchmod(folder, 0o700)
    return folder


def _require_own_folder(path: Path) -> None:
    """Raise OSError unless this is a folder, and let no other user into it."""
    if not stat.S_ISDIR(path.lstat().st_mode):
        raise NotADirectoryError(f"{path} is not a folder")
    path.chmod(0o700)
