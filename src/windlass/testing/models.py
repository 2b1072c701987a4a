"""The conformance suite for models."""

import asyncio
from contextlib import aclosing
from typing import Any

from windlass.core.errors import ModelError
from windlass.core.events import (
    ReplyEnd,
    ReplyPiece,
    ReplyRestarted,
    StreamOpened,
    TextDelta,
    UsageDelta,
)
from windlass.core.messages import TextPart, UserMessage
from windlass.core.reply_assembly import ReplyAssembly
from windlass.core.view import Prompt
from windlass.ports import Model

PATIENCE_S = 10.0


class ModelConformance:
    """What every model must do. A subclass defines two fixtures.

    `model` answers any number of requests with a few words of text, in several pieces;
    `failing_model` fails each request.
    """

    PROMPT = Prompt(
        model="",
        system="Answer with a few words.",
        messages=[UserMessage((TextPart("How are you?"),))],
        tools=(),
        tool_choice="auto",
        output_max=256,
    )

    def test_it_says_what_it_is(self, model: Model) -> None:
        provider, _, name = model.info.name.partition(":")
        assert provider, "a name reads provider:model"
        assert name, "a name reads provider:model"
        assert model.info.output_max >= 1
        assert model.info == model.info, "the info of a model must not change"

    async def test_a_reply_ends_with_its_end_marker_once(self, model: Model) -> None:
        pieces = await self._read_all(model)
        ends = [at for at, piece in enumerate(pieces) if isinstance(piece, ReplyEnd)]
        assert len(ends) == 1, f"{len(ends)} end markers"
        after = pieces[ends[0] + 1 :]
        assert all(isinstance(piece, UsageDelta) for piece in after), "content after the end"

    async def test_text_comes_in_pieces_none_of_them_empty(self, model: Model) -> None:
        texts = [
            piece.text for piece in await self._read_all(model) if isinstance(piece, TextDelta)
        ]
        assert texts, "no text"
        assert "" not in texts

    async def test_pieces_have_no_place_yet(self, model: Model) -> None:
        """The recorder assigns the places of events; a model cannot know them."""
        for piece in await self._read_all(model):
            assert isinstance(piece, StreamOpened | ReplyRestarted) or (piece.seq, piece.nth) == (
                0,
                0,
            )

    async def test_nothing_happens_before_the_stream_is_read(self, model: Model) -> None:
        stream = model.stream(self.PROMPT)
        await stream.aclose()

    async def test_a_stream_can_be_left_at_any_piece(self, model: Model) -> None:
        count = len(await self._read_all(model))
        for leave_after in range(1, count + 1):
            seen = 0
            async with asyncio.timeout(PATIENCE_S), aclosing(model.stream(self.PROMPT)) as stream:
                async for _ in stream:
                    seen += 1
                    if seen == leave_after:
                        break

    async def test_a_cancel_comes_out_as_a_cancel(self, model: Model) -> None:
        """At each of the first turns of the event loop, and then in the middle of the stream."""
        for turns in range(10):
            asking = asyncio.create_task(self._read_all(model))
            for _ in range(turns):
                await asyncio.sleep(0)
            await self._cancel_and_check(asking)
        spoke = asyncio.Event()
        await self._cancel_and_check(
            asyncio.create_task(self._read_until_cancelled(model, spoke)), spoke
        )

    async def _read_until_cancelled(self, model: Model, spoke: asyncio.Event) -> None:
        async with aclosing(model.stream(self.PROMPT)) as stream:
            async for _ in stream:
                spoke.set()
                await asyncio.sleep(PATIENCE_S)

    async def _cancel_and_check(
        self, asking: asyncio.Task[Any], after: asyncio.Event | None = None
    ) -> None:
        if after is not None:
            async with asyncio.timeout(PATIENCE_S):
                await after.wait()
        if not asking.done():
            asking.cancel()
            await asyncio.wait([asking], timeout=PATIENCE_S)
            assert asking.cancelled(), "the task was cancelled, but did not end as cancelled"

    async def test_requests_at_the_same_time_do_not_mix(self, model: Model) -> None:
        alone = await self._read_all(model)
        for pieces in await asyncio.gather(*(self._read_all(model) for _ in range(3))):
            assert [type(piece) for piece in pieces[-1:]] == [type(piece) for piece in alone[-1:]]
            assert assemble_reply(pieces).stop == "end"

    async def test_a_failure_is_a_classified_error(self, failing_model: Model) -> None:
        try:
            await self._read_all(failing_model)
        except ModelError as error:
            assert str(error), "the error has no message"  # noqa: PT017
        else:
            raise AssertionError("the request did not fail")

    async def _read_all(self, model: Model) -> list[ReplyPiece]:
        async with asyncio.timeout(PATIENCE_S), aclosing(model.stream(self.PROMPT)) as stream:
            return [piece async for piece in stream]


def assemble_reply(pieces: list[ReplyPiece]) -> ReplyAssembly:
    """Assemble the pieces of a reply."""
    assembly = ReplyAssembly()
    for piece in pieces:
        assembly.add_piece(piece)
    return assembly
