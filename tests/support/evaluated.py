"""Agents for the tests of evaluation: models that answer by what they are asked."""

import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from windlass import Agent, ModelInfo, Price, ToolResults, tool
from windlass.core.messages import UserMessage
from windlass.core.view import Prompt
from windlass.testing import ScriptedModel, call, say

PRICED = ModelInfo("test:model", price=Price(Decimal(1), Decimal(1)), output_max=200)
"""A dollar for a million tokens."""


def question_of(prompt: Prompt) -> str:
    """The last thing that a person said."""
    said = [message.text for message in prompt.messages if isinstance(message, UserMessage)]
    return said[-1]


def results_of(prompt: Prompt) -> list[str]:
    """The texts of all tool results so far."""
    return [
        item.result.text
        for message in prompt.messages
        if isinstance(message, ToolResults)
        for item in message.items
    ]


class Shop:
    """A little shop with two tools, and a list of what they did."""

    def __init__(self) -> None:
        self.refunds: list[int] = []
        self.looked: list[int] = []

    @property
    def tools(self) -> list[Any]:
        @tool(effect="read")
        def look_up(order: int) -> str:
            """Look an order up."""
            self.looked.append(order)
            return f"Order {order} cost {order * 10} dollars."

        @tool
        def refund(order: int) -> str:
            """Refund an order."""
            self.refunds.append(order)
            return f"Order {order} was refunded."

        return [look_up, refund]


def answer_order(prompt: Prompt) -> Any:
    """Look the order of the prompt up, refund it, and say so."""
    order = int("".join(filter(str.isdigit, question_of(prompt))) or 0)
    match len(results_of(prompt)):
        case 0:
            return call("look_up", {"order": order})
        case 1:
            return call("refund", {"order": order})
        case _:
            return say(f"Order {order} is refunded.")


def model_of(reply: Callable[[Prompt], Any], requests: int = 500, **options: Any) -> ScriptedModel:
    options = {"info": PRICED, "truthful": True, **options}
    return ScriptedModel([reply] * requests, **options)


def shop_agent(shop: Shop, journal: Any, reply: Any = answer_order, **options: Any) -> Agent[str]:
    model = options.pop("model", None) or model_of(reply)
    return Agent(model, tools=shop.tools, journal=journal, **options)


def lucky_reply(rate: float, seed: int) -> Callable[[Prompt], Any]:
    """Say `yes` at a rate, by chance; the same chances for the same seed."""
    source = random.Random(seed)
    return lambda _prompt: say("yes" if source.random() < rate else "no")
