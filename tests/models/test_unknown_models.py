"""Names of models that a provider's list does not have."""

import logging
from decimal import Decimal

import pytest

from windlass import Agent, ConfigError, FailedByModel, Limits, Price
from windlass.models.resolve import resolve_model
from windlass.testing import VirtualClock
from windlass.testing.fault_server import FaultServer
from windlass.testing.wire import refuse_with

pytestmark = pytest.mark.contract("P1")


def test_an_unknown_model_is_a_warning_with_near_names(caplog: pytest.LogCaptureFixture) -> None:
    """P1: the agent is made, because the list may be behind."""
    with caplog.at_level(logging.WARNING):
        Agent("openai:gpt-4o-minni", key="k")
    [record] = caplog.records
    message = record.getMessage()
    assert 'is not known to have a model "gpt-4o-minni"' in message
    assert "Did you mean gpt-4o-mini" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("name", "base_url"),
    [
        ("openai:gpt-4o", None),
        ("openai:gpt-4o-2024-08-06", None),
        ("openai:my-own", "http://127.0.0.1:1/v1"),
        ("ollama:anything", None),
    ],
    ids=["listed", "a snapshot", "another server", "no list"],
)
def test_other_names_are_no_reason_to_warn(
    name: str, base_url: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """P1: only the provider's own server has the provider's models."""
    resolve_model(name, key="k", environ={}, strict=True, base_url=base_url)
    assert caplog.records == []


def test_strict_models_refuses_an_unknown_name() -> None:
    """P1: of each model of the agent."""
    with pytest.raises(ConfigError, match=r"Did you mean gpt-4o-mini.*strict_models"):
        Agent("openai:gpt-4o-minni", key="k", strict_models=True)
    known = resolve_model("openai:gpt-4o", key="k", environ={})
    for options in ({"fallbacks": ["groq:lama-3"]}, {"summary_model": "groq:lama-3"}):
        with pytest.raises(ConfigError, match='"groq" is not known to have a model "lama-3"'):
            Agent(known, strict_models=True, **options)  # pyright: ignore[reportArgumentType]


def test_a_money_limit_needs_the_price_of_an_unknown_model() -> None:
    """P1: an error, unless the price is given."""
    limits = Limits(usd=Decimal(1))
    with pytest.raises(ConfigError, match="the price of openai:gpt-4o-minni is not known"):
        Agent("openai:gpt-4o-minni", key="k", limits=limits)
    price = Price(Decimal(1), Decimal(2))
    assert Agent("openai:gpt-4o-minni", key="k", limits=limits, price=price)


@pytest.mark.slow
async def test_the_answer_of_the_provider_is_one_line_with_near_names(clock: VirtualClock) -> None:
    """P1: its 404 names the model, and the names that it may have been."""
    said = "The model `gpt-4o-minni` does not exist\nor you do not have access to it."
    error = {"error": {"message": said, "code": "model_not_found"}}
    async with FaultServer(refuse_with(404, error)) as server:
        agent = Agent("openai:gpt-4o-minni", base_url=server.url, key="k", clock=clock)
        with pytest.raises(FailedByModel) as failed:
            await agent.run("Hello?")
        assert len(server.requests) == 1
    message = str(failed.value)
    assert message.startswith("openai: there is no model gpt-4o-minni (404)")
    assert "Did you mean gpt-4o-mini" in message
    assert "\n" not in message
