"""What changed from one report to another, as data and in words. `comparing.py` finds it out."""

from typing import Literal

import msgspec
from typing_extensions import override

from windlass.core.phrases import format_count
from windlass.core.text_clip import printable_chars
from windlass.evaluation.differences import (
    Difference,
    count_repeats_needed,
)
from windlass.evaluation.statistics import Interval, PassCount
from windlass.evaluation.wording import format_rate

ALPHA = 0.05
"""How often two reports of the same agent may be called worse by chance."""
Verdict = Literal["worse", "better", "same"]
CHANGES_SHOWN = 20
_VERDICTS = {
    "worse": "Worse beyond chance",
    "better": "Better beyond chance",
    "same": "No difference beyond chance",
}
NOISE_S = 0.01
"""Differences in seconds below this are not described."""
_UNITS = {"usd": "$", "seconds": " s", "steps": " steps"}
MEASURES: tuple[Literal["usd", "steps", "seconds"], ...] = ("usd", "steps", "seconds")


class CaseChange(msgspec.Struct, frozen=True, kw_only=True):
    """How often a case passed before and after."""

    id: str
    before: PassCount
    after: PassCount
    worse_chance: float
    """How likely this few passes are if nothing changed, allowing for the number of cases."""
    better_chance: float

    @property
    def difference(self) -> float:
        return self.after.rate - self.before.rate

    @property
    def two_sided_chance(self) -> float:
        """The chance of such a change in either direction, allowing for the number of cases."""
        return min(1.0, 2 * min(self.worse_chance, self.better_chance))


class MeasureChange(msgspec.Struct, frozen=True, kw_only=True):
    """A number before and after, averaged over the cases that both reports have."""

    name: str
    before: float
    after: float
    interval: Interval
    """Of the difference, by a bootstrap and a permutation test."""

    @property
    def has_changed(self) -> bool:
        return self.before != self.after

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves no doubt about the direction."""
        return self.interval.low > 0 or self.interval.high < 0


class ScoreChange(msgspec.Struct, frozen=True, kw_only=True):
    """The mean of a graded score before and after."""

    scorer: str
    before: float
    after: float
    difference: Difference
    """Its `worse` and `better` are about lower and higher values."""
    lower_is_better: bool = False
    worse_chance: float
    """The chance of such a loss if nothing changed, allowing for the number of scores."""
    better_chance: float


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What changed from one report to another."""

    before: str
    after: str
    verdict: Verdict
    alpha: float
    rate_before: float
    rate_after: float
    interval: Interval
    """Of the difference of the pass rates, with a confidence of 1 - `alpha`. It leaves zero out if
    `two_sided_chance` is at most `alpha`, and only then."""
    worse_chance: float
    """How likely this few passes in all are if no case changed: an exact test, case by case."""
    better_chance: float
    generalize: bool = False
    """Whether interval and chances are about cases like these, and not only about these."""
    cases: tuple[CaseChange, ...]
    scores: tuple[ScoreChange, ...] = ()
    """The graded scores that all cases have in both reports."""
    measures: tuple[MeasureChange, ...] = ()
    left_out: tuple[str, ...] = ()
    """Cases that cannot be compared: in one report only, without trials, or asking or expecting
    another thing."""
    expecting_anew: tuple[str, ...] = ()
    """Those of them that ask the same, and expect another answer."""

    @property
    def two_sided_chance(self) -> float:
        """The chance of such a difference in either direction: twice the smaller tail."""
        return min(1.0, 2 * min(self.worse_chance, self.better_chance))

    @property
    def difference(self) -> float:
        """By how much the rate changed; above zero, it is better than before."""
        return self.rate_after - self.rate_before

    @property
    def changed(self) -> list[CaseChange]:
        """The cases that passed more or less often, the largest change first."""
        moved = [case for case in self.cases if case.difference]
        return sorted(moved, key=lambda case: abs(case.difference), reverse=True)

    @property
    def surely_worse(self) -> list[str]:
        """The cases that became worse beyond chance."""
        return [case.id for case in self.cases if case.worse_chance <= self.alpha_alone]

    @property
    def scores_worse(self) -> list[str]:
        """The graded scores that became worse beyond chance."""
        return [score.scorer for score in self.scores if score.worse_chance <= self.alpha_alone]

    @property
    def alpha_alone(self) -> float:
        """The chance of a false alarm by a single case: half of `alpha`, shared with scores."""
        return self.alpha / 4 if self.scores else self.alpha / 2

    @property
    def fallen_unproven(self) -> list[CaseChange]:
        """The cases that no longer pass at all, where too few trials were made to call it worse."""
        if self.verdict == "worse":
            return []
        return [
            case
            for case in self.cases
            if case.before.passed and not case.after.passed
            if min(case.before.trials, case.after.trials) < self.repeats_needed
        ]

    @property
    def repeats_needed(self) -> int:
        """From how many trials on a case that falls from all to none is surely called worse."""
        return count_repeats_needed(len(self.cases), self.alpha_alone)

    @override
    def __str__(self) -> str:
        """Return what the command line prints about a comparison."""
        return "\n".join(_describe_lines(self))


# ── in words ─────────────────────────────────────────────────────────────────


def format_measure(measure: MeasureChange) -> str:
    """Return how a number changed, with the interval of the difference."""
    unit = _UNITS.get(measure.name, "")
    doubt = "" if measure.is_clear else ", which may be chance"
    return (
        f"{measure.name}: {measure.before:.4g} became {measure.after:.4g} "
        f"(difference {measure.interval.low:+.3g} to {measure.interval.high:+.3g}{unit}{doubt})"
    )


def format_score(score: ScoreChange) -> str:
    """Return how the mean of a graded score changed, with the interval of the difference."""
    ends = score.difference.interval
    better = ", lower is better" if score.lower_is_better else ""
    return (
        f"{printable_chars(score.scorer)}: {score.before:.3g} became {score.after:.3g} (difference "
        f"{ends.low:+.2g} to {ends.high:+.2g}, p {score.difference.two_sided:.3f}{better})"
    )


def describe_comparison(comparison: Comparison) -> str:
    """Return what changed from one report to another, in a sentence or two."""
    which = "cases like these" if comparison.generalize else "these cases"
    sentence = (
        f"{format_rate(comparison.rate_before)} became {format_rate(comparison.rate_after)} "
        f"(difference on {which} {format_points(comparison.interval)} points, "
        f"p {comparison.two_sided_chance:.3f})."
    )
    alone = comparison.surely_worse
    if comparison.verdict == "worse" and comparison.worse_chance > comparison.alpha / 2:
        # Each test has its own say: the interval is that of all cases together.
        kinds = ((alone, "in single cases"), (comparison.scores_worse, "by their score"))
        where = "; ".join(f"{words}: {', '.join(names)}" for names, words in kinds if names)
        return f"Worse beyond chance {where}. All together: {sentence}"
    sentence = f"{_VERDICTS[comparison.verdict]}: {sentence}"
    return f"{sentence} Surely worse: {', '.join(alone)}." if alone else sentence


def format_points(interval: Interval) -> str:
    """Return an interval of rates in points; an end next to zero keeps its sign."""
    ends = (interval.low * 100, interval.high * 100)
    return " to ".join(f"{end:+.0f}" if round(end) or not end else f"{end:+.1g}" for end in ends)


def _is_noise(measure: MeasureChange) -> bool:
    """Whether a difference in time is so small that the machine makes it, and not the agent."""
    return measure.name == "seconds" and abs(measure.after - measure.before) < NOISE_S


def _describe_lines(comparison: Comparison) -> list[str]:
    """Return the sentence, and a line for each case and measure that changed."""
    lines = [describe_comparison(comparison)]
    for case in comparison.changed[:CHANGES_SHOWN]:
        before = f"{case.before.passed}/{case.before.trials}"
        after = f"{case.after.passed}/{case.after.trials}"
        chance = f"p {case.two_sided_chance:.3f}"
        lines.append(f"  {printable_chars(case.id)}: {before} became {after} ({chance})")
    lines += [f"  {format_score(score)}" for score in comparison.scores]
    clear = [found for found in comparison.measures if found.is_clear and not _is_noise(found)]
    lines += [f"  {format_measure(found)}" for found in clear]
    if comparison.left_out:
        lines.append(f"  not compared: {', '.join(map(printable_chars, comparison.left_out))}")
    if comparison.expecting_anew:
        names = ", ".join(map(printable_chars, comparison.expecting_anew))
        lines.append(f"  of these, `expected` is another than before: {names}")
    if comparison.fallen_unproven:
        lines.append(f"  {describe_unproven(comparison)}")
    return lines


def describe_unproven(comparison: Comparison) -> str:
    """Return what to do about cases that no longer pass, and were tried too seldom to be sure."""
    fallen = comparison.fallen_unproven
    names = ", ".join(printable_chars(case.id) for case in fallen)
    trials = format_count(min(case.after.trials for case in fallen), "trial")
    return (
        f"{names}: no trial passes any more, but {trials} of a case cannot tell that from chance. "
        f"With --repeat {comparison.repeats_needed} in both reports, a case that falls from all to "
        "none is called worse; --fail-under needs no repeats."
    )
