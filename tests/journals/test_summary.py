"""A session in a line, kept up fact by fact."""

from windlass.core.events import RunStarted
from windlass.core.fold.run import fold
from windlass.core.messages import Image, Text
from windlass.journals.summary import TITLE_MAX, Summary, advance
from windlass.testing.samples import one_of_each


def test_it_agrees_with_the_fold_at_every_fact() -> None:
    facts = one_of_each()
    for upto in range(1, len(facts) + 1):
        state, summary = fold("s", facts[:upto]), advance(Summary("s"), facts[:upto])
        assert state.run is not None
        assert (summary.facts, summary.updated) == (state.seq, facts[upto - 1].at)
        assert summary.steps == state.steps
        assert (summary.runs, summary.outcome) == (state.run.number, state.run.outcome)
        assert summary.state == (state.run.outcome or ("waiting" if state.waiting else "open"))
    assert "waiting" in {advance(Summary("s"), facts[:upto]).state for upto in range(20)}


def test_it_does_not_matter_how_the_facts_are_cut() -> None:
    facts = one_of_each()
    whole = advance(Summary("s"), facts)
    for cut in range(len(facts)):
        assert advance(advance(Summary("s"), facts[:cut]), facts[cut:]) == whole


def test_the_title_is_how_the_first_prompt_begins() -> None:
    first = RunStarted(1, (Image("image/png"), Text("  many\n\n words " * 100)), seq=1)
    again = RunStarted(2, (Text("later"),), seq=2)
    title = advance(Summary("s"), [first, again]).title
    assert title.startswith("many words many")
    assert len(title) == TITLE_MAX
