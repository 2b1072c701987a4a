"""A session in a line, kept up fact by fact."""

from windlass.core.events import RunStarted
from windlass.core.fold.run import fold
from windlass.core.messages import ImagePart, TextPart
from windlass.journals.summary import TITLE_CHARS_MAX, SessionSummary, advance_summary
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
