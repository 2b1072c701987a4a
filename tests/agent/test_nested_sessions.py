"""What a watcher is shown of sub-agents: each fact once, whatever it missed, and no secret."""

import pytest
from msgspec.structs import replace

from windlass.agent.nested_sessions import NestedSessions
from windlass.core.events import (
    AttemptStarted,
    Fact,
    NestedEvent,
    RunResumed,
    RunStarted,
    TextDelta,
)
from windlass.core.limits import Reservation
from windlass.core.live_batch import FactMark
from windlass.core.messages import TextPart
from windlass.core.secrets.mask import Mask
from windlass.journals.memory import MemoryJournal
from windlass.testing.journals import append_facts

SECRET = "hunter2-of-the-hill"


async def make_journal() -> tuple[MemoryJournal, list[Fact]]:
    facts: list[Fact] = [
        RunStarted(1, (TextPart(f"Use {SECRET}."),), seq=1),
        AttemptStarted(1, 1, "m", Reservation(1, 1), seq=2),
        RunResumed(seq=3),
        AttemptStarted(1, 2, "m", Reservation(1, 1), seq=4),
    ]
    journal = MemoryJournal()
    await append_facts(journal, "s/c", facts)
    return journal, facts


def nest(event: object, nth: int) -> NestedEvent:
    return NestedEvent("c", "helper", "s/c", event, seq=5, nth=nth)


@pytest.mark.contract("E5")
async def test_a_sub_agent_that_goes_on_elsewhere_is_shown_from_its_beginning() -> None:
    """Its first fact here is a resume: what was before it is read, and has places before it."""
    journal, facts = await make_journal()
    shown = await NestedSessions(journal, Mask({})).show(nest(facts[2], 9))
    assert [(one.event, one.nth) for one in shown] == list(zip(facts[:3], (7, 8, 9), strict=True))


@pytest.mark.contract("E5")
async def test_a_snapshot_brings_only_what_was_missed() -> None:
    journal, facts = await make_journal()
    nested = NestedSessions(journal, Mask({}))
    for at, fact in enumerate(facts[:2], start=1):
        assert await nested.show(nest(fact, at)) == [nest(fact, at)]
    text = TextDelta("One ", seq=2, nth=1)
    assert await nested.show(nest(text, 3)) == [nest(text, 3)]
    assert await nested.show(nest(FactMark(2), 5), is_snapshot=True) == []
    more = TextDelta("One two", seq=2, nth=4)
    rest = await nested.show(nest(more, 6), is_snapshot=True)
    assert rest == [nest(replace(more, text="two"), 6)]
    shown = await nested.show(nest(FactMark(4), 12), is_snapshot=True)
    assert [one.event for one in shown] == facts[2:]


@pytest.mark.contract("G8")
async def test_facts_are_masked_for_who_knows_more_secrets_than_the_sub_agent() -> None:
    journal, _ = await make_journal()
    nested = NestedSessions(journal, Mask({"PASSWORD": SECRET}))
    shown = await nested.show(nest(FactMark(4), 4), is_snapshot=True)
    assert len(shown) == 4
    assert SECRET not in repr(shown)
