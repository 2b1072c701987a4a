"""The folders that callers of a service work in, each in one of its own.

Invariant: a folder is found only in the store that the run recorded. A store has a random id, which
is kept inside it, so a machine that lost its disk, or never had it, does not take an empty folder
for the one that a run has worked in.
"""

import os
import secrets
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import final

from windlass.core.errors import ConfigError
from windlass.core.work_folder import WorkFolder, name_folder
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

        Raises OSError if some of it cannot be deleted.
        """
        path = self.root / name_folder(caller)
        try:
            if not stat.S_ISDIR(path.lstat().st_mode):
                return False
        except OSError:
            return False
        shutil.rmtree(path)
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


def _require_own_folder(path: Path) -> None:
    """Raise OSError unless this is a folder, and let no other user into it."""
    if not stat.S_ISDIR(path.lstat().st_mode):
        raise NotADirectoryError(f"{path} is not a folder")
    path.chmod(0o700)
