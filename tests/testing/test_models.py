"""The suite for models notices a model that breaks a rule."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from typing_extensions import override

from windlass.core.events import ReplyEnd, ReplyPiece, TextDelta
from windlass.core.setup import ModelInfo
from windlass.core.view import Prompt
from windlass.testing import ModelConformance, ScriptedModel, TaskLeaked, cut, end, run_virtual, say

SUITE = ModelConformance()


class Deaf:
    """A model that takes a cancel for the end of its reply."""

    info = ModelInfo("deaf:model")

    async def stream(self, prompt: Prompt) -> AsyncGenerator[ReplyPiece]:
        try:
            await asyncio.sleep(1)
            yield TextDelta("hi")
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            return
        yield ReplyEnd()


@pytest.mark.parametrize(
    "reply",
    [[say("hi"), cut()], [say("hi"), end(), end()], [end(), say("hi")]],
    ids=["no end", "two ends", "text after the end"],
)
async def test_a_wrong_end_is_noticed(reply: list[ReplyPiece]) -> None:
    with pytest.raises(AssertionError):
        await SUITE.test_a_reply_ends_with_its_end_marker_once(ScriptedModel([reply]))


@pytest.mark.parametrize("reply", [[TextDelta("a"), TextDelta("")], []], ids=["empty", "none"])
async def test_wrong_text_is_noticed(reply: list[ReplyPiece]) -> None:
    with pytest.raises(AssertionError):
        await SUITE.test_text_comes_in_pieces_none_of_them_empty(ScriptedModel([reply]))


async def test_a_place_is_noticed() -> None:
    with pytest.raises(AssertionError):
        await SUITE.test_pieces_have_no_place_yet(ScriptedModel([[TextDelta("a", seq=3)]]))


def test_a_nameless_model_is_noticed() -> None:
    with pytest.raises(AssertionError):
        SUITE.test_it_says_what_it_is(ScriptedModel([], name="nobody"))


async def test_a_swallowed_cancel_is_noticed() -> None:
    with pytest.raises(AssertionError, match="did not end as cancelled"):
        await SUITE.test_a_cancel_comes_out_as_a_cancel(Deaf())


async def test_success_in_place_of_failure_is_noticed() -> None:
    with pytest.raises(AssertionError, match="did not fail"):
        await SUITE.test_a_failure_is_a_classified_error(ScriptedModel(["fine"]))


def test_a_model_that_leaves_a_task_behind_is_noticed() -> None:
    class Leaky(ScriptedModel):
        @override
        async def stream(self, prompt: Prompt) -> AsyncGenerator[ReplyPiece]:
            self.keeper = asyncio.create_task(asyncio.sleep(3600), name="the keeper")
            yield TextDelta("hi")
            yield ReplyEnd()

    with pytest.raises(TaskLeaked, match="the keeper"):
        run_virtual(SUITE.test_pieces_have_no_place_yet(Leaky([])))
