"""An append-only sequence that shares its past."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.projection.shared_log import JoinedLog, SharedLog


def test_two_futures_of_one_past_do_not_meet() -> None:
    past = SharedLog([1])
    one = past.append(2)
    other = past.append(3)
    assert (list(past), list(one), list(other)) == ([1], [1, 2], [1, 3])
    assert list(one.append(4)) == [1, 2, 4]


@given(st.lists(st.integers()), st.lists(st.integers()), st.integers(-9, 9), st.integers(-9, 9))
def test_it_reads_like_a_list(
    first: Sequence[int], then: Sequence[int], start: int, stop: int
) -> None:
    log = SharedLog(first).append(*then)
    whole = [*first, *then]
    assert list(log) == list(JoinedLog(SharedLog(first), tuple(then))) == whole
    assert list(log[start:stop]) == whole[start:stop]
    joined = JoinedLog(SharedLog(first), tuple(then))
    assert list(joined[start:stop]) == whole[start:stop]
    assert [joined[at] for at in range(len(joined))] == [log[at] for at in range(len(log))]
    assert list(log.since(len(first))) == list(then)
    assert log == SharedLog(whole)
    assert log != whole
    assert hash(log) == hash(SharedLog(whole))


def test_an_index_beyond_it_is_an_error() -> None:
    past = SharedLog([1])
    past.append(2)
    with pytest.raises(IndexError):
        past[1]
    assert repr(past) == "SharedLog([1])"
