"""What a file held before a call changed it, and how it is restored.

Invariant: a file is restored only if it holds exactly the bytes that the call wrote. Only the lines
that changed are kept, as a blob of the session, and none of them if they hold a secret.
"""

import asyncio
import hashlib
from collections.abc import Sequence

import msgspec

from windlass.core.errors import ModelRetry
from windlass.core.verdicts import CallPreview
from windlass.ports import BlobStore
from windlass.tools.files.edits import build_diff
from windlass.tools.files.paths import MissingPath, quote_path
from windlass.tools.files.reading import printable_name
from windlass.tools.files.workspace import FileContent, Workspace
from windlass.tools.run_context import RunContext

SNAPSHOT_BYTES_MAX = 8 * 2**20
"""A file with more bytes is not kept."""


class FileSnapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change of a file: what is needed to take it back."""

    after: str
    """The hash of the bytes that the call writes."""
    before: str = ""
    """The hash of the bytes before; empty if there was no file."""
    head: int = 0
    """How many bytes at the beginning stay the same."""
    tail: int = 0
    """How many bytes at the end stay the same."""
    blob: str = ""
    """The name of the bytes in between; empty if there are none."""


class FileSnapshots:
    """Keeps what the files of a workspace held, and restores it."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def read_before(self, path: str) -> FileContent | None:
        """Return a file as it is now; None if it does not exist."""
        try:
            return self._workspace.read_file(path, SNAPSHOT_BYTES_MAX)
        except MissingPath:
            return None

    async def keep(self, context: RunContext, before: FileContent | None, after: bytes) -> str:
        """Return the snapshot of a change, as text; empty if it cannot be taken back."""
        if before is None:
            return _encode(FileSnapshot(_hash(after)))
        if context.blobs is None or context.call is None or before.size > len(before.data):
            return ""
        data = before.data
        head, tail = _find_unchanged(data, after)
        middle = data[head : len(data) - tail]
        text = middle.decode("utf-8", "surrogateescape")
        if context.call.mask_text(text) != text:
            return ""  # A secret is in no journal, so this file is not in it either.
        blob = await context.blobs.put_blob(context.session_id, middle) if middle else ""
        return _encode(FileSnapshot(_hash(after), _hash(data), head, tail, blob))

    async def restore(self, context: RunContext, path: str) -> str:
        """Take a change back. Raises ModelRetry if the file is not as the call left it."""
        undone = context.call.undoes if context.call else None
        snapshot = _decode(path, undone.snapshot if undone is not None else "")
        middle = b""
        if snapshot.blob and context.blobs is not None:
            middle = await context.blobs.get_blob(context.session_id, snapshot.blob) or b""
        return await asyncio.to_thread(self._restore, path, snapshot, middle)

    def _restore(self, path: str, snapshot: FileSnapshot, middle: bytes) -> str:
        name = quote_path(path)
        current = self.read_before(path)
        data = None if current is None else current.data
        former = _find_former(path, snapshot, middle, data)
        if current is None or former == data:
            content = (
                "does not exist, as before" if data is None else "has its former content already"
            )
            return f"{name} {content}."
        if former is None:
            self._workspace.delete_file(path, current.stamp)
            return f"Deleted {name}, which the call had created."
        self._workspace.write_file(path, former, current.stamp)
        return f"Restored {name}."

    async def preview_restore(
        self, blobs: BlobStore, session: str, changes: Sequence[tuple[str, str]]
    ) -> list[CallPreview]:
        """Return for each file what taking back changes of it, in this order, would do to it now.

        A change is a path and its snapshot.
        """
        found: dict[str, bytes | None] = {}
        former: dict[str, bytes | None] = {}
        refused: dict[str, str] = {}
        for path, text in changes:
            if path not in found:
                content = await asyncio.to_thread(self.read_before, path)
                found[path] = former[path] = None if content is None else content.data
            try:
                snapshot = _decode(path, text)
                middle = await blobs.get_blob(session, snapshot.blob) if snapshot.blob else b""
                former[path] = _find_former(path, snapshot, middle or b"", former[path])
            except ModelRetry as error:
                refused[path] = str(error)
        return [
            CallPreview(refused[path], would_fail=True)
            if path in refused
            else _preview_change(path, found[path], former[path])
            for path in found
        ]


def _find_former(
    path: str, snapshot: FileSnapshot, middle: bytes, current: bytes | None
) -> bytes | None:
    """Return what a file held before a change; None if it did not exist.

    Raises ModelRetry if the file is neither as the change left it nor as it was before.
    """
    name = quote_path(path)
    found = "" if current is None else _hash(current)
    if found == snapshot.before:
        return current
    if current is None or found != snapshot.after:
        raise ModelRetry(f"{name} was changed since. It was left as it is.")
    if not snapshot.before:
        return None
    former = current[: snapshot.head] + middle + current[len(current) - snapshot.tail :]
    if _hash(former) != snapshot.before:
        raise ModelRetry(f"What {name} held before is not in this session. It was left alone.")
    return former


def _preview_change(path: str, current: bytes | None, former: bytes | None) -> CallPreview:
    name = quote_path(path)
    if current == former:
        return CallPreview(f"{name} stays as it is.")
    if former is None:
        return CallPreview(f"{name} is deleted: the run had created it.")
    old, new = (data.decode("utf-8", "backslashreplace") for data in (current or b"", former))
    return CallPreview(f"{name} is restored.", build_diff(old, new, printable_name(path)))


def _decode(path: str, text: str) -> FileSnapshot:
    if not text:
        raise ModelRetry(
            f"What {quote_path(path)} held before was not kept: it was too large, had a secret "
            "in it, or the journal keeps no blobs. It was left as it is."
        )
    return msgspec.json.decode(text, type=FileSnapshot)


def _encode(snapshot: FileSnapshot) -> str:
    return msgspec.json.encode(snapshot).decode()


def _hash(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _find_unchanged(before: bytes, after: bytes) -> tuple[int, int]:
    """Return how many bytes of whole lines stay the same at the beginning and at the end.

    Whole lines, so that a secret is either in what is kept or not, and never in two halves.
    """
    head = before.rfind(b"\n", 0, _count_equal(before, after)) + 1
    rest = before[head:]
    tail = _count_equal(rest[::-1], after[head:][::-1])
    line_end = rest.find(b"\n", len(rest) - tail)
    return head, len(rest) - line_end - 1 if tail and line_end >= 0 else 0


def _count_equal(one: bytes, other: bytes) -> int:
    """Return how many bytes at the beginning are the same, by comparing halves."""
    low = 0
    high = min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
