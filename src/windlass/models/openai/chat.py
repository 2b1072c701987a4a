"""OpenAI's chat completions API, which a dozen other servers speak as well.

Invariant: how servers differ is data (`ChatQuirks`). No vendor is named here. A message is encoded
once, in a form that all servers of this dialect accept. Media that a server cannot take is an error
in a prompt, and a note to the model in a tool's result.
"""

import re
from base64 import b32encode
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any

from typing_extensions import override

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
from windlass.core.setup import ToolChoice
from windlass.core.view import Prompt
from windlass.models.dialect import Dialect, WireRequest
from windlass.models.encoding import (
    CallIds,
    ContentBlocks,
    JsonObject,
    MediaPart,
    build_body,
    data_url,
    decode_text_file,
    drop_unset,
    encode_json,
    is_native,
)
from windlass.models.fragments import EncodedHistories, HistoryFragment
from windlass.models.openai.chat_reader import ChatReader
from windlass.models.options import Effort, ModelOptions
from windlass.models.vendors import ChatQuirks

_DERIVED_ID_CHARS = 9
"""Short enough for every server; Mistral's accept exactly this length."""
_DEFAULT_QUIRKS = ChatQuirks()
# Some servers refuse an empty schema.
_NO_PARAMETERS: JsonObject = {"type": "object", "properties": {}}


class ChatEncoder:
    """Encodes one history for one model."""

    def __init__(self, quirks: ChatQuirks, vendor: str, model: str) -> None:
        self._quirks = quirks
        self._model = model
        self._ids = CallIds()
        media = {"PDF": quirks.files, "images": quirks.images, "plain text": True}
        self._content = ContentBlocks(
            api=vendor,
            accepted=" and ".join(kind for kind, is_taken in media.items() if is_taken),
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


def _text_block(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def encode_system_message(role: str, text: str) -> bytes:
    """Encode the system prompt. It is the first message, and no part of the history."""
    return encode_json({"role": role, "content": text})


class OpenAIChat(Dialect):
    """The dialect of `POST /chat/completions`."""

    def __init__(self, quirks: ChatQuirks = _DEFAULT_QUIRKS, vendor: str = "the server") -> None:
        self._quirks = quirks
        self._histories = EncodedHistories(partial(ChatEncoder, quirks, vendor))

    @override
    def encode_request(self, prompt: Prompt, model: str, options: ModelOptions) -> WireRequest:
        quirks = self._quirks
        head: JsonObject = {"model": model, "stream": True}
        if quirks.stream_usage:  # Many servers report no usage in a stream unless asked to.
            head["stream_options"] = {"include_usage": True}
        head[quirks.output_cap] = prompt.output_max
        head |= drop_unset(
            {
                "temperature": options.temperature,
                "top_p": options.top_p,
                quirks.seed: options.seed,
                "stop": options.stop or None,
                "service_tier": options.service_tier,
            }
        )
        if options.effort is not None:
            head |= _effort_settings(options.effort, quirks)
        if prompt.tools:
            head |= _tool_settings(prompt, quirks)
        if prompt.output_schema is not None and _can_enforce_schema(prompt, quirks):
            schema = {"name": "output", "schema": prompt.output_schema}
            head["response_format"] = {"type": "json_schema", "json_schema": schema}
        messages = self._histories.encode_messages(prompt.messages, prompt.model)
        if prompt.system:
            messages = encode_system_message(quirks.system_role, prompt.system) + b"," + messages
        body = build_body(head, options.extra_body, "messages", messages)
        return WireRequest("/chat/completions", body, dict(options.extra_headers))

    @override
    def new_reader(self, prompt: Prompt) -> ChatReader:
        return ChatReader()


def _effort_settings(effort: Effort, quirks: ChatQuirks) -> JsonObject:
    """Return how much to think, in the server's own fields."""
    on = effort != "off"
    match quirks.effort:
        case "none":
            return {}
        case "reasoning_effort":
            level = effort if on else quirks.effort_off
            return {"reasoning_effort": level} if level else {}
        case "reasoning":
            return {"reasoning": {"effort": effort} if on else {"enabled": False}}
        case "enable_thinking":
            return {"enable_thinking": on}
        case "thinking":
            if on:
                return {"thinking": {"type": "enabled"}, "reasoning_effort": effort}
            return {"thinking": {"type": "disabled"}}
        case "template":
            level = effort if on else None
            arguments = drop_unset({"enable_thinking": on, "reasoning_effort": level})
            return {"chat_template_kwargs": arguments}


def _tool_settings(prompt: Prompt, quirks: ChatQuirks) -> JsonObject:
    tools = [
        {
            "type": "function",
            "function": {
                "name": spec.name,
                "description": spec.description,
                "parameters": spec.parameters or _NO_PARAMETERS,
            },
        }
        for spec in prompt.tools
    ]
    settings: JsonObject = {"tools": tools}
    if prompt.tool_choice != "auto":
        choice = _encode_tool_choice(prompt.tool_choice, quirks)
        if choice != "auto":
            settings["tool_choice"] = choice
    if not prompt.parallel_tool_calls and quirks.parallel_choice:
        settings["parallel_tool_calls"] = False
    return settings


def _encode_tool_choice(choice: ToolChoice, quirks: ChatQuirks) -> Any:  # noqa: ANN401 - a word or an object
    match choice:
        case "none":
            return choice
        case "required":
            return quirks.required_choice
        case name if quirks.named_choice:
            return {"type": "function", "function": {"name": name}}
        case _:
            return quirks.required_choice


def _can_enforce_schema(prompt: Prompt, quirks: ChatQuirks) -> bool:
    match quirks.json_schema:
        case "always":
            return True
        case "without_tools":
            return not prompt.tools
        case "never":
            return False
