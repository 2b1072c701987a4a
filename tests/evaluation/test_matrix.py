"""Several variants in one call: one budget, one table, and pairs compared without false alarms."""

import random
from decimal import Decimal

import pytest

from evaluated import Shop, answer_order, model_of, shop_agent
from windlass import Agent
from windlass.core.errors import ConfigError
from windlass.evaluation import (
    Case,
    CaseReport,
    Report,
    Score,
    TrialReport,
    compare_variants,
    evaluate_matrix,
    output_contains,
    used,
)
from windlass.evaluation.stored_reports import list_evaluations
from windlass.journals import MemoryJournal
from windlass.testing import PowerCut, PowerCutJournal, say

pytestmark = pytest.mark.contract("Q5")
CASES = [Case(id=f"o{number}", prompt=f"Refund order {number}.") for number in (1, 2, 3)]
SCORERS = [used("refund"), output_contains("refunded")]


def variants(shop: Shop, journal: object) -> dict[str, Agent[str]]:
    return {
        "works": shop_agent(shop, journal, model=model_of(answer_order, name="m:one")),
        "talks": shop_agent(shop, journal, lambda _prompt: say("It is refunded.")),
        "works-too": shop_agent(shop, journal, model=model_of(answer_order, name="m:two")),
    }


async def test_every_pair_of_variants_is_compared() -> None:
    """Q5: in one table, with p-values that allow for all comparisons."""
    journal = MemoryJournal()
    matrix = await evaluate_matrix(
        variants(Shop(), journal), CASES, name="m", repeat=4, scorers=SCORERS
    )
    verdicts = {(pair.first, pair.second): pair.verdict for pair in matrix.pairs}
    assert verdicts == {
        ("works", "talks"): "worse",
        ("works", "works-too"): "same",
        ("talks", "works-too"): "better",
    }
    for pair in matrix.pairs:
        is_clear = pair.interval.low > 0 or pair.interval.high < 0
        assert is_clear == (pair.chance <= 0.05) == (pair.verdict != "same")
    shown = str(matrix)
    assert shown.splitlines()[0].split()[:3] == ["VARIANT", "PASSED", "RATE"]
    assert "talks is worse than works: 100 % and 0 %" in shown
    assert "3 comparisons on these cases, each p allows for all of them." in shown
    names = {stored.name for stored in await list_evaluations(journal)}
    assert names == {"m@works", "m@talks", "m@works-too"}
    with pytest.raises(ConfigError, match="at least 2 variants"):
        await evaluate_matrix({"one": shop_agent(Shop(), journal)}, CASES, name="x")


async def test_one_budget_holds_for_all_variants_and_all_get_as_far() -> None:
    """Q5: the first trials of all come first."""
    journal = MemoryJournal()
    agents = {
        name: Agent(model_of(lambda _prompt: say("ok"), name=f"m:{name}"), journal=journal)
        for name in ("a", "b", "c")
    }
    matrix = await evaluate_matrix(
        agents,
        CASES,
        name="m",
        repeat=9,
        at_once=1,
        budget="0.0006",
        scorers=[output_contains("o")],
    )
    spent = sum((report.usd or Decimal(0) for report in matrix.variants.values()), Decimal(0))
    assert 0 < spent <= Decimal("0.0006")
    counted = [len(report.counted) for report in matrix.variants.values()]
    assert 0 < sum(counted) < 81
    assert max(counted) - min(counted) <= 1


@pytest.mark.parametrize("cut_at", [4, 13, 31, 52])
async def test_a_matrix_survives_a_crash(cut_at: int) -> None:
    """Q1: the process dies in the middle; the next call goes on, and no refund is made twice."""
    store = MemoryJournal()
    shop = Shop()
    with pytest.raises(PowerCut):
        await evaluate_matrix(
            variants(shop, PowerCutJournal(store, cut_at)), CASES, name="m", at_once=1
        )
    matrix = await evaluate_matrix(variants(shop, store), CASES, name="m", scorers=SCORERS)
    passed = {name: report.passes.passed for name, report in matrix.variants.items()}
    assert passed == {"works": 3, "talks": 0, "works-too": 3}
    assert sorted(shop.refunds) == [1, 1, 2, 2, 3, 3]


def simulate(source: random.Random, name: str) -> Report:
    """A report of an agent that passes half of the time, and has a graded score."""
    cases: list[CaseReport] = []
    for case in range(4):
        trials: list[TrialReport] = []
        for nth in range(5):
            passed = source.random() < 0.5
            scores = (
                Score(scorer="p", passed=passed),
                Score(scorer="v", value=source.gauss(0.5, 0.2)),
            )
            status = "passed" if passed else "failed"
            session = f"eval/{name}/{case}/{nth}"
            trials.append(TrialReport(session=session, status=status, scores=scores))
        cases.append(CaseReport(id=f"c{case}", digest="d", trials=tuple(trials)))
    return Report(name=name, repeat=5, cases=tuple(cases))


@pytest.mark.slow
def test_many_comparisons_raise_no_more_false_alarms() -> None:
    """Q5: three equal agents, three pairs, two comparisons each: at most 5 % alarm."""
    source = random.Random(4)
    alarms = 0
    for _ in range(25):
        reports = {name: simulate(source, name) for name in "abc"}
        matrix = compare_variants("m", reports)
        assert len(matrix.pairs) == 6
        alarms += any(pair.verdict != "same" for pair in matrix.pairs)
    assert alarms <= 2
