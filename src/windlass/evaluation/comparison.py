"""Two reports side by side: what changed, and whether it is more than chance.

Invariant: cases are compared with themselves. A case that one report does not have, or that asks
something else there, is named and left out.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec
from typing_extensions import override

from windlass.core.errors import ConfigError
from windlass.core.phrases import format_count
from windlass.core.text_clip import printable_chars
from windlass.evaluation.differences import (
    adjust_holm,
    compare_passes,
    compare_rates_of_cases_like_these,
    compare_values,
    count_repeats_needed,
)
from windlass.evaluation.reports import CaseReport, Report
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
    two_sided_chance: float
    generalize: bool = False
    """Whether interval and chances are about cases like these, and not only about these."""
    cases: tuple[CaseChange, ...]
    measures: tuple[MeasureChange, ...] = ()
    left_out: tuple[str, ...] = ()
    """Cases that cannot be compared: in one report only, without trials, or asking or expecting
    another thing."""
    expecting_anew: tuple[str, ...] = ()
    """Those of them that ask the same, and expect another answer."""

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
        return [case.id for case in self.cases if case.worse_chance <= self.alpha / 2]

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
        return count_repeats_needed(len(self.cases), self.alpha / 2)

    @override
    def __str__(self) -> str:
        """Return what the command line prints about a comparison."""
        return "\n".join(_describe_lines(self))


def compare_reports(
    before: Report, after: Report, *, alpha: float = ALPHA, generalize: bool = False
) -> Comparison:
    """Compare two reports case by case.

    It is `worse` if all cases together passed less often than chance allows, or one case alone did:
    each of the two may be a false alarm in half of `alpha`. Without `generalize`, the comparison is
    about the very cases of the reports, and only how trials fell is chance. With it, the cases
    themselves were drawn by chance, and it is about all cases like these. Raises ConfigError if no
    case is in both reports, or if a case was not scored by the same scorers in both.
    """
    if not 0 < alpha < 1:
        raise ConfigError(f"alpha={alpha}: it must be between 0 and 1")
    pairs, left_out = _match_cases(before, after)
    counts = [(first.passes, second.passes) for first, second in pairs]
    compare = compare_rates_of_cases_like_these if generalize else compare_passes
    together = compare(counts, 1 - alpha)
    cases = _compare_cases(pairs)
    worse = [together.worse, *(case.worse_chance for case in cases)]
    better = [together.better, *(case.better_chance for case in cases)]
    return Comparison(
        before=before.name,
        after=after.name,
        verdict=_decide(min(worse), min(better), alpha),
        alpha=alpha,
        rate_before=_mean_rate([first for first, _ in counts]),
        rate_after=_mean_rate([second for _, second in counts]),
        interval=together.interval,
        worse_chance=together.worse,
        better_chance=together.better,
        two_sided_chance=together.two_sided,
        generalize=generalize,
        cases=tuple(cases),
        measures=tuple(_compare_measures(pairs, 1 - alpha, generalize=generalize)),
        left_out=tuple(left_out),
        expecting_anew=tuple(first.id for first in before.cases if _expects_anew(first, after)),
    )


def _decide(worse: float, better: float, alpha: float) -> Verdict:
    """A case that collapsed is worse, also if others became better."""
    if worse <= alpha / 2:
        return "worse"
    return "better" if better <= alpha / 2 else "same"


def _match_cases(
    before: Report, after: Report
) -> tuple[list[tuple[CaseReport, CaseReport]], list[str]]:
    pairs: list[tuple[CaseReport, CaseReport]] = []
    left_out: list[str] = []
    for first in before.cases:
        second = after.find_case(first.id)
        is_same = second is not None and second.digest == first.digest
        is_same = is_same and not _expects_anew(first, after)
        if second is not None and is_same and first.counted and second.counted:
            pairs.append((first, second))
        else:
            left_out.append(first.id)
    left_out += [case.id for case in after.cases if before.find_case(case.id) is None]
    if not pairs:
        raise ConfigError(
            f"the reports {before.name} and {after.name} have no case in common that asks and "
            "expects the same"
        )
    _check_same_scorers(before.name, after.name, pairs)
    return pairs, left_out


def _expects_anew(first: CaseReport, after: Report) -> bool:
    """Whether a case asks the same in the other report, and expects another answer there."""
    second = after.find_case(first.id)
    if second is None or second.digest != first.digest:
        return False
    digests = {first.expected_digest, second.expected_digest}
    return len(digests) > 1 and "" not in digests


def _check_same_scorers(
    before: str, after: str, pairs: Sequence[tuple[CaseReport, CaseReport]]
) -> None:
    """Raise ConfigError if a case passes for other reasons in one report than in the other."""
    only_before = {name for first, second in pairs for name in _scored_by(first, second)}
    only_after = {name for first, second in pairs for name in _scored_by(second, first)}
    if not only_before and not only_after:
        return
    found = [
        f"only in {report}: {', '.join(sorted(names))}"
        for report, names in ((before, only_before), (after, only_after))
        if names
    ]
    raise ConfigError(
        f"the reports {before} and {after} were scored differently ({'; '.join(found)}), so their "
        "rates cannot be compared. Score the recorded trials of one again as the other was: "
        f"windlass eval report {before} --cases CASES --check ... --json {before}.json "
        "(in Python: rescore)"
    )


def _scored_by(case: CaseReport, other: CaseReport) -> set[str]:
    """Return the scorers of a case that its other report does not have."""
    return _scorer_names(case) - _scorer_names(other)


def _scorer_names(case: CaseReport) -> set[str]:
    return {score.scorer for trial in case.counted for score in trial.scores}


def _compare_cases(pairs: Sequence[tuple[CaseReport, CaseReport]]) -> list[CaseChange]:
    tests = [compare_passes([(first.passes, second.passes)]) for first, second in pairs]
    worse = adjust_holm([test.worse for test in tests])
    better = adjust_holm([test.better for test in tests])
    return [
        CaseChange(
            id=first.id,
            before=first.passes,
            after=second.passes,
            worse_chance=worse[at],
            better_chance=better[at],
        )
        for at, (first, second) in enumerate(pairs)
    ]


def _compare_measures(
    pairs: Sequence[tuple[CaseReport, CaseReport]], confidence: float, *, generalize: bool
) -> list[MeasureChange]:
    found: list[MeasureChange] = []
    for name in MEASURES:
        values = [(_numbers(first, name), _numbers(second, name)) for first, second in pairs]
        known = [(first, second) for first, second in values if first and second]
        if len(known) < len(pairs):
            continue
        found.append(
            MeasureChange(
                name=name,
                before=sum(map(_mean, (first for first, _ in known))) / len(known),
                after=sum(map(_mean, (second for _, second in known))) / len(known),
                interval=compare_values(known, confidence, generalize=generalize).interval,
            )
        )
    return found


def _numbers(case: CaseReport, name: str) -> list[float]:
    """Return a number of each trial; none if one of them is not known."""
    values = [getattr(trial, name) for trial in case.counted]
    return [] if None in values else [float(value) for value in values]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _mean_rate(counts: Sequence[PassCount]) -> float:
    """Return the pass rate with each case counting alike, however often it was tried."""
    return _mean([count.rate for count in counts])


# ── in words ─────────────────────────────────────────────────────────────────


def format_measure(measure: MeasureChange) -> str:
    """Return how a number changed, with the interval of the difference."""
    unit = _UNITS.get(measure.name, "")
    doubt = "" if measure.is_clear else ", which may be chance"
    return (
        f"{measure.name}: {measure.before:.4g} became {measure.after:.4g} "
        f"(difference {measure.interval.low:+.3g} to {measure.interval.high:+.3g}{unit}{doubt})"
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
        # Each of the two tests has its own say: the interval is that of all cases together.
        return f"Worse beyond chance in single cases: {', '.join(alone)}. All together: {sentence}"
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
