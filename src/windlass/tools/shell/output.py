"""The output of a command: its head and tail are kept, and its lines are reported as they come.

The law: however much a command prints, it costs a bounded amount of memory and of events.
"""

import codecs
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import final

REPORT_EVERY_S = 0.1
REPORT_CHARS_MAX = 2_000
"""Characters of one report: the last ones of what was printed since the report before."""
PARTIAL_LINE_S = 1.0
"""A line that has not ended after this time is reported anyway: it may be a question."""


@final
class OutputBuffer:
    """The first and the last bytes of a stream, and the number of bytes between them."""

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
            # Cut only when twice as long, so that adding a byte does not copy the tail each time.
            if len(self._tail) > 2 * self._half_bytes:
                del self._tail[: -self._half_bytes]
            self._total += len(data)

    def read_text(self, since: int = 0) -> tuple[str, int]:
        """Return what is kept from byte `since` on, and the position of its end."""
        with self._lock:
            total = self._total
            head = bytes(self._head[since:])
            tail = bytes(self._tail[-self._half_bytes :])
            tail_start = total - len(tail)
            gap = tail_start - max(since, len(self._head))
            tail = tail[max(0, since - tail_start) :]
        if gap <= 0:
            return _decode_text(head + tail), total
        # The cut may go through a character, which is then shown by a replacement character.
        first = _decode_text(head).rstrip("\ufffd")
        last = _decode_text(tail).lstrip("\ufffd")
        note = f"[… {gap} bytes left out; to keep everything, redirect the output to a file …]"
        return f"{first}\n{note}\n{last}", total


@final
class LineReporter:
    """Reports whole lines, several at a time, and at most every REPORT_EVERY_S."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._waiting = ""
        self._skipped_chars = 0
        self._waiting_since = 0.0
        self._reported_at = 0.0

    @property
    def has_pending(self) -> bool:
        return bool(self._waiting)

    def add_data(self, data: bytes) -> None:
        if not self._waiting:
            self._waiting_since = time.monotonic()
        self._waiting += self._decode(data)
        excess = len(self._waiting) - REPORT_CHARS_MAX
        if excess > 0:
            self._skipped_chars += excess
            self._waiting = self._waiting[excess:]

    def report_due(self) -> None:
        """Report what is due by now."""
        now = time.monotonic()
        if not self._waiting or now - self._reported_at < REPORT_EVERY_S:
            return
        due_chars = self._waiting.rfind("\n") + 1
        if now - self._waiting_since >= PARTIAL_LINE_S:
            due_chars = len(self._waiting)
        if due_chars:
            self._report_text(due_chars)
            self._waiting_since = now
            self._reported_at = now

    def close(self) -> None:
        """Report the rest."""
        self._waiting += self._decode(b"", True)  # noqa: FBT003 - the decoder's own parameter
        if self._waiting:
            self._report_text(len(self._waiting))

    def _report_text(self, due_chars: int) -> None:
        text = self._waiting[:due_chars].rstrip("\n")
        self._waiting = self._waiting[due_chars:]
        if self._skipped_chars:
            text = f"[… {self._skipped_chars} characters …]\n{text}"
            self._skipped_chars = 0
        if text:
            with suppress(Exception):  # A watcher that fails must not end the command.
                self._report(text.replace("\0", "\ufffd"))


def _decode_text(data: bytes) -> str:
    return data.decode(errors="replace").replace("\0", "\ufffd")
