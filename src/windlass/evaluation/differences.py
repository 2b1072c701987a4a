"""Two sides compared case by case: how much they differ, its interval, and the chance of it.

Invariant: the interval and the test never contradict each other. The interval leaves zero out
exactly if the chance of the smaller tail is at most half of what the confidence leaves, because
where two methods disagree about zero, that of the test has the last word.

All is pure and reproducible. What draws random numbers does so from a fixed seed, so that two
people who compare the same two reports read the same interval.
"""

import itertools
import math
import random
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import TypeAlias

import msgspec

from windlass.evaluation.statistics import CONFIDENCE, Interval, PassCount, wilson_interval

RESAMPLES = 1_999
"""How often random numbers are drawn: with the observed deal, tails of 2.5 % are 50 of 2,000."""
RESAMPLES_MAX = 19_999
TAIL_DEALS = 20
"""A tail that is smaller than 2.5 % has at least so many deals, as long as the limit allows it."""
SEED = 20_260_101
GRID_MAX = 240
"""Steps of a rate in the exact test, unless more trials were made. Where the numbers of trials fit
no such grid, rates are rounded to it, in every deal alike: the test stays exact."""
NEGLIGIBLE = 1e-20
DEALS_LISTED_MAX = 2_000
"""A case with at most so many ways to deal its trials out has them listed instead of drawn."""
TILT_MAX = 60.0
BISECTIONS = 50
NEXT_TO_ZERO = 1e-9

ValuePair: TypeAlias = tuple[Sequence[float], Sequence[float]]
"""The values of one case on both sides."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """How much the second side has more than the first, on average over the cases."""

    estimate: float
    interval: Interval
    worse: float
    """The chance of so low a second side, or a lower one, if nothing changed."""
    better: float
    """The chance of a second side at least this high, if nothing changed."""

    @property
    def two_sided(self) -> float:
        """The chance of such a difference in either direction: twice the smaller tail."""
        return min(1.0, 2 * min(self.worse, self.better))


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


def _agree_about_zero(wide: Interval, exact: Interval) -> Interval:
    """Return the wide interval, with the end of the exact one where they disagree about zero."""
    low = wide.low if (wide.low > 0) == (exact.low > 0) else exact.low
    high = wide.high if (wide.high < 0) == (exact.high < 0) else exact.high
    return Interval(low, high)


# ── passes ───────────────────────────────────────────────────────────────────


def compare_passes(
    pairs: Sequence[tuple[PassCount, PassCount]], confidence: float = CONFIDENCE
) -> Difference:
    """Compare how often two sides pass on the very cases that were tried, exactly.

    The test is that of several 2x2 tables with their margins given, by the difference of the mean
    rates. For a single case it is Fisher's exact test, and with one trial a side it is McNemar's.
    It needs no large numbers, and its false alarms are at most as many as promised. The interval is
    Newcombe's, from the Wilson intervals of all cases, and agrees with the test about zero.
    """
    chances, observed, grid = _deal_passes(pairs)
    worse, better = _cut_at(chances, observed)
    tail = (1 - confidence) / 2
    scale = grid * len(pairs)
    low = -_find_tilted_mean({-step: chances[step] for step in chances}, -observed, tail) / scale
    high = _find_tilted_mean(chances, observed, tail) / scale
    exact = Interval(
        max(low, NEXT_TO_ZERO) if better <= tail else min(low, 0.0),
        min(high, -NEXT_TO_ZERO) if worse <= tail else max(high, 0.0),
    )
    return Difference(
        estimate=fmean(second.rate - first.rate for first, second in pairs),
        interval=_agree_about_zero(newcombe_interval(pairs, confidence), exact),
        worse=worse,
        better=better,
    )


def find_chances_of_passes(pairs: Sequence[tuple[PassCount, PassCount]]) -> tuple[float, float]:
    """Return the chances `worse` and `better` of `compare_passes`, without its interval."""
    chances, observed, _ = _deal_passes(pairs)
    return _cut_at(chances, observed)


def _deal_passes(
    pairs: Sequence[tuple[PassCount, PassCount]],
) -> tuple[dict[int, float], int, int]:
    """Return how likely each difference is if nothing changed, the observed one, and the grid."""
    trials = [count.trials for pair in pairs for count in pair]
    grid = min(math.lcm(*trials), max(GRID_MAX, *trials))
    chances = {0: 1.0}
    for first, second in pairs:
        right = _table_chances(first, second, grid)
        sums: dict[int, float] = {}
        for more, other in right.items():
            for at, chance in chances.items():
                sums[at + more] = sums.get(at + more, 0.0) + chance * other
        chances = {step: chance for step, chance in sums.items() if chance > NEGLIGIBLE}
    observed = sum(_step_of(first, second, second.passed, grid) for first, second in pairs)
    return chances, observed, grid


def _cut_at(chances: dict[int, float], observed: int) -> tuple[float, float]:
    """Return the chances of what was observed or less, and of that or more."""
    below = math.fsum(chance for step, chance in chances.items() if step <= observed)
    above = math.fsum(chance for step, chance in chances.items() if step >= observed)
    return min(1.0, max(NEGLIGIBLE, below)), min(1.0, max(NEGLIGIBLE, above))


def newcombe_interval(
    pairs: Sequence[tuple[PassCount, PassCount]], confidence: float = CONFIDENCE
) -> Interval:
    """Return Newcombe's hybrid score interval of the difference of two mean rates.

    The ends of the mean of several rates are put together from the ends of each, in the same way
    as those of the difference: by the squares of their distances.
    """
    sides = [_mean_interval([pair[side] for pair in pairs], confidence) for side in (0, 1)]
    (first, first_low, first_high), (second, second_low, second_high) = sides
    below = math.hypot(second - second_low, first_high - first)
    above = math.hypot(second_high - second, first - first_low)
    difference = second - first
    return Interval(max(-1.0, difference - below), min(1.0, difference + above))


def _mean_interval(counts: Sequence[PassCount], confidence: float) -> tuple[float, float, float]:
    """Return the mean of some rates, and where it ends on both sides."""
    ends = [wilson_interval(count.passed, count.trials, confidence) for count in counts]
    rates = [count.rate for count in counts]
    below = math.hypot(*(rate - end.low for rate, end in zip(rates, ends, strict=True)))
    above = math.hypot(*(end.high - rate for rate, end in zip(rates, ends, strict=True)))
    mean = fmean(rates)
    return mean, mean - below / len(counts), mean + above / len(counts)


def _table_chances(first: PassCount, second: PassCount, grid: int) -> dict[int, float]:
    """Return how likely each difference of the rates of one case is, if nothing changed."""
    passed = first.passed + second.passed
    everything = math.comb(first.trials + second.trials, passed)
    return {
        _step_of(first, second, count, grid): math.comb(second.trials, count)
        * math.comb(first.trials, passed - count)
        / everything
        for count in range(max(0, passed - first.trials), min(second.trials, passed) + 1)
    }


def _step_of(first: PassCount, second: PassCount, count: int, grid: int) -> int:
    """Return the difference of the rates, in steps, if so many of the second side had passed."""
    left = first.passed + second.passed - count
    return round(grid * (count / second.trials - left / first.trials))


def _find_tilted_mean(chances: dict[int, float], observed: int, tail: float) -> float:
    """Return the mean of the tilted chances in which what was observed, or less, has a chance.

    All odds ratios of the cases are changed together until that chance is `tail`: the upper end of
    the exact interval, given the margins. It is the highest value if that was observed.
    """
    known = [(step, math.log(chance)) for step, chance in chances.items()]
    if observed >= max(step for step, _ in known):
        return float(max(step for step, _ in known))
    low, high = -TILT_MAX, TILT_MAX
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        reached = math.fsum(share for step, share in _tilt(known, middle) if step <= observed)
        low, high = (middle, high) if reached > tail else (low, middle)
    return math.fsum(step * share for step, share in _tilt(known, (low + high) / 2))


def _tilt(known: Sequence[tuple[int, float]], by: float) -> list[tuple[int, float]]:
    weights = [weight + by * step for step, weight in known]
    highest = max(weights)
    shares = [math.exp(weight - highest) for weight in weights]
    total = math.fsum(shares)
    return [(step, share / total) for (step, _), share in zip(known, shares, strict=True)]


# ── values ───────────────────────────────────────────────────────────────────


def compare_values(
    pairs: Sequence[ValuePair], confidence: float = CONFIDENCE, *, generalize: bool = False
) -> Difference:
    """Compare the values of two sides, case by case, by a permutation test and a bootstrap.

    Without `generalize`, it is about the very cases that were tried: the trials of each are dealt
    out to the two sides again. With it, it is about cases like these: whole cases change sides, and
    the bootstrap draws cases too. The same deals give an interval, as the shifts of one side that
    the test does not reject. The result covers both intervals, and agrees with the test about zero.
    Raises ValueError if a side of a case has no value.
    """
    if not pairs or not all(first and second for first, second in pairs):
        raise ValueError("each case needs a value on both sides")
    source = random.Random(SEED)  # noqa: S311 - statistics, and the same ones each time
    estimate = fmean(fmean(second) - fmean(first) for first, second in pairs)
    tail = (1 - confidence) / 2
    resamples = min(RESAMPLES_MAX, max(RESAMPLES, math.ceil(TAIL_DEALS / tail)))
    deal = _swap_cases if generalize else _deal_trials
    shifts, unchanged = _find_shifts(deal(pairs, source, resamples), estimate, len(pairs))
    values = [value for pair in pairs for side in pair for value in side]
    cut = math.floor(tail * (resamples + 1) + NEXT_TO_ZERO) - unchanged
    exact = _cut_tails(shifts, cut, max(values) - min(values))
    drawn = bootstrap_interval(pairs, confidence, generalize=generalize, source=source)
    wide = Interval(min(drawn.low, exact.low), max(drawn.high, exact.high))
    everything = resamples + 1
    return Difference(
        estimate=estimate,
        interval=_agree_about_zero(wide, exact),
        worse=(1 + unchanged + sum(shift >= 0 for shift in shifts)) / everything,
        better=(1 + unchanged + sum(shift <= 0 for shift in shifts)) / everything,
    )


def compare_rates_of_cases_like_these(
    pairs: Sequence[tuple[PassCount, PassCount]], confidence: float = CONFIDENCE
) -> Difference:
    """Compare how often two sides pass on cases like those that were tried: whole cases are drawn.

    The interval covers Newcombe's too, which knows that equal trials may be luck.
    """
    values = [([first.rate], [second.rate]) for first, second in pairs]
    found = compare_values(values, confidence, generalize=True)
    known = newcombe_interval(pairs, confidence)
    low = max(-1.0, min(found.interval.low, known.low))
    high = min(1.0, max(found.interval.high, known.high))
    interval = _agree_about_zero(Interval(low, high), found.interval)
    return msgspec.structs.replace(found, interval=interval)


Deal: TypeAlias = tuple[float, float]
"""A difference of means after trials were dealt out, and the share of the sides that is unchanged,
from -1 (all have changed sides) to 1 (none has)."""


def _swap_cases(
    pairs: Sequence[ValuePair], source: random.Random, resamples: int
) -> Iterable[Sequence[Deal]]:
    """Yield, for each case, what each of many deals makes of it: it changes sides or stays."""
    for first, second in pairs:
        difference = fmean(second) - fmean(first)
        yield source.choices([(difference, 1.0), (-difference, -1.0)], k=resamples)


def _deal_trials(
    pairs: Sequence[ValuePair], source: random.Random, resamples: int
) -> Iterable[Sequence[Deal]]:
    """Yield, for each case, what each of many deals makes of it: any trials change sides."""
    for first, second in pairs:
        values = [*first, *second]
        places = range(len(values))
        if math.comb(len(values), len(second)) <= DEALS_LISTED_MAX:
            chosen = itertools.combinations(places, len(second))
            listed = [_deal(values, len(first), places) for places in chosen]
            yield source.choices(listed, k=resamples)
        else:
            yield [
                _deal(values, len(first), source.sample(places, len(second)))
                for _ in range(resamples)
            ]


def _deal(values: Sequence[float], first: int, chosen: Sequence[int]) -> Deal:
    """Return what is left of a case if the values at the chosen places are the second side."""
    second = len(chosen)
    moved = math.fsum(values[place] for place in chosen)
    stayed = sum(place >= first for place in chosen)
    rest = math.fsum(values) - moved
    return moved / second - rest / first, stayed / second - (second - stayed) / first


def _find_shifts(
    deals: Iterable[Sequence[Deal]], estimate: float, cases: int
) -> tuple[list[float], int]:
    """Return the shift at which each deal is as extreme as what was observed, sorted.

    If the second side is shifted back by it, the deal has the observed difference. The second
    number counts the deals that changed nothing, which are as extreme at every shift.
    """
    shifts: list[float] = []
    unchanged = 0
    for dealt in zip(*deals, strict=True):
        left = math.fsum(share for _, share in dealt) / cases
        if left > 1 - NEXT_TO_ZERO:
            unchanged += 1
            continue
        difference = math.fsum(value for value, _ in dealt) / cases
        shift = (estimate - difference) / (1 - left)
        shifts.append(0.0 if abs(shift) < NEXT_TO_ZERO else shift)
    return sorted(shifts), unchanged


def _cut_tails(shifts: Sequence[float], cut: int, most: float) -> Interval:
    """Return the shifts that the test does not reject; `most` is the largest that is possible."""
    if not 1 <= cut <= len(shifts):
        return Interval(-most, most)
    return Interval(max(-most, shifts[cut - 1]), min(most, shifts[-cut]))


def bootstrap_interval(
    pairs: Sequence[ValuePair],
    confidence: float,
    *,
    generalize: bool,
    source: random.Random,
    resamples: int = RESAMPLES,
) -> Interval:
    """Return the percentile interval of the difference by a paired bootstrap.

    Trials are drawn with replacement within each side of a case; with `generalize`, or if a case
    has one trial a side only, cases are drawn first.
    """
    draws_cases = generalize or any(len(side) == 1 for pair in pairs for side in pair)
    # Values that are all alike have one mean, however they are drawn.
    drawn = [(_collapse(first), _collapse(second)) for first, second in pairs]
    choose = (lambda: source.choices(drawn, k=len(drawn))) if draws_cases else (lambda: drawn)
    means = sorted(_draw_difference(choose(), source) for _ in range(resamples))
    tail = (1 - confidence) / 2
    return Interval(_quantile(means, tail), _quantile(means, 1 - tail))


def _collapse(values: Sequence[float]) -> Sequence[float]:
    return values[:1] if min(values) == max(values) else values


def _draw_difference(pairs: Sequence[ValuePair], source: random.Random) -> float:
    total = 0.0
    for first, second in pairs:
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
