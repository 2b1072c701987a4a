"""Reads a reply that is one JSON object as it streams: a call, or an answer that is shown at once.

Invariant: text of an answer that was shown is never taken back, so an escape is decoded only once
it is complete. If a server does not enforce the schema, its reply is read as plain text.
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
_NAME_VALUE = re.compile(r'"([^"\\]*)"')
_PARTIAL_NAME_VALUE = re.compile(r'(?:"[^"\\]*)?\Z')
_ANSWER_ARGUMENTS = re.compile(r'\s*,\s*"arguments"\s*:\s*\{\s*"[^"\\]*"\s*:\s*(?=\S)')
# Plain characters and complete escapes. A surrogate pair is complete only with both halves.
_COMPLETE_CHARS = re.compile(
    r'(?:[^"\\]+|\\["\\/bfnrt]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}'
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*"
)
_PARTIAL_ESCAPE = re.compile(
    r"\\(?:u(?:[0-9a-fA-F]{0,3}|[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?))?\Z"
)
_HALF_PAIR = re.compile(r"\\u[0-9a-fA-F]{4}")


class GrammarScan:
    """Decodes one reply.

    Args:
        as_text: The answer is a string, and its text is shown decoded.
        answer_name: The function that answers; empty if an answer has no function.
    """

    done = False

    def __init__(self, *, as_text: bool, answer_name: str = "") -> None:
        self._as_text = as_text
        self._answer_name = answer_name
        self._mode: Literal["head", "text", "string", "value", "call", "rest"] = "head"
        """The part of the reply that is being read; "rest" is what follows the answer."""
        self._held = ""
        """Text that cannot be read before more of it has come."""
        self._body: list[str] = []
        self._brackets = BracketCounter(depth=1)

    def scan_piece(self, piece: ReplyPiece) -> list[ReplyPiece]:
        match piece:
            case TextDelta(text):
                visible = self._visible_text(text)
                return [TextDelta(visible)] if visible else [KEEP_ALIVE]
            case ReplyEnd(stop):
                return self._finish_reply(stop)
            case _:
                return [piece]

    def _visible_text(self, text: str) -> str:
        """Return the text to show."""
        if self._mode == "head":
            head = self._held + text
            rest = self._strip_head(head)
            if rest is None:
                self._held = head
                return ""
            self._held = ""
            text = rest
        match self._mode:
            case "text":
                return text
            case "string":
                return self._decode_string(text)
            case "value":
                end = self._brackets.find_close(text)
                if end is None:
                    return text
                self._mode = "rest"
                # The last bracket closes the object around the answer.
                return text[: end - 1]
            case "call":
                self._body.append(text)
                return ""
            case "head" | "rest":
                return ""

    def _strip_head(self, text: str) -> str | None:
        """Decide on the mode and return the text to read in it; None if more text must come."""
        head = _FIRST_FIELD.match(text)
        if head is None:
            if _PARTIAL_FIRST_FIELD.match(text) and len(text) <= HEAD_CHARS_MAX:
                return None
            self._mode = "text"
            return text
        rest = text[head.end() :]
        if head[1] == "name":
            answer_at = self._find_answer(text, head.end())
            if answer_at is None:
                return None
            if not answer_at:
                self._mode = "call"
                return text
            rest = text[answer_at:]
        if not self._as_text:
            self._mode = "value"
            return rest
        if rest.startswith('"'):
            self._mode = "string"
            return rest[1:]
        self._mode = "text"
        return text

    def _find_answer(self, text: str, at: int) -> int | None:
        """Return where the answer begins if the function at this place answers.

        Returns zero if it is another function, and None if more text must come.
        """
        if not self._answer_name:
            return 0
        name = _NAME_VALUE.match(text, at)
        if name is None:
            return None if _PARTIAL_NAME_VALUE.match(text, at) else 0
        if name[1] != self._answer_name:
            return 0
        arguments = _ANSWER_ARGUMENTS.match(text, name.end())
        if arguments is not None:
            return arguments.end()
        return None if len(text) <= HEAD_CHARS_MAX else 0

    def _decode_string(self, text: str) -> str:
        text = self._held + text
        self._held = ""
        decoded: list[str] = []
        while text:
            complete = _COMPLETE_CHARS.match(text)
            end = complete.end() if complete else 0
            decoded.append(_unescape_text(text[:end]))
            text = text[end:]
            if text.startswith('"'):
                self._mode = "rest"
                break
            if _PARTIAL_ESCAPE.match(text):
                self._held = text
                break
            if text:
                # Not a valid escape: half of a surrogate pair, or a stray backslash.
                half = _HALF_PAIR.match(text)
                if half:
                    decoded.append("\ufffd")
                    text = text[half.end() :]
                else:
                    decoded.append("\\")
                    text = text[1:]
        return "".join(decoded)

    def _finish_reply(self, stop: StopReason) -> list[ReplyPiece]:
        if self._mode == "head" and self._held.strip():
            head = _FIRST_FIELD.match(self._held)
            if head is None:
                return [TextDelta(self._held), ReplyEnd(stop)]
            # Cut off before it was clear which function is called.
            self._mode = "call"
            self._body = [self._held]
        if self._mode != "call":
            return [ReplyEnd(stop)]
        call = parse_call("".join(self._body), cut=True)
        if not call.complete:
            stop = "length"
        if call.name and call.name == self._answer_name:
            return [ReplyEnd(stop)]  # An answer of which no word has come.
        return [CallDelta(0, "1", call.name, call.arguments), ReplyEnd(stop)]


def _unescape_text(text: str) -> str:
    """Decode complete escapes. Half of a surrogate pair becomes the replacement character."""
    decoded: str = json.loads(f'"{text}"', strict=False)
    return decoded.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
