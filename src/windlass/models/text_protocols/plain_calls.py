"""Finds a call that came as plain JSON, or in a code fence, in place of a native call.

    {"name": "read", "arguments": {"path": "a.txt"}}

The law: a reply counts as a call only if it is complete, holds nothing else, names a tool on offer
and has arguments that the tool accepts. Anything else is text. Text is held back only while it can
still become a call.
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from typing_extensions import override

from windlass.core.events import CallDelta, ReplyEnd, ReplyPiece, TextDelta
from windlass.core.json_repair.arguments import PreparedArguments, prepare_arguments
from windlass.core.messages import ToolSpec
from windlass.core.schema import JsonSchema
from windlass.core.view import Prompt
from windlass.models.dialect import Dialect, ReplyReader, WireRequest
from windlass.models.openai.chat import OpenAIChat
from windlass.models.openai.quirks import ChatQuirks
from windlass.models.options import ModelOptions
from windlass.models.text_protocols.call_text import BracketCounter, parse_call, strip_code_fence
from windlass.models.text_protocols.scanning import KEEP_ALIVE, ScanningReader

PLAIN_TEXT_ORIGIN = "plain_text"
"""Marks a call that was found in the text."""

HEAD_CHARS_MAX = 400
"""Text is held back for so many characters at most before it must look like a call."""

_CALL_KEYS = frozenset(("name", "arguments", "parameters", "type", "id"))
_FENCE = re.compile(r"`{1,2}\Z|```[a-zA-Z_]*")
_FIRST_KEY = re.compile(r'"([^"\\]*)("?)')
_NAME_VALUE = re.compile(r'\s*:\s*"([^"\\]*)("?)')

_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


class NativeCalls(Dialect):
    """Chat completions with native tool calls, for models that at times write them as text."""

    def __init__(self, quirks: ChatQuirks, vendor: str) -> None:
        self._chat = OpenAIChat(quirks, vendor)

    @override
    def encode_request(self, prompt: Prompt, model: str, options: ModelOptions) -> WireRequest:
        return self._chat.encode_request(prompt, model, options)

    @override
    def new_reader(self, prompt: Prompt) -> ReplyReader:
        scans = PlainCallScan.for_prompt(prompt)
        chat = self._chat.new_reader(prompt)
        return ScanningReader(chat, *scans) if scans else chat


class PlainCallScan:
    """Finds the one call that the text of a reply may be."""

    def __init__(self, tools: tuple[ToolSpec, ...]) -> None:
        self._tools = {spec.name: spec for spec in tools}
        self._held: list[str] = []
        """The text that is held back."""
        self._brackets: BracketCounter | None = None
        """None as long as the beginning of the text does not decide what it is."""
        self._closed = False
        self.done = False

    @classmethod
    def for_prompt(cls, prompt: Prompt) -> "tuple[PlainCallScan, ...]":
        """Return the scan for a prompt, or none: where no call may be made, JSON is an answer."""
        may_call = prompt.tools and prompt.tool_choice != "none"
        return (cls(prompt.tools),) if may_call else ()

    def scan_piece(self, piece: ReplyPiece) -> list[ReplyPiece]:
        if self.done:
            return [piece]
        match piece:
            case TextDelta(""):
                return [piece]
            case TextDelta(text):
                self._held.append(text)
                return [KEEP_ALIVE] if self._may_be_call(text) else self._release_text()
            case CallDelta():
                # The model made a native call, so its text was not meant as one.
                return [*self._release_text(), piece]
            case ReplyEnd():
                if call := self._find_call():
                    return [call, piece]
                return [*self._release_text(), piece]
            case _:
                return [piece]

    def _release_text(self) -> list[ReplyPiece]:
        self.done = True
        return [TextDelta("".join(self._held))] if self._held else []

    def _may_be_call(self, text: str) -> bool:
        if self._brackets is None:
            head = "".join(self._held)
            text = _strip_open_fence(head)
            begins = self._begins_like_call(text)
            if begins is None:
                return len(head) <= HEAD_CHARS_MAX
            if not begins:
                return False
            self._brackets = BracketCounter()
        if not self._closed:
            end = self._brackets.find_close(text)
            self._closed = end is not None
            text = "" if end is None else text[end:]
        # Only white space and the end of a code fence may follow the object.
        return not text.strip(" \t\r\n`")

    def _begins_like_call(self, body: str) -> bool | None:
        """Whether a call begins like this; None if that cannot be decided yet."""
        if not body:
            return None
        if body[0] != "{":
            return False
        inner = body[1:].lstrip()
        if not inner:
            return None
        key = _FIRST_KEY.match(inner)
        if key is None:
            return False
        if not key[2]:
            return _may_become(key[1], _CALL_KEYS)
        if key[1] != "name":
            return key[1] in _CALL_KEYS
        name = _NAME_VALUE.match(inner, key.end())
        if name is None:
            return None
        if name[2]:
            return name[1] in self._tools
        return _may_become(name[1], self._tools)

    def _find_call(self) -> CallDelta | None:
        """Return the call if the whole text is one."""
        text = strip_code_fence("".join(self._held).strip())
        try:
            fields = _decode_object(text)
        except (msgspec.DecodeError, RecursionError):
            return None
        call = parse_call(text)
        spec = self._tools.get(call.name)
        arguments = fields.get("arguments", fields.get("parameters"))
        if spec is None or not fields.keys() <= _CALL_KEYS or not isinstance(arguments, dict):
            return None
        prepared = prepare_arguments(call.arguments, JsonSchema(spec.parameters))
        if not isinstance(prepared, PreparedArguments):
            return None
        return CallDelta(0, None, call.name, call.arguments, origin=PLAIN_TEXT_ORIGIN)


def _may_become(start: str, names: Iterable[str]) -> bool | None:
    """Return None if a name begins like this, so that more text has to decide; else False."""
    return None if any(name.startswith(start) for name in names) else False


def _strip_open_fence(head: str) -> str:
    """Return the text without the code fence that it may begin with."""
    text = head.lstrip()
    if not _FENCE.match(text):
        return text
    first_line, _, rest = text.partition("\n")
    if _FENCE.fullmatch(first_line.rstrip()):
        return rest.lstrip()
    return first_line
