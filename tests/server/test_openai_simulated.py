"""Responses of simulated sessions, with crashes, cancels, faults, questions and limits."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import pytest

from folded_response import FoldedResponse
from proof.simulate import PlayedSession, draw_plan, play_plan
from windlass import Event, RunStarted
from windlass.core.reply_hold import visible_facts
from windlass.server.openai.response_encoder import ResponseEvent, TextPieceEvent, skip_seen

pytestmark = pytest.mark.slow

CHUNK = 60
SEEDS = 600
CUTS_MAX = 8


def watch_live(played: PlayedSession, late: Iterable[Event]) -> list[Event]:
    """Return what somebody saw who watched every drive from its beginning."""
    events = {(event.seq, event.nth): event for event in late}
    for drive in played.drives:
        # What a process that lost its power wrote last was seen by nobody.
        if drive.powered and played.plan.watched:
            events |= {(event.seq, event.nth): event for event in drive.events}
    return [events[place] for place in sorted(events)]


def fold_run(events: Iterable[Event], run: int) -> tuple[FoldedResponse, list[ResponseEvent]]:
    fold = FoldedResponse("sim", run)
    return fold, [made for event in events for made in fold.apply(event)]


def join_text(events: Iterable[ResponseEvent]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for event in events:
        if isinstance(event, TextPieceEvent):
            texts[event.item_id] = texts.get(event.item_id, "") + event.delta
    return texts


def check_run(live: Sequence[Event], late: Sequence[Event], run: int) -> None:
    fold, seen = fold_run(live, run)
    late_fold, late_seen = fold_run(late, run)
    response = fold.read_response()
    assert late_fold.read_response() == response
    known = {event.sequence_number: event for event in seen}
    for events in (seen, late_seen):
        numbers = [event.sequence_number for event in events]
        assert all(earlier < later for earlier, later in pairwise(numbers))
    for event in late_seen:
        if not isinstance(event, TextPieceEvent):
            assert known[event.sequence_number] == event
    final = {item.id: item.text for item in response.output if item.text}
    step = max(1, len(seen) // CUTS_MAX)
    for at in range(0, len(seen), step):
        number = seen[at].sequence_number
        rest = [skip_seen(event, number) for event in late_seen]
        whole = [*seen[: at + 1], *(event for event in rest if event is not None)]
        texts = join_text(whole)
        assert {key: texts[key] for key in final} == final


@pytest.mark.contract("A6")
@pytest.mark.parametrize(
    "first",
    [0, *(pytest.param(first, marks=pytest.mark.slow) for first in range(CHUNK, SEEDS, CHUNK))],
)
def test_a_response_is_the_same_for_whoever_comes_late_or_comes_back(first: int) -> None:
    for seed in range(first, first + CHUNK):
        played = play_plan(draw_plan(seed))
        late = list(visible_facts(played.facts, withhold=False, live=False))
        live = watch_live(played, late)
        for fact in played.facts:
            if isinstance(fact, RunStarted):
                try:
                    check_run(live, late, fact.run)
                except AssertionError as error:
                    raise AssertionError(f"seed {seed}, run {fact.run}: {error}") from error
