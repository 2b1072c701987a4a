"""Real providers: `make live` asks each one whose key is set, in the environment or in `.env` (P8).

Three questions to each, of a few hundred tokens together: words with their usage, a tool that is
called and whose result is read, and what a wrong key is told.
"""

import pytest

from windlass import Agent, FailedByModel, Limits, TextDelta, tool
from windlass.environ import read_environment
from windlass.models.prices import find_listing
from windlass.models.vendors import load_vendors

MODELS = {
    "openai": "gpt-5.4-nano",
    "openai-chat": "gpt-5.4-nano",
    "anthropic": "claude-haiku-4-5",
    "google": "gemini-flash-lite-latest",
    "azure": "gpt-5.4-nano",
    "azure-chat": "gpt-5.4-nano",
    "bedrock": "amazon.nova-micro-v1:0",
    "vertex": "gemini-2.5-flash-lite",
    "openrouter": "openai/gpt-5-mini",
    "groq": "openai/gpt-oss-20b",
    "together": "openai/gpt-oss-120b",
    "mistral": "mistral-small-latest",
    "deepseek": "deepseek-v4-flash",
    "dashscope": "qwen-flash",
    "xai": "grok-4-1-fast-non-reasoning",
}
"""A cheap model of each vendor, to be renewed when it is withdrawn.

A deployment at Azure must have the name of its model to be asked here.
"""

PLACES = {
    "azure": "AZURE_OPENAI_ENDPOINT",
    "azure-chat": "AZURE_OPENAI_ENDPOINT",
    "bedrock": "AWS_REGION",
}
"""The variables that say where the models of a cloud are, without which a key is not enough."""

NO_PRICES = {"dashscope", "azure", "azure-chat", "bedrock", "vertex"}
"""Vendors of whose prices nothing is known."""

WRONG_KEY = "sk-wrong-0123456789abcdef0123456789abcdef"
LIMITS = Limits(steps=4, seconds=90)


def each_vendor(test: object) -> object:
    """Ask each vendor, in real time, where a key is set."""
    for mark in (
        pytest.mark.live,
        pytest.mark.realtime,
        pytest.mark.timeout(120),
        pytest.mark.parametrize("vendor", MODELS),
    ):
        test = mark(test)
    return test


@pytest.fixture
def name(vendor: str) -> str:
    """The name of the model to ask."""
    environ = read_environment()
    for variable in (load_vendors()[vendor].key_env or "", PLACES.get(vendor)):
        if variable is not None and not environ.get(variable):
            pytest.skip(f"{variable} is not set")
    return f"{vendor}:{MODELS[vendor]}"


@each_vendor
async def test_words_come_with_their_usage(vendor: str, name: str) -> None:
    """S12, B4: reported by the provider, and paid for at a known price."""
    agent = Agent(name, instructions="Answer with one word.", limits=LIMITS)
    async with agent.stream("What is the capital of Norway?") as events:
        texts = [event.text async for event in events if isinstance(event, TextDelta)]
    result = events.result
    assert "Oslo" in result.text
    assert "".join(texts) == result.text
    assert result.usage is not None
    assert not result.usage.estimated
    assert result.usage.input > 0
    assert result.usage.output > 0
    assert (result.cost is None) == (vendor in NO_PRICES)


@each_vendor
async def test_a_tool_is_called_and_its_result_is_read(vendor: str, name: str) -> None:
    asked: list[str] = []

    @tool(effect="read")
    def parcel(number: str) -> str:
        """Where a parcel is.

        Args:
            number: The number of the parcel.
        """
        asked.append(number)
        return "It lies in locker 4711."

    agent = Agent(name, tools=[parcel], limits=LIMITS)
    result = await agent.run("In which locker is parcel AB12? Look it up.")
    assert result.completed, result.reason
    assert asked == ["AB12"]
    assert "4711" in result.text
    assert result.steps == 2


@each_vendor
async def test_a_wrong_key_is_told_in_one_line(vendor: str, name: str) -> None:
    """P3: with the variable to look at, and without the key."""
    with pytest.raises(FailedByModel) as raised:
        await Agent(name, key=WRONG_KEY, limits=LIMITS).run("Hello?")
    told = str(raised.value)
    assert raised.value.fault.kind == "auth", told
    assert raised.value.result.model_calls == 1
    assert f"Check {load_vendors()[vendor].key_env}." in told
    assert "\n" not in told
    assert WRONG_KEY not in told


def test_each_vendor_that_needs_a_key_is_asked() -> None:
    """Here and now: the table is whole, and holds no name that is misspelt."""
    assert set(MODELS) == {name for name, vendor in load_vendors().items() if not vendor.keyless}
    unknown = {vendor for vendor, model in MODELS.items() if find_listing(vendor, model) is None}
    assert unknown == NO_PRICES
