"""The encoded history of a session, kept: a request costs only what is new in it (P5).

The law: what was encoded once is never encoded again and never changes. The history of step n is a
byte prefix of the history of step n + 1, so that a provider's prompt cache hits.

A dialect brings an encoder, which sees the messages of one history in order and gives fragments:

    history = Fragments(ChatEncoder)                   # in the dialect, once
    body = b'{"messages":[' + history.encoded(prompt.messages, prompt.model) + b"]}"

What is passed besides the messages goes to the encoder and tells one encoding from another.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, NamedTuple, ParamSpec, Protocol
from weakref import WeakKeyDictionary

from windlass.core.messages import Message
from windlass.core.transcript import MessageLog, Transcript

Context = ParamSpec("Context")


class HistoryFragment(NamedTuple):
    """A piece of the encoded history.

    It may leave something open that a later fragment goes on with, such as a user's message that
    the next one of the same role joins: `body` is for good, `tail` closes it as long as it is last.
    """

    body: bytes
    tail: bytes = b""
    joins: bool = False
    """Goes on inside what the fragment before left open; else that is closed, and a comma set."""


class HistoryEncoder(Protocol):
    """Encodes the messages of one history, in order; may remember what it saw."""

    def encode_message(self, message: Message, /) -> Iterable[HistoryFragment]: ...


class EncodedHistories(Generic[Context]):
    """Encoded histories, one per session and context, for as long as the session lives."""

    def __init__(self, new_encoder: Callable[Context, HistoryEncoder]) -> None:
        self._new_encoder = new_encoder
        self._histories: WeakKeyDictionary[MessageLog, dict[Hashable, _EncodedHistory]] = (
            WeakKeyDictionary()
        )

    def encode_messages(
        self, messages: Sequence[Message], *args: Context.args, **kwargs: Context.kwargs
    ) -> bytes:
        """The messages as the elements of a JSON array, without its brackets."""
        # Only a transcript promises that its messages stay; any other sequence is encoded afresh.
        if not isinstance(messages, Transcript):
            return _EncodedHistory(self._new_encoder(*args, **kwargs)).encode_up_to(
                messages, len(messages)
            )
        histories = self._histories.setdefault(messages.log, {})
        key = (args, tuple(kwargs.items()))
        history = histories.get(key)
        if history is None:
            history = histories[key] = _EncodedHistory(self._new_encoder(*args, **kwargs))
        return history.encode_up_to(messages.log.messages, len(messages))


class _EncodedHistory:
    """One log as far as it is encoded, with the place at which each message ends."""

    def __init__(self, encoder: HistoryEncoder) -> None:
        self._encoder = encoder
        self._bytes = bytearray()
        self._ends: list[tuple[int, bytes]] = [(0, b"")]

    def encode_up_to(self, messages: Sequence[Message], length: int) -> bytes:
        for at in range(len(self._ends) - 1, length):
            self._append_message(messages[at])
        end, tail = self._ends[length]
        with memoryview(self._bytes) as encoded:
            return b"".join((encoded[:end], tail))

    def _append_message(self, message: Message) -> None:
        tail = self._ends[-1][1]
        # All of it or nothing: a message that cannot be encoded must leave the history as it was.
        for fragment in tuple(self._encoder.encode_message(message)):
            if not fragment.joins:
                self._bytes += tail
                if self._bytes:
                    self._bytes += b","
            self._bytes += fragment.body
            tail = fragment.tail
        self._ends.append((len(self._bytes), tail))
