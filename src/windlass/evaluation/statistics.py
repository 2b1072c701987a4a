"""What the numbers of an evaluation mean: rates with intervals, pass@k, and agreement of judges.

Two sides are compared in `differences.py`.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, median, stdev

import msgspec

CONFIDENCE = 0.95
BISECTIONS = 100


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
    # The rate lies within, even where the last digit of a float says otherwise.
    return Interval(max(0.0, min(rate, center - half)), min(1.0, max(rate, center + half)))


def student_quantile(share: float, freedom: float) -> float:
    """Return a quantile of Student's distribution with so many degrees of freedom."""
    if share < 0.5:  # noqa: PLR2004 - it is symmetric about its median
        return -student_quantile(1 - share, freedom)
    low, high = 0.0, 1.0
    while _student_share(high, freedom) < share:
        high *= 2
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_share(middle, freedom) < share else (low, middle)
    return (low + high) / 2


def _student_share(value: float, freedom: float) -> float:
    """Return the share of Student's distribution below a value that is not negative."""
    x = freedom / (freedom + value * value)
    return 1 - _incomplete_beta(x, freedom / 2, 0.5) / 2


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularized incomplete beta function, by its continued fraction (Lentz)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(scale + a * math.log(x) + b * math.log1p(-x)) / a
    fraction, upper, lower = 1.0, 1.0, 0.0
    for step in range(2 * BISECTIONS):
        half = step // 2
        if not step:
            term = 1.0
        elif step % 2:
            term = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
        else:
            term = half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
        lower = 1 / (1 + term * lower)
        upper = 1 + term / upper
        fraction *= upper * lower
    return front * (fraction - 1)


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


def krippendorff_alpha(units: Sequence[Sequence[float]], *, graded: bool = False) -> float | None:
    """Return how far raters agree beyond chance, whoever rated what: 1 always, 0 as if by chance.

    Each unit holds the ratings that it got, as many as there are. With `graded`, ratings that lie
    near to one another disagree less (the level of intervals). None if nothing was rated twice, or
    all ratings are the same.
    """
    rated = [unit for unit in units if len(unit) > 1]
    everything = [value for unit in rated for value in unit]
    count = len(everything)

    def disagree(values: Sequence[float]) -> float:
        """Sum the distances of all pairs, each in both orders."""
        if graded:
            mean = fmean(values)
            return 2 * len(values) * math.fsum((value - mean) ** 2 for value in values)
        return len(values) ** 2 - math.fsum(values.count(value) ** 2 for value in set(values))

    # Counted, not computed: the mean of equal numbers can differ from them in its last digit.
    if len(set(everything)) < 2:  # noqa: PLR2004 - one rating for all
        return None
    by_chance = disagree(everything) / (count - 1)
    return 1 - math.fsum(disagree(unit) / (len(unit) - 1) for unit in rated) / by_chance
