"""The statistics of an evaluation, against published values and against counting everything."""

import itertools
import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.evaluation.statistics import (
    PassCount,
    adjust_holm,
    bootstrap_difference,
    compare_passes,
    describe_spread,
    fleiss_kappa,
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


def test_one_case_is_fishers_exact_test() -> None:
    """The lady tasting tea (Fisher, 1935): 3 of 4 right, p = 0.243; both sides, 0.486."""
    found = compare_passes([(PassCount(1, 4), PassCount(3, 4))])
    assert found.better == pytest.approx(17 / 70)
    assert found.two_sided == pytest.approx(34 / 70)


def test_one_trial_a_side_is_mcnemars_exact_test() -> None:
    """Cases that did not change say nothing; of 10 that did, 1 became better: 22 / 1024."""
    same = [(PassCount(1, 1), PassCount(1, 1))] * 5 + [(PassCount(0, 1), PassCount(0, 1))] * 3
    worse = [(PassCount(1, 1), PassCount(0, 1))] * 9
    better = [(PassCount(0, 1), PassCount(1, 1))]
    found = compare_passes([*same, *worse, *better])
    assert found.worse == pytest.approx(11 / 1024)
    assert found.two_sided == pytest.approx(22 / 1024)


def shuffle_everything(pairs: Sequence[tuple[PassCount, PassCount]]) -> tuple[float, float]:
    """Count, over all ways to deal the trials of each case out to two sides, who is as extreme."""
    dealt: list[list[int]] = []
    for first, second in pairs:
        passed = first.passed + second.passed
        results = [1] * passed + [0] * (first.trials + second.trials - passed)
        places = itertools.combinations(range(len(results)), second.trials)
        dealt.append([sum(results[at] for at in chosen) for chosen in places])
    observed = sum(second.passed for _, second in pairs)
    sums = [sum(counts) for counts in itertools.product(*dealt)]
    chance = sums.count(observed)
    extreme = sum(count for count in map(sums.count, set(sums)) if count <= chance)
    return sum(total <= observed for total in sums) / len(sums), extreme / len(sums)


small_counts = st.integers(1, 3).flatmap(
    lambda trials: st.builds(PassCount, st.integers(0, trials), st.just(trials))
)


@given(st.lists(st.tuples(small_counts, small_counts), min_size=1, max_size=3))
def test_the_exact_test_agrees_with_dealing_all_trials_out_anew(
    pairs: list[tuple[PassCount, PassCount]],
) -> None:
    worse, two_sided = shuffle_everything(pairs)
    found = compare_passes(pairs)
    assert found.worse == pytest.approx(worse)
    assert found.two_sided == pytest.approx(two_sided)


def test_a_single_trial_proves_nothing() -> None:
    found = compare_passes([(PassCount(1, 1), PassCount(0, 1))])
    assert found.worse == pytest.approx(0.5)
    assert found.two_sided == pytest.approx(1.0)


def test_false_alarms_are_as_rare_as_promised() -> None:
    """Two sides with the same rates, 400 times: at most 5 % are called worse, and some are."""
    source = random.Random(7)
    rates = [0.1, 0.4, 0.5, 0.8, 0.9, 1.0]
    alarms = 0
    for _ in range(400):
        pairs = [
            (PassCount(draw(source, rate), 5), PassCount(draw(source, rate), 5)) for rate in rates
        ]
        alarms += compare_passes(pairs).worse <= 0.05
    assert 2 <= alarms <= 30


def draw(source: random.Random, rate: float) -> int:
    return sum(source.random() < rate for _ in range(5))


def test_holms_adjustment_is_that_of_the_textbook() -> None:
    """The example of R's `p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm")`."""
    assert adjust_holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert adjust_holm([]) == []


def test_the_bootstrap_finds_a_difference_and_no_difference() -> None:
    better = bootstrap_difference([([0.0] * 5, [1.0] * 5)] * 6)
    assert (better.low, better.high) == (1.0, 1.0)
    mixed = [([1.0, 0.0, 1.0, 0.0, 1.0], [1.0, 0.0, 1.0, 1.0, 0.0])] * 6
    same = bootstrap_difference(mixed)
    assert same.low < 0 < same.high


def test_the_bootstrap_of_one_trial_a_case_agrees_with_all_resamples() -> None:
    """All 27 ways to draw three cases with replacement, weighted alike."""
    pairs = [([0.0], [1.0]), ([2.0], [1.0]), ([1.0], [1.0])]
    means = sorted(
        sum(second[0] - first[0] for first, second in drawn) / 3
        for drawn in itertools.product(pairs, repeat=3)
    )
    found = bootstrap_difference(pairs, confidence=0.8, resamples=20_000)
    low = means[math.floor(0.1 * 26)]
    high = means[math.ceil(0.9 * 26)]
    assert (found.low, found.high) == pytest.approx((low, high))


def test_the_same_reports_give_the_same_interval() -> None:
    pairs = [([1.0, 0.0], [0.0, 0.0]), ([1.0, 1.0], [0.0, 1.0])]
    assert bootstrap_difference(pairs) == bootstrap_difference(pairs)


def test_a_case_without_values_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="both sides"):
        bootstrap_difference([([], [1.0])])


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
