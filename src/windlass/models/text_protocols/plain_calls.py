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

from windlass.core.events import CallDelta, Piece, ReplyEnd, TextDelta
from windlass.core.json_repair.arguments import Prepared, prepare
from windlass.core.messages import ToolSpec
from windlass.core.schema import Schema
from windlass.core.view import Prompt
from windlass.models.dialect import Dialect, Options, Reader, WireRequest
from windlass.models.openai.chat import OpenAIChat
from windlass.models.openai.quirks import Quirks
from windlass.models.text_protocols.call_text import Brackets, unfenced, written
from windlass.models.text_protocols.scanning import ALIVE, ScanningReader

ORIGIN = "plain_text"
"""Marks such a call."""

HEAD_MAX = 400
"""Characters after which it is known what a text is."""

_KEYS = frozenset(("name", "arguments", "parameters", "type", "id"))
_FENCE = re.compile(r"`{1,2}\Z|```[a-zA-Z_]*")
_KEY = re.compile(r'"([^"\\]*)("?)')
_NAME = re.compile(r'\s*:\s*"([^"\\]*)("?)')

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class NativeCalls(Dialect):
    """Chat completions with tools of the wire, for models that at times forget to use it."""

    def __init__(self, quirks: Quirks, vendor: str) -> None:
        self._chat = OpenAIChat(quirks, vendor)

    @override
    def encode(self, prompt: Prompt, model: str, options: Options) -> WireRequest:
        return self._chat.encode(prompt, model, options)

    @override
    def reader(self, prompt: Prompt) -> Reader:
        scans = PlainScan.where_due(prompt)
        chat = self._chat.reader(prompt)
        return ScanningReader(chat, *scans) if scans else chat


class PlainScan:
    """Finds the one call that the text of a reply may be."""

    def __init__(self, tools: tuple[ToolSpec, ...]) -> None:
        self._tools = {spec.name: spec for spec in tools}
        self._held: list[str] = []
        self._brackets: Brackets | None = None
        """None as long as the beginning of the text does not tell."""
        self._closed = False
        self.done = False

    @classmethod
    def where_due(cls, prompt: Prompt) -> "tuple[PlainScan, ...]":
        """Where no call may be made, JSON is an answer."""
        offered = prompt.tools and prompt.tool_choice != "none"
        return (cls(prompt.tools),) if offered else ()

    def take(self, piece: Piece) -> list[Piece]:
        if self.done:
            return [piece]
        match piece:
            case TextDelta(""):
                return [piece]
            case TextDelta(text):
                self._held.append(text)
                return [ALIVE] if self._may_be_call(text) else self._release()
            case CallDelta():
                return [*self._release(), piece]
            case ReplyEnd():
                call = self._call()
                return [*([call] if call else self._release()), piece]
            case _:
                return [piece]

    def _release(self) -> list[Piece]:
        self.done = True
        return [TextDelta("".join(self._held))] if self._held else []

    def _may_be_call(self, text: str) -> bool:
        if self._brackets is None:
            head = "".join(self._held)
            text = _unwrapped(head)
            begins = self._begins(text)
            if begins is None:
                return len(head) <= HEAD_MAX
            if not begins:
                return False
            self._brackets = Brackets()
        if not self._closed:
            end = self._brackets.close_in(text)
            self._closed = end is not None
            text = "" if end is None else text[end:]
        return not text.strip(" \t\r\n`")

    def _begins(self, body: str) -> bool | None:
        """Whether a call begins like this; None if that cannot be told yet."""
        if body[:1] != "{":
            return False if body else None
        inner = body[1:].lstrip()
        key = _KEY.match(inner)
        if key is None:
            return False if inner else None
        if not key[2]:
            return None if any(known.startswith(key[1]) for known in _KEYS) else False
        if key[1] != "name":
            return key[1] in _KEYS
        name = _NAME.match(inner, key.end())
        if name is None:
            return None
        if name[2]:
            return name[1] in self._tools
        return None if any(tool.startswith(name[1]) for tool in self._tools) else False

    def _call(self) -> CallDelta | None:
        """The call that the whole text is."""
        text = unfenced("".join(self._held).strip())
        try:
            fields = _decode(text)
        except (msgspec.DecodeError, RecursionError):
            return None
        call = written(text)
        spec = self._tools.get(call.name)
        arguments = fields.get("arguments", fields.get("parameters"))
        if spec is None or not fields.keys() <= _KEYS or not isinstance(arguments, dict):
            return None
        fits = isinstance(prepare(call.arguments, Schema(spec.parameters)), Prepared)
        return CallDelta(0, None, call.name, call.arguments, origin=ORIGIN) if fits else None


def _unwrapped(head: str) -> str:
    """The text without the fence that may be around it; a fence that is not whole is nothing."""
    text = head.lstrip()
    if not _FENCE.match(text):
        return text
    first, _, rest = text.partition("\n")
    return rest.lstrip() if _FENCE.fullmatch(first.rstrip()) else first
