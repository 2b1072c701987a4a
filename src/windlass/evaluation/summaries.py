"""A report summed up: means of graded scores, groups of cases, and labels beside the right ones."""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median, mode, variance
from typing import Literal

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.suggestions import suggest_names
from windlass.evaluation.reports import CaseReport, Report
from windlass.evaluation.scores import Score
from windlass.evaluation.statistics import (
    CONFIDENCE,
    Interval,
    PassCount,
    Spread,
    describe_spread,
    student_quantile,
    wilson_interval,
)

Reducer = Literal["mean", "median", "mode", "max", "min"]
"""How the values of a case's trials become one."""
REDUCERS: Mapping[Reducer, Callable[[Sequence[float]], float]] = {
    "mean": fmean,
    "median": median,
    "mode": mode,
    "max": max,
    "min": min,
}
NO_GROUP = "(none)"


class ScoreSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The values of one scorer: reduced in each case, and then averaged over the cases."""

    scorer: str
    mean: float
    interval: Interval | None
    """Of the mean, with 95 % confidence; None if there are too few values to tell."""
    over: Literal["trials", "cases", ""]
    """What the interval allows for: other trials of these cases, or other cases like these."""
    values: Spread
    """The values of all trials."""


def summarize_scores(cases: Sequence[CaseReport], reducer: Reducer = "mean") -> list[ScoreSummary]:
    """Return the means of all scores that have values, in the order of the report.

    If each case has several trials and they are averaged, the interval is about these very cases,
    as in a comparison. Otherwise it is about cases like these.
    """
    values: dict[str, list[list[float]]] = {}
    for case in cases:
        for name, found in read_values(case).items():
            values.setdefault(name, []).append(found)
    return [_summarize(name, by_case, reducer) for name, by_case in values.items()]


def read_values(case: CaseReport) -> dict[str, list[float]]:
    """Return the values of a case's trials that count, by the scorer's name."""
    values: dict[str, list[float]] = {}
    for score in _list_scores([case]):
        if score.value is not None:
            values.setdefault(score.scorer, []).append(score.value)
    return values


def _list_scores(cases: Sequence[CaseReport]) -> list[Score]:
    return [score for case in cases for trial in case.counted for score in trial.scores]


def _summarize(name: str, by_case: Sequence[Sequence[float]], reducer: Reducer) -> ScoreSummary:
    reduced = [REDUCERS[reducer](values) for values in by_case]
    spread = describe_spread([value for values in by_case for value in values])
    assert spread is not None  # noqa: S101 - a name is listed because it has values
    interval, over = _find_interval(by_case, reduced, averaged=reducer == "mean")
    return ScoreSummary(
        scorer=name, mean=fmean(reduced), interval=interval, over=over, values=spread
    )


def _find_interval(
    by_case: Sequence[Sequence[float]], reduced: Sequence[float], *, averaged: bool
) -> tuple[Interval | None, Literal["trials", "cases", ""]]:
    """Return Student's interval of a mean of means; Wilson's if all values are 0 or 1."""
    everything = [value for values in by_case for value in values]
    if averaged and set(everything) <= {0.0, 1.0}:
        return wilson_interval(int(sum(everything)), len(everything)), "trials"
    if averaged and min(map(len, by_case)) > 1:
        parts = [(variance(values) / len(values), len(values) - 1) for values in by_case]
        error = math.fsum(part for part, _ in parts)
        # Welch and Satterthwaite: the degrees of freedom of a sum of different variances.
        doubt = math.fsum(part * part / freedom for part, freedom in parts)
        freedom = error * error / doubt if doubt else math.inf
        return _around(fmean(reduced), math.sqrt(error) / len(by_case), freedom), "trials"
    if len(reduced) > 1:
        error = math.sqrt(variance(reduced) / len(reduced))
        return _around(fmean(reduced), error, len(reduced) - 1), "cases"
    return None, ""


def _around(mean: float, error: float, freedom: float) -> Interval:
    half = error * student_quantile((1 + CONFIDENCE) / 2, freedom) if error else 0.0
    return Interval(mean - half, mean + half)


# ── groups ───────────────────────────────────────────────────────────────────


class GroupSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The cases of a report that have something in common."""

    name: str
    cases: int
    passes: PassCount
    interval: Interval
    scores: list[ScoreSummary]


def group_cases(report: Report, by: str) -> list[GroupSummary]:
    """Return the rates and means of groups of cases: by `tag`, or by a key of their metadata.

    A case with several tags is in several groups, and one without is in `(none)`. Raises
    ConfigError if no case has such a key.
    """
    known = list_group_keys(report)
    if by not in known:
        raise ConfigError(f"no case has {by!r} to group by.{suggest_names(by, known)}")
    groups: dict[str, list[CaseReport]] = {}
    for case in report.cases:
        if by == "tag":
            names = case.tags or (NO_GROUP,)
        else:
            names = (str(case.metadata[by]) if by in case.metadata else NO_GROUP,)
        for name in names:
            groups.setdefault(name, []).append(case)
    return [_summarize_group(name, groups[name]) for name in sorted(groups)]


def list_group_keys(report: Report) -> list[str]:
    """Return what the cases of a report can be grouped by."""
    keys = {key for case in report.cases for key in case.metadata}
    return [*(["tag"] if any(case.tags for case in report.cases) else []), *sorted(keys)]


def _summarize_group(name: str, cases: Sequence[CaseReport]) -> GroupSummary:
    passes = PassCount(
        sum(case.passes.passed for case in cases), sum(case.passes.trials for case in cases)
    )
    return GroupSummary(
        name=name,
        cases=len(cases),
        passes=passes,
        interval=wilson_interval(passes.passed, passes.trials),
        scores=summarize_scores(cases),
    )


# ── labels ───────────────────────────────────────────────────────────────────


class ConfusionMatrix(msgspec.Struct, frozen=True, kw_only=True):
    """How often each label was given where each was right."""

    scorer: str
    labels: list[str]
    counts: list[list[int]]
    """A row for each label that was right, a column for each that was given."""


def count_labels(report: Report) -> list[ConfusionMatrix]:
    """Return a matrix for each scorer that gave labels which can be right or wrong."""
    given: dict[str, list[tuple[str, str]]] = {}
    for score in _list_scores(report.cases):
        if score.label is not None and score.target is not None:
            given.setdefault(score.scorer, []).append((score.target, score.label))
    matrices: list[ConfusionMatrix] = []
    for name, pairs in given.items():
        labels = sorted({label for pair in pairs for label in pair})
        counts = [[pairs.count((right, label)) for label in labels] for right in labels]
        matrices.append(ConfusionMatrix(scorer=name, labels=labels, counts=counts))
    return matrices
