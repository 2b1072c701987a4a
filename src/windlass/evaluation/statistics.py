"""What the numbers of an evaluation mean: rates with intervals, pass@k, and exact tests.

Invariant: pure and reproducible. What draws random numbers does so from a fixed seed, so that two
people who compare the same two reports read the same interval.
"""

import math
import random
from collections.abc import Callable, Sequence
from statistics import NormalDist, fmean, median, stdev

import msgspec

CONFIDENCE = 0.95
RESAMPLES = 2_000
"""How often a bootstrap draws. The ends of its intervals then move by about a percent."""
SEED = 20_260_101
_SAME_PROBABILITY = 1 + 1e-7
"""Two tables that are equally likely may differ in the last digits of a float."""


class Interval(msgspec.Struct, frozen=True):
    """Where a value lies, with the confidence that is given next to it."""

    low: float
    high: float


class PassCount(msgspec.Struct, frozen=True):
    """How many trials of a case passed."""

    passed: int
    trials: int

    @property
    def rate(self) -> float:
        return self.passed / self.trials if self.trials else 0.0

    @property
    def is_flaky(self) -> bool:
        """Some trials passed and some did not, although nothing was changed between them."""
        return 0 < self.passed < self.trials


class Spread(msgspec.Struct, frozen=True):
    """The mean of a number over trials, and how far the trials lie apart."""

    mean: float
    median: float
    deviation: float
    """The standard deviation of the sample; 0 for a single trial."""
    low: float
    high: float
    count: int


def wilson_interval(passed: int, trials: int, confidence: float = CONFIDENCE) -> Interval:
    """Return the Wilson score interval of a rate. Without trials, nothing is known: 0 to 1.

    It stays within 0 and 1, and is not empty when all trials passed or none.
    """
    if not trials:
        return Interval(0.0, 1.0)
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    rate = passed / trials
    scale = 1 + z * z / trials
    center = (rate + z * z / (2 * trials)) / scale
    half = z / scale * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    # The rate lies within, also where the last digit of a float says otherwise.
    return Interval(max(0.0, min(rate, center - half)), min(1.0, max(rate, center + half)))


def pass_at_k(count: PassCount, k: int) -> float:
    """Return the probability that at least one of `k` trials passes, without bias.

    Raises ValueError if fewer than `k` trials were made.
    """
    _check_k(count, k)
    return 1 - math.comb(count.trials - count.passed, k) / math.comb(count.trials, k)


def pass_hat_k(count: PassCount, k: int) -> float:
    """Return the probability that all of `k` trials pass (pass^k), without bias.

    Raises ValueError if fewer than `k` trials were made.
    """
    _check_k(count, k)
    return math.comb(count.passed, k) / math.comb(count.trials, k)


def _check_k(count: PassCount, k: int) -> None:
    if not 1 <= k <= count.trials:
        raise ValueError(f"k={k}: there are {count.trials} trials")


def describe_spread(values: Sequence[float]) -> Spread | None:
    """Return mean and spread of some numbers; None if there are none."""
    if not values:
        return None
    deviation = stdev(values) if len(values) > 1 else 0.0
    return Spread(fmean(values), median(values), deviation, min(values), max(values), len(values))


# ── two reports ──────────────────────────────────────────────────────────────


class StratifiedTest(msgspec.Struct, frozen=True):
    """How likely a difference is if the two sides do not differ in any case."""

    two_sided: float
    worse: float
    """The chance of this few passes on the second side, or fewer."""
    better: float
    """The chance of this many passes on the second side, or more."""


def compare_passes(pairs: Sequence[tuple[PassCount, PassCount]]) -> StratifiedTest:
    """Test whether the second side passes as often as the first, case by case, exactly.

    This is the exact test of several 2x2 tables with their margins given. For a single case it is
    Fisher's exact test, and with one trial a side it is McNemar's exact test. It needs no large
    numbers, and its false alarms are at most as many as promised.
    """
    chances = [1.0]
    observed = 0
    for first, second in pairs:
        lowest = max(0, first.passed + second.passed - first.trials)
        chances = _convolve(chances, _table_chances(first, second))
        # The chances of a case begin with its lowest possible count.
        observed += second.passed - lowest
    likely = chances[observed] * _SAME_PROBABILITY
    return StratifiedTest(
        two_sided=min(1.0, math.fsum(chance for chance in chances if chance <= likely)),
        worse=min(1.0, math.fsum(chances[: observed + 1])),
        better=min(1.0, math.fsum(chances[observed:])),
    )


def _table_chances(first: PassCount, second: PassCount) -> list[float]:
    """Return how likely each count of passes on the second side is, from the lowest possible."""
    passed = first.passed + second.passed
    everything = math.comb(first.trials + second.trials, passed)
    return [
        math.comb(second.trials, count) * math.comb(first.trials, passed - count) / everything
        for count in range(max(0, passed - first.trials), min(second.trials, passed) + 1)
    ]


def _convolve(left: Sequence[float], right: Sequence[float]) -> list[float]:
    sums = [0.0] * (len(left) + len(right) - 1)
    for at, chance in enumerate(left):
        for more, other in enumerate(right):
            sums[at + more] += chance * other
    return sums


def adjust_holm(chances: Sequence[float]) -> list[float]:
    """Return p-values that allow for how many were looked at (Holm), in the same order."""
    order = sorted(range(len(chances)), key=lambda at: chances[at])
    adjusted = [0.0] * len(chances)
    highest = 0.0
    for rank, at in enumerate(order):
        highest = max(highest, min(1.0, (len(chances) - rank) * chances[at]))
        adjusted[at] = highest
    return adjusted


def count_repeats_needed(cases: int, chance: float) -> int:
    """Return from how many trials a side on a case that falls from all to none is found for sure.

    That is Fisher's test of one case, at most `chance` after the adjustment for the number of
    cases, whatever the other cases do.
    """
    repeats = 1
    while cases / math.comb(2 * repeats, repeats) > chance:
        repeats += 1
    return repeats


def bootstrap_difference(
    pairs: Sequence[tuple[Sequence[float], Sequence[float]]],
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Interval:
    """Return an interval of how much the second side has more than the first, on average.

    Each pair holds the values of one case on both sides. Cases are drawn with replacement, and for
    each of them its trials: both which cases were chosen and how trials fell is chance. Raises
    ValueError if a side of a case has no value.
    """
    if not pairs or not all(first and second for first, second in pairs):
        raise ValueError("each case needs a value on both sides")
    # Values that are all alike have one mean, however they are drawn.
    drawn = [(_collapse(first), _collapse(second)) for first, second in pairs]
    source = random.Random(seed)  # noqa: S311 - statistics, and the same ones each time
    means = sorted(_draw_difference(drawn, source) for _ in range(resamples))
    tail = (1 - confidence) / 2
    return Interval(_quantile(means, tail), _quantile(means, 1 - tail))


def _collapse(values: Sequence[float]) -> Sequence[float]:
    return values[:1] if min(values) == max(values) else values


def _draw_difference(
    pairs: Sequence[tuple[Sequence[float], Sequence[float]]], source: random.Random
) -> float:
    total = 0.0
    for first, second in source.choices(pairs, k=len(pairs)):
        total += _draw_mean(second, source.choices) - _draw_mean(first, source.choices)
    return total / len(pairs)


def _draw_mean(values: Sequence[float], draw: Callable[..., list[float]]) -> float:
    if len(values) == 1:
        return values[0]
    return math.fsum(draw(values, k=len(values))) / len(values)


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of sorted values, between two of them in proportion."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


# ── judges ───────────────────────────────────────────────────────────────────


def fleiss_kappa(table: Sequence[Sequence[int]]) -> float | None:
    """Return how far judges agree beyond chance: 1 always, 0 as if they guessed.

    Each row is something judged, each column an answer, and each number how many judges gave it.
    None if there is nothing to agree on: no rows, fewer than two judges, or one answer for all.
    Raises ValueError if not all rows have as many judges.
    """
    if not table:
        return None
    judges = sum(table[0])
    if any(sum(row) != judges for row in table):
        raise ValueError("each row needs as many judges as the others")
    if judges < 2:  # noqa: PLR2004 - one judge has no one to agree with
        return None
    answers = len(table) * judges
    shares = [sum(column) / answers for column in zip(*table, strict=True)]
    by_chance = math.fsum(share * share for share in shares)
    if by_chance >= 1:
        return None
    pairs = judges * (judges - 1)
    agreed = fmean((sum(count * count for count in row) - judges) / pairs for row in table)
    return (agreed - by_chance) / (1 - by_chance)
