"""Three dialects of ours against one server that is not ours (P2)."""

import pytest

from smollm2 import CAPITAL, PARIS, ask_model, make_prompt, make_through
from windlass import Agent
from windlass.core.errors import ModelError
from windlass.core.events import TextDelta
from windlass.core.messages import (
    AssistantMessage,
    CallOutcome,
    TextPart,
    ToolCall,
    ToolResult,
    ToolResults,
    UserMessage,
)

pytestmark = [
    pytest.mark.local,
    pytest.mark.slow,
    pytest.mark.realtime,
    pytest.mark.parametrize("provider", ["llamacpp", "openai-chat", "openai", "anthropic"]),
]


async def test_it_answers(provider: str) -> None:
    reply, pieces = await ask_model(await make_through(provider), make_prompt(CAPITAL))
    assert PARIS in reply.text
    assert reply.stop == "end"
    assert len([piece for piece in pieces if isinstance(piece, TextDelta)]) > 4
    assert reply.usage is not None
    assert reply.usage.input > 20
    assert reply.usage.output > 2


async def test_it_is_cut_off(provider: str) -> None:
    story = make_prompt("Tell me a long story.", output_max=8)
    reply, _ = await ask_model(await make_through(provider), story)
    assert reply.stop == "length"
    assert reply.usage is not None
    assert reply.usage.output == 8


async def test_an_agent_runs_on_it(provider: str) -> None:
    agent = Agent(await make_through(provider), instructions=make_prompt().system)
    result = await agent.run(CAPITAL)
    assert result.outcome == "completed"
    assert PARIS in result.text


async def test_a_prompt_that_is_too_long_is_an_overflow(provider: str) -> None:
    """S2."""
    with pytest.raises(ModelError) as caught:
        await ask_model(await make_through(provider), make_prompt("word " * 3_000))
    assert caught.value.fault.kind == "context_overflow"
    assert not caught.value.fault.retryable


async def test_a_wrong_key_is_refused(provider: str) -> None:
    """S2: the server asks for the key that it was started with."""
    with pytest.raises(ModelError) as caught:
        await ask_model(await make_through(provider, key="wrong"), make_prompt(CAPITAL))
    assert caught.value.fault.kind == "auth"
    assert "wrong" not in caught.value.fault.message


async def test_the_results_of_tools_are_read(provider: str) -> None:
    """A call and its result go into the prompt, in the dialect's own form."""
    call = ToolCall("c1", "get_weather", '{"city":"Paris"}')
    asking = UserMessage((TextPart("What is the weather in Paris?"),))
    calling = AssistantMessage((TextPart("I will look."), call), "local:other")
    model = await make_through(provider)
    counted: list[int] = []
    for words in (1, 101):
        result = CallOutcome(call, ToolResult.from_text("value", "rain " * words))
        history = make_prompt(asking, calling, ToolResults((result,)), output_max=4)
        reply, _ = await ask_model(model, history)
        assert reply.usage is not None
        counted.append(reply.usage.input)
    assert counted[1] - counted[0] >= 100
