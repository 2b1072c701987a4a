"""An agent with a real model in a file: chat completions, from end to end (P10)."""

import asyncio
from dataclasses import dataclass
from decimal import Decimal

import pytest

from smollm2 import CAPITAL, EXACT, PARIS, SYSTEM, make_smollm2
from windlass import Agent, ConfigError, FailedByModel, TextDelta
from windlass.core.messages import ImagePart, TextPart
from windlass.models.local.model import LocalModel
from windlass.models.options import ModelOptions

pytestmark = [pytest.mark.local, pytest.mark.slow, pytest.mark.realtime]


async def test_an_agent_answers() -> None:
    """P10: by its name alone, for free, with its usage reported."""
    agent = Agent("local:smollm2", options=EXACT, instructions=SYSTEM)
    result = await agent.run(CAPITAL)
    assert result.outcome == "completed"
    assert PARIS in result.text
    assert result.cost == Decimal(0)
    assert result.usage is not None
    assert not result.usage.estimated
    assert result.usage.input > 20
    assert result.usage.output > 2


async def test_the_text_comes_piece_by_piece() -> None:
    """E2."""
    async with Agent(make_smollm2(), instructions=SYSTEM).stream(
        "Tell me about the sea."
    ) as events:
        seen = [event.text async for event in events if isinstance(event, TextDelta)]
    assert len(seen) > 10
    assert "".join(seen) == events.result.text


async def test_a_reply_that_is_cut_off_is_truncated() -> None:
    """L4."""
    result = await Agent(make_smollm2(output_max=8)).run("Tell me a long story.")
    assert result.outcome == "truncated"
    assert result.usage is not None
    assert result.usage.output == 8
    assert result.partial_text or result.text


async def test_at_temperature_zero_it_repeats_itself() -> None:
    texts: list[str] = []
    for between in ("Hello!", "Name three colours.", "What is the sea?"):
        agent = Agent(make_smollm2(output_max=32), instructions=SYSTEM)
        texts.append((await agent.run("Describe a cat.")).text)
        await agent.run(between)
    assert texts[0]
    assert len(set(texts)) == 1


async def test_a_session_goes_on() -> None:
    agent = Agent(make_smollm2(), instructions=SYSTEM)
    first = await agent.run(CAPITAL, session="s")
    second = await agent.run("And what is the capital of Italy?", session="s")
    assert len(second.messages) == 4
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.input > first.usage.total
    assert second.usage.cache_read >= first.usage.input - 1


@dataclass
class City:
    name: str
    population: int


async def test_a_small_model_fits_the_output_type() -> None:
    """P9: its words are forced by the schema."""
    agent = Agent(make_smollm2(output_max=128), instructions=SYSTEM, output_type=City)
    result = await agent.run("Which city is the capital of France?")
    assert isinstance(result.output, City)


async def test_a_prompt_that_is_too_long_is_an_overflow() -> None:
    """S2, S13."""
    with pytest.raises(FailedByModel) as caught:
        await Agent(make_smollm2()).run("word " * 3_000)
    assert caught.value.fault.kind == "context_overflow"
    assert "\n" not in caught.value.fault.message


async def test_a_cancelled_run_frees_the_server() -> None:
    """C1: the connection is closed at once, and the server goes on to serve."""
    endless = ModelOptions(temperature=0, extra_body={"ignore_eos": True})
    agent = Agent(make_smollm2(output_max=1_500, options=endless))
    clock = asyncio.get_running_loop().time
    began, per_token_s, tokens = 0.0, 0.0, 0
    async with agent.stream("Tell me a story.", session="s") as events:
        async for event in events:
            if isinstance(event, TextDelta):
                began, tokens = began or clock(), tokens + 1
                if tokens == 20:
                    per_token_s = (clock() - began) / 19
                    agent.cancel("s")
    stopped = clock()
    assert events.result.outcome == "cancelled"
    assert PARIS in (await Agent(make_smollm2(), instructions=SYSTEM).run(CAPITAL)).text
    # One request is served at a time, so that the rest of the story would have come first.
    assert clock() - stopped < 1_000 * per_token_s


async def test_pictures_are_refused_by_name() -> None:
    """P7."""
    with pytest.raises(ConfigError, match="local"):
        await Agent(make_smollm2()).run(
            [TextPart("What is it?"), ImagePart("image/png", b"\x89PNG")]
        )


def test_the_window_is_the_model_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """P10: read from the file, before anything runs."""
    monkeypatch.delenv("WINDLASS_LOCAL_WINDOW")
    model: LocalModel = make_smollm2(output_max=100_000)
    assert model.info.window == 8_192
    assert model.info.output_max == 2_048
