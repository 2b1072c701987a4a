"""The statistics of an evaluation, against published values and scipy."""

import itertools
import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.evaluation.statistics import (
    PassCount,
    describe_spread,
    fleiss_kappa,
    krippendorff_alpha,
    pass_at_k,
    pass_hat_k,
    wilson_interval,
)

pytestmark = pytest.mark.contract("Q2")


@pytest.mark.parametrize(
    ("passed", "trials", "low", "high"),
    [
        # Newcombe (1998), "Two-sided confidence intervals for the single proportion", table I,
        # method 3: the score method without continuity correction.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_intervals_are_those_that_newcombe_published(
    passed: int, trials: int, low: float, high: float
) -> None:
    found = wilson_interval(passed, trials)
    assert (round(found.low, 4), round(found.high, 4)) == (low, high)


def test_without_trials_nothing_is_known() -> None:
    found = wilson_interval(0, 0)
    assert (found.low, found.high) == (0.0, 1.0)


@given(trials=st.integers(1, 60), data=st.data())
def test_an_interval_holds_the_rate_and_stays_within_0_and_1(
    trials: int, data: st.DataObject
) -> None:
    passed = data.draw(st.integers(0, trials))
    found = wilson_interval(passed, trials)
    assert 0 <= found.low <= passed / trials <= found.high <= 1
    assert found.low < found.high


@given(trials=st.integers(1, 8), data=st.data())
def test_pass_at_k_and_pass_hat_k_are_shares_of_all_choices(
    trials: int, data: st.DataObject
) -> None:
    """Counted over every way to choose k of the trials."""
    passed = data.draw(st.integers(0, trials))
    k = data.draw(st.integers(1, trials))
    results = [True] * passed + [False] * (trials - passed)
    choices = list(itertools.combinations(results, k))
    any_passed = sum(any(chosen) for chosen in choices) / len(choices)
    all_passed = sum(all(chosen) for chosen in choices) / len(choices)
    count = PassCount(passed, trials)
    assert pass_at_k(count, k) == pytest.approx(any_passed)
    assert pass_hat_k(count, k) == pytest.approx(all_passed)


@pytest.mark.parametrize("k", [0, 4])
def test_k_is_between_one_and_the_number_of_trials(k: int) -> None:
    with pytest.raises(ValueError, match="3 trials"):
        pass_at_k(PassCount(1, 3), k)
    with pytest.raises(ValueError, match="3 trials"):
        pass_hat_k(PassCount(1, 3), k)


def test_kappa_is_that_of_the_published_example() -> None:
    """Fourteen judges, ten subjects, five answers: kappa = 0.210."""
    table = [
        [0, 0, 0, 0, 14],
        [0, 2, 6, 4, 2],
        [0, 0, 3, 5, 6],
        [0, 3, 9, 2, 0],
        [2, 2, 8, 1, 1],
        [7, 7, 0, 0, 0],
        [3, 2, 6, 3, 0],
        [2, 5, 3, 2, 2],
        [6, 5, 2, 1, 0],
        [0, 2, 2, 3, 7],
    ]
    kappa = fleiss_kappa(table)
    assert kappa is not None
    assert round(kappa, 3) == 0.210


def test_kappa_is_not_known_where_there_is_nothing_to_agree_on() -> None:
    assert fleiss_kappa([]) is None
    assert fleiss_kappa([[1, 0]]) is None
    assert fleiss_kappa([[3, 0], [3, 0]]) is None
    assert fleiss_kappa([[3, 0], [0, 3]]) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="as many judges"):
        fleiss_kappa([[3, 0], [1, 0]])


def test_spread() -> None:
    assert describe_spread([]) is None
    one = describe_spread([4.0])
    assert one is not None
    assert (one.mean, one.deviation, one.count) == (4.0, 0.0, 1)
    several = describe_spread([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0])
    assert several is not None
    assert (several.mean, several.median) == (5.0, 4.5)
    assert several.deviation == pytest.approx(math.sqrt(32 / 7))
    assert PassCount(1, 3).is_flaky
    assert not PassCount(3, 3).is_flaky


@pytest.mark.contract("Q5")
def test_alpha_is_that_of_the_published_example() -> None:
    """Krippendorff (2011), "Computing Krippendorff's Alpha-Reliability", section C."""
    ratings = ["123321412...", "1233224125.3", ".3332342251.", "12332441251."]
    units = [[float(one) for one in unit if one != "."] for unit in zip(*ratings, strict=True)]
    nominal = krippendorff_alpha(units)
    graded = krippendorff_alpha(units, graded=True)
    assert nominal is not None
    assert graded is not None
    assert (round(nominal, 3), round(graded, 3)) == (0.743, 0.849)
    assert krippendorff_alpha([[1.0], [0.0]]) is None
    assert krippendorff_alpha([[1.0, 1.0], [1.0, 1.0]]) is None
    assert krippendorff_alpha([[0.2, 0.2, 0.2]], graded=True) is None  # whose mean is not 0.2


@pytest.mark.contract("Q5")
@pytest.mark.parametrize("graded", [False, True])
@given(units=st.lists(st.lists(st.integers(0, 3), max_size=4), max_size=6))
def test_alpha_is_that_of_all_pairs(*, graded: bool, units: list[list[int]]) -> None:
    """Observed over expected disagreement, from every ordered pair of ratings, in fractions."""

    def disagree(values: list[int]) -> Fraction:
        pairs = itertools.permutations(values, 2)
        return Fraction(sum((a - b) ** 2 if graded else int(a != b) for a, b in pairs))

    rated = [unit for unit in units if len(unit) > 1]
    everything = [value for unit in rated for value in unit]
    expected = disagree(everything)
    found = krippendorff_alpha([[float(one) for one in unit] for unit in units], graded=graded)
    if not expected:
        assert found is None
        return
    observed = sum((disagree(unit) / (len(unit) - 1) for unit in rated), Fraction(0))
    alpha = float(1 - observed * (len(everything) - 1) / expected)
    assert found == pytest.approx(alpha, abs=1e-12)
