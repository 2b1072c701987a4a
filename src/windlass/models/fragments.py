"""The encoded history of a session, kept, so that a request encodes only what is new.

Invariant: a message is encoded once, and its bytes never change. The history of step n is a byte
prefix of the history of step n + 1, so that a provider's prompt cache hits.

A dialect brings an encoder, which sees the messages of one history in order and returns fragments:

    histories = EncodedHistories(ChatEncoder)          # in the dialect, once
    history = histories.encode_messages(prompt.messages, prompt.model)
    body = b'{"messages":[' + history + b"]}"

The arguments after the messages go to the encoder. Each combination of them has its own history.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, NamedTuple, ParamSpec, Protocol
from weakref import WeakKeyDictionary

from windlass.core.messages import Message
from windlass.core.transcript import MessageLog, Transcript

Context = ParamSpec("Context")


class HistoryFragment(NamedTuple):
    """A piece of the encoded history.

    It may leave something open for a later fragment to continue, such as a user's message that the
    next one of the same role joins. `body` is permanent; `tail` closes it while it is the last one.
    """

    body: bytes
    tail: bytes = b""
    joins: bool = False
    """Continues what the fragment before left open. Otherwise that is closed first."""


class HistoryEncoder(Protocol):
    """Encodes the messages of one history, in order. It may remember what it has seen."""

    def encode_message(self, message: Message, /) -> Iterable[HistoryFragment]: ...


class EncodedHistories(Generic[Context]):
    """Encoded histories, one per session and context, for as long as the session lives."""

    def __init__(self, new_encoder: Callable[Context, HistoryEncoder]) -> None:
        self._new_encoder = new_encoder
        # Weak keys: an encoded history is dropped with the session that it belongs to.
        self._histories: WeakKeyDictionary[MessageLog, dict[Hashable, _EncodedHistory]] = (
            WeakKeyDictionary()
        )

    def encode_messages(
        self, messages: Sequence[Message], *args: Context.args, **kwargs: Context.kwargs
    ) -> bytes:
        """Return the messages as the elements of a JSON array, without its brackets."""
        # Only a transcript promises that its messages stay; any other sequence is encoded afresh.
        if not isinstance(messages, Transcript):
            history = _EncodedHistory(self._new_encoder(*args, **kwargs))
            return history.encode_up_to(messages, len(messages))
        # Transcripts of one session share a log, so a shorter view of it reuses what is encoded.
        histories = self._histories.setdefault(messages.log, {})
        key = (args, tuple(kwargs.items()))
        history = histories.get(key)
        if history is None:
            history = histories[key] = _EncodedHistory(self._new_encoder(*args, **kwargs))
        return history.encode_up_to(messages.log.messages, len(messages))


class _EncodedHistory:
    """One log as far as it is encoded, and the position at which each message ends."""

    def __init__(self, encoder: HistoryEncoder) -> None:
        self._encoder = encoder
        self._bytes = bytearray()
        self._ends: list[tuple[int, bytes]] = [(0, b"")]

    def encode_up_to(self, messages: Sequence[Message], length: int) -> bytes:
        for index in range(len(self._ends) - 1, length):
            self._append_message(messages[index])
        end, tail = self._ends[length]
        # A view copies nothing but the result. It must be released again: a bytearray with an open
        # view cannot grow.
        with memoryview(self._bytes) as encoded:
            return b"".join((encoded[:end], tail))

    def _append_message(self, message: Message) -> None:
        tail = self._ends[-1][1]
        # The tuple collects all fragments before the first is written: a message that cannot be
        # encoded must leave the history as it was.
        for fragment in tuple(self._encoder.encode_message(message)):
            if not fragment.joins:
                self._bytes += tail
                if self._bytes:
                    self._bytes += b","
            self._bytes += fragment.body
            tail = fragment.tail
        self._ends.append((len(self._bytes), tail))
