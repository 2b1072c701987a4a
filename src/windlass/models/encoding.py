"""What the encoders of several dialects share: media, content blocks, turns, call ids, bodies.

Invariant: encoded history only grows. An open turn is continued and never rewritten, and a call
keeps the id that it got first, so that the history of a request is a prefix of the next one's.

No image or file is dropped silently. In a prompt, one that a provider cannot take is an error that
names it. In a tool's result, a note to the model takes its place, because the tool has run already
and the conversation must continue.
"""

import re
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from windlass.core.errors import ModelError
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
from windlass.models.fragments import HistoryFragment

MediaPart = ImagePart | FilePart
JsonObject = dict[str, Any]
_CALL_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""The ids of calls that every provider accepts."""
encode_json = msgspec.json.Encoder().encode
_decode_object = msgspec.json.Decoder(JsonObject).decode


def encode_base64(data: bytes) -> str:
    """Return the data in base64, as JSON can hold it."""
    return b64encode(data).decode("ascii")


def data_url(part: MediaPart) -> str | None:
    """Return the part's content as a data URL, else its own URL; None if it has neither."""
    if part.data is not None:
        return f"data:{part.media_type};base64,{encode_base64(part.data)}"
    return part.url


def decode_text_file(part: FilePart) -> str | None:
    """Return the text of a plain text file, or None if the file is not one."""
    if part.data is None or not part.media_type.startswith("text/"):
        return None
    try:
        return part.data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def unsupported_media_error(part: MediaPart, api: str, accepted: str) -> ModelError:
    """Return the error for a prompt with a part that the API cannot take."""
    message = f"{api} does not accept {_describe_media(part)}. It accepts {accepted}."
    return ModelError("bad_request", message)


def unsupported_media_note(part: MediaPart, api: str) -> str:
    """Return the text that replaces, in a tool's result, a part that the API cannot take."""
    return f"[{_describe_media(part)} is not shown: {api} does not accept it in tool results]"


def _describe_media(part: MediaPart) -> str:
    name = f"the file {part.name!r}" if isinstance(part, FilePart) else "the image"
    if part.data is not None:
        return f"{name} ({part.media_type}, {len(part.data)} bytes)"
    if part.url:
        return f"{name} ({part.media_type}) at {part.url}"
    return f"{name} ({part.media_type})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentBlocks:
    """How one API takes the content of prompts and of tool results."""

    api: str
    """The name of the API in messages."""
    accepted: str
    """The media that it accepts, in words."""
    text_block: Callable[[str], JsonObject]
    media_block: Callable[[MediaPart], JsonObject | None]
    """Returns None for media that the API cannot take."""
    keeps_blank_text: bool = False
    """Whether text of nothing but white space is sent. Most APIs refuse it."""

    def encode_prompt(self, parts: Iterable[ContentPart]) -> list[JsonObject]:
        """Encode the user's parts. Raises ModelError, naming the part, for unsupported media."""
        blocks: list[JsonObject] = []
        for part in parts:
            if isinstance(part, TextPart):
                blocks += self._encode_text(part)
                continue
            block = self.media_block(part)
            if block is None:
                raise unsupported_media_error(part, self.api, self.accepted)
            blocks.append(block)
        return blocks

    def encode_result(self, parts: Iterable[ContentPart]) -> list[JsonObject]:
        """Encode the parts of a tool's result. A note to the model replaces unsupported media."""
        blocks: list[JsonObject] = []
        for part in parts:
            if isinstance(part, TextPart):
                blocks += self._encode_text(part)
                continue
            note = unsupported_media_note(part, self.api)
            blocks.append(self.media_block(part) or self.text_block(note))
        return blocks

    def _encode_text(self, part: TextPart) -> list[JsonObject]:
        if self.keeps_blank_text or part.text.strip():
            return [self.text_block(part.text)]
        return []


class CallIds:
    """The id of each call on the wire.

    A provider gets back the ids that it gave, unless one is not unique or not well-formed. A call
    that another model made gets our own id, which is unique in the session.
    """

    def __init__(self) -> None:
        self._assigned: dict[str, str] = {}
        self._used: set[str] = set()

    def assign_id(self, call: ToolCall, *, native: bool) -> str:
        """Return the wire id of a call; it is always the same. `native`: the provider made it."""
        assigned = self._assigned.get(call.id)
        if assigned is not None:
            return assigned
        wire_id = call.id
        if native and call.provider_id:
            wire_id = call.provider_id
        if not _CALL_ID.fullmatch(wire_id) or wire_id in self._used:
            # Cut to leave room for the underscores below; the end of our id is what differs.
            wire_id = re.sub(r"[^a-zA-Z0-9_-]", "_", call.id)[-48:]
        while wire_id in self._used:
            wire_id += "_"
        self._used.add(wire_id)
        self._assigned[call.id] = wire_id
        return wire_id

    def id_of(self, call: ToolCall) -> str:
        """Return the wire id of a call whose result is encoded."""
        return self.assign_id(call, native=False)


class BlockEncoder(ABC):
    """Encodes one history for one model, as blocks in turns. A dialect says how its blocks look.

    Consecutive messages of the same role become one turn: some APIs want the roles to alternate.
    """

    content_key = "content"
    """The field that holds the blocks of a turn."""
    reply_role = "assistant"

    def __init__(self, model: str, content: ContentBlocks) -> None:
        self.model = model
        self.content = content
        self.ids = CallIds()
        self._role = ""

    def encode_message(self, message: Message) -> Iterable[HistoryFragment]:
        """Return the fragments of the next message; none if it has no blocks."""
        match message:
            case UserMessage(parts):
                return self.add_blocks("user", self.encode_prompt(parts))
            case AssistantMessage():
                return self.add_blocks(self.reply_role, self.encode_reply(message))
            case ToolResults(items):
                return self.add_blocks("user", map(self.result_block, items))

    def add_blocks(self, role: str, blocks: Iterable[JsonObject]) -> Iterable[HistoryFragment]:
        """Add one message. Without blocks it adds nothing: no provider accepts an empty message."""
        inside = b",".join(encode_json(block) for block in blocks)
        if not inside:
            return ()
        joins = role == self._role
        self._role = role
        start = b"," if joins else f'{{"role":"{role}","{self.content_key}":['.encode()
        return (HistoryFragment(start + inside, b"]}", joins),)

    def encode_prompt(self, parts: Iterable[ContentPart]) -> list[JsonObject]:
        """Return the blocks of a user's message. Raises ModelError for unsupported media."""
        return self.content.encode_prompt(parts)

    def encode_reply(self, reply: AssistantMessage) -> Iterator[JsonObject]:
        """Yield the blocks of a reply. Thinking goes back only to the model that produced it."""
        native = is_native(reply, self.model)
        for part in reply.parts:
            match part:
                case TextPart(text):
                    # APIs refuse blank text, although their own models sometimes write it.
                    if text.strip():
                        yield self.reply_text_block(text)
                case ThinkingPart():
                    block = self.thinking_block(part) if native else None
                    if block is not None:
                        yield block
                case ToolCall():
                    yield self.call_block(part, native=native)

    def reply_text_block(self, text: str) -> JsonObject:
        return self.content.text_block(text)

    @abstractmethod
    def thinking_block(self, part: ThinkingPart) -> JsonObject | None:
        """Return the block of a thought of this model; None if there is nothing to send."""

    @abstractmethod
    def call_block(self, call: ToolCall, *, native: bool) -> JsonObject:
        """Return the block of a call. `native`: this model made it."""

    @abstractmethod
    def result_block(self, item: CallOutcome) -> JsonObject:
        """Return the block of the result of a call."""


def is_native(reply: AssistantMessage, model: str) -> bool:
    """Whether this model itself made the reply. Only then its thinking and ids go back."""
    return bool(reply.model) and reply.model == model


def as_json_object(arguments: str) -> msgspec.Raw | dict[str, str]:
    """Return the arguments of a call for a provider that accepts nothing but a JSON object.

    A JSON object is passed on verbatim. Anything else is wrapped into one: such a call was refused
    with a result that says why, and the model has to see what it wrote.
    """
    if not arguments.strip():
        return {}
    try:
        _decode_object(arguments)
    except msgspec.DecodeError:
        return {"not_a_json_object": arguments}
    return msgspec.Raw(arguments.encode())


def drop_unset(fields: Mapping[str, Any]) -> JsonObject:
    """Return the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def build_body(
    head: Mapping[str, Any], extra: Mapping[str, Any], key: str, history: bytes
) -> bytes:
    """Build the body of a request: the head merged with the caller's fields, then the history.

    `history` holds the encoded elements of the array at `key`.
    """
    fields = merge_fields(head, extra) if extra else head
    encoded = encode_json(fields)
    if key in fields:  # The caller brings a history of their own.
        return encoded
    # The history is encoded already. It is appended inside the closing brace, so that its bytes are
    # neither parsed nor changed, and it comes last, so that the fields before it can vary.
    return b"%b,%b:[%b]}" % (encoded[:-1], encode_json(key), history)


def merge_fields(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> JsonObject:
    """Merge two objects. Overrides win; nested objects are merged too, field by field."""
    merged = dict(base)
    for key, value in overrides.items():
        present = merged.get(key)
        if isinstance(present, Mapping) and isinstance(value, Mapping):
            present = cast("Mapping[str, Any]", present)
            merged[key] = merge_fields(present, cast("Mapping[str, Any]", value))
        else:
            merged[key] = value
    return merged
