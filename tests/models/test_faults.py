"""Every fault of the table, over real HTTP on loopback, with the model alone.

The model is single-shot (S1): one request, pieces, and the end or one classified error (S2).
"""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing

import pytest

from proof.wire_faults import BREAKS, REFUSALS, STALLS, WireFault
from proof.wire_oddities import ODDITIES, WireOddity
from windlass.core.errors import ModelError
from windlass.core.events import ReplyEnd, ReplyPiece, StreamOpened, TextDelta, UsageDelta
from windlass.core.messages import TextPart, ThinkingPart, UserMessage
from windlass.core.reply_assembly import ReplyAssembly
from windlass.core.view import Prompt
from windlass.models.http.model import HttpModel
from windlass.models.resolve import resolve_model
from windlass.ports import Model
from windlass.testing import ModelConformance
from windlass.testing.chat_wire import DONE, finish_chunk, text_answer, text_chunk
from windlass.testing.fault_server import FaultServer, serve_in_thread
from windlass.testing.wire import refuse_with, stall, stream_answer

KEY = "sk-test-0123456789abcdef"
PROMPT = Prompt("", "Be brief.", [UserMessage((TextPart("Hello?"),))], (), "auto", 256)
IDLE_S = 90.0


def model_at(server: FaultServer) -> HttpModel:
    return resolve_model("openai-compatible:m", base_url=server.url, key=KEY, environ={})


async def collect(model: Model, into: list[ReplyPiece]) -> None:
    async with aclosing(model.stream(PROMPT)) as stream:
        async for piece in stream:
            into.append(piece)  # noqa: PERF401 - what came before an error counts


def text_of(pieces: list[ReplyPiece]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, TextDelta))


@pytest.mark.parametrize("fault", [*REFUSALS, *BREAKS], ids=lambda fault: fault.name)
async def test_a_fault_is_one_classified_error(fault: WireFault) -> None:
    """S1, S2, S8."""
    pieces: list[ReplyPiece] = []
    async with FaultServer(fault.answer) as server:
        error: ModelError | None = None
        try:
            await collect(model_at(server), pieces)
        except ModelError as caught:
            error = caught
    assert len(server.requests) == 1
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


BROKEN_EVENT = b'data: {"choices": \n\n'


@pytest.mark.contract("S1", "S8")
async def test_what_comes_with_an_error_in_one_read_is_streamed_before_it() -> None:
    """The deltas of one read come as one batch, and nothing behind the end marker is read."""
    text = text_chunk("one ") + text_chunk("two")
    pieces: list[ReplyPiece] = []
    async with FaultServer(stream_answer(text + BROKEN_EVENT)) as server:
        with pytest.raises(ModelError) as caught:
            await collect(model_at(server), pieces)
    assert caught.value.fault.kind == "malformed_stream"
    assert text_of(pieces) == "one two"
    whole = text + finish_chunk() + DONE + text_chunk(" late") + BROKEN_EVENT
    async with (
        FaultServer(stream_answer(whole)) as server,
        aclosing(model_at(server).stream_batches(PROMPT)) as batches,
    ):
        opened, batch = [batch async for batch in batches]
    assert [type(piece) for piece in opened] == [StreamOpened]
    assert batch == (TextDelta("one "), TextDelta("two"), ReplyEnd("end"))


@pytest.mark.parametrize("fault", STALLS, ids=lambda fault: fault.name)
async def test_silence_can_be_given_up_on(fault: WireFault) -> None:
    """S4: pings and empty deltas are no pieces, so that the watchdog sees the silence."""
    pieces: list[ReplyPiece] = []
    async with FaultServer(fault.answer) as server:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(IDLE_S):
                await collect(model_at(server), pieces)
        assert text_of(pieces) == fault.text
        await asyncio.wait_for(server.requests[0].client_left.wait(), 5)


@pytest.mark.parametrize("oddity", ODDITIES, ids=lambda oddity: oddity.name)
async def test_a_reply_that_looks_broken_is_whole(oddity: WireOddity) -> None:
    """S8, S9, S10."""
    pieces: list[ReplyPiece] = []
    async with FaultServer(oddity.answer) as server:
        await collect(model_at(server), pieces)
    assembly = ReplyAssembly()
    for piece in pieces:
        assembly.add_piece(piece)
    reply = assembly.build_reply("m", "c1_")
    assert reply.text == oddity.text
    thinking = [part.text for part in reply.parts if isinstance(part, ThinkingPart)]
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
    async with FaultServer(always=text_answer("hi")) as server:
        await model_at(server).stream(PROMPT).aclose()
    assert server.requests == []


async def test_a_stream_that_is_left_is_closed_at_once() -> None:
    """C1."""
    async with FaultServer(stream_answer(text_chunk("a"), stall())) as server:
        stream = model_at(server).stream(PROMPT)
        await anext(stream)
        await stream.aclose()
        await asyncio.wait_for(server.requests[0].client_left.wait(), 5)


@pytest.mark.realtime
class TestConformance(ModelConformance):
    """What every model must do, over the wire as well."""

    @pytest.fixture
    def model(self) -> Iterator[Model]:
        with serve_in_thread(FaultServer(always=text_answer("I am well, thank you."))) as server:
            yield model_at(server)

    @pytest.fixture
    def failing_model(self) -> Iterator[Model]:
        broken = refuse_with(500, {"error": {"message": "no"}})
        with serve_in_thread(FaultServer(always=broken)) as server:
            yield model_at(server)
