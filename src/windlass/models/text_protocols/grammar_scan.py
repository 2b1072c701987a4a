"""A reply that is one JSON object, read as it streams: a call, or an answer shown at once.

The law: what is shown of an answer is never taken back, so that an escape is decoded when it is
whole and not before. A server that does not hold to the schema is read as one that sends text.
"""

import json
import re
from typing import Literal

from windlass.core.events import CallDelta, ReplyEnd, ReplyPiece, StopReason, TextDelta
from windlass.models.text_protocols.call_text import BracketCounter, parse_call
from windlass.models.text_protocols.scanning import KEEP_ALIVE

HEAD_CHARS_MAX = 200
"""Characters within which the first field of a reply must be named."""

_FIRST_FIELD = re.compile(r'\s*\{\s*"(answer|name)"\s*:\s*(?=\S)')
_PARTIAL_FIRST_FIELD = re.compile(r'\s*(?:\{\s*(?:"(?:[a-z]*(?:"\s*(?::\s*)?)?)?)?)?\Z')
_COMPLETE_CHARS = re.compile(
    r'(?:[^"\\]+|\\["\\/bfnrt]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}'
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*"
)
_PARTIAL_ESCAPE = re.compile(
    r"\\(?:u(?:[0-9a-fA-F]{0,3}|[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?))?\Z"
)
_HALF_PAIR = re.compile(r"\\u[0-9a-fA-F]{4}")


class GrammarScan:
    """Decodes one reply. `as_text`: the answer is a string, and its text is what was meant."""

    done = False

    def __init__(self, *, as_text: bool) -> None:
        self._as_text = as_text
        self._mode: Literal["head", "text", "string", "value", "call", "rest"] = "head"
        self._held = ""
        self._body: list[str] = []
        self._brackets = BracketCounter(depth=1)

    def scan_piece(self, piece: ReplyPiece) -> list[ReplyPiece]:
        match piece:
            case TextDelta(text):
                said = self._visible_text(text)
                return [TextDelta(said)] if said else [KEEP_ALIVE]
            case ReplyEnd(stop):
                return self._finish_reply(stop)
            case _:
                return [piece]

    def _visible_text(self, text: str) -> str:
        """The text to show."""
        if self._mode == "head":
            text, self._held = self._held + text, ""
            rest = self._strip_head(text)
            if rest is None:
                self._held = text
                return ""
            text = rest
        match self._mode:
            case "text":
                return text
            case "string":
                return self._decode_string(text)
            case "value":
                return self._pass_value(text)
            case "call":
                self._body.append(text)
                return ""
            case "head" | "rest":
                return ""

    def _strip_head(self, text: str) -> str | None:
        """What is behind the head, once it is known what comes; None until then."""
        head = _FIRST_FIELD.match(text)
        if head is None:
            if _PARTIAL_FIRST_FIELD.match(text) and len(text) <= HEAD_CHARS_MAX:
                return None
            self._mode = "text"
            return text
        rest = text[head.end() :]
        if head[1] == "name":
            self._mode = "call"
            return text
        if not self._as_text:
            self._mode = "value"
            return rest
        self._mode = "string" if rest.startswith('"') else "text"
        return rest[1:] if self._mode == "string" else text

    def _decode_string(self, text: str) -> str:
        text, self._held = self._held + text, ""
        said: list[str] = []
        while text:
            whole = _COMPLETE_CHARS.match(text)
            end = whole.end() if whole else 0
            said.append(_unescape_text(text[:end]))
            text = text[end:]
            if text.startswith('"'):
                self._mode = "rest"
                break
            if _PARTIAL_ESCAPE.match(text):
                self._held = text
                break
            if text:
                half = _HALF_PAIR.match(text)
                said.append("\ufffd" if half else "\\")
                text = text[half.end() if half else 1 :]
        return "".join(said)

    def _pass_value(self, text: str) -> str:
        end = self._brackets.find_close(text)
        if end is None:
            return text
        self._mode = "rest"
        return text[: end - 1]

    def _finish_reply(self, stop: StopReason) -> list[ReplyPiece]:
        if self._mode == "head" and self._held.strip():
            return [TextDelta(self._held), ReplyEnd(stop)]
        if self._mode != "call":
            return [ReplyEnd(stop)]
        call = parse_call("".join(self._body), cut=True)
        made = CallDelta(0, "1", call.name, call.arguments)
        return [made, ReplyEnd(stop if call.complete else "length")]


def _unescape_text(text: str) -> str:
    """The text of whole escapes; half of a pair is no character."""
    said: str = json.loads(f'"{text}"', strict=False)
    return said.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
