"""The text of a reply in, as it streams; text, thinking and calls out.

The law: what comes out depends on the text and never on how it was cut into deltas. The beginning
of a marker is held back until it is one or is not; what is inside a thinking block is thinking, and
a marker inside a JSON string is content.
"""

import re
from typing import Literal

from windlass.core.events import (
    CallDelta,
    ReplyEnd,
    ReplyPiece,
    StopReason,
    TextDelta,
    ThinkingDelta,
)
from windlass.models.text_protocols.call_text import WrittenCall, ends_in_string, parse_call
from windlass.models.text_protocols.scanning import KEEP_ALIVE

INLINE_SIGNATURE = "think"
"""The signature of thinking that stood in the text, and goes back there."""

CALL_START, CALL_END = "<tool_call>", "</tool_call>"
THINK_START, THINK_END = "<think>", "</think>"


class _MarkerSet:
    """The markers that count in some place."""

    def __init__(self, *markers: str) -> None:
        self._markers = markers
        self.search = re.compile("|".join(markers)).search

    def partial_start(self, text: str) -> int:
        """Where a marker may have begun that is not whole yet; the end of the text if none has."""
        at = text.rfind("<")  # Each marker has one, and begins with it.
        begun = at >= 0 and any(marker.startswith(text[at:]) for marker in self._markers)
        return at if begun else len(text)


_TEXT_MARKERS = _MarkerSet(CALL_START, THINK_START)
_CALL_MARKERS = _MarkerSet(CALL_END, CALL_START)
_THINK_MARKERS = _MarkerSet(THINK_END)


class TextScan:
    """Finds `<tool_call>` and `<think>` in the text of one reply."""

    done = False

    def __init__(self) -> None:
        self._mode: Literal["text", "think", "call"] = "text"
        self._held = ""
        """The end of what came: nothing, or the beginning of a marker."""
        self._blank: list[str] | None = []
        """Space at the beginning of a text; None once there were words in it."""
        self._body: list[str] = []
        self._closer: int | None = None
        """Where in the body the first closing marker stood that was taken for content."""
        self._calls = 0

    def scan_piece(self, piece: ReplyPiece) -> list[ReplyPiece]:
        match piece:
            case TextDelta(text):
                # By far the most deltas: words, in the middle of a text.
                plain = self._blank is None and self._mode == "text" and not self._held
                if plain and "<" not in text:
                    return [piece]
                return self._scan_text(text) or [KEEP_ALIVE]
            case ReplyEnd(stop):
                return self._finish_reply(stop)
            case _:
                return [piece]

    def _scan_text(self, text: str) -> list[ReplyPiece]:
        out: list[ReplyPiece] = []
        rest: str | None = self._held + text
        self._held = ""
        while rest is not None:
            match self._mode:
                case "text":
                    rest = self._read_text(rest, out)
                case "think":
                    rest = self._read_thinking(rest, out)
                case "call":
                    rest = self._read_call(rest, out)
        return out

    def _read_text(self, text: str, out: list[ReplyPiece]) -> str | None:
        free, marker, rest = self._split_at_marker(text, _TEXT_MARKERS)
        self._emit_text(free, out)
        if marker:
            self._mode = "call" if marker == CALL_START else "think"
            self._blank = []  # Space between two markers is layout, and no text.
        return rest

    def _read_thinking(self, text: str, out: list[ReplyPiece]) -> str | None:
        free, marker, rest = self._split_at_marker(text, _THINK_MARKERS)
        if free:
            out.append(ThinkingDelta(free))
        if marker:
            out.append(ThinkingDelta("", INLINE_SIGNATURE))
            self._mode = "text"
        return rest

    def _read_call(self, text: str, out: list[ReplyPiece]) -> str | None:
        free, marker, rest = self._split_at_marker(text, _CALL_MARKERS)
        self._body.append(free)
        if not marker:
            return rest
        body = "".join(self._body)
        if ends_in_string(body):
            if self._closer is None and marker == CALL_END:
                self._closer = len(body)
            self._body = [body, marker]
            return rest
        call = parse_call(body)
        if self._closer is not None and not call.complete:
            return self._rewind_call(body, out) + marker + (rest or "")
        self._emit_call(call, out)
        # A call that begins where another should end: the closing marker was forgotten.
        self._mode = "call" if marker == CALL_START else "text"
        return rest

    def _rewind_call(self, body: str, out: list[ReplyPiece]) -> str:
        """What was taken for content was the end of the call: the text behind it, to be read."""
        at = self._closer or 0
        self._emit_call(parse_call(body[:at]), out)
        self._mode = "text"
        return body[at + len(CALL_END) :]

    def _finish_reply(self, stop: StopReason) -> list[ReplyPiece]:
        out: list[ReplyPiece] = []
        while self._mode == "call":
            body = "".join(self._body)
            call = parse_call(body, cut=True)
            if not call.complete:
                body += self._held
                call = parse_call(body, cut=True)
            self._held = ""
            if not call.complete and self._closer is not None:
                out += self._scan_text(self._rewind_call(body, out))
                continue
            self._emit_call(call, out)
            self._mode = "text"
            stop = stop if call.complete else "length"
        if self._mode == "think":
            out += [ThinkingDelta(self._held), ThinkingDelta("", INLINE_SIGNATURE)]
        else:
            self._emit_text(self._held, out)
        return [*out, ReplyEnd(stop)]

    def _split_at_marker(self, text: str, markers: _MarkerSet) -> tuple[str, str, str | None]:
        """What is before the first marker, the marker, and the rest; no rest is all read."""
        found = markers.search(text)
        if found is not None:
            return text[: found.start()], found[0], text[found.end() :]
        at = markers.partial_start(text)
        self._held = text[at:]
        return text[:at], "", None

    def _emit_text(self, text: str, out: list[ReplyPiece]) -> None:
        if self._blank is not None:
            self._blank.append(text)
            if not text or text.isspace():
                return
            text, self._blank = "".join(self._blank), None
        if text:
            out.append(TextDelta(text))

    def _emit_call(self, call: WrittenCall, out: list[ReplyPiece]) -> None:
        number = self._calls
        out.append(CallDelta(number, str(number + 1), call.name, call.arguments))
        self._calls += 1
        self._body, self._closer = [], None
