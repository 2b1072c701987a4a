"""The encoded history is kept: a request costs what is new, and is a prefix of the next (P5)."""

import gc
import time
from collections.abc import Iterable

import pytest
from typing_extensions import override

from windlass.core.messages import AssistantMessage, Message, TextPart, UserMessage
from windlass.core.transcript import Transcript
from windlass.models.fragments import EncodedHistories, HistoryFragment

SEEN: list[str] = []


class ShoutingEncoder:
    """Encodes each message to its text; adjacent users join."""

    def __init__(self, mark: str = "") -> None:
        self._mark = mark
        self._open = False

    def encode_message(self, message: Message) -> Iterable[HistoryFragment]:
        assert isinstance(message, UserMessage | AssistantMessage)
        SEEN.append(message.text)
        text = f"{self._mark}{message.text}".encode()
        if isinstance(message, AssistantMessage):
            self._open = False
            return (HistoryFragment(b"<" + text + b">"),)
        joins, self._open = self._open, True
        return (HistoryFragment(b"+" + text if joins else b"[" + text, b"]", joins),)


class RefusingEncoder(ShoutingEncoder):
    @override
    def encode_message(self, message: Message) -> Iterable[HistoryFragment]:
        yield HistoryFragment(b"half")
        raise ValueError(message)


@pytest.fixture(autouse=True)
def seen() -> list[str]:
    SEEN.clear()
    return SEEN


def user(text: str) -> UserMessage:
    return UserMessage((TextPart(text),))


def reply(text: str) -> AssistantMessage:
    return AssistantMessage((TextPart(text),))


def test_only_what_is_new_is_encoded(seen: list[str]) -> None:
    history = EncodedHistories(ShoutingEncoder)
    transcript = Transcript([user("a")])
    assert history.encode_messages(transcript) == b"[a]"
    transcript = transcript.append(reply("b"), user("c"))
    assert history.encode_messages(transcript) == b"[a],<b>,[c]"
    assert history.encode_messages(transcript) == b"[a],<b>,[c]"
    assert seen == ["a", "b", "c"]


def test_each_history_is_a_prefix_of_the_next() -> None:
    history = EncodedHistories(ShoutingEncoder)
    transcript = Transcript([user("0")])
    before = history.encode_messages(transcript)
    for step in range(1, 50):
        transcript = transcript.append(reply(f"r{step}"), user(f"u{step}"))
        now = history.encode_messages(transcript)
        assert now.startswith(before)
        before = now


def test_messages_that_join_stay_open_without_a_rewrite() -> None:
    history = EncodedHistories(ShoutingEncoder)
    transcript = Transcript([user("a")])
    short = history.encode_messages(transcript)
    longer = history.encode_messages(transcript.append(user("b"), reply("c")))
    assert (short, longer) == (b"[a]", b"[a+b],<c>")


def test_an_older_transcript_of_the_same_log_keeps_its_own_history(seen: list[str]) -> None:
    history = EncodedHistories(ShoutingEncoder)
    first = Transcript([user("a")])
    longer = first.append(reply("b"))
    assert history.encode_messages(longer) == b"[a],<b>"
    assert history.encode_messages(first) == b"[a]"
    fork = first.append(reply("x"))
    assert history.encode_messages(fork) == b"[a],<x>"
    assert history.encode_messages(longer) == b"[a],<b>"
    assert seen == ["a", "b", "a", "x"]


def test_each_context_has_an_encoding_of_its_own() -> None:
    history = EncodedHistories(ShoutingEncoder)
    transcript = Transcript([user("a")])
    assert history.encode_messages(transcript, "1") == b"[1a]"
    assert history.encode_messages(transcript, "2") == b"[2a]"
    assert history.encode_messages(transcript, "1") == b"[1a]"


def test_a_sequence_that_may_change_is_encoded_afresh(seen: list[str]) -> None:
    history = EncodedHistories(ShoutingEncoder)
    for _ in range(2):
        assert history.encode_messages([user("a"), reply("b")]) == b"[a],<b>"
    assert seen == ["a", "b", "a", "b"]
    assert history.encode_messages([]) == b""


def test_a_message_that_cannot_be_encoded_leaves_the_history_as_it_was() -> None:
    history = EncodedHistories(RefusingEncoder)
    transcript = Transcript([user("a")])
    for _ in range(2):
        with pytest.raises(ValueError, match="a"):
            history.encode_messages(transcript)


def test_a_history_goes_with_its_session() -> None:
    history = EncodedHistories(ShoutingEncoder)
    transcript = Transcript([user("a")])
    history.encode_messages(transcript)
    assert len(history._histories) == 1
    del transcript
    # While another thread collects, a collection here returns at once and does nothing.
    for _ in range(100):
        gc.collect()
        if not history._histories:
            break
        time.sleep(0.01)
    assert len(history._histories) == 0
