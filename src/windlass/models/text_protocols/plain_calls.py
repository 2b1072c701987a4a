"""A call that came as plain JSON, or in a code fence, in place of a call of the wire.

    {"name": "read", "arguments": {"path": "a.txt"}}

The law: only a whole reply that is nothing but a call of a tool on offer, with arguments that the
tool takes, is a call; all else is text. Text is held back for as long as it can still be one, and
what cannot is shown at once.
"""

import re
from typing import Any

import msgspec
from typing_extensions import override

from windlass.core.events import CallDelta, ReplyEnd, ReplyPiece, TextDelta
from windlass.core.json_repair.arguments import PreparedArguments, prepare_arguments
from windlass.core.messages import ToolSpec
from windlass.core.schema import JsonSchema
from windlass.core.view import Prompt
from windlass.models.dialect import Dialect, ModelOptions, ReplyReader, WireRequest
from windlass.models.openai.chat import OpenAIChat
from windlass.models.openai.quirks import ChatQuirks
from windlass.models.text_protocols.call_text import BracketCounter, parse_call, strip_code_fence
from windlass.models.text_protocols.scanning import KEEP_ALIVE, ScanningReader

PLAIN_TEXT_ORIGIN = "plain_text"
"""Marks such a call."""

HEAD_CHARS_MAX = 400
"""Characters after which it is known what a text is."""

_CALL_KEYS = frozenset(("name", "arguments", "parameters", "type", "id"))
_FENCE = re.compile(r"`{1,2}\Z|```[a-zA-Z_]*")
_FIRST_KEY = re.compile(r'"([^"\\]*)("?)')
_NAME_VALUE = re.compile(r'\s*:\s*"([^"\\]*)("?)')

_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


class NativeCalls(Dialect):
    """Chat completions with tools of the wire, for models that at times forget to use it."""

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
        self._brackets: BracketCounter | None = None
        """None as long as the beginning of the text does not tell."""
        self._closed = False
        self.done = False

    @classmethod
    def for_prompt(cls, prompt: Prompt) -> "tuple[PlainCallScan, ...]":
        """Where no call may be made, JSON is an answer."""
        offered = prompt.tools and prompt.tool_choice != "none"
        return (cls(prompt.tools),) if offered else ()

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
                return [*self._release_text(), piece]
            case ReplyEnd():
                call = self._find_call()
                return [*([call] if call else self._release_text()), piece]
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
        return not text.strip(" \t\r\n`")

    def _begins_like_call(self, body: str) -> bool | None:
        """Whether a call begins like this; None if that cannot be told yet."""
        if body[:1] != "{":
            return False if body else None
        inner = body[1:].lstrip()
        key = _FIRST_KEY.match(inner)
        if key is None:
            return False if inner else None
        if not key[2]:
            return None if any(known.startswith(key[1]) for known in _CALL_KEYS) else False
        if key[1] != "name":
            return key[1] in _CALL_KEYS
        name = _NAME_VALUE.match(inner, key.end())
        if name is None:
            return None
        if name[2]:
            return name[1] in self._tools
        return None if any(tool.startswith(name[1]) for tool in self._tools) else False

    def _find_call(self) -> CallDelta | None:
        """The call that the whole text is."""
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
        fits = isinstance(
            prepare_arguments(call.arguments, JsonSchema(spec.parameters)), PreparedArguments
        )
        return (
            CallDelta(0, None, call.name, call.arguments, origin=PLAIN_TEXT_ORIGIN)
            if fits
            else None
        )


def _strip_open_fence(head: str) -> str:
    """The text without the fence that may be around it; a fence that is not whole is nothing."""
    text = head.lstrip()
    if not _FENCE.match(text):
        return text
    first, _, rest = text.partition("\n")
    return rest.lstrip() if _FENCE.fullmatch(first.rstrip()) else first
