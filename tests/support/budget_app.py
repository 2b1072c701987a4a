"""An agent for workers whose runs share a budget: `windlass worker budget_app:agents`."""

from decimal import Decimal

from windlass import Agent, Budget, ModelInfo, Price
from windlass.testing import ScriptedModel, say, usage

TEAM = Budget("team", usd=Decimal("0.003"))
INFO = ModelInfo("scripted:model", Price(Decimal(1), Decimal(10)), output_max=100)
REPLY = [say("Done."), usage(input=5, output=10)]

agents = [Agent(ScriptedModel([REPLY] * 200, info=INFO), budgets=[TEAM], name="clerk")]
