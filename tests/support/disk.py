"""A disk that counts its writes, fails, and dies: a layer between SQLite and the files.

`with Disk() as disk:` puts it under every database that is opened inside.
"""

import os
import signal
from types import TracebackType
from typing import Any, Self

import apsw
from typing_extensions import override


class FaultyDisk:
    """What happens to the files, and what goes wrong."""

    def __init__(self, *, die_at: int | None = None) -> None:
        self.syncs = 0
        self.changes = 0
        self.die_at = die_at
        """The process is killed in place of this change of a file."""
        self.full = False
        self.read_only = False
        self.broken_sync = False
        self.unreadable = False

    def __enter__(self) -> Self:
        self._vfs = _DiskLayer(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._vfs.unregister()

    def count_change(self) -> None:
        self.changes += 1
        if self.changes == self.die_at:
            os.kill(os.getpid(), signal.SIGKILL)


class _DiskLayer(apsw.VFS):
    def __init__(self, disk: FaultyDisk) -> None:
        self.disk = disk
        self.below = apsw.vfs_names()[0]
        super().__init__("disk", self.below, makedefault=True)

    @override
    def xOpen(self, name: Any, flags: list[int]) -> "_DiskFile":
        self.disk.count_change()
        return _DiskFile(self.disk, self.below, name, flags)

    @override
    def xDelete(self, filename: str, syncdir: bool) -> None:
        self.disk.count_change()
        super().xDelete(filename, syncdir)


class _DiskFile(apsw.VFSFile):
    def __init__(self, disk: FaultyDisk, below: str, name: Any, flags: list[int]) -> None:
        self.disk = disk
        super().__init__(below, name, flags)

    @override
    def xWrite(self, data: Any, offset: int) -> None:
        self.disk.count_change()
        if self.disk.full:
            raise apsw.FullError("no space left")
        if self.disk.read_only:
            raise apsw.ReadOnlyError("mounted anew, for reading")
        super().xWrite(data, offset)

    @override
    def xRead(self, amount: int, offset: int) -> bytes:
        if self.disk.unreadable:
            raise apsw.IOError("the disk gave nothing back")
        return super().xRead(amount, offset)

    @override
    def xTruncate(self, newsize: int) -> None:
        self.disk.count_change()
        super().xTruncate(newsize)

    @override
    def xSync(self, flags: int) -> None:
        self.disk.count_change()
        self.disk.syncs += 1
        if self.disk.broken_sync:
            raise apsw.IOError("the disk did not confirm")
        super().xSync(flags)
