"""Types accept what the docs show, and refuse what would fail at run time."""

from decimal import Decimal
from typing import assert_type

from windlass import Agent, Budget, Limits, ModelInfo, Price, RunResult, SessionLimits

LIMITS = Limits(steps=10, usd=1)
assert_type(LIMITS.usd, Decimal | None)
assert_type(Price(2, 8).input, Decimal)

accepted = [
    Limits(usd=0.5, seconds=60),
    Limits(usd="0.05"),
    Limits(usd=Decimal(1)),
    Limits(steps=None),
    SessionLimits(usd=5),
]
budgets = [Budget("team", usd=20, per="day"), Budget("team", 20), Budget("team", tokens=1_000)]
models = [
    ModelInfo("house:model", Price(2, 8), window=32_768),
    ModelInfo("house:model", Price("0.15", 0.6, cache_read=Decimal("0.075"))),
]

# expect: "list[int]" is not assignable to
Limits(usd=[1])
# expect: No parameter named "dollars"
Limits(dollars=1)
# expect: Expected 0 positional arguments
Limits(10)
# expect: "Literal['week']" is not assignable to
Budget("team", usd=20, per="week")
# expect: Argument missing for parameter "output"
Price(2)
# expect: "None" is not assignable to
Price(2, None)
# expect: Attribute "usd" is read-only
LIMITS.usd = Decimal(2)


async def outputs(agent: Agent[int]) -> int:
    result = await agent.run("How many?")
    assert_type(result, RunResult[int])
    assert_type(result.output, int)
    assert_type(result.output_or_none, int | None)
    # expect: "None" is not assignable to "int"
    wrong: int = result.output_or_none
    return result.output + wrong
