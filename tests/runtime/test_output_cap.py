"""B5: output beyond what was reserved ends the attempt, and no honest reply is cut."""

import logging
from collections.abc import AsyncGenerator, Sequence
from itertools import chain, repeat

import pytest

from windlass.agent.agent import Agent
from windlass.core.decide.reserving import OUTPUT_MARGIN, OUTPUT_SLACK_CHARS
from windlass.core.events import (
    CallDelta,
    Event,
    ReplyEnd,
    ReplyPiece,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)
from windlass.core.limits import Limits
from windlass.core.messages import Usage
from windlass.core.reply_assembly import CALLS_MAX
from windlass.core.setup import ModelInfo
from windlass.core.view import Prompt
from windlass.testing import VirtualClock

pytestmark = pytest.mark.contract("B5")

CAP = 100
CHARS_MAX = CAP * 4 * OUTPUT_MARGIN + OUTPUT_SLACK_CHARS
WORD = "word "


class FixedStream:
    """A model that streams these pieces, and the last one for ever if `endless`."""

    info = ModelInfo("fixed:stream", output_max=CAP)

    def __init__(self, pieces: Sequence[ReplyPiece], *, endless: bool = False) -> None:
        self._pieces = pieces
        self._endless = endless
        self.sent = 0

    async def stream(self, prompt: Prompt) -> AsyncGenerator[ReplyPiece]:
        more = repeat(self._pieces[-1]) if self._endless else ()
        for piece in chain(self._pieces, more):
            self.sent += 1
            yield piece


@pytest.mark.parametrize(
    "piece",
    [TextDelta(WORD), ThinkingDelta(WORD), CallDelta(0, "c", None, WORD)],
    ids=["text", "thinking", "call"],
)
async def test_output_beyond_the_cap_ends_the_attempt(
    piece: ReplyPiece, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """As if the server had ended the reply at the cap: it is truncated, and kept."""
    model = FixedStream([piece], endless=True)
    with caplog.at_level(logging.WARNING):
        result = await Agent(model, clock=clock, limits=Limits(steps=1)).run("Hello")
    assert result.outcome == ("max_steps" if isinstance(piece, CallDelta) else "truncated")
    assert model.sent * len(WORD) == pytest.approx(CHARS_MAX, abs=50)
    assert result.usage is not None
    assert result.usage.output == pytest.approx(CHARS_MAX / 4, abs=20)
    assert "fixed:stream ignores the output cap: it was asked for 100 tokens" in caplog.text


async def test_calls_without_end_end_the_attempt(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A call costs more to judge than to write, so their number is bounded as well."""
    calls = [CallDelta(at, f"c{at}", "look", "{}") for at in range(3 * CALLS_MAX)]
    model = FixedStream([*calls, ReplyEnd("calls")])
    roomy = ModelInfo("fixed:stream", output_max=100_000)
    model.info = roomy
    with caplog.at_level(logging.WARNING):
        result = await Agent(model, clock=clock, limits=Limits(steps=1)).run("Hello")
    assert result.outcome == "max_steps"
    assert model.sent == CALLS_MAX + 2
    assert "makes calls without end" in caplog.text


async def test_a_watcher_sees_all_that_is_kept(clock: VirtualClock) -> None:
    events: list[Event] = []
    model = FixedStream([TextDelta(WORD)], endless=True)
    result = await Agent(model, clock=clock).run("Hello", on_event=events.append)
    shown = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert shown == result.text
    assert result.reason == "the model hit its output limit"


@pytest.mark.parametrize(
    "pieces",
    [
        [TextDelta("x" * 10)] * CAP,
        [TextDelta("x" * 16)] * CAP,
        [TextDelta("x" * 5_000_000)],
        [TextDelta(WORD), ThinkingDelta("", "s" * 5_000_000), TextDelta(WORD)],
    ],
    ids=["long_tokens", "very_long_tokens", "one_delta", "signature"],
)
async def test_an_honest_reply_is_not_cut(pieces: list[ReplyPiece], clock: VirtualClock) -> None:
    """Tokens may be long, and a signature is not output."""
    usage = UsageDelta(Usage(10, CAP))
    result = await Agent(FixedStream([*pieces, usage, ReplyEnd()]), clock=clock).run("Hello")
    assert result.outcome == "completed"
    assert result.text == "".join(piece.text for piece in pieces if isinstance(piece, TextDelta))
    assert result.usage == Usage(10, CAP)
