"""Pieces that come together are taken together, and still told one by one."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import nullcontext
from itertools import pairwise

import pytest
from typing_extensions import override

from windlass.agent.agent import Agent
from windlass.core.events import (
    AttemptStarted,
    CallDelta,
    ContentPiece,
    Event,
    ReplyEnd,
    ReplyPiece,
    StreamStalled,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)
from windlass.core.limits import Reservation
from windlass.core.messages import Usage
from windlass.core.result import RunFailed
from windlass.core.secrets.mask import Mask
from windlass.core.setup import ModelInfo
from windlass.core.state import State
from windlass.core.view import Prompt
from windlass.ports import Timeouts
from windlass.runtime.publisher import EventPublisher
from windlass.testing import ScriptedModel, VirtualClock

SECRET = "hunter2-of-the-hill"


class BatchesModel:
    """A model that streams these batches, with a wait in front of each."""

    info = ModelInfo("batches:model", output_max=100)

    def __init__(
        self, clock: VirtualClock, *batches: Sequence[ReplyPiece], wait_s: float = 0.0
    ) -> None:
        self._clock = clock
        self._batches = batches
        self._wait_s = wait_s
        self.streamed = 0

    async def stream(self, prompt: Prompt) -> AsyncGenerator[ReplyPiece]:
        raise AssertionError("the batches are streamed instead")
        yield

    async def stream_batches(self, prompt: Prompt) -> AsyncGenerator[tuple[ReplyPiece, ...]]:
        for batch in self._batches:
            await self._clock.sleep(self._wait_s)
            self.streamed += 1
            yield tuple(batch)


def texts_of(events: Sequence[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, TextDelta)]


@pytest.mark.contract("E1", "E2")
async def test_pieces_of_a_batch_are_told_one_by_one(clock: VirtualClock) -> None:
    events: list[Event] = []
    words = ["one ", "two ", "three"]
    model = BatchesModel(clock, [*map(TextDelta, words), ReplyEnd()])
    result = await Agent(model, clock=clock).run("Hello", on_event=events.append)
    assert texts_of(events) == words
    assert result.text == "one two three"
    places = [(event.seq, event.nth) for event in events]
    assert all(one < other for one, other in pairwise(places))


@pytest.mark.contract("S8")
async def test_nothing_behind_the_end_of_a_reply_counts(clock: VirtualClock) -> None:
    events: list[Event] = []
    late = [TextDelta(" Late."), ReplyEnd("length")]
    model = BatchesModel(clock, [TextDelta("Yes."), ReplyEnd(), *late], late)
    result = await Agent(model, clock=clock).run("Hello", on_event=events.append)
    assert (result.text, result.outcome, model.streamed) == ("Yes.", "completed", 1)
    assert texts_of(events) == ["Yes."]


@pytest.mark.contract("B5")
async def test_a_reply_is_cut_at_its_cap_in_the_middle_of_a_batch(clock: VirtualClock) -> None:
    events: list[Event] = []
    words = [TextDelta("word ")] * 2_000
    whole = BatchesModel(clock, [*words, ReplyEnd()])
    result = await Agent(whole, clock=clock).run("Hello", on_event=events.append)
    one_by_one = BatchesModel(clock, *([word] for word in words), [ReplyEnd()])
    other = await Agent(one_by_one, clock=clock).run("Hello")
    assert result.outcome == other.outcome == "truncated"
    assert result.text == other.text == "".join(texts_of(events))


@pytest.mark.contract("S4")
@pytest.mark.parametrize(
    ("batch", "stalls"),
    [
        ([UsageDelta(Usage(1, 1))] * 2, 1),
        ([UsageDelta(Usage(1, 1)), TextDelta(".")], 0),
    ],
    ids=["usage alone", "usage and text"],
)
async def test_only_content_in_a_batch_feeds_the_idle_timer(
    batch: list[ReplyPiece], stalls: int, clock: VirtualClock
) -> None:
    events: list[Event] = []
    last = [TextDelta("."), ReplyEnd()]
    model = BatchesModel(clock, [TextDelta(".")], batch, last, wait_s=6.0)
    agent = Agent(model, clock=clock, timeouts=Timeouts(idle_s=10.0))
    with pytest.raises(RunFailed) if stalls else nullcontext():
        await agent.run("Hello", on_event=events.append, on_partial="fail")
    assert sum(isinstance(event, StreamStalled) for event in events) == stalls


class SaysOtherwise(ScriptedModel):
    """A subclass of a model with batches that knows nothing about them."""

    @override
    async def stream(self, prompt: Prompt) -> AsyncGenerator[ReplyPiece]:
        async for piece in super().stream(prompt):
            yield TextDelta("No.") if isinstance(piece, TextDelta) else piece


async def test_a_subclass_that_overrides_the_stream_is_not_passed_over() -> None:
    with SaysOtherwise(["Yes."], token_chars=9) as model:
        assert (await Agent(model).run("Hello")).text == "No."


SENTENCE = f"The password is {SECRET}, and not hunting."
MASKED = "The password is [secret], and not hunting."


@pytest.mark.contract("G8")
@pytest.mark.parametrize("kind", [TextDelta, ThinkingDelta])
@pytest.mark.parametrize("piece_chars", [2, 3, 5, 19])
@pytest.mark.parametrize("batch_pieces", [1, 2, 7, 200])
def test_a_secret_is_masked_however_it_is_cut_into_pieces_and_batches(
    kind: type[TextDelta | ThinkingDelta], piece_chars: int, batch_pieces: int
) -> None:
    publisher = EventPublisher(Mask({"PASSWORD": SECRET}))
    publisher.publish_facts([AttemptStarted(1, 1, "m", Reservation(1, 1))], State("s"))
    shown: list[Event] = []
    publisher.add_watcher(shown.append)
    cuts = range(0, len(SENTENCE), piece_chars)
    pieces: list[ContentPiece] = [kind(SENTENCE[at : at + piece_chars]) for at in cuts]
    for at in range(0, len(pieces), batch_pieces):
        publisher.show_pieces(pieces[at : at + batch_pieces])
        assert SECRET[:8] not in _shown_text(shown)
    publisher.show_pieces([ReplyEnd()])
    assert _mask_free(_shown_text(shown)) == _mask_free(MASKED)


@pytest.mark.contract("G8")
@pytest.mark.parametrize("piece_chars", [2, 3, 5, 19])
@pytest.mark.parametrize("batch_pieces", [1, 2, 7, 200])
def test_a_secret_in_arguments_is_masked_however_they_are_cut(
    piece_chars: int, batch_pieces: int
) -> None:
    publisher = EventPublisher(Mask({"PASSWORD": SECRET}))
    publisher.publish_facts([AttemptStarted(1, 1, "m", Reservation(1, 1))], State("s"))
    shown: list[Event] = []
    publisher.add_watcher(shown.append)
    cuts = range(0, len(SENTENCE), piece_chars)
    pieces: list[ContentPiece] = [CallDelta(0, "id", "send")]
    pieces += [CallDelta(0, arguments=SENTENCE[at : at + piece_chars]) for at in cuts]
    for at in range(0, len(pieces), batch_pieces):
        publisher.show_pieces(pieces[at : at + batch_pieces])
    publisher.show_pieces([ReplyEnd()])
    deltas = [event for event in shown if isinstance(event, CallDelta)]
    text = "".join(delta.arguments for delta in deltas)
    assert SECRET[:8] not in text
    assert _mask_free(text) == _mask_free(MASKED)
    assert [delta.name for delta in deltas if delta.name] == ["send"]


def test_pieces_of_several_kinds_keep_their_order() -> None:
    publisher = EventPublisher(Mask({"PASSWORD": SECRET}))
    publisher.publish_facts([AttemptStarted(1, 1, "m", Reservation(1, 1))], State("s"))
    shown: list[Event] = []
    publisher.add_watcher(shown.append)
    pieces = [
        ThinkingDelta("I hu"),
        ThinkingDelta("nt", "signed"),
        TextDelta("Let me"),
        TextDelta(" look."),
        CallDelta(0, "c", "look", "{}"),
        UsageDelta(Usage(1, 1)),
    ]
    publisher.show_pieces([*pieces, ReplyEnd()])
    kinds = [type(event) for event in shown]
    assert kinds.index(TextDelta) > kinds.index(ThinkingDelta)
    assert kinds[-2:] == [CallDelta, UsageDelta]
    assert texts_of(shown) == ["Let me", " look."]


def _shown_text(shown: Sequence[Event]) -> str:
    return "".join(event.text for event in shown if isinstance(event, TextDelta | ThinkingDelta))


def _mask_free(text: str) -> str:
    """Return a text with the same word for every mask."""
    before, _, rest = text.partition("[")
    _, _, after = rest.partition("]")
    return f"{before}[]{after}"
