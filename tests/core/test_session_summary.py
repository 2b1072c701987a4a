"""A session in a line, kept up fact by fact."""

import pytest
from msgspec.structs import replace

from facts import Story
from windlass.core.events import (
    CallJudged,
    Fact,
    LookupsPlanned,
    RunResumed,
    RunStarted,
    SessionImported,
)
from windlass.core.fold.run import fold
from windlass.core.messages import ImagePart, TextPart, ToolCall
from windlass.core.session_summary import TITLE_CHARS_MAX, SessionSummary, advance_summary
from windlass.core.state import State
from windlass.core.verdicts import Ask
from windlass.testing.samples import facts_of_every_kind


def test_it_agrees_with_the_fold_at_every_fact() -> None:
    facts = facts_of_every_kind()
    for upto in range(1, len(facts) + 1):
        state, summary = fold("s", facts[:upto]), advance_summary(SessionSummary("s"), facts[:upto])
        assert state.run is not None
        assert (summary.facts, summary.updated) == (state.seq, facts[upto - 1].at)
        assert summary.steps == state.steps
        assert (summary.runs, summary.outcome) == (state.run.number, state.run.outcome)
        assert summary.caller == state.run.caller
        assert_spending_agrees(summary, state)
        assert summary.state == (state.run.outcome or open_state(state))
    assert "waiting" in {
        advance_summary(SessionSummary("s"), facts[:upto]).state for upto in range(20)
    }
    assert "paused" in {
        advance_summary(SessionSummary("s"), facts[:upto]).state for upto in range(len(facts))
    }


def open_state(state: State) -> str:
    if state.is_waiting:
        return "waiting"
    return "paused" if state.is_paused else "open"


def assert_spending_agrees(summary: SessionSummary, state: State) -> None:
    used = state.ledger.usage
    assert summary.tokens == (used.total if used else 0)
    assert summary.usd == (state.ledger.usd if used else 0)


@pytest.mark.contract("D9")
def test_an_attempt_that_nobody_saw_the_end_of_counts_as_in_the_fold() -> None:
    """D9: what a list shows as spent is what the fold counts, also after a crash."""
    story = Story().start_run().start_attempt()
    assert story.state.ledger.usage is None
    facts = [*story.facts, RunResumed(seq=story.state.seq + 1, at=story.state.at + 1)]
    summary = advance_summary(SessionSummary("s"), facts)
    assert summary.tokens > 0
    assert_spending_agrees(summary, fold("s", facts))


@pytest.mark.contract("D9")
def test_it_names_the_agent_the_caller_and_the_session_above() -> None:
    """D9: sessions can be listed by agent, caller and parent."""
    prompt = (TextPart("go"),)
    child = RunStarted(1, prompt, caller="ann", parent="a/b/c1_0", agent="porter", seq=1)
    by_hand = RunStarted(2, prompt, caller="bob", agent="clerk", seq=2)
    first = advance_summary(SessionSummary("s"), [child])
    assert (first.agent, first.caller, first.parent) == ("porter", "ann", "a/b")
    again = advance_summary(first, [by_hand])
    assert (again.agent, again.caller, again.parent) == ("clerk", "bob", "a/b")
    imported = advance_summary(again, [SessionImported("elsewhere", seq=3)])
    assert (imported.agent, imported.caller, imported.parent) == ("clerk", "", "")


def test_a_step_of_lookups_waits_only_when_all_of_its_calls_are_judged() -> None:
    samples = facts_of_every_kind()
    started = next(fact for fact in samples if isinstance(fact, RunStarted))
    calls = (ToolCall("a", "look", "{}"), ToolCall("b", "look", "{}"))
    facts: list[Fact] = [replace(started, seq=1, at=1.0), LookupsPlanned(calls, seq=2, at=2.0)]
    facts += (
        CallJudged(call.id, Ask("May I?", "rule"), {}, seq=seq, at=float(seq))
        for seq, call in enumerate(calls, 3)
    )
    for upto, waits in ((2, False), (3, False), (4, True)):
        summary = advance_summary(SessionSummary("s"), facts[:upto])
        assert fold("s", facts[:upto]).is_waiting == (summary.state == "waiting") == waits


def test_it_does_not_matter_how_the_facts_are_cut() -> None:
    facts = facts_of_every_kind()
    whole = advance_summary(SessionSummary("s"), facts)
    for cut in range(len(facts)):
        assert (
            advance_summary(advance_summary(SessionSummary("s"), facts[:cut]), facts[cut:]) == whole
        )


def test_the_title_is_how_the_first_prompt_begins() -> None:
    first = RunStarted(1, (ImagePart("image/png"), TextPart("  many\n\n words " * 100)), seq=1)
    again = RunStarted(2, (TextPart("later"),), seq=2)
    title = advance_summary(SessionSummary("s"), [first, again]).title
    assert title.startswith("many words many")
    assert len(title) == TITLE_CHARS_MAX
