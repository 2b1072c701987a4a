"""An append-only sequence of messages that shares its past.

Appending returns a new transcript and leaves the old one as it was, at the cost of one list append.
All transcripts of a session share one log, and each knows how much of the log belongs to it.

The bounds of its tokens are here as well. Invariant: a bound is never below what a provider counts.
No token is shorter than a byte, so the bytes of a text are a bound; what a provider adds around
messages and calls is counted on top.

A transcript is a conversation that every provider accepts. That of a session is one by the way it
is built. Messages that a program hands in have to be checked: once before they are recorded, and
again whenever the record is read.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, final, overload

import msgspec
from typing_extensions import override

from windlass.core.messages import (
    AssistantMessage,
    FilePart,
    ImagePart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    ToolResults,
    UserMessage,
)
from windlass.core.setup import Setup


class MessageLog:
    """What all transcripts of a session share. A cache can be keyed by its identity."""

    __slots__ = ("__weakref__", "calls", "messages")

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages: list[Message] = []
        self.calls: dict[str, int] = {}
        """The index of the message in which each call was made."""
        self.extend(messages)

    def extend(self, messages: Sequence[Message]) -> None:
        for message in messages:
            if isinstance(message, AssistantMessage):
                for part in message.parts:
                    if isinstance(part, ToolCall):
                        self.calls[part.id] = len(self.messages)
            self.messages.append(message)


@final
class Transcript(Sequence[Message]):
    """The messages of a session, in order. They are never rewritten."""

    __slots__ = ("_length", "log")

    def __init__(self, messages: Sequence[Message] = (), log: MessageLog | None = None) -> None:
        """Begin with messages; or share a log, up to its present end."""
        self.log = MessageLog(messages) if log is None else log
        self._length = len(self.log.messages)

    def append(self, *messages: Message) -> "Transcript":
        """Return a transcript with these messages at its end."""
        # Only the longest transcript may extend the log. A fork of the past takes a copy.
        at_tip = self._length == len(self.log.messages)
        log = self.log if at_tip else MessageLog(self.log.messages[: self._length])
        log.extend(messages)
        return Transcript(log=log)

    def has_call(self, call_id: str) -> bool:
        """Whether a call with this id was made in this transcript."""
        return self.log.calls.get(call_id, self._length) < self._length

    def find_result(self, call_id: str) -> ToolResult | None:
        """Return the result of a call, or None if it is not in this transcript."""
        at = self.log.calls.get(call_id, self._length) + 1
        results = self.log.messages[at] if at < self._length else None
        items = results.items if isinstance(results, ToolResults) else ()
        return next((item.result for item in items if item.call.id == call_id), None)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    @override
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        if isinstance(index, slice):
            return self.log.messages[: self._length][index]
        return self.log.messages[range(self._length)[index]]

    @override
    def __len__(self) -> int:
        return self._length

    @override
    def __iter__(self) -> Iterator[Message]:
        return islice(self.log.messages, self._length)

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Transcript) and list(self) == list(other)

    @override
    def __hash__(self) -> int:
        return hash(tuple(self))

    @override
    def __repr__(self) -> str:
        return f"Transcript({list(self)!r})"


MESSAGE_OVERHEAD = 16
"""The most tokens that a provider may add around a message."""
CALL_FRAMING = 96
"""The most tokens that a provider may add around a call and its result, beside their ids."""
MEDIA_TOKENS = 2_000
"""Tokens that a picture or a document is counted as."""


def message_tokens_max(message: Message) -> int:
    """Return the most tokens that a message can have."""
    if isinstance(message, ToolResults):
        tokens = 0
        for item in message.items:
            tokens += MESSAGE_OVERHEAD + sum(map(_part_tokens_max, item.result.content))
        return tokens
    return MESSAGE_OVERHEAD + sum(map(_part_tokens_max, message.parts))


def framing_tokens_max(results: ToolResults) -> int:
    """Return the most tokens that a provider may add around the calls of these results.

    A call and its result are in the view together, so both are counted with the result. Each
    carries an id, ours or the provider's; a dialect without ids repeats the name of the tool.
    """
    tokens = 0
    for item in results.items:
        call = item.call
        names = (call.id.encode(), (call.provider_id or "").encode(), call.name.encode())
        tokens += CALL_FRAMING + 2 * max(map(len, names))
    return tokens


def fixed_tokens_max(setup: Setup, *, has_artifacts: bool) -> int:
    """Return the most tokens that the instructions and the tool specs can have."""
    specs = sum(
        MESSAGE_OVERHEAD
        + len(spec.name)
        + len(spec.description.encode())
        + _json_bytes(spec.parameters)
        for spec in setup.offered_tools(has_artifacts=has_artifacts)
    )
    instructions = len(setup.instructions.encode())
    # The prompt says in a sentence or two how to use the schema of the output.
    if setup.output_schema:
        output = 8 * MESSAGE_OVERHEAD + _json_bytes(setup.output_schema)
    else:
        output = 0
    return MESSAGE_OVERHEAD + instructions + specs + output


def _json_bytes(value: object) -> int:
    return len(msgspec.json.encode(value))


def _part_tokens_max(part: TextPart | ThinkingPart | ToolCall | ImagePart | FilePart) -> int:
    match part:
        case TextPart(text):
            return len(text.encode())
        case ThinkingPart(text, signature):
            return len(text.encode()) + len(signature or "")
        case ToolCall():
            words = part.name + part.arguments + (part.signature or "")
            return MESSAGE_OVERHEAD + len(words.encode())
        case ImagePart() | FilePart():
            return MEDIA_TOKENS


_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


def find_conversation_fault(messages: Sequence[Message]) -> str | None:
    """Return what keeps messages from being a valid beginning of a session; None if nothing does.

    They begin with a user, none is empty, each call has its own name and readable arguments,
    and its result follows in the next message.
    """
    open_calls: tuple[ToolCall, ...] = ()
    ids: set[str] = set()
    for at, message in enumerate(messages):
        fault = _find_message_fault(message, open_calls, ids)
        if fault is None and at == 0 and not isinstance(message, UserMessage):
            fault = "the first message must be from the user"
        if fault is not None:
            return f"messages[{at}]: {fault}"
        open_calls = message.calls if isinstance(message, AssistantMessage) else ()
    if open_calls:
        return f"the call {open_calls[0].name} has no result"
    return None


def _find_message_fault(
    message: Message, open_calls: tuple[ToolCall, ...], ids: set[str]
) -> str | None:
    if isinstance(message, ToolResults):
        if not open_calls or tuple(item.call for item in message.items) != open_calls:
            return "its results are not those of the calls before it"
        return None
    if open_calls:
        return f"the call {open_calls[0].name} before it has no result"
    if isinstance(message, UserMessage):
        blank = not message.parts or _has_blank_text(message)
        return "it is empty" if blank else None
    if _has_blank_text(message) or not (message.calls or message.text.strip()):
        return "it has neither text nor calls"
    for call in message.calls:
        if not call.name or not call.id or call.id in ids:
            return f"two calls have the id {call.id!r}, or a call has no name"
        if not _is_json_object(call.arguments):
            return f"the arguments of {call.name} are not a JSON object"
        ids.add(call.id)
    return None


def _has_blank_text(message: UserMessage | AssistantMessage) -> bool:
    return any(isinstance(part, TextPart) and not part.text.strip() for part in message.parts)


def _is_json_object(text: str) -> bool:
    try:
        _decode_object(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
