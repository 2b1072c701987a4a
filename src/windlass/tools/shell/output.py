"""What a command prints: its head and tail kept, its lines passed on as they come.

The law: whatever a command prints costs a bounded amount of memory and of events.
"""

import codecs
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import final

REPORT_EVERY_S = 0.1
REPORT_CHARS_MAX = 2_000
"""Of what came in one interval, the watcher is shown this much, the end of it."""
PARTIAL_LINE_S = 1.0
"""So long a line may wait for its end: a question without one must be seen, too."""


@final
class OutputBuffer:
    """The first and the last bytes of a stream, and a count of those between."""

    def __init__(self, bytes_max: int) -> None:
        self._half_bytes = max(1, bytes_max // 2)
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0
        self._lock = threading.Lock()

    @property
    def total_bytes(self) -> int:
        return self._total

    def add_data(self, data: bytes) -> None:
        with self._lock:
            room = self._half_bytes - len(self._head)
            self._head += data[:room]
            self._tail += data[max(0, room) :]
            if len(self._tail) > 2 * self._half_bytes:
                del self._tail[: -self._half_bytes]
            self._total += len(data)

    def read_text(self, since: int = 0) -> tuple[str, int]:
        """What was kept from a position on, and the position of its end."""
        with self._lock:
            total = self._total
            head, tail = bytes(self._head[since:]), bytes(self._tail[-self._half_bytes :])
            begin = total - len(tail)
            gap = begin - max(since, len(self._head))
            tail = tail[max(0, since - begin) :]
        if gap <= 0:
            return _decode_text(head + tail), total
        # A cut may go through a character.
        first, last = _decode_text(head).rstrip("\ufffd"), _decode_text(tail).lstrip("\ufffd")
        note = f"[… {gap} bytes left out; to keep all, let the command write to a file …]"
        return f"{first}\n{note}\n{last}", total


@final
class LineReporter:
    """Passes whole lines on, several at a time, and not too often."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._waiting = ""
        self._skipped = 0
        self._since = self._reported = 0.0

    @property
    def has_pending(self) -> bool:
        return bool(self._waiting)

    def add_data(self, data: bytes) -> None:
        if not self._waiting:
            self._since = time.monotonic()
        self._waiting += self._decode(data)
        over = len(self._waiting) - REPORT_CHARS_MAX
        if over > 0:
            self._skipped += over
            self._waiting = self._waiting[over:]

    def report_due(self) -> None:
        """Report what is due."""
        now = time.monotonic()
        if not self._waiting or now - self._reported < REPORT_EVERY_S:
            return
        due = self._waiting.rfind("\n") + 1
        if now - self._since >= PARTIAL_LINE_S:
            due = len(self._waiting)
        if due:
            self._report_text(due)
            self._since = self._reported = now

    def close(self) -> None:
        self._waiting += self._decode(b"", True)  # noqa: FBT003 - the decoder's own way to say it
        if self._waiting:
            self._report_text(len(self._waiting))

    def _report_text(self, due: int) -> None:
        text, self._waiting = self._waiting[:due].rstrip("\n"), self._waiting[due:]
        skipped, self._skipped = self._skipped, 0
        note = f"[… {skipped} characters …]\n" if skipped else ""
        if text or note:
            with suppress(Exception):  # A watcher that fails must not fail what it watches.
                self._report((note + text).replace("\0", "\ufffd"))


def _decode_text(data: bytes) -> str:
    return data.decode(errors="replace").replace("\0", "\ufffd")
