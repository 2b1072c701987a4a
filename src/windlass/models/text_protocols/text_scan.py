"""Turns the text of a reply, as it streams, into text, thinking and calls.

Invariant: the result depends on the text and never on how it was cut into deltas. The beginning of
a marker is held back until it is decided whether it is one. Everything inside a thinking block is
thinking, and a marker inside a JSON string is content.
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

CALL_START = "<tool_call>"
CALL_END = "</tool_call>"
THINK_START = "<think>"
THINK_END = "</think>"


class _MarkerSet:
    """The markers that count in one kind of place."""

    def __init__(self, *markers: str) -> None:
        self._markers = markers
        self.search = re.compile("|".join(markers)).search

    def partial_start(self, text: str) -> int:
        """Return where an incomplete marker may have begun; the text's length if none has."""
        at = text.rfind("<")  # Each marker begins with one, and has no other.
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
        """The end of the text so far if it may be the beginning of a marker, else nothing."""
        self._blank: list[str] | None = []
        """White space at the beginning of a text; None once the text has words."""
        self._body: list[str] = []
        """The text of the call that is open."""
        self._closer: int | None = None
        """Where in the body the first end marker stood that was taken for content."""
        self._calls = 0

    def scan_piece(self, piece: ReplyPiece) -> list[ReplyPiece]:
        match piece:
            case TextDelta(text):
                # A shortcut for nearly all deltas: words in the middle of a text.
                in_words = self._blank is None and self._mode == "text" and not self._held
                if in_words and "<" not in text:
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
        before, marker, rest = self._split_at_marker(text, _TEXT_MARKERS)
        self._emit_text(before, out)
        if marker:
            self._mode = "call" if marker == CALL_START else "think"
            self._blank = []  # White space between two markers is layout, and not text.
        return rest

    def _read_thinking(self, text: str, out: list[ReplyPiece]) -> str | None:
        before, marker, rest = self._split_at_marker(text, _THINK_MARKERS)
        if before:
            out.append(ThinkingDelta(before))
        if marker:
            out.append(ThinkingDelta("", INLINE_SIGNATURE))
            self._mode = "text"
        return rest

    def _read_call(self, text: str, out: list[ReplyPiece]) -> str | None:
        before, marker, rest = self._split_at_marker(text, _CALL_MARKERS)
        self._body.append(before)
        if not marker:
            return rest
        body = "".join(self._body)
        if ends_in_string(body):
            # Content, it seems. Should the string never end properly, the call is read again up to
            # the first such marker.
            if self._closer is None and marker == CALL_END:
                self._closer = len(body)
            self._body = [body, marker]
            return rest
        call = parse_call(body)
        if self._closer is not None and not call.complete:
            return self._rewind_call(body, out) + marker + (rest or "")
        self._emit_call(call, out)
        # A call that begins where another should end: the model forgot the end marker.
        self._mode = "call" if marker == CALL_START else "text"
        return rest

    def _rewind_call(self, body: str, out: list[ReplyPiece]) -> str:
        """End the call at the marker that was taken for content; return the text behind it."""
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
            if not call.complete:
                stop = "length"
        if self._mode == "think":
            out += [ThinkingDelta(self._held), ThinkingDelta("", INLINE_SIGNATURE)]
        else:
            self._emit_text(self._held, out)
        return [*out, ReplyEnd(stop)]

    def _split_at_marker(self, text: str, markers: _MarkerSet) -> tuple[str, str, str | None]:
        """Return the text before the first marker, the marker, and the rest.

        Without a marker, the rest is None, and the beginning of one at the end is held back.
        """
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
            text = "".join(self._blank)
            self._blank = None
        if text:
            out.append(TextDelta(text))

    def _emit_call(self, call: WrittenCall, out: list[ReplyPiece]) -> None:
        number = self._calls
        out.append(CallDelta(number, str(number + 1), call.name, call.arguments))
        self._calls += 1
        self._body = []
        self._closer = None
