"""Encodes the history of a conversation for OpenAI's chat completions API.

Invariant: a message is encoded once, in a form that all servers of this dialect accept. Media that
a server cannot take is an error in a prompt, and a note to the model in a tool's result.
"""

import re
from base64 import b32encode
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any

from windlass.core.messages import (
    AssistantMessage,
    CallOutcome,
    FilePart,
    ImagePart,
    Message,
    ThinkingPart,
    ToolCall,
    ToolResults,
    UserMessage,
)
from windlass.models.encoding import (
    CallIds,
    ContentBlocks,
    JsonObject,
    MediaPart,
    data_url,
    decode_text_file,
    encode_json,
    is_native,
)
from windlass.models.fragments import HistoryFragment
from windlass.models.openai.quirks import ChatQuirks

_DERIVED_ID_CHARS = 9
"""Short enough for every server; Mistral's accept exactly this length."""


class ChatEncoder:
    """Encodes one history for one model."""

    def __init__(self, quirks: ChatQuirks, vendor: str, model: str) -> None:
        self._quirks = quirks
        self._model = model
        self._ids = CallIds()
        self._content = ContentBlocks(
            api=vendor,
            accepted=_describe_accepted_media(quirks),
            text_block=_text_block,
            media_block=self._media_block,
            keeps_blank_text=True,
        )
        self._open_content: type[str | list[Any]] | None = None
        """The form of the last user message, which the next user message joins; None if closed."""
        self._after_results = False

    def encode_message(self, message: Message) -> Iterable[HistoryFragment]:
        match message:
            case UserMessage(parts):
                blocks = self._content.encode_prompt(parts)
                fragments = list(self._user_fragments(blocks)) if blocks else []
            case AssistantMessage():
                fragments = [HistoryFragment(encode_json(self._encode_reply(message)))]
                self._open_content = None
            case ToolResults(items):
                fragments = list(self._result_fragments(items))
        self._after_results = isinstance(message, ToolResults) and self._open_content is None
        return fragments

    def _user_fragments(self, blocks: Sequence[JsonObject]) -> Iterator[HistoryFragment]:
        """Encode a user message, or join it to the user message right before it."""
        if self._after_results and self._quirks.bridge:
            bridge = {"role": "assistant", "content": self._quirks.bridge}
            yield HistoryFragment(encode_json(bridge))
        # Text alone goes as a string, because every server accepts that.
        if all(block["type"] == "text" for block in blocks):
            # Without its quotes: the string stays open for a message that joins this one.
            text = encode_json("\n\n".join(block["text"] for block in blocks))[1:-1]
            joins = self._open_content is str
            self._open_content = str
            start = rb"\n\n" if joins else b'{"role":"user","content":"'
            yield HistoryFragment(start + text, b'"}', joins)
        else:
            inside = b",".join(encode_json(block) for block in blocks)
            joins = self._open_content is list
            self._open_content = list
            start = b"," if joins else b'{"role":"user","content":['
            yield HistoryFragment(start + inside, b"]}", joins)

    def _encode_reply(self, reply: AssistantMessage) -> JsonObject:
        native = is_native(reply, self._model)
        calls = [self._encode_call(call, native=native) for call in reply.calls]
        message: JsonObject = {
            "role": "assistant",
            "content": reply.text or (None if calls else ""),
        }
        if calls:
            message["tool_calls"] = calls
        # Servers that want the thinking back want the field even when there was no thinking.
        if native and calls and self._quirks.thinking_back:
            message[self._quirks.thinking_back] = "".join(
                part.text for part in reply.parts if isinstance(part, ThinkingPart)
            )
        return message

    def _encode_call(self, call: ToolCall, *, native: bool) -> JsonObject:
        function = {"name": call.name, "arguments": call.arguments or "{}"}
        wire_id = self._fit_call_id(self._ids.assign_id(call, native=native))
        return {"id": wire_id, "type": "function", "function": function}

    def _fit_call_id(self, call_id: str) -> str:
        """Return the id itself, or one derived from it in the form that the server accepts."""
        if re.fullmatch(self._quirks.call_id, call_id):
            return call_id
        digest = b32encode(blake2b(call_id.encode(), digest_size=8).digest()).decode()
        return digest[:_DERIVED_ID_CHARS]

    def _result_fragments(self, items: Sequence[CallOutcome]) -> Iterator[HistoryFragment]:
        """Encode one message per result. Images follow in a user message if they must."""
        self._open_content = None
        images_of_all: list[JsonObject] = []
        for item in items:
            blocks = self._content.encode_result(item.result.content)
            images = [block for block in blocks if block["type"] != "text"]
            texts = [block["text"] for block in blocks if block["type"] == "text"]
            wire_id = self._fit_call_id(self._ids.id_of(item.call))
            content: Any = "\n\n".join(texts)
            if images and self._quirks.tool_images:
                content = blocks
            elif images:
                content = content or "See below."
                label = f"What {item.call.name} ({wire_id}) returned:"
                images_of_all += [_text_block(label), *images]
            message = {"role": "tool", "tool_call_id": wire_id, "content": content}
            yield HistoryFragment(encode_json(message))
        if images_of_all:
            self._after_results = True
            yield from self._user_fragments(images_of_all)

    def _media_block(self, part: MediaPart) -> JsonObject | None:
        url = data_url(part)
        match part:
            case ImagePart():
                if not self._quirks.images or url is None:
                    return None
                return {"type": "image_url", "image_url": {"url": url}}
            case FilePart(name=name, data=data):
                text = decode_text_file(part)
                if text is not None:
                    return _text_block(f"{name}:\n{text}")
                if not self._quirks.files or data is None:
                    return None
                return {"type": "file", "file": {"filename": name, "file_data": url}}


def _describe_accepted_media(quirks: ChatQuirks) -> str:
    kinds = ["plain text"]
    if quirks.images:
        kinds.insert(0, "images")
    if quirks.files:
        kinds.insert(0, "PDF")
    return " and ".join(kinds)


def _text_block(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def encode_system_message(role: str, text: str) -> bytes:
    """Encode the system prompt. It is the first message, and no part of the history."""
    return encode_json({"role": role, "content": text})
