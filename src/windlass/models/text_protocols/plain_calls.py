"""Finds calls that came as plain JSON, or in a code fence, in place of native calls.

    {"name": "read", "arguments": {"path": "a.txt"}}

Invariant: text is held back only while it can still become a call, or once a call was found: if the
model makes a native call after all, its text was not meant as one. What counts as a call is decided
by `found_calls`. For most models the whole reply must be one call; for those that mix calls with
words, a call may be anywhere.
"""

from collections.abc import Iterator

from typing_extensions import override

from windlass.core.events import CallDelta, ReplyEnd, ReplyPiece, TextDelta
from windlass.core.messages import ToolSpec
from windlass.core.view import Prompt
from windlass.models.dialect import Dialect, ReplyReader, WireRequest
from windlass.models.openai.chat import OpenAIChat
from windlass.models.openai.chat_reader import ChatReader
from windlass.models.options import ModelOptions
from windlass.models.text_protocols.call_text import BracketCounter
from windlass.models.text_protocols.found_calls import (
    FENCED_TEXT_ORIGIN,
    HEAD_CHARS_MAX,
    CallHead,
    CallStart,
    FoundCall,
    find_call_start,
    find_start,
    read_call,
    read_head,
    split_calls,
)
from windlass.models.text_protocols.scanning import KEEP_ALIVE, ScanningReader
from windlass.models.vendors import ChatQuirks

_LAYOUT_BEHIND_CALL = " \t\r\n`}"


class NativeCalls(Dialect):
    """Chat completions with native tool calls, for models that at times write them as text."""

    def __init__(self, quirks: ChatQuirks, vendor: str) -> None:
        self._chat = OpenAIChat(quirks, vendor)
        self._anywhere = quirks.calls_in_words

    @override
    def encode_request(self, prompt: Prompt, model: str, options: ModelOptions) -> WireRequest:
        return self._chat.encode_request(prompt, model, options)

    @override
    def new_reader(self, prompt: Prompt) -> ReplyReader:
        scans = PlainCallScan.for_prompt(prompt, anywhere=self._anywhere)
        chat = ChatReader()
        return ScanningReader(chat, *scans) if scans else chat


class PlainCallScan:
    """Finds the calls that the text of a reply may hold.

    `anywhere`: calls may be mixed with words. Otherwise the whole text must be one call.
    """

    def __init__(self, tools: tuple[ToolSpec, ...], *, anywhere: bool = False) -> None:
        self._tools = {spec.name: spec for spec in tools}
        self._anywhere = anywhere
        self._held: list[str] = []
        """The text that is held back."""
        self._head: CallHead | None = None
        """The beginning of the held text, once it is the beginning of a call."""
        self._brackets = BracketCounter()
        self._in_fence = False
        """Whether the text before ends inside a code fence."""
        self._found = False
        """The held text has a call, so the rest of the reply is held back too."""
        self.done = False

    @classmethod
    def for_prompt(cls, prompt: Prompt, *, anywhere: bool = False) -> "tuple[PlainCallScan, ...]":
        """Return the scan for a prompt, or none: where no call may be made, JSON is an answer."""
        may_call = prompt.tools and prompt.tool_choice != "none"
        return (cls(prompt.tools, anywhere=anywhere),) if may_call else ()

    def scan_piece(self, piece: ReplyPiece) -> list[ReplyPiece]:
        if self.done:
            return [piece]
        match piece:
            case TextDelta(""):
                return [piece]
            case TextDelta(text):
                # A shortcut for nearly all deltas: words, and nothing that may begin a call.
                if self._anywhere and not self._held and find_start(text, 0) == len(text):
                    return [piece]
                return [TextDelta(shown)] if (shown := self._scan_text(text)) else [KEEP_ALIVE]
            case CallDelta():
                # The model made a native call, so its text was not meant as one.
                return [*self._release_text(), piece]
            case ReplyEnd():
                return [*self._finish_reply(), piece]
            case _:
                return [piece]

    def _scan_text(self, text: str) -> str:
        """Return the text to show."""
        shown: list[str] = []
        while text and not self.done:
            if self._found:
                self._held.append(text)
                # A reply that must be one call has nothing behind it but the end of a fence.
                if not self._anywhere and text.strip(_LAYOUT_BEHIND_CALL):
                    self.done = True
                text = ""
            elif self._head is not None:
                text = self._follow_object(text, shown)
            else:
                text = self._look_for_call(text, shown)
        if self.done:
            shown += [*self._held, text]
            self._held = []
        return "".join(shown)

    def _look_for_call(self, text: str, shown: list[str]) -> str:
        """Show what cannot begin a call, and hold what may. Returns the object that has begun."""
        text = "".join(self._held) + text
        self._held = []
        start = self._find_start(text)
        self._in_fence = start.in_fence
        head = start.head
        if head is False:
            self.done = not self._anywhere
            shown.append(text)
            return ""
        before = start.at if self._anywhere else 0
        shown.append(text[:before])
        if not isinstance(head, CallHead):
            self._held = [text[before:]]
            return ""
        self._held = [text[before : head.object_at]]
        self._head = head
        self._brackets = BracketCounter()
        return text[head.object_at :]

    def _find_start(self, text: str) -> CallStart:
        """Return where a call may begin: anywhere, or only at the beginning of the reply."""
        if self._anywhere:
            return find_call_start(text, 0, self._tools, in_fence=self._in_fence)
        at = len(text) - len(text.lstrip())
        if at < len(text):
            return CallStart(at, read_head(text, at, self._tools), in_fence=False)
        return CallStart(at, None if at <= HEAD_CHARS_MAX else False, in_fence=False)

    def _follow_object(self, text: str, shown: list[str]) -> str:
        """Hold an object until it is closed. If it is not a call, show it, and return the rest."""
        end = self._brackets.find_close(text)
        if end is None:
            self._held.append(text)
            return ""
        self._held.append(text[:end])
        body = "".join(self._held[1:])  # Behind its fence.
        is_fenced = self._head is not None and self._head.origin == FENCED_TEXT_ORIGIN
        self._head = None
        if read_call(body, "", self._tools) is not None:
            self._found = True
        elif self._anywhere:
            shown += self._held
            self._held = []
            self._in_fence = self._in_fence or is_fenced
        else:
            self.done = True
        return text[end:]

    def _release_text(self) -> list[ReplyPiece]:
        self.done = True
        return [TextDelta("".join(self._held))] if self._held else []

    def _finish_reply(self) -> Iterator[ReplyPiece]:
        text = "".join(self._held)
        parts = list(split_calls(text, self._tools))
        is_one_call = len(parts) == 1 and isinstance(parts[0], FoundCall)
        if not self._anywhere and not is_one_call:
            parts = [text]
        calls = 0
        for part in parts:
            if isinstance(part, str):
                if part:
                    yield TextDelta(part)
                continue
            yield CallDelta(calls, None, part.name, part.arguments, origin=part.origin)
            calls += 1
