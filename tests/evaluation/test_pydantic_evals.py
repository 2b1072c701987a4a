"""Datasets, evaluators and reports of pydantic-evals, used as they are."""

from dataclasses import dataclass
from typing import Any

import pytest
from typing_extensions import override

from evaluated import Shop, answer_order, question_of, shop_agent
from windlass.core.errors import ConfigError
from windlass.evaluation import (
    Report,
    evaluate,
    make_pydantic_report,
    pydantic_scorer,
    read_pydantic_dataset,
    used,
)
from windlass.journals import MemoryJournal
from windlass.testing import fail, say

pytestmark = [pytest.mark.contract("Q2"), pytest.mark.slow]
pydantic_evals = pytest.importorskip("pydantic_evals")


def make_dataset() -> Any:
    from pydantic_evals import Case, Dataset  # noqa: PLC0415 - takes a second
    from pydantic_evals.evaluators import Contains, Evaluator, EvaluatorContext  # noqa: PLC0415

    @dataclass
    class Quick(Evaluator[Any, Any, Any]):
        steps: int = 3

        @override
        def evaluate(self, ctx: EvaluatorContext[Any, Any, Any]) -> bool:
            return ctx.metrics["steps"] <= self.steps

    cases = [
        Case(name="one", inputs="Refund order 1.", metadata={"tags": ["quick"]}),
        Case(name="two", inputs="Refund order 2.", expected_output="Order 2 is refunded."),
        Case(inputs={"order": 3}),
    ]
    return Dataset(name="shop", cases=cases, evaluators=[Contains("refunded"), Quick()])


async def run_dataset(reply: Any) -> tuple[Report, Any]:
    dataset = make_dataset()
    cases = read_pydantic_dataset(dataset)
    scorers = [used("refund"), *(pydantic_scorer(one) for one in dataset.evaluators)]
    agent = shop_agent(Shop(), MemoryJournal(), reply)
    return await evaluate(agent, cases, name="p", repeat=2, scorers=scorers), cases


async def test_a_dataset_is_evaluated_with_its_own_evaluators() -> None:
    def reply(prompt: Any) -> Any:
        return say("No.") if "order 2" in question_of(prompt) else answer_order(prompt)

    report, cases = await run_dataset(reply)
    assert [case.id for case in cases] == ["one", "two", "case-3"]
    assert (cases[0].tags, cases[1].expected) == (("quick",), "Order 2 is refunded.")
    assert cases[2].prompt == '{"order":3}'
    assert report.passes.passed == 4
    failed = report.cases[1].trials[0]
    assert [score.scorer for score in failed.scores if not score.passed] == [
        "used('refund')",
        "Contains",
    ]
    assert [score.scorer for score in failed.scores if score.passed] == ["Quick"]


async def test_a_report_is_one_of_pydantic_evals() -> None:
    def reply(prompt: Any) -> Any:
        return fail("auth") if "order 2" in question_of(prompt) else answer_order(prompt)

    report, cases = await run_dataset(reply)
    made = make_pydantic_report(report, cases)
    assert [case.name for case in made.cases] == ["one/1", "one/2", "case-3/1", "case-3/2"]
    assert made.cases[0].assertions["used('refund')"].value is True
    assert made.cases[0].metrics["steps"] == 3
    assert [failure.name for failure in made.failures] == ["two/1", "two/2"]
    assert "one/1" in made.render(width=200)
    averages = made.averages()
    assert averages is not None
    assert averages.assertions == pytest.approx(1.0)
    with pytest.raises(ConfigError, match="not among the cases"):
        make_pydantic_report(report, cases[:1])
