"""How a run is set up: limits that hold, and what changed between two drivers."""

import subprocess
import sys
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from facts import MODEL, PRICE, Story, make_setup, make_spec
from windlass.core.decide.next_move import decide
from windlass.core.limits import Budget, Limits, SessionLimits
from windlass.core.messages import ToolSpec
from windlass.core.setup import (
    Compaction,
    Hydration,
    LoopPolicy,
    ModelInfo,
    Reference,
    RetryPolicy,
    Setup,
    describe_drift,
    digest,
)

NAN = float("nan")


# ── limits ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["steps", "tokens", "usd", "seconds"])
@pytest.mark.parametrize(
    "limit", [0, -1, NAN, float("inf"), Decimal(0), Decimal("-0.01"), Decimal("NaN")], ids=str
)
def test_a_limit_that_is_none_is_refused(name: str, limit: Any) -> None:
    """L7: zero, negative and NaN are refused when the object is built; the error names it."""
    with pytest.raises(ValueError, match=f"{name}=.*above zero"):
        Limits(**{name: limit})


@pytest.mark.parametrize("name", ["steps", "tokens", "usd", "seconds"])
def test_none_is_no_limit(name: str) -> None:
    """L7."""
    assert getattr(Limits(**{name: None}), name) is None


def test_a_refused_limit_is_refused_from_a_journal_too() -> None:
    with pytest.raises(msgspec.ValidationError, match="above zero"):
        msgspec.json.decode(b'{"steps": 0}', type=Limits)


def test_limits_may_be_small() -> None:
    limits = Limits(steps=1, tokens=1, usd=Decimal("0.000001"), seconds=0.001)
    assert limits.usd == Decimal("0.000001")


def test_money_as_a_float_is_made_exact_or_refused_at_once() -> None:
    """B4, L7: money is exact decimal; what cannot work is refused when the object is built."""
    wrong: Any = 0.5
    try:
        limits = Limits(usd=wrong)
    except (TypeError, ValueError):
        return
    decide(Story(model=ModelInfo(MODEL, PRICE), limits=limits).start_run().state)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (LoopPolicy, "calls_at_once_max"),
        (LoopPolicy, "same_call_note"),
        (RetryPolicy, "attempts_max"),
        (RetryPolicy, "establish_max"),
    ],
    ids=lambda part: part if isinstance(part, str) else part.__name__,
)
@pytest.mark.parametrize("number", [0, -1])
def test_a_rule_that_cannot_be_followed_is_refused(
    kind: type[LoopPolicy] | type[RetryPolicy], name: str, number: Any
) -> None:
    """L7: with no call at once, for one, `act` would never come to an end."""
    with pytest.raises(ValueError, match=name):
        kind(**{name: number})


@pytest.mark.parametrize("kind", [Limits, SessionLimits])
@pytest.mark.parametrize("name", ["steps", "tokens", "usd", "seconds"])
@pytest.mark.parametrize("limit", [0, -1, NAN])
def test_a_session_refuses_what_a_run_refuses(kind: Any, name: str, limit: Any) -> None:
    """L7, B1."""
    with pytest.raises(ValueError, match=f"{kind.__name__}.{name}=.*above zero"):
        kind(**{name: limit})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"name": "", "tokens": 1}, "needs a name"),
        ({"name": "team"}, "usd= or tokens="),
        ({"name": "team", "usd": 0}, "above zero"),
        ({"name": "team", "tokens": -1}, "above zero"),
        ({"name": "team", "tokens": 1, "per": "week"}, "hour, day or month"),
    ],
)
def test_a_budget_that_bounds_nothing_is_refused(settings: Any, words: str) -> None:
    """B1, L7."""
    with pytest.raises(ValueError, match=words):
        Budget(**settings)


def test_the_money_of_a_budget_is_exact() -> None:
    """B4."""
    tenth: Any = 0.1
    assert Budget("team", usd=tenth).usd == Decimal("0.1")


@pytest.mark.parametrize(
    "settings",
    [
        {"trigger": 0.5, "target": 0.5},
        {"trigger": 1.1},
        {"target": 0},
        {"window": 0},
        {"cool_down": 0},
        {"summary_tokens": -1},
    ],
)
def test_a_compaction_that_cannot_work_is_refused(settings: Any) -> None:
    """X2: the target is below the trigger, or it would be done at every step."""
    with pytest.raises(ValueError, match="Compaction"):
        Compaction(**settings)


def test_a_reference_that_is_no_pattern_is_refused() -> None:
    """X4: at once, and not when a prompt comes."""
    with pytest.raises(ValueError, match="not a regular expression"):
        Hydration(references=(Reference("(", "read", "path"),))
    with pytest.raises(ValueError, match="calls_max"):
        Hydration(calls_max=0)


# ── the set-up ───────────────────────────────────────────────────────────────


def test_a_tool_is_found_by_its_name() -> None:
    setup = make_setup()
    assert setup.find_tool("look") == make_spec("look")
    assert setup.find_tool("nonesuch") is None


def test_a_setup_survives_the_journal() -> None:
    """J9: the journal alone says what may happen next."""
    setup = make_setup(
        model=ModelInfo(MODEL, PRICE, 1_000),
        limits=Limits(usd=Decimal("0.10"), seconds=3.5),
        rules=LoopPolicy(tool_choice="look"),
        output_schema={"type": "integer"},
        judge_replies=True,
    )
    assert msgspec.json.decode(msgspec.json.encode(setup), type=Setup) == setup


# ── drift ────────────────────────────────────────────────────────────────────

RECORDED = make_setup(instructions="Be brief.", gate="rules-1")


@pytest.mark.parametrize(
    ("offered", "words"),
    [
        (RECORDED, []),
        (replace(RECORDED, limits=Limits(steps=1), rules=LoopPolicy(on_limit="answer")), []),
        (
            replace(RECORDED, model=ModelInfo("other:model")),
            ["model test:model became other:model"],
        ),
        (replace(RECORDED, instructions="Be long."), ["the instructions differ"]),
        (replace(RECORDED, gate=""), ["policy rules-1 became none"]),
        (replace(RECORDED, output_schema={"type": "integer"}), ["the output type differs"]),
        (
            replace(RECORDED, tools=(*RECORDED.tools[:-1], make_spec("new"))),
            ["tool new is new", "tool send is gone"],
        ),
        (
            replace(RECORDED, tools=(make_spec("look", "write"), *RECORDED.tools[1:])),
            ["tool look changed"],
        ),
        (replace(RECORDED, tools=RECORDED.tools[::-1]), []),
    ],
    ids=["none", "limits", "model", "prompt", "policy", "output", "tools", "tool", "order"],
)
def test_drift_is_told_in_words(offered: Setup, words: list[str]) -> None:
    """J9: other tools, model, prompt or policy than the ones recorded."""
    assert list(describe_drift(RECORDED, offered)) == words


def test_a_policy_where_there_was_none_is_drift() -> None:
    """J9."""
    before = replace(RECORDED, gate="")
    assert list(describe_drift(before, RECORDED)) == ["policy none became rules-1"]


# ── digest ───────────────────────────────────────────────────────────────────


def test_a_digest_does_not_depend_on_the_order_of_fields() -> None:
    """G6: bound to the exact arguments, not to their spelling."""
    assert digest({"a": 1, "b": [1, 2]}) == digest({"b": [1, 2], "a": 1})


@pytest.mark.parametrize(
    "other", [{"a": 2}, {"a": "1"}, {"a": 1.5}, {"b": 1}, {}, {"a": 1, "b": None}, [1]], ids=str
)
def test_other_values_have_other_digests(other: object) -> None:
    assert digest({"a": 1}) != digest(other)


def test_a_digest_is_the_same_in_every_process() -> None:
    value = {"tool": "look", "path": "ä"}
    program = "from windlass.core.setup import digest; print(digest({'path': 'ä', 'tool': 'look'}))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == digest(value)


def test_a_struct_has_a_digest() -> None:
    assert digest(ToolSpec("a", "", {})) != digest(ToolSpec("b", "", {}))
