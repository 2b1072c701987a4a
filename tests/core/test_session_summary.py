"""A session in a line, kept up fact by fact."""

from msgspec.structs import replace

from windlass.core.events import CallJudged, Fact, LookupsPlanned, RunStarted
from windlass.core.fold.run import fold
from windlass.core.messages import ImagePart, TextPart, ToolCall
from windlass.core.session_summary import TITLE_CHARS_MAX, SessionSummary, advance_summary
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
        assert summary.state == (state.run.outcome or ("waiting" if state.is_waiting else "open"))
    assert "waiting" in {
        advance_summary(SessionSummary("s"), facts[:upto]).state for upto in range(20)
    }


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
