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
    AssistantMessage,
    CallOutcome,
    ContentPart,
    FilePart,
    ImagePart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResults,
    UserMessage,
)
from windlass.models import media
from windlass.models.fragments import HistoryFragment
from windlass.models.openai.quirks import ChatQuirks
from windlass.models.turns import CallIds, encode_json

_DERIVED_ID_CHARS = 9
"""Short enough for every server; Mistral's take exactly this."""


class ChatEncoder:
    """Encodes one history for one model."""

    def __init__(self, quirks: ChatQuirks, vendor: str, model: str) -> None:
        self._quirks = quirks
        self._vendor = vendor
        self._model = model
        self._ids = CallIds()
        self._open_content: type[str | list[Any]] | None = None
        """The form of the user's message that is last, which the next one joins."""
        self._after_results = False

    def encode_message(self, message: Message) -> Iterable[HistoryFragment]:
        match message:
            case UserMessage(parts):
                blocks = [self._encode_prompt_part(part) for part in parts]
                fragments = list(self._user_fragments(blocks)) if blocks else []
            case AssistantMessage():
                fragments = [HistoryFragment(encode_json(self._encode_reply(message)))]
                self._open_content = None
            case ToolResults(items):
                fragments = list(self._result_fragments(items))
        self._after_results = isinstance(message, ToolResults) and self._open_content is None
        return fragments

    def _user_fragments(self, blocks: Sequence[dict[str, Any]]) -> Iterator[HistoryFragment]:
        """Words alone go as a string, which every server takes; what follows at once joins them."""
        if self._after_results and self._quirks.bridge:
            yield HistoryFragment(
                encode_json({"role": "assistant", "content": self._quirks.bridge})
            )
        if all(block["type"] == "text" for block in blocks):
            words = encode_json("\n\n".join(block["text"] for block in blocks))[1:-1]
            joins, self._open_content = self._open_content is str, str
            start = rb"\n\n" if joins else b'{"role":"user","content":"'
            yield HistoryFragment(start + words, b'"}', joins)
        else:
            inside = b",".join(encode_json(block) for block in blocks)
            joins, self._open_content = self._open_content is list, list
            start = b"," if joins else b'{"role":"user","content":['
            yield HistoryFragment(start + inside, b"]}", joins)

    def _encode_reply(self, reply: AssistantMessage) -> dict[str, Any]:
        native = bool(reply.model) and reply.model == self._model
        calls = [self._encode_call(call, native=native) for call in reply.calls]
        message: dict[str, Any] = {
            "role": "assistant",
            "content": reply.text or (None if calls else ""),
        }
        if calls:
            message["tool_calls"] = calls
        # Where thinking goes back, it is missed even when there was none.
        if native and calls and self._quirks.thinking_back:
            message[self._quirks.thinking_back] = "".join(
                part.text for part in reply.parts if isinstance(part, ThinkingPart)
            )
        return message

    def _encode_call(self, call: ToolCall, *, native: bool) -> dict[str, Any]:
        function = {"name": call.name, "arguments": call.arguments or "{}"}
        wire_id = self._fit_call_id(self._ids.assign_id(call, native=native))
        return {"id": wire_id, "type": "function", "function": function}

    def _fit_call_id(self, wanted: str) -> str:
        """The id itself, or one made from it in the form that the server takes."""
        if re.fullmatch(self._quirks.call_id, wanted):
            return wanted
        digest = b32encode(blake2b(wanted.encode(), digest_size=8).digest()).decode()
        return digest[:_DERIVED_ID_CHARS]

    def _result_fragments(self, items: Sequence[CallOutcome]) -> Iterator[HistoryFragment]:
        """One message per result; the images of all of them follow in one of the user's."""
        self._open_content = None
        shown: list[dict[str, Any]] = []
        for item in items:
            parts = [self._encode_result_part(part) for part in item.result.content]
            images = [part for part in parts if part["type"] != "text"]
            texts = [part["text"] for part in parts if part["type"] == "text"]
            if self._quirks.tool_images and images:
                content: Any = parts
            else:
                content = "\n\n".join(texts) or ("See below." if images else "")
            wire_id = self._fit_call_id(self._ids.id_of(item.call))
            yield HistoryFragment(
                encode_json({"role": "tool", "tool_call_id": wire_id, "content": content})
            )
            if images and not self._quirks.tool_images:
                label = f"What {item.call.name} ({wire_id}) returned:"
                shown += [_text_block(label), *images]
        if shown:
            self._after_results = True
            yield from self._user_fragments(shown)

    def _encode_prompt_part(self, part: ContentPart) -> dict[str, Any]:
        match part:
            case TextPart(text):
                return _text_block(text)
            case ImagePart() | FilePart():
                block = self._encode_media(part)
                if block is None:
                    raise media.unsupported_media_error(part, self._vendor, self._accepted_media)
                return block

    def _encode_result_part(self, part: ContentPart) -> dict[str, Any]:
        match part:
            case TextPart(text):
                return _text_block(text)
            case ImagePart() | FilePart():
                return self._encode_media(part) or _text_block(
                    media.unsupported_media_note(part, self._vendor)
                )

    def _encode_media(self, part: ImagePart | FilePart) -> dict[str, Any] | None:
        """The part as the server takes it, or None if it cannot."""
        url = media.data_url(part)
        match part:
            case ImagePart():
                fits = self._quirks.images and url is not None
                return {"type": "image_url", "image_url": {"url": url}} if fits else None
            case FilePart(name=name, data=data):
                words = media.decode_text_file(part)
                if words is not None:
                    return _text_block(f"{name}:\n{words}")
                fits = self._quirks.files and data is not None
                file = {"filename": name, "file_data": url}
                return {"type": "file", "file": file} if fits else None

    @property
    def _accepted_media(self) -> str:
        kinds = [*(["images"] if self._quirks.images else []), "plain text"]
        return " and ".join([*(["PDF"] if self._quirks.files else []), *kinds])


def _text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def encode_system_message(role: str, text: str) -> bytes:
    """The first message, which is no part of the history."""
    return encode_json({"role": role, "content": text})
