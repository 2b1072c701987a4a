"""The text of a reply in, as it streams; text, thinking and calls out.

The law: what comes out depends on the text and never on how it was cut into deltas. The beginning
of a marker is held back until it is one or is not; what is inside a thinking block is thinking, and
a marker inside a JSON string is content.
"""

import re
from typing import Literal

from windlass.core.events import CallDelta, Piece, ReplyEnd, Stop, TextDelta, ThinkingDelta
from windlass.models.text_protocols.call_text import Written, in_string, written
from windlass.models.text_protocols.scanning import ALIVE

INLINE = "think"
"""The signature of thinking that stood in the text, and goes back there."""

CALL, CALL_END = "<tool_call>", "</tool_call>"
THINK, THINK_END = "<think>", "</think>"


class _Markers:
    """The markers that count in some place."""

    def __init__(self, *markers: str) -> None:
        self._markers = markers
        self.search = re.compile("|".join(markers)).search

    def begin_in(self, text: str) -> int:
        """Where a marker may have begun that is not whole yet; the end of the text if none has."""
        at = text.rfind("<")  # Each marker has one, and begins with it.
        begun = at >= 0 and any(marker.startswith(text[at:]) for marker in self._markers)
        return at if begun else len(text)


_IN_TEXT = _Markers(CALL, THINK)
_IN_CALL = _Markers(CALL_END, CALL)
_IN_THINK = _Markers(THINK_END)


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

    def take(self, piece: Piece) -> list[Piece]:
        match piece:
            case TextDelta(text):
                # By far the most deltas: words, in the middle of a text.
                plain = self._blank is None and self._mode == "text" and not self._held
                if plain and "<" not in text:
                    return [piece]
                return self._scan(text) or [ALIVE]
            case ReplyEnd(stop):
                return self._end(stop)
            case _:
                return [piece]

    def _scan(self, text: str) -> list[Piece]:
        out: list[Piece] = []
        rest: str | None = self._held + text
        self._held = ""
        while rest is not None:
            match self._mode:
                case "text":
                    rest = self._in_text(rest, out)
                case "think":
                    rest = self._in_think(rest, out)
                case "call":
                    rest = self._in_call(rest, out)
        return out

    def _in_text(self, text: str, out: list[Piece]) -> str | None:
        free, marker, rest = self._split(text, _IN_TEXT)
        self._say(free, out)
        if marker:
            self._mode = "call" if marker == CALL else "think"
            self._blank = []  # Space between two markers is layout, and no text.
        return rest

    def _in_think(self, text: str, out: list[Piece]) -> str | None:
        free, marker, rest = self._split(text, _IN_THINK)
        if free:
            out.append(ThinkingDelta(free))
        if marker:
            out.append(ThinkingDelta("", INLINE))
            self._mode = "text"
        return rest

    def _in_call(self, text: str, out: list[Piece]) -> str | None:
        free, marker, rest = self._split(text, _IN_CALL)
        self._body.append(free)
        if not marker:
            return rest
        body = "".join(self._body)
        if in_string(body):
            if self._closer is None and marker == CALL_END:
                self._closer = len(body)
            self._body = [body, marker]
            return rest
        call = written(body)
        if self._closer is not None and not call.whole:
            return self._back(body, out) + marker + (rest or "")
        self._call(call, out)
        # A call that begins where another should end: the closing marker was forgotten.
        self._mode = "call" if marker == CALL else "text"
        return rest

    def _back(self, body: str, out: list[Piece]) -> str:
        """What was taken for content was the end of the call: the text behind it, to be read."""
        at = self._closer or 0
        self._call(written(body[:at]), out)
        self._mode = "text"
        return body[at + len(CALL_END) :]

    def _end(self, stop: Stop) -> list[Piece]:
        out: list[Piece] = []
        while self._mode == "call":
            body = "".join(self._body)
            call = written(body, cut=True)
            if not call.whole:
                body += self._held
                call = written(body, cut=True)
            self._held = ""
            if not call.whole and self._closer is not None:
                out += self._scan(self._back(body, out))
                continue
            self._call(call, out)
            self._mode = "text"
            stop = stop if call.whole else "length"
        if self._mode == "think":
            out += [ThinkingDelta(self._held), ThinkingDelta("", INLINE)]
        else:
            self._say(self._held, out)
        return [*out, ReplyEnd(stop)]

    def _split(self, text: str, markers: _Markers) -> tuple[str, str, str | None]:
        """What is before the first marker, the marker, and the rest; no rest is all read."""
        found = markers.search(text)
        if found is not None:
            return text[: found.start()], found[0], text[found.end() :]
        at = markers.begin_in(text)
        self._held = text[at:]
        return text[:at], "", None

    def _say(self, text: str, out: list[Piece]) -> None:
        if self._blank is not None:
            self._blank.append(text)
            if not text or text.isspace():
                return
            text, self._blank = "".join(self._blank), None
        if text:
            out.append(TextDelta(text))

    def _call(self, call: Written, out: list[Piece]) -> None:
        number = self._calls
        out.append(CallDelta(number, str(number + 1), call.name, call.arguments))
        self._calls += 1
        self._body, self._closer = [], None
