"""The encoded history is kept: a request costs what is new, and is a prefix of the next (P5)."""

import gc
from collections.abc import Iterable

import pytest
from typing_extensions import override

from windlass.core.messages import Assistant, Message, Text, User
from windlass.core.transcript import Transcript
from windlass.models.fragments import Fragment, Fragments

SEEN: list[str] = []


class Shouting:
    """Encodes each message to its text; adjacent users join."""

    def __init__(self, mark: str = "") -> None:
        self._mark = mark
        self._open = False

    def add(self, message: Message) -> Iterable[Fragment]:
        assert isinstance(message, User | Assistant)
        SEEN.append(message.text)
        text = f"{self._mark}{message.text}".encode()
        if isinstance(message, Assistant):
            self._open = False
            return (Fragment(b"<" + text + b">"),)
        joins, self._open = self._open, True
        return (Fragment(b"+" + text if joins else b"[" + text, b"]", joins),)


class Refusing(Shouting):
    @override
    def add(self, message: Message) -> Iterable[Fragment]:
        yield Fragment(b"half")
        raise ValueError(message)


@pytest.fixture(autouse=True)
def seen() -> list[str]:
    SEEN.clear()
    return SEEN


def user(text: str) -> User:
    return User((Text(text),))


def reply(text: str) -> Assistant:
    return Assistant((Text(text),))


def test_only_what_is_new_is_encoded(seen: list[str]) -> None:
    history = Fragments(Shouting)
    transcript = Transcript([user("a")])
    assert history.encoded(transcript) == b"[a]"
    transcript = transcript.append(reply("b"), user("c"))
    assert history.encoded(transcript) == b"[a],<b>,[c]"
    assert history.encoded(transcript) == b"[a],<b>,[c]"
    assert seen == ["a", "b", "c"]


def test_each_history_is_a_prefix_of_the_next() -> None:
    history = Fragments(Shouting)
    transcript = Transcript([user("0")])
    before = history.encoded(transcript)
    for step in range(1, 50):
        transcript = transcript.append(reply(f"r{step}"), user(f"u{step}"))
        now = history.encoded(transcript)
        assert now.startswith(before)
        before = now


def test_messages_that_join_stay_open_without_a_rewrite() -> None:
    history = Fragments(Shouting)
    transcript = Transcript([user("a")])
    short = history.encoded(transcript)
    longer = history.encoded(transcript.append(user("b"), reply("c")))
    assert (short, longer) == (b"[a]", b"[a+b],<c>")


def test_an_older_transcript_of_the_same_log_keeps_its_own_history(seen: list[str]) -> None:
    history = Fragments(Shouting)
    first = Transcript([user("a")])
    longer = first.append(reply("b"))
    assert history.encoded(longer) == b"[a],<b>"
    assert history.encoded(first) == b"[a]"
    fork = first.append(reply("x"))
    assert history.encoded(fork) == b"[a],<x>"
    assert history.encoded(longer) == b"[a],<b>"
    assert seen == ["a", "b", "a", "x"]


def test_each_context_has_an_encoding_of_its_own() -> None:
    history = Fragments(Shouting)
    transcript = Transcript([user("a")])
    assert history.encoded(transcript, "1") == b"[1a]"
    assert history.encoded(transcript, "2") == b"[2a]"
    assert history.encoded(transcript, "1") == b"[1a]"


def test_a_sequence_that_may_change_is_encoded_afresh(seen: list[str]) -> None:
    history = Fragments(Shouting)
    for _ in range(2):
        assert history.encoded([user("a"), reply("b")]) == b"[a],<b>"
    assert seen == ["a", "b", "a", "b"]
    assert history.encoded([]) == b""


def test_a_message_that_cannot_be_encoded_leaves_the_history_as_it_was() -> None:
    history = Fragments(Refusing)
    transcript = Transcript([user("a")])
    for _ in range(2):
        with pytest.raises(ValueError, match="a"):
            history.encoded(transcript)


def test_a_history_goes_with_its_session() -> None:
    history = Fragments(Shouting)
    transcript = Transcript([user("a")])
    history.encoded(transcript)
    assert len(history._histories) == 1
    del transcript
    gc.collect()
    assert len(history._histories) == 0
