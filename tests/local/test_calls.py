"""A model of 135 million weights calls tools: by grammar, through the whole pipeline (P9)."""

import pytest

from smollm2 import make_smollm2
from windlass import Agent, Limits
from windlass.core.messages import AssistantMessage, ToolResults
from windlass.models.options import ModelOptions

pytestmark = [pytest.mark.local, pytest.mark.slow, pytest.mark.realtime]
INSTRUCTIONS = "You are a helpful assistant. Use the tools."


def get_weather(city: str) -> str:
    """The current weather in a city.

    Args:
        city: The name of the city.
    """
    return f"It is 18 degrees and sunny in {city}."


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return a + b


@pytest.mark.parametrize(
    "options",
    [ModelOptions(temperature=0), ModelOptions(temperature=0, tool_protocol="grammar")],
    ids=["as its template tells", "as asked for"],
)
async def test_a_call_is_forced_and_its_result_read(options: ModelOptions) -> None:
    agent = Agent(
        make_smollm2(output_max=128, options=options),
        instructions=INSTRUCTIONS,
        tools=[get_weather, add],
        limits=Limits(steps=1),
    )
    # So short that the small model calls whatever the other tools and prompts say.
    result = await agent.run("get_weather Paris")
    _, reply, results = result.messages[:3]
    assert isinstance(reply, AssistantMessage)
    assert isinstance(results, ToolResults)
    (call,) = reply.calls
    assert call.name == "get_weather"
    assert results.items[0].result.kind == "value"
    assert "18 degrees" in results.items[0].result.text


async def test_without_tools_it_speaks_freely() -> None:
    result = await Agent(make_smollm2(), instructions=INSTRUCTIONS).run("Hello! Who are you?")
    assert "{" not in result.text
