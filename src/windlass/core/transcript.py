"""An append-only sequence of messages that shares its past.

Appending returns a new transcript and leaves the old one as it was, at the cost of one list append.
All transcripts of a session share one log, and each knows how much of the log belongs to it.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import final, overload

from typing_extensions import override

from windlass.core.messages import AssistantMessage, Message, ToolCall, ToolResult, ToolResults


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
