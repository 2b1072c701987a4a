"""Every fault of the table, over real HTTP on loopback, with the model alone.

The model is single-shot (S1): one request, pieces, and the end or one classified error (S2).
"""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing

import pytest

from windlass.core.errors import ModelError
from windlass.core.events import Piece, ReplyEnd, TextDelta, UsageDelta
from windlass.core.messages import Text, Thinking, User
from windlass.core.reply_assembly import Assembly
from windlass.core.view import Prompt
from windlass.models.http.model import HttpModel
from windlass.models.resolve import resolve
from windlass.ports import Model
from windlass.testing import ModelConformance
from windlass.testing.chat_wire import say, words
from windlass.testing.fault_server import FaultServer, in_thread
from windlass.testing.wire import answer, refuse_with, stall
from windlass.testing.wire_faults import BREAKS, REFUSALS, STALLS, WireFault
from windlass.testing.wire_oddities import ODDITIES, Oddity

KEY = "sk-test-0123456789abcdef"
PROMPT = Prompt("", "Be brief.", [User((Text("Hello?"),))], (), "auto", 256)
IDLE_S = 90.0


def model_at(server: FaultServer) -> HttpModel:
    return resolve("openai-compatible:m", base_url=server.url, key=KEY, environ={})


async def collect(model: Model, into: list[Piece]) -> None:
    async with aclosing(model.stream(PROMPT)) as stream:
        async for piece in stream:
            into.append(piece)  # noqa: PERF401 - what came before an error counts


def text_of(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, TextDelta))


@pytest.mark.parametrize("fault", [*REFUSALS, *BREAKS], ids=lambda fault: fault.name)
async def test_a_fault_is_one_classified_error(fault: WireFault) -> None:
    """S1, S2, S8."""
    pieces: list[Piece] = []
    async with FaultServer(fault.answer) as server:
        error: ModelError | None = None
        try:
            await collect(model_at(server), pieces)
        except ModelError as caught:
            error = caught
    assert len(server.asked) == 1
    assert text_of(pieces) == fault.text
    assert not [piece for piece in pieces if isinstance(piece, ReplyEnd)]
    if error is None:
        # Ending without the end marker is how a model says that the stream is incomplete.
        assert fault.kind == "incomplete_stream"
        return
    told = error.fault
    assert (told.kind, told.retryable) == (fault.kind, fault.retryable), told
    assert told.retry_after_s == fault.retry_after_s
    assert "\n" not in told.message
    assert KEY not in told.message


@pytest.mark.parametrize("fault", STALLS, ids=lambda fault: fault.name)
async def test_silence_can_be_given_up_on(fault: WireFault) -> None:
    """S4: pings and empty deltas are no pieces, so that the watchdog sees the silence."""
    pieces: list[Piece] = []
    async with FaultServer(fault.answer) as server:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(IDLE_S):
                await collect(model_at(server), pieces)
        assert text_of(pieces) == fault.text
        await asyncio.wait_for(server.asked[0].client_left.wait(), 5)


@pytest.mark.parametrize("oddity", ODDITIES, ids=lambda oddity: oddity.name)
async def test_a_reply_that_looks_broken_is_whole(oddity: Oddity) -> None:
    """S8, S9, S10."""
    pieces: list[Piece] = []
    async with FaultServer(oddity.answer) as server:
        await collect(model_at(server), pieces)
    assembly = Assembly()
    for piece in pieces:
        assembly.add(piece)
    reply = assembly.reply("m", "c1_")
    assert reply.text == oddity.text
    thinking = [part.text for part in reply.parts if isinstance(part, Thinking)]
    assert "".join(thinking) == oddity.thinking
    assert tuple((call.name, call.arguments) for call in reply.calls) == oddity.calls
    assert len({call.id for call in reply.calls}) == len(reply.calls)
    assert (assembly.usage is not None) is oddity.usage
    ends = [at for at, piece in enumerate(pieces) if isinstance(piece, ReplyEnd)]
    assert len(ends) == 1
    assert all(isinstance(piece, UsageDelta) for piece in pieces[ends[0] + 1 :])


async def test_a_refused_connection_is_a_network_error() -> None:
    async with FaultServer() as server:
        model = model_at(server)
    with pytest.raises(ModelError) as caught:
        await collect(model, [])
    assert (caught.value.fault.kind, caught.value.fault.retryable) == ("network", True)


async def test_nothing_is_asked_before_the_stream_is_read() -> None:
    async with FaultServer(always=say("hi")) as server:
        await model_at(server).stream(PROMPT).aclose()
    assert server.asked == []


async def test_a_stream_that_is_left_is_closed_at_once() -> None:
    """C1."""
    async with FaultServer(answer(words("a"), stall())) as server:
        stream = model_at(server).stream(PROMPT)
        await anext(stream)
        await stream.aclose()
        await asyncio.wait_for(server.asked[0].client_left.wait(), 5)


@pytest.mark.realtime
class TestConformance(ModelConformance):
    """What every model must do, over the wire as well."""

    @pytest.fixture
    def model(self) -> Iterator[Model]:
        with in_thread(FaultServer(always=say("I am well, thank you."))) as server:
            yield model_at(server)

    @pytest.fixture
    def failing_model(self) -> Iterator[Model]:
        broken = refuse_with(500, {"error": {"message": "no"}})
        with in_thread(FaultServer(always=broken)) as server:
            yield model_at(server)
