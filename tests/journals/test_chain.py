"""Whatever is changed, taken out or moved shows at its place."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.journals.codec import (
    ChainLink,
    RecordProblem,
    RecordRow,
    chain_hash,
    chain_root,
    encode_fact,
    walk_chain,
)
from windlass.testing.samples import facts_of_every_kind, note_facts

BLOBS = {name: data for fact in facts_of_every_kind() for name, data in encode_fact(fact).blobs}


def chain_rows(session: str, bodies: Sequence[bytes]) -> list[RecordRow]:
    rows, head = list[RecordRow](), chain_root(session).hash
    for seq, body in enumerate(bodies, 1):
        head = chain_hash(head, body)
        rows.append((seq, body, head))
    return rows


ROWS = chain_rows("s", [encode_fact(fact).body for fact in facts_of_every_kind()])
END = ChainLink(ROWS[-1][0], ROWS[-1][2])


def find_problems(rows: Sequence[RecordRow], end: ChainLink = END) -> list[RecordProblem]:
    found = walk_chain(rows, chain_root("s"), end, BLOBS.__getitem__)
    return [one for one in found if isinstance(one, RecordProblem)]


def test_what_was_written_is_sound() -> None:
    assert find_problems(ROWS) == []
    assert list(walk_chain(ROWS, chain_root("s"), END, BLOBS.__getitem__)) == facts_of_every_kind()


@given(st.integers(0, len(ROWS) - 1), st.data())
def test_a_changed_byte_is_found(at: int, data: st.DataObject) -> None:
    """J7: in the record or in its hash."""
    seq, body, stored = ROWS[at]
    spot = data.draw(st.integers(0, len(body) + len(stored) - 1))
    joined = bytearray(body + stored)
    joined[spot] ^= data.draw(st.integers(1, 255))
    row = (seq, bytes(joined[: len(body)]), bytes(joined[len(body) :]))
    assert find_problems([*ROWS[:at], row, *ROWS[at + 1 :]])[0].seq == seq


@given(st.integers(0, len(ROWS) - 1))
def test_a_missing_record_is_found(at: int) -> None:
    """J7: the last one too."""
    assert find_problems([*ROWS[:at], *ROWS[at + 1 :]])[0] == RecordProblem(at + 1, "it is missing")


@given(st.integers(0, len(ROWS) - 2), st.data())
def test_a_missing_record_is_found_when_the_rest_is_numbered_anew(
    at: int, data: st.DataObject
) -> None:
    rest = [(seq - 1, body, stored) for seq, body, stored in ROWS[at + 1 :]]
    end = data.draw(st.sampled_from([END, ChainLink(END.seq - 1, END.hash)]))
    assert find_problems([*ROWS[:at], *rest], end)[0].seq == at + 1


@given(st.permutations(range(len(ROWS))))
def test_moved_records_are_found(order: list[int]) -> None:
    """J7: each with its hash, under a new number."""
    rows = [(at, ROWS[was][1], ROWS[was][2]) for at, was in enumerate(order, 1)]
    moved = next((at for at, was in enumerate(order) if at != was), None)
    found = find_problems(rows)
    assert (found[0].seq if found else None) == (None if moved is None else moved + 1)


def test_a_record_of_another_session_is_found() -> None:
    rows = chain_rows("another", [row[1] for row in ROWS])
    assert find_problems(rows, ChainLink(rows[-1][0], rows[-1][2]))[0].seq == 1


def test_a_record_under_another_number_is_found_even_with_a_good_chain() -> None:
    rows = chain_rows(
        "s", [encode_fact(fact).body for fact in (*note_facts(1, 1), *note_facts(3, 3))]
    )
    assert find_problems(rows, ChainLink(2, rows[-1][2])) == [
        RecordProblem(2, "it contains record 3")
    ]


def test_a_record_too_many_is_found() -> None:
    assert [one.seq for one in find_problems(ROWS, ChainLink(END.seq - 1, ROWS[-2][2]))] == [
        END.seq
    ]


@pytest.mark.parametrize("after", [0, 1, 10, len(ROWS) - 1])
def test_all_problems_are_told(after: int) -> None:
    start = ChainLink(after, ROWS[after - 1][2]) if after else chain_root("s")
    rows = [(seq, body + b" ", stored) for seq, body, stored in ROWS[after:]]
    found = list(walk_chain(rows, start, END, BLOBS.__getitem__))
    assert [one.seq for one in found] == list(range(after + 1, len(ROWS) + 1))
    assert all(isinstance(one, RecordProblem) for one in found)
