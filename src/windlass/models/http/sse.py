"""Parses server-sent events from bytes as they come off the wire.

Invariant: however the bytes are split, the events are the same, and each byte is looked at a
constant number of times. An event is returned with the chunk that completes it, never later.
"""

from windlass.core.errors import ModelError

BOM = b"\xef\xbb\xbf"
EVENT_BYTES_MAX = 16 * 2**20
"""Of an event that has not ended. A server could fill the memory otherwise."""
SseEvent = tuple[str, bytes]
"""The name of an event, empty if it has none, and its data."""


class SseParser:
    """Parses one stream. The data of an event is not decoded here."""

    __slots__ = ("_after_cr", "_at_start", "_data", "_name", "_open_bytes", "_partial_line")

    def __init__(self) -> None:
        self._partial_line: list[bytes] = []
        """The pieces of a line whose end has not come yet."""
        self._data: list[bytes] = []
        self._open_bytes = 0
        """Of the event that has not ended, with its partial line."""
        self._name = ""
        self._after_cr = False
        self._at_start = True

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Return the events that this chunk completes.

        Raises ModelError if an event does not end within EVENT_BYTES_MAX.
        """
        self._open_bytes += len(chunk)
        events = self._take_lines(chunk)
        if self._open_bytes > EVENT_BYTES_MAX:
            limit = f"{EVENT_BYTES_MAX / 2**20:.0f} MiB"
            raise ModelError("malformed_stream", f"the server sent an event of more than {limit}")
        return events

    def _take_lines(self, chunk: bytes) -> list[SseEvent]:
        if self._after_cr and chunk:
            # A CR ended its line at once. If a CRLF was split, its LF must not end another line.
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")
        end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
        if not end:
            if chunk:
                self._partial_line.append(chunk)
            return []
        self._after_cr = chunk.endswith(b"\r")
        complete = chunk if end == len(chunk) else chunk[:end]
        if self._partial_line:
            complete = b"".join((*self._partial_line, complete))
            self._partial_line.clear()
        if self._at_start:
            self._at_start = False
            complete = complete.removeprefix(BOM)
        if end < len(chunk):
            self._partial_line.append(chunk[end:])
        # For bytes, unlike for text, only LF, CR and CRLF end a line.
        events = self._parse_lines(complete.splitlines())
        if not self._data:
            self._open_bytes = len(chunk) - end
        return events

    def finish(self) -> list[SseEvent]:
        """Return the last event if its lines are complete and only its blank line never came."""
        return self._parse_lines([b""])

    def _parse_lines(self, lines: list[bytes]) -> list[SseEvent]:
        events: list[SseEvent] = []
        for line in lines:
            # Nearly all lines of a stream, so it comes first and is not split into field and value.
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line[5:6] == b" " else line[5:])
            elif line:
                # Comments (with a leading colon), ids and retries are ignored.
                field, _, value = line.partition(b":")
                if field == b"event":
                    self._name = value.removeprefix(b" ").decode("utf-8", "replace")
                elif field == b"data":
                    self._data.append(b"")
            elif self._data:
                data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                if data:
                    events.append((self._name, data))
                self._data = []
                self._name = ""
            else:
                self._name = ""
        return events
