"""An append-only sequence of messages that shares its past."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.messages import AssistantMessage, Message, TextPart, ToolCall, UserMessage
from windlass.core.transcript import Transcript


def said(text: str) -> UserMessage:
    return UserMessage((TextPart(text),))


A, B, C, D = map(said, "abcd")


def test_appending_leaves_the_old_one_as_it_was() -> None:
    """X1: the transcript is never rewritten."""
    old = Transcript([A])
    new = old.append(B, C)
    assert (list(old), list(new)) == ([A], [A, B, C])
    assert (len(old), len(new)) == (1, 3)


def test_a_transcript_shares_its_past() -> None:
    """J6: appending costs one list append."""
    old = Transcript([A])
    assert old.append(B).log is old.log


def test_two_futures_of_one_past_do_not_meet() -> None:
    """J8: a fork takes a copy."""
    past = Transcript([A])
    one, other = past.append(B), past.append(C)
    assert (list(one), list(other), list(past)) == ([A, B], [A, C], [A])
    assert list(one.append(D)) == [A, B, D]
    assert list(other.append(D)) == [A, C, D]
    assert other.log is not one.log


def test_what_it_is_made_of_may_change_afterwards() -> None:
    messages: list[Message] = [A]
    transcript = Transcript(messages)
    messages.append(B)
    assert list(transcript) == [A]


def test_an_index_stays_within_its_own_part() -> None:
    old = Transcript([A, B])
    old.append(C)
    assert (old[0], old[-1], old[1]) == (A, B, B)
    for outside in (2, -3):
        with pytest.raises(IndexError):
            old[outside]


def test_a_slice_stays_within_its_own_part() -> None:
    old = Transcript([A, B])
    old.append(C)
    assert (old[1:], old[::-1], old[:5]) == ([B], [B, A], [A, B])


def test_reading_on_while_it_grows_ends_where_it_ended() -> None:
    old = Transcript([A, B])
    reader = iter(old)
    old.append(C)
    assert list(reader) == [A, B]


def test_equality_is_by_content() -> None:
    one, other = Transcript([A]).append(B), Transcript([A, B])
    assert one == other
    assert hash(one) == hash(other)
    assert one != Transcript([A])
    assert one != [A, B]


def test_it_knows_which_calls_were_made_in_its_own_part() -> None:
    """S9: a call id is unique in a session."""
    past = Transcript([A])
    longer = past.append(AssistantMessage((ToolCall("c1", "look"),)), B)
    assert longer.has_call("c1")
    assert not longer.has_call("c2")
    assert not past.has_call("c1")
    assert not past.append(C).has_call("c1")
    assert longer[:2] == [A, AssistantMessage((ToolCall("c1", "look"),))]
    assert Transcript(list(longer)).has_call("c1")


def test_it_shows_its_messages() -> None:
    assert repr(Transcript([A])) == f"Transcript([{A!r}])"


def test_an_empty_one_is_false_and_a_longer_one_contains_its_messages() -> None:
    assert not Transcript()
    assert B in Transcript([A, B])


@given(st.lists(st.tuples(st.integers(0, 20), st.lists(st.sampled_from([A, B, C]), max_size=3))))
def test_any_tree_of_futures_is_right(growth: list[tuple[int, list[UserMessage]]]) -> None:
    """X1, J8: each is what it would be if nothing were shared."""
    transcripts, plain = [Transcript()], [list[Message]()]
    for which, more in growth:
        at = which % len(transcripts)
        transcripts.append(transcripts[at].append(*more))
        plain.append([*plain[at], *more])
    assert [list(transcript) for transcript in transcripts] == plain
