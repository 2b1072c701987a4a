"""The row of a session: made of its state, by one function."""

from itertools import groupby

import pytest
from msgspec.structs import replace

from facts import Story
from windlass.core.events import (
    CallJudged,
    Fact,
    LookupsPlanned,
    RunEnded,
    RunQueued,
    RunResumed,
    RunStarted,
    SessionImported,
)
from windlass.core.fold.run import TITLE_CHARS_MAX, fold
from windlass.core.messages import ImagePart, TextPart, ToolCall
from windlass.core.session_summary import SessionSummary, row_of
from windlass.core.state import State
from windlass.core.verdicts import Ask
from windlass.testing.samples import facts_of_every_kind


def rows_of(facts: list[Fact]) -> list[SessionSummary]:
    """The row after each of the facts."""
    return [row_of(fold("s", facts[:upto])) for upto in range(1, len(facts) + 1)]


def first_run() -> RunStarted:
    first = facts_of_every_kind()[0]
    assert isinstance(first, RunStarted)
    return first


def test_it_says_what_the_facts_add_up_to() -> None:
    facts = facts_of_every_kind()
    runs = 0
    for row, fact in zip(rows_of(facts), facts, strict=True):
        state = fold("s", facts[: fact.seq])
        assert state.run is not None
        is_queued = isinstance(fact, RunStarted) and fact.mail > 0
        runs += isinstance(fact, RunStarted | RunQueued) and not is_queued
        assert (row.facts, row.created, row.updated) == (fact.seq, facts[0].at, fact.at)
        assert (row.runs, row.steps, row.outcome) == (runs, state.steps, state.run.outcome)
        assert_spending_agrees(row, state)
        reserved = state.run.attempt.reserved if state.run.attempt else None
        assert row.reserved_usd == (reserved.usd if reserved else None)
        assert (row.reserved_tokens is None) == (reserved is None)


def test_it_names_each_state_that_a_session_comes_through() -> None:
    """D9: what open, waiting and paused mean is said in one place."""
    states = [state for state, _ in groupby(row.state for row in rows_of(facts_of_every_kind()))]
    first = ["open", "waiting", "open", "awaiting_budget", "open", "paused", "open", "completed"]
    second = ["queued", "paused", "queued", *["open", "waiting"] * 3, "open", "failed"]
    assert states == [*first, *second, "open", "completed"]


def assert_spending_agrees(row: SessionSummary, state: State) -> None:
    used = state.ledger.usage
    assert row.tokens == (used.total if used else 0)
    assert row.usd == (state.ledger.usd if used else 0)


@pytest.mark.contract("D9")
def test_an_attempt_that_nobody_saw_the_end_of_counts_as_in_the_fold() -> None:
    """D9: what a list shows as spent is what the fold counts, also after a crash."""
    story = Story().start_run().start_attempt()
    assert story.state.ledger.usage is None
    facts = [*story.facts, RunResumed(seq=story.state.seq + 1, at=story.state.at + 1)]
    state = fold("s", facts)
    assert row_of(state).tokens > 0
    assert_spending_agrees(row_of(state), state)


@pytest.mark.contract("D9")
def test_it_names_the_agent_the_caller_and_the_session_above() -> None:
    """D9: sessions can be listed by agent, caller and parent."""
    child = replace(first_run(), caller="ann", parent="a/b/c1_0", agent="porter")
    by_hand = RunStarted(2, (TextPart("go"),), caller="bob", agent="clerk", seq=3)
    facts: list[Fact] = [child, RunEnded("completed", seq=2), by_hand]
    first, _, again = rows_of(facts)
    assert (first.agent, first.caller, first.parent) == ("porter", "ann", "a/b")
    assert (again.agent, again.caller, again.parent) == ("clerk", "bob", "a/b")
    imported = row_of(fold("s", [*facts, SessionImported("elsewhere", seq=4)]))
    assert (imported.agent, imported.caller, imported.parent) == ("clerk", "", "")


def test_a_step_of_lookups_waits_only_when_all_of_its_calls_are_judged() -> None:
    calls = (ToolCall("a", "look", "{}"), ToolCall("b", "look", "{}"))
    facts: list[Fact] = [replace(first_run(), at=1.0), LookupsPlanned(calls, seq=2, at=2.0)]
    facts += (
        CallJudged(call.id, Ask("May I?", "rule"), {}, seq=seq, at=float(seq))
        for seq, call in enumerate(calls, 3)
    )
    assert [row.state for row in rows_of(facts)] == ["open", "open", "open", "waiting"]
    assert [row.asked for row in rows_of(facts)] == [0, 0, 1, 2]


def test_the_time_of_a_change_moves_only_with_the_state() -> None:
    """D9: lists are sorted by it, and a clock that is set back moves nothing back."""
    row = SessionSummary("s", changed=5.0, updated=5.0)
    step = SessionSummary("s", changed=7.0, updated=7.0, steps=1, tokens=9, asked=1)
    assert step.follow(row) == replace(step, changed=5.0)
    assert replace(step, state="waiting").follow(row).changed == 7.0
    assert replace(step, runs=1).follow(row).changed == 7.0
    assert replace(row, state="waiting", changed=1.0).follow(row).changed == 5.0


def test_the_title_is_how_the_first_prompt_begins() -> None:
    prompt = (ImagePart("image/png"), TextPart("  many\n\n words " * 100))
    again = RunStarted(2, (TextPart("later"),), seq=3)
    first = replace(first_run(), prompt=prompt)
    title = rows_of([first, RunEnded("failed", seq=2), again])[-1].title
    assert title.startswith("many words many")
    assert len(title) == TITLE_CHARS_MAX
