"""The scripted model: it says what it is told, bills truthfully, and fails who strays from it."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any, get_args

import pytest

from windlass.core.errors import FaultKind, ModelError
from windlass.core.events import (
    CallDelta,
    ReplyEnd,
    ReplyPiece,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)
from windlass.core.messages import AssistantMessage, Message, TextPart, ToolSpec, Usage, UserMessage
from windlass.core.reply_assembly import ReplyAssembly
from windlass.core.setup import ModelInfo, Price
from windlass.core.transcript import Transcript
from windlass.core.view import Prompt
from windlass.testing import (
    ModelConformance,
    PromptChecker,
    ScriptedModel,
    ScriptExhausted,
    VirtualClock,
    call,
    cut,
    drop,
    end,
    fail,
    length,
    pause,
    refuse,
    say,
    stall,
    think,
    usage,
)
from windlass.testing.scripted_model import ScriptedReply

HELLO = UserMessage((TextPart("Hello"),))


def ask(messages: Sequence[Message] = (HELLO,), **changes: Any) -> Prompt:
    request: dict[str, Any] = {
        "model": "scripted:model",
        "system": "",
        "messages": messages,
        "tools": (),
        "tool_choice": "auto",
        "output_max": 1_000,
    }
    return Prompt(**request | changes)


async def played(model: ScriptedModel, prompt: Prompt | None = None) -> list[ReplyPiece]:
    return [piece async for piece in model.stream(prompt or ask())]


class TestConformance(ModelConformance):
    @pytest.fixture
    def model(self) -> ScriptedModel:
        return ScriptedModel(["Quite well, thank you."] * 100)

    @pytest.fixture
    def failing_model(self) -> ScriptedModel:
        return ScriptedModel([fail("server")])


class TestPausingConformance(TestConformance):
    """The same, with an await between any two pieces."""

    @pytest.fixture
    def model(self) -> ScriptedModel:
        return ScriptedModel(["Quite well, thank you."] * 100, pace_s=0.1)


CALLED = [CallDelta(0, "call_1_0", "look", '{"at":1}'), CallDelta(1, "call_1_1", "go", "{}")]


@pytest.mark.parametrize(
    ("reply", "pieces"),
    [
        ("abcdef", [TextDelta("abcd"), TextDelta("ef"), ReplyEnd("end")]),
        ("", [ReplyEnd("end")]),
        ([], [ReplyEnd("end")]),
        (say("hi"), [TextDelta("hi"), ReplyEnd("end")]),
        (["hi", TextDelta("ho")], [TextDelta("hi"), TextDelta("ho"), ReplyEnd("end")]),
        (think("hm", "sig"), [ThinkingDelta("hm"), ThinkingDelta("", "sig"), ReplyEnd("end")]),
        ([call("look", {"at": 1}), call("go")], [*CALLED, ReplyEnd("calls")]),
        (call("x", "{oops", id="a", index=7), [CallDelta(7, "a", "x", "{oops"), ReplyEnd("calls")]),
        (
            call("x", '{"a":1}', chars=4),
            [
                CallDelta(0, "call_1_0", "x"),
                CallDelta(0, arguments='{"a"'),
                CallDelta(0, arguments=":1}"),
                ReplyEnd("calls"),
            ],
        ),
        (
            [say("hi"), usage(input=3, output=1)],
            [TextDelta("hi"), UsageDelta(Usage(3, 1)), ReplyEnd("end")],
        ),
        (refuse("no"), [TextDelta("no"), ReplyEnd("refusal")]),
        (refuse(), [ReplyEnd("refusal")]),
        ([say("hi"), length()], [TextDelta("hi"), ReplyEnd("length")]),
        ([call("go", "{"), end("end")], [CallDelta(0, "call_1_0", "go", "{"), ReplyEnd("end")]),
        ([say("hi"), cut()], [TextDelta("hi")]),
        (
            lambda prompt: say(prompt.messages[0].text),
            [TextDelta("Hell"), TextDelta("o"), ReplyEnd()],
        ),
        (lambda _: lambda _: "hi", [TextDelta("hi"), ReplyEnd("end")]),
    ],
)
async def test_a_reply_in_its_words(reply: ScriptedReply, pieces: list[ReplyPiece]) -> None:
    with ScriptedModel([reply]) as model:
        assert await played(model) == pieces


async def test_the_size_of_a_piece_is_a_choice() -> None:
    model = ScriptedModel(["abcdef"], token_chars=1)
    assert len(await played(model)) == 7


async def test_it_waits_where_it_is_told_to(clock: VirtualClock) -> None:
    model = ScriptedModel([[say("a"), pause(3), say("b")], "abcdefgh"], pace_s=0.5)
    seen = [(clock.elapsed_s, piece) async for piece in model.stream(ask())]
    assert seen == [(0, TextDelta("a")), (3, TextDelta("b")), (3.5, ReplyEnd("end"))]


async def test_it_yields_once_before_it_speaks() -> None:
    others: list[str] = []
    asyncio.get_running_loop().call_soon(others.append, "ran")
    model = ScriptedModel(["a"])
    async for _ in model.stream(ask()):
        assert others == ["ran"]


async def test_a_stall_lasts_until_it_is_cancelled(clock: VirtualClock) -> None:
    model = ScriptedModel([[say("a"), stall(), say("b")]])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3600):
            await played(model)
    assert clock.elapsed_s == 3600.0


@pytest.mark.parametrize("kind", get_args(FaultKind))
async def test_every_kind_of_fault(kind: FaultKind) -> None:
    model = ScriptedModel([[say("a"), fail(kind, retry_after_s=7)]])
    stream = model.stream(ask())
    assert await anext(stream) == TextDelta("a")
    with pytest.raises(ModelError, match=f"scripted: {kind}") as caught:
        await anext(stream)
    assert (caught.value.fault.kind, caught.value.fault.retry_after_s) == (kind, 7)


async def test_a_lost_connection_comes_after_what_was_sent() -> None:
    model = ScriptedModel([[say("a"), drop()]])
    stream = model.stream(ask())
    assert await anext(stream) == TextDelta("a")
    with pytest.raises(ModelError) as caught:
        await anext(stream)
    assert caught.value.fault.kind == "network"


async def test_what_it_streams_assembles() -> None:
    model = ScriptedModel([[say("Look."), call("a", {"x": "y" * 50}, chars=3), call("b")]])
    assembly = ReplyAssembly()
    for piece in await played(model):
        assembly.add_piece(piece)
    reply = assembly.build_reply("m", "c")
    assert (reply.text, [one.name for one in reply.calls]) == ("Look.", ["a", "b"])
    assert reply.calls[0].arguments == '{"x":"' + "y" * 50 + '"}'


async def test_it_keeps_each_prompt() -> None:
    model = ScriptedModel(["a", "b"])
    first, second = ask(), ask(system="Be brief.")
    await played(model, first)
    assert (model.requests, model.replies_left) == (1, 1)
    await played(model, second)
    assert model.prompts == [first, second]


# ── used up exactly ──────────────────────────────────────────────────────────


async def test_one_request_too_many_fails_and_is_remembered() -> None:
    model = ScriptedModel(["a"])
    await played(model)
    with pytest.raises(ScriptExhausted, match="request 2 of a script with 1 replies"):
        await played(model)
    with pytest.raises(ScriptExhausted):
        model.assert_used_up()


def test_a_script_that_is_not_used_up_fails() -> None:
    with pytest.raises(AssertionError, match="2 of 2 replies"), ScriptedModel(["a", "b"]):
        pass


def test_another_error_is_not_masked() -> None:
    with pytest.raises(KeyError), ScriptedModel(["a"]):
        raise KeyError


async def test_an_invalid_request_fails_even_if_the_runtime_swallows_it() -> None:
    prompt = ask([AssistantMessage((TextPart("I begin."),))])
    model = ScriptedModel(["a"])
    with suppress(AssertionError):
        await played(model, prompt)
    with pytest.raises(AssertionError, match="not from a user"):
        model.assert_used_up()


# ── the bill ─────────────────────────────────────────────────────────────────


async def test_it_bills_what_it_was_shown_and_what_it_streamed() -> None:
    model = ScriptedModel(["12345678"], count=lambda _: 100)
    await played(model)
    assert model.billed == [Usage(100, 2)]


async def test_the_prompt_is_counted_in_quarters_of_bytes() -> None:
    model = ScriptedModel(["a", "a"])
    tool = ToolSpec("look", "Looks around.", {"type": "object"})
    await played(model)
    await played(model, ask(system="s" * 400, tools=(tool,)))
    short, long = (bill.input for bill in model.billed)
    assert short >= len("Hello") // 4
    assert 100 <= long - short <= 150


async def test_only_what_was_streamed_is_billed() -> None:
    model = ScriptedModel(["12345678" * 10, [say("1234"), drop()], fail("rate_limit"), "x"])
    stream = model.stream(ask())
    await anext(stream)
    await stream.aclose()
    for _ in range(2):
        with pytest.raises(ModelError):
            await played(model)
    assert [bill.output for bill in model.billed] == [1, 1, 0]
    assert model.billed[2] == Usage(), "what is refused at the door costs nothing"


async def test_a_reported_usage_is_the_bill() -> None:
    model = ScriptedModel([[usage(input=7), say("1234"), usage(input=7, output=3)]])
    await played(model)
    assert model.billed == [Usage(7, 3)]


async def test_the_bill_in_money() -> None:
    price = Price(input=Decimal(1), output=Decimal(10))
    info = ModelInfo("scripted:dear", price)
    model = ScriptedModel([usage(input=1_000_000, output=100_000)] * 2, info=info)
    await played(model)
    await played(model)
    assert (model.billed_usage, model.billed_usd) == (Usage(2_000_000, 200_000), Decimal(4))


async def test_a_model_is_silent_about_usage_unless_it_is_truthful() -> None:
    silent = await played(ScriptedModel(["12345678"]))
    assert not [piece for piece in silent if isinstance(piece, UsageDelta)]
    model = ScriptedModel(["12345678"], truthful=True, count=lambda _: 9)
    reported = [piece for piece in await played(model) if isinstance(piece, UsageDelta)]
    assert [piece.usage for piece in reported] == model.billed == [Usage(9, 2)]


@pytest.mark.parametrize("cap", range(1, 12))
@pytest.mark.parametrize("reply", ["é" * 17, call("look", {"at": "x" * 30}, chars=5), call("l")])
async def test_a_truthful_model_keeps_to_its_cap(cap: int, reply: ScriptedReply) -> None:
    whole, capped = (ScriptedModel([reply], truthful=truth) for truth in (False, True))
    await played(whole)
    pieces = await played(capped, ask(output_max=cap))
    bill = capped.billed[0]
    assert bill.output <= cap
    assert [piece.usage for piece in pieces if isinstance(piece, UsageDelta)] == [bill]
    if whole.billed[0].output > cap:
        assert pieces[-1] == ReplyEnd("length")
    else:
        assert bill == whole.billed[0]


async def test_a_long_session_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the model of the benchmark would be what the benchmark measures."""
    looked: list[object] = []
    look = PromptChecker._check_message
    monkeypatch.setattr(
        PromptChecker,
        "_check_message",
        lambda self, at, message: (looked.append(message), look(self, at, message)),
    )
    steps = 50
    model = ScriptedModel(["a"] * steps)
    transcript = Transcript([HELLO])
    for _ in range(steps):
        await played(model, ask(transcript))
        transcript = transcript.append(AssistantMessage((TextPart("a"),)), HELLO)
    assert len(looked) == 2 * steps - 1
