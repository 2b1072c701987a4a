"""OpenAI chat completions, the history of a conversation.

The law: a message is encoded once, as all servers of this dialect take it. What a server cannot
take is refused by its name in a prompt (P7), and told to the model in the result of a tool.
"""

import re
from base64 import b32encode
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any

from windlass.core.messages import (
    Assistant,
    CallResult,
    Content,
    File,
    Image,
    Message,
    Results,
    Text,
    Thinking,
    ToolCall,
    User,
)
from windlass.models import media
from windlass.models.fragments import Fragment
from windlass.models.openai.quirks import Quirks
from windlass.models.turns import CallIds, encode

_DERIVED_ID_CHARS = 9
"""Short enough for every server; Mistral's take exactly this."""


class ChatEncoder:
    """Encodes one history for one model."""

    def __init__(self, quirks: Quirks, vendor: str, model: str) -> None:
        self._quirks = quirks
        self._vendor = vendor
        self._model = model
        self._ids = CallIds()
        self._open: type[str | list[Any]] | None = None
        """The form of the user's message that is last, which the next one joins."""
        self._after_results = False

    def add(self, message: Message) -> Iterable[Fragment]:
        match message:
            case User(parts):
                blocks = [self._prompted(part) for part in parts]
                fragments = list(self._user(blocks)) if blocks else []
            case Assistant():
                fragments = [Fragment(encode(self._assistant(message)))]
                self._open = None
            case Results(items):
                fragments = list(self._results(items))
        self._after_results = isinstance(message, Results) and self._open is None
        return fragments

    def _user(self, blocks: Sequence[dict[str, Any]]) -> Iterator[Fragment]:
        """Words alone go as a string, which every server takes; what follows at once joins them."""
        if self._after_results and self._quirks.bridge:
            yield Fragment(encode({"role": "assistant", "content": self._quirks.bridge}))
        if all(block["type"] == "text" for block in blocks):
            words = encode("\n\n".join(block["text"] for block in blocks))[1:-1]
            joins, self._open = self._open is str, str
            start = rb"\n\n" if joins else b'{"role":"user","content":"'
            yield Fragment(start + words, b'"}', joins)
        else:
            inside = b",".join(encode(block) for block in blocks)
            joins, self._open = self._open is list, list
            start = b"," if joins else b'{"role":"user","content":['
            yield Fragment(start + inside, b"]}", joins)

    def _assistant(self, reply: Assistant) -> dict[str, Any]:
        native = bool(reply.model) and reply.model == self._model
        calls = [self._call(call, native=native) for call in reply.calls]
        message: dict[str, Any] = {
            "role": "assistant",
            "content": reply.text or (None if calls else ""),
        }
        if calls:
            message["tool_calls"] = calls
        # Where thinking goes back, it is missed even when there was none.
        if native and calls and self._quirks.thinking_back:
            message[self._quirks.thinking_back] = "".join(
                part.text for part in reply.parts if isinstance(part, Thinking)
            )
        return message

    def _call(self, call: ToolCall, *, native: bool) -> dict[str, Any]:
        function = {"name": call.name, "arguments": call.arguments or "{}"}
        wire_id = self._taken(self._ids.give(call, native=native))
        return {"id": wire_id, "type": "function", "function": function}

    def _taken(self, wanted: str) -> str:
        """The id itself, or one made from it in the form that the server takes."""
        if re.fullmatch(self._quirks.call_id, wanted):
            return wanted
        digest = b32encode(blake2b(wanted.encode(), digest_size=8).digest()).decode()
        return digest[:_DERIVED_ID_CHARS]

    def _results(self, items: Sequence[CallResult]) -> Iterator[Fragment]:
        """One message per result; the images of all of them follow in one of the user's."""
        self._open = None
        shown: list[dict[str, Any]] = []
        for item in items:
            parts = [self._shown(part) for part in item.result.content]
            images = [part for part in parts if part["type"] != "text"]
            texts = [part["text"] for part in parts if part["type"] == "text"]
            if self._quirks.tool_images and images:
                content: Any = parts
            else:
                content = "\n\n".join(texts) or ("See below." if images else "")
            wire_id = self._taken(self._ids.of(item.call))
            yield Fragment(encode({"role": "tool", "tool_call_id": wire_id, "content": content}))
            if images and not self._quirks.tool_images:
                label = f"What {item.call.name} ({wire_id}) returned:"
                shown += [_words(label), *images]
        if shown:
            self._after_results = True
            yield from self._user(shown)

    def _prompted(self, part: Content) -> dict[str, Any]:
        match part:
            case Text(text):
                return _words(text)
            case Image() | File():
                block = self._media(part)
                if block is None:
                    raise media.refused(part, self._vendor, self._takes)
                return block

    def _shown(self, part: Content) -> dict[str, Any]:
        match part:
            case Text(text):
                return _words(text)
            case Image() | File():
                return self._media(part) or _words(media.told(part, self._vendor))

    def _media(self, part: Image | File) -> dict[str, Any] | None:
        """The part as the server takes it, or None if it cannot."""
        url = media.data_url(part)
        match part:
            case Image():
                fits = self._quirks.images and url is not None
                return {"type": "image_url", "image_url": {"url": url}} if fits else None
            case File(name=name, data=data):
                words = media.text_of(part)
                if words is not None:
                    return _words(f"{name}:\n{words}")
                fits = self._quirks.files and data is not None
                file = {"filename": name, "file_data": url}
                return {"type": "file", "file": file} if fits else None

    @property
    def _takes(self) -> str:
        kinds = [*(["images"] if self._quirks.images else []), "plain text"]
        return " and ".join([*(["PDF"] if self._quirks.files else []), *kinds])


def _words(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def system_message(role: str, text: str) -> bytes:
    """The first message, which is no part of the history."""
    return encode({"role": role, "content": text})
