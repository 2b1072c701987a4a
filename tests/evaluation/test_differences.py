"""Two sides compared: against scipy, published values, counting everything, and by simulation."""

import itertools
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from windlass.evaluation.differences import (
    Difference,
    adjust_holm,
    bootstrap_interval,
    compare_passes,
    compare_rates_of_cases_like_these,
    compare_values,
    newcombe_interval,
)
from windlass.evaluation.statistics import PassCount

pytestmark = pytest.mark.contract("Q5")
Counts = list[tuple[PassCount, PassCount]]


def count_passes(*counts: tuple[int, int, int, int]) -> Counts:
    return [(PassCount(a, b), PassCount(c, d)) for a, b, c, d in counts]


# ── passes ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("counts", "low", "high"),
    [
        # Newcombe (1998), "Interval estimation for the difference between independent
        # proportions", table II, method 10.
        ((48, 80, 56, 70), 0.0524, 0.3339),
        ((3, 10, 9, 10), 0.1705, 0.8090),
        ((2, 7, 6, 7), 0.0582, 0.8062),
        ((0, 29, 5, 56), -0.0381, 0.1926),
        ((0, 20, 0, 10), -0.1611, 0.2775),
        ((0, 10, 10, 10), 0.6075, 1.0),
    ],
)
def test_one_case_has_the_interval_that_newcombe_published(
    counts: tuple[int, int, int, int], low: float, high: float
) -> None:
    found = newcombe_interval(count_passes(counts))
    assert (round(found.low, 4), round(found.high, 4)) == (low, high)


def test_one_case_is_fishers_exact_test() -> None:
    """The lady tasting tea (Fisher, 1935): 3 of 4 right, p = 0.243; both sides, 0.486."""
    found = compare_passes(count_passes((1, 4, 3, 4)))
    assert found.better == pytest.approx(17 / 70)
    assert found.two_sided == pytest.approx(34 / 70)


@given(st.integers(1, 12), st.integers(1, 12), st.data())
def test_one_case_agrees_with_scipy(first: int, second: int, data: st.DataObject) -> None:
    before = data.draw(st.integers(0, first))
    after = data.draw(st.integers(0, second))
    found = compare_passes(count_passes((before, first, after, second)))
    table = [[after, second - after], [before, first - before]]
    for side, alternative in ((found.better, "greater"), (found.worse, "less")):
        _, expected = stats.fisher_exact(table, alternative)
        assert side == pytest.approx(expected)


def test_where_the_test_decides_the_end_is_that_of_scipys_odds_ratio() -> None:
    """3 of 3 became 0 of 3: Newcombe leaves zero out, Fisher does not (p = 0.10)."""
    pairs = count_passes((3, 3, 0, 3))
    assert newcombe_interval(pairs).high < -0.2
    found = compare_passes(pairs)
    assert (found.interval.low, found.two_sided) == (-1.0, pytest.approx(0.1))
    ends = stats.contingency.odds_ratio([[0, 3], [3, 0]]).confidence_interval(0.95)
    expected = float(stats.nchypergeom_fisher.mean(6, 3, 3, ends.high))  # pyright: ignore[reportArgumentType] - one number
    assert found.interval.high == pytest.approx(2 * expected / 3 - 1, abs=1e-6)


def test_one_trial_a_side_is_mcnemars_exact_test() -> None:
    """Cases that did not change say nothing; of 10 that did, 1 became better: 22 / 1024."""
    same = count_passes((1, 1, 1, 1)) * 5 + count_passes((0, 1, 0, 1)) * 3
    found = compare_passes(same + count_passes((1, 1, 0, 1)) * 9 + count_passes((0, 1, 1, 1)))
    assert found.worse == pytest.approx(11 / 1024)
    assert found.two_sided == pytest.approx(stats.binomtest(1, 10).pvalue)


def shuffle_everything(pairs: Counts) -> tuple[float, float]:
    """Count, over all ways to deal the trials of each case out to two sides, who is as extreme."""
    dealt: list[list[float]] = []
    for first, second in pairs:
        passed = first.passed + second.passed
        results = [1] * passed + [0] * (first.trials + second.trials - passed)
        chosen = itertools.combinations(range(len(results)), second.trials)
        counts = [sum(results[at] for at in places) for places in chosen]
        dealt.append([count / second.trials - (passed - count) / first.trials for count in counts])
    observed = sum(second.rate - first.rate for first, second in pairs)
    sums = [sum(values) for values in itertools.product(*dealt)]
    lower = sum(total <= observed + 1e-9 for total in sums) / len(sums)
    return lower, sum(total >= observed - 1e-9 for total in sums) / len(sums)


small_counts = st.integers(1, 3).flatmap(
    lambda trials: st.builds(PassCount, st.integers(0, trials), st.just(trials))
)


@given(st.lists(st.tuples(small_counts, small_counts), min_size=1, max_size=3))
def test_the_exact_test_agrees_with_dealing_all_trials_out_again(pairs: Counts) -> None:
    worse, better = shuffle_everything(pairs)
    found = compare_passes(pairs)
    assert (found.worse, found.better) == (pytest.approx(worse), pytest.approx(better))


def test_a_single_trial_proves_nothing() -> None:
    found = compare_passes(count_passes((1, 1, 0, 1)))
    assert found.worse == pytest.approx(0.5)
    assert found.two_sided == pytest.approx(1.0)


# ── the interval and the test ────────────────────────────────────────────────

counts = st.integers(1, 9).flatmap(
    lambda trials: st.builds(PassCount, st.integers(0, trials), st.just(trials))
)
values = st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.75, 1.0]), min_size=1, max_size=5)


def check_agreement(found: Difference, alpha: float) -> None:
    """The interval holds the estimate, and leaves zero out exactly if the test rejects it."""
    low, high = found.interval.low, found.interval.high
    assert low - 1e-9 <= found.estimate <= high + 1e-9
    assert (low > 0) == (found.better <= alpha / 2 + 1e-12)
    assert (high < 0) == (found.worse <= alpha / 2 + 1e-12)
    assert (low > 0 or high < 0) == (found.two_sided <= alpha + 1e-12)


@given(
    st.lists(st.tuples(counts, counts), min_size=1, max_size=12),
    st.sampled_from([0.01, 0.05, 0.2]),
    st.booleans(),
)
def test_interval_and_test_never_contradict_each_other_in_passes(
    pairs: Counts,
    alpha: float,
    generalize: bool,  # noqa: FBT001
) -> None:
    """Q5: also where all trials of a case are alike; and the interval has a width."""
    compare = compare_rates_of_cases_like_these if generalize else compare_passes
    found = compare(pairs, 1 - alpha)
    check_agreement(found, alpha)
    assert found.interval.high - found.interval.low > 1e-3


@given(
    st.lists(st.tuples(values, values), min_size=1, max_size=8),
    st.sampled_from([0.02, 0.05, 0.2]),
    st.booleans(),
)
def test_interval_and_test_never_contradict_each_other_in_values(
    pairs: list[tuple[list[float], list[float]]],
    alpha: float,
    generalize: bool,  # noqa: FBT001
) -> None:
    check_agreement(compare_values(pairs, 1 - alpha, generalize=generalize), alpha)


@pytest.mark.parametrize(
    "pairs",
    [
        count_passes((3, 3, 0, 3)),
        count_passes((3, 3, 3, 3)) * 5,
        count_passes((4, 4, 4, 4), (4, 4, 0, 4)),
        count_passes((4, 4, 0, 4), *[(4, 4, 4, 4)] * 9),
    ],
)
def test_trials_that_are_all_alike_leave_doubt(pairs: Counts) -> None:
    """Q5: no interval of zero width, and none that contradicts its test."""
    found = compare_passes(pairs)
    assert found.interval.high - found.interval.low > 0.05
    check_agreement(found, 0.05)


# ── values ───────────────────────────────────────────────────────────────────

VALUES = random.Random(11)
GRADED = [
    ([VALUES.gauss(0.5, 0.1) for _ in range(4)], [VALUES.gauss(0.56, 0.1) for _ in range(4)])
    for _ in range(9)
]


def test_the_test_of_one_case_agrees_with_scipys_permutations() -> None:
    first, second = GRADED[0]
    exact = stats.permutation_test(
        (second, first), lambda x, y: x.mean() - y.mean(), alternative="greater", vectorized=False
    )
    assert compare_values([(first, second)]).better == pytest.approx(exact.pvalue, abs=0.02)


def test_the_test_on_cases_like_these_agrees_with_scipys_permutations() -> None:
    means = [(sum(first) / 4, sum(second) / 4) for first, second in GRADED]
    first, second = zip(*means, strict=True)
    exact = stats.permutation_test(
        (second, first),
        lambda x, y: (x - y).mean(),
        permutation_type="samples",
        alternative="greater",
        vectorized=False,
    )
    found = compare_values(GRADED, generalize=True)
    assert found.better == pytest.approx(exact.pvalue, abs=0.015)


def test_the_interval_holds_the_shifts_that_the_test_does_not_reject() -> None:
    """A second side that is shifted to an end of the interval is just not told from the first."""
    found = compare_values(GRADED)
    for end, chance in ((found.interval.low, "better"), (found.interval.high, "worse")):
        shifted = [(first, [value - end for value in second]) for first, second in GRADED]
        assert 0.015 <= getattr(compare_values(shifted), chance) <= 0.06


def test_the_bootstrap_of_one_trial_a_case_agrees_with_all_resamples() -> None:
    """All 27 ways to draw three cases with replacement, weighted alike."""
    pairs = [([0.0], [1.0]), ([2.0], [1.0]), ([1.0], [1.0])]
    means = sorted(
        sum(second[0] - first[0] for first, second in drawn) / 3
        for drawn in itertools.product(pairs, repeat=3)
    )
    source = random.Random(1)
    found = bootstrap_interval(pairs, 0.8, generalize=True, source=source, resamples=20_000)
    assert (found.low, found.high) == pytest.approx((means[2], means[24]))


def test_the_same_reports_give_the_same_interval() -> None:
    assert compare_values(GRADED) == compare_values(GRADED)


def test_a_case_without_values_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="both sides"):
        compare_values([([], [1.0])])


def test_holms_adjustment_is_that_of_the_textbook() -> None:
    """The example of R's `p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm")`."""
    assert adjust_holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert adjust_holm([]) == []


# ── simulations ──────────────────────────────────────────────────────────────

RATES = [0.1, 0.4, 0.5, 0.8, 0.9, 1.0]


def draw_counts(source: random.Random, rates: Sequence[float], trials: int) -> list[PassCount]:
    return [PassCount(sum(source.random() < rate for _ in range(trials)), trials) for rate in rates]


@pytest.mark.parametrize("trials", [1, 2, 5, 9])
def test_false_alarms_about_passes_are_as_rare_as_promised(trials: int) -> None:
    """Two sides with the same rates, 400 times: at most 5 %, and the interval holds no change."""
    source = random.Random(7)
    alarms = 0
    for _ in range(400):
        sides = [draw_counts(source, RATES, trials) for _ in range(2)]
        found = compare_passes(list(zip(*sides, strict=True)))
        alarms += found.two_sided <= 0.05
    assert alarms <= 20


@pytest.mark.parametrize(("worse_by", "trials"), [(0.3, 3), (0.3, 10), (0.1, 10)])
def test_the_interval_of_passes_holds_the_true_difference(worse_by: float, trials: int) -> None:
    """In at least 93 % of 400 simulations of a nominal 95 %."""
    source = random.Random(8)
    before = [0.4, 0.6, 0.9, 1.0]
    after = [rate - worse_by for rate in before]
    held = 0
    for _ in range(400):
        sides = [draw_counts(source, rates, trials) for rates in (before, after)]
        found = compare_passes(list(zip(*sides, strict=True)))
        held += found.interval.low <= -worse_by + 1e-9 <= found.interval.high + 2e-9
    assert held >= 372


@pytest.mark.slow
@pytest.mark.parametrize("generalize", [False, True])
@pytest.mark.parametrize("trials", [1, 3])
def test_false_alarms_about_values_are_as_rare_as_promised(
    trials: int,
    generalize: bool,  # noqa: FBT001
) -> None:
    """Skewed values of 8 cases that differ from one another, 200 times."""
    source = random.Random(9)
    alarms, held = 0, 0
    for _ in range(200):
        means = [source.uniform(0.2, 2.0) for _ in range(8)]
        pairs = [
            tuple([source.expovariate(1 / mean) for _ in range(trials)] for _ in range(2))
            for mean in means
        ]
        found = compare_values(pairs, generalize=generalize)  # pyright: ignore[reportArgumentType] - pairs of two
        alarms += found.two_sided <= 0.05
        held += found.interval.low <= 0 <= found.interval.high
    assert alarms <= 14
    assert held >= 186
