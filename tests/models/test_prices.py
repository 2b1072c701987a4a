"""What models cost and hold: known or not, never guessed and never too low (P6, B4, B2)."""

import json
import subprocess
import sys
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from windlass.core.decide.reserving import usage_cost
from windlass.core.messages import Usage
from windlass.core.setup import ModelInfo, Price
from windlass.models import prices
from windlass.models.http.provider_errors import RequestTarget, error_from_response
from windlass.models.options import ModelOptions
from windlass.models.prices import (
    FREE_PRICE,
    LOCAL_VENDORS,
    ModelListing,
    build_model_info,
    describe_price_source,
    find_listing,
    suggest_models,
)
from windlass.models.resolve import resolve_model
from windlass.models.vendors import load_vendors

FILE = Path(prices.__file__).with_name("prices.json")
BYTES_MAX = 150_000


def make_price(
    enters: str, leaves: str, read: str | None = None, write: str | None = None
) -> Price:
    cache = (None if one is None else Decimal(one) for one in (read, write))
    return Price(Decimal(enters), Decimal(leaves), *cache)


def require_listing(vendor: str, model: str) -> ModelListing:
    found = find_listing(vendor, model)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def written() -> dict[str, Any]:
    return json.loads(FILE.read_text("utf-8"))


# ── what the file says ───────────────────────────────────────────────────────


# The package's own numbers, genai-prices 0.2.1.
@pytest.mark.contract("P6")
@pytest.mark.parametrize(
    ("vendor", "model", "price", "window"),
    [
        ("openai", "gpt-5", make_price("1.25", "10", "0.125"), 400_000),
        ("openai-chat", "gpt-4o-mini", make_price("0.15", "0.6", "0.075"), 128_000),
        ("openai", "gpt-4o-2024-05-13", make_price("5", "15"), 128_000),
        ("anthropic", "claude-opus-4-5", make_price("5", "25", "0.5", "6.25"), 200_000),
        ("anthropic", "claude-haiku-4-5", make_price("1", "5", "0.1", "1.25"), 200_000),
        ("google", "gemini-2.5-flash", make_price("0.3", "2.5", "0.03"), 1_048_576),
        ("xai", "grok-4", make_price("3", "15", "0.75"), 256_000),
        ("groq", "openai/gpt-oss-120b", make_price("0.15", "0.6", "0.075"), 131_072),
        ("mistral", "mistral-large-2512", make_price("0.5", "1.5", "0.05"), 262_144),
        ("together", "MiniMaxAI/MiniMax-M3", make_price("0.3", "1.2", "0.06"), 524_288),
        ("openrouter", "anthropic/claude-opus-4.5", make_price("5", "25", "0.5", "6.25"), 200_000),
    ],
)
def test_known_prices(vendor: str, model: str, price: Price, window: int) -> None:
    found = require_listing(vendor, model)
    assert (found.price, found.window) == (price, window)


@pytest.mark.contract("P6")
def test_the_file_is_dated_sorted_and_small(written: dict[str, Any]) -> None:
    assert date.fromisoformat(written["date"]) >= date(2026, 11, 15)
    assert written["package"].startswith("genai-prices ")
    assert describe_price_source() == f"{written['date']}, {written['package']}"
    assert "the highest one" in written["about"]
    assert list(written["vendors"]) == sorted(written["vendors"])
    for table in written["vendors"].values():
        assert list(table["models"]) == sorted(table["models"])
        assert list(table["aliases"]) == sorted(table["aliases"])
    assert FILE.stat().st_size < BYTES_MAX


def test_the_file_lists_only_vendors_that_we_have(written: dict[str, Any]) -> None:
    assert set(written["vendors"]) <= set(load_vendors())
    assert load_vendors().keys() >= LOCAL_VENDORS - {"local"}


def test_every_entry_can_be_believed(written: dict[str, Any]) -> None:
    for vendor, table in written["vendors"].items():
        assert set(table["aliases"].values()) <= set(table["models"])
        for name in (*table["models"], *table["aliases"]):
            found = require_listing(vendor, name)
            # Only what says so is free; else a limit of money would let everything through.
            assert name.endswith(":free") or min(found.price.input, found.price.output) > 0, name
            if found.price.cache_write is not None:
                assert found.price.cache_write > found.price.input
            if found.long is not None:
                assert found.long.input >= found.price.input
                assert found.long.output >= found.price.output


@pytest.mark.contract("B4")
def test_money_is_exact(written: dict[str, Any]) -> None:
    rows = [row for table in written["vendors"].values() for row in table["models"].values()]
    assert all(isinstance(one, str | None) for row in rows for one in row[:4])
    usage = Usage(1_000_001, 3, cache_read=1)
    assert usage_cost(require_listing("openai", "gpt-5").price, usage) == Decimal("1.250030125")


# ── names ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("vendor", "model", "name"),
    [
        ("openai", "gpt-5-2025-08-07", "gpt-5"),
        ("openai", "gpt-5-mini-2031-01-31", "gpt-5-mini"),
        ("openai", "GPT-5", "gpt-5"),
        ("openai", "gpt-4o-20240513", "gpt-4o-2024-05-13"),
        ("anthropic", "claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("anthropic", "claude-3-opus-20240229", "claude-3-opus-latest"),
        ("google", "models/gemini-2.5-pro", "gemini-2.5-pro"),
        ("google", "gemini-2.0-flash-001", "gemini-2.0-flash"),
        ("openrouter", "anthropic/claude-sonnet-4.5", "anthropic/claude-sonnet-4.5"),
        ("openrouter", "openai/gpt-5-2031-01-31", "openai/gpt-5"),
        ("together", "minimaxai/minimax-m3", "MiniMaxAI/MiniMax-M3"),
    ],
)
def test_a_name_is_found_whole_or_without_the_mark_of_a_snapshot(
    vendor: str, model: str, name: str
) -> None:
    assert require_listing(vendor, model).name == name


@pytest.mark.contract("P6")
@pytest.mark.parametrize(
    ("vendor", "model"),
    [
        ("openai", "gpt-5-ultra"),
        ("openai", "gpt-55"),
        ("openai", "gpt"),
        ("openai", "gpt-5-mini-high"),
        ("openai", "gpt-4o-0513"),
        ("openai", "openai/gpt-5"),
        ("openai", "gpt-oss-120b"),
        ("openai", "text-embedding-3-small"),
        ("google", "claude-opus-4-5"),
        ("google", "gemini-2.5-pro-ultra"),
        ("mistral", "mistral-large-2402"),
        ("openrouter", "gpt-5"),
        ("openrouter", "openai/gpt-5:nitro"),
        ("openrouter", "openai/gpt-5:online"),
        ("openrouter", "openrouter/auto"),
        ("dashscope", "qwen-max"),
        ("openai-compatible", "gpt-5"),
        ("nobody", "gpt-5"),
    ],
)
def test_nothing_is_guessed(vendor: str, model: str) -> None:
    assert find_listing(vendor, model) is None
    assert build_model_info(vendor, model) == ModelInfo(f"{vendor}:{model}")


# ── what a model is planned with ─────────────────────────────────────────────


def test_a_price_that_rises_with_the_prompt_is_taken_at_its_dearest() -> None:
    """B2."""
    found = require_listing("openai", "gpt-5.4")
    assert (found.price, found.long_above) == (make_price("2.5", "15", "0.25"), 272_000)
    assert found.long == make_price("5", "22.5", "0.5")
    assert build_model_info("openai", "gpt-5.4").price == found.long
    # A window that the caller makes smaller does not keep the prompt below it.
    assert build_model_info("openai", "gpt-5.4", window=100_000).price == found.long


def test_a_step_beyond_the_window_cannot_be_reached() -> None:
    found = require_listing("anthropic", "claude-sonnet-4-5")
    assert (found.window, found.long_above) == (200_000, 200_000)
    assert build_model_info("anthropic", "claude-sonnet-4-5").price == make_price(
        "3", "15", "0.3", "3.75"
    )
    wide = build_model_info("anthropic", "claude-sonnet-4-5", window=1_000_000)
    assert wide.price == make_price("6", "22.5", "0.6", "7.5")


def test_a_price_that_depends_on_the_hour_is_that_of_the_peak() -> None:
    """B2."""
    assert require_listing("deepseek", "deepseek-v4-pro").price == make_price(
        "1.32", "3.96", "0.044"
    )
    assert require_listing("deepseek", "deepseek-chat").price == make_price("0.27", "1.1", "0.07")


def test_a_price_that_is_over_is_forgotten_and_one_to_come_is_not() -> None:
    assert require_listing("openai", "o3").price.input == 2
    assert require_listing("anthropic", "claude-opus-4-6").long is None
    assert require_listing("google", "gemini-robotics-er-2-preview").price.input == 2


@pytest.mark.parametrize("vendor", sorted(LOCAL_VENDORS))
def test_a_server_of_ones_own_costs_nothing(vendor: str) -> None:
    info = build_model_info(vendor, "qwen3:8b")
    assert info.price == FREE_PRICE
    assert usage_cost(info.price, Usage(1_000_000, 1_000_000)) == 0
    assert build_model_info(vendor, "qwen3:8b", price=make_price("1", "2")).price == make_price(
        "1", "2"
    )


@pytest.mark.contract("P6")
def test_what_the_caller_says_goes_first() -> None:
    price = make_price("1", "2")
    info = build_model_info("openai", "gpt-5", price=price, window=50_000)
    assert info == ModelInfo("openai:gpt-5", price, 50_000)
    assert build_model_info("openai", "unheard-of", price=price).price == price


@pytest.mark.parametrize(
    ("vendor", "model", "window", "most"),
    [
        ("openai", "gpt-5", None, 8_192),
        ("openai", "gpt-3.5-turbo", None, 4_096),
        ("openai", "gpt-4-0125-preview", None, 4_096),
        ("anthropic", "claude-3-haiku-20240307", None, 4_096),
        ("openai", "gpt-4", None, 4_096),
        ("ollama", "small", 2_048, 1_024),
        ("ollama", "tiny", 1, 1),
        ("dashscope", "unheard-of", None, 8_192),
    ],
)
def test_a_model_is_not_asked_for_more_than_it_can_write(
    vendor: str, model: str, window: int | None, most: int
) -> None:
    assert build_model_info(vendor, model, window=window).output_max == most


def test_a_dearer_service_tier_has_no_known_price() -> None:
    """B2."""
    for tier, priced in ((None, True), ("flex", True), ("priority", False), ("fast", False)):
        model = resolve_model(
            "openai:gpt-5", key="k", environ={}, options=ModelOptions(service_tier=tier)
        )
        assert (model.info.price is not None, model.info.window) == (priced, 400_000)


def test_a_name_resolves_to_what_is_known_of_it() -> None:
    """P6."""
    info = resolve_model("anthropic:claude-opus-4-5", key="k", environ={}).info
    price = make_price("5", "25", "0.5", "6.25")
    assert info == ModelInfo("anthropic:claude-opus-4-5", price, 200_000)
    own = ModelInfo("mine", FREE_PRICE)
    assert resolve_model("openai:gpt-5", key="k", environ={}, info=own).info is own
    assert resolve_model("openai:a-new-model", key="k", environ={}).info.price is None


# ── wrong names ──────────────────────────────────────────────────────────────


def test_a_wrong_name_is_met_with_near_ones_when_the_provider_refuses_it() -> None:
    """P1: new models appear daily, so only the provider can say that there is none of that name."""
    body = b'{"error": {"message": "The model `gpt-5-mni` does not exist", "code": null}}'
    target = RequestTarget(vendor="openai", url="https://api.openai.com/v1", model="gpt-5-mni")
    message = error_from_response(404, {}, body, target).args[0]
    assert "Check the model's name at openai. Did you mean gpt-5-mini" in message
    assert "\n" not in message


def test_names_are_offered_as_they_are_written_and_only_for_unknown_ones() -> None:
    assert "MiniMaxAI/MiniMax-M3" in suggest_models("together", "minimax-m3")
    assert "anthropic/claude-opus-4.5" in suggest_models("openrouter", "claude-opus-4.5")
    assert suggest_models("openai", "gpt-5") == ""
    assert suggest_models("openai", "zzzzzzzz") == ""
    assert suggest_models("vllm", "gpt-5-mni") == ""


# ── cost of knowing ──────────────────────────────────────────────────────────


@pytest.mark.slow
def test_importing_does_not_read_the_file() -> None:
    code = """
import sys
opened = []
sys.addaudithook(lambda event, args: event == "open" and opened.append(str(args[0])))
import windlass, windlass.models.resolve
from windlass.models.prices import find_listing
assert not any("prices.json" in one for one in opened)
assert find_listing("openai", "gpt-5") and find_listing("openai", "gpt-5-mini")
assert find_listing("xai", "grok-4")
assert sum("prices.json" in one for one in opened) == 1
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
