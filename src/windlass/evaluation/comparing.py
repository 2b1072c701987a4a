"""Compare two reports: what changed, and whether it is more than chance.

Invariant: cases are compared with themselves. A case that one report does not have, or that asks
something else there, is named and left out.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from windlass.core.errors import ConfigError
from windlass.evaluation.comparison import (
    ALPHA,
    MEASURES,
    CaseChange,
    Comparison,
    MeasureChange,
    ScoreChange,
)
from windlass.evaluation.differences import (
    adjust_holm,
    compare_passes,
    compare_rates_of_cases_like_these,
    compare_values,
    find_chances_of_passes,
)
from windlass.evaluation.reports import CaseReport, Report
from windlass.evaluation.statistics import PassCount
from windlass.evaluation.summaries import read_values


def compare_reports(
    before: Report,
    after: Report,
    *,
    alpha: float = ALPHA,
    generalize: bool = False,
    measures: bool = True,
) -> Comparison:
    """Compare two reports case by case.

    It is `worse` if all cases together passed less often than chance allows, or one case alone did,
    or the mean of a graded score fell. The first may be a false alarm in half of `alpha`, and the
    others share the other half. The comparison is about the very cases of the reports; with
    `generalize`, it is about all cases like these. Without `measures`, cost, steps and seconds are
    left out. Raises ConfigError if no case is in both reports, or was scored differently.
    """
    confidence = _check_confidence(1 - alpha)
    pairs, left_out = _match_cases(before, after)
    compare = compare_rates_of_cases_like_these if generalize else compare_passes
    together = compare([(first.passes, second.passes) for first, second in pairs], confidence)
    comparison = Comparison(
        before=before.name,
        after=after.name,
        verdict="same",
        alpha=alpha,
        rate_before=_mean_rate([first.passes for first, _ in pairs]),
        rate_after=_mean_rate([second.passes for _, second in pairs]),
        interval=together.interval,
        worse_chance=together.worse,
        better_chance=together.better,
        generalize=generalize,
        cases=tuple(_compare_cases(pairs)),
        scores=tuple(_compare_scores(pairs, confidence, generalize=generalize)),
        measures=tuple(
            _compare_measures(pairs if measures else (), confidence, generalize=generalize)
        ),
        left_out=tuple(left_out),
        expecting_anew=tuple(first.id for first in before.cases if _expects_anew(first, after)),
    )
    return _decide(comparison)


def _check_confidence(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ConfigError(f"alpha={1 - confidence:g}: it must be between 0 and 1")
    return confidence


def _decide(found: Comparison) -> Comparison:
    """Return a comparison with its verdict. What collapsed is worse, even if others rose."""
    if found.worse_chance <= found.alpha / 2 or found.surely_worse or found.scores_worse:
        return replace(found, verdict="worse")
    alone = [*found.cases, *found.scores]
    is_better = found.better_chance <= found.alpha / 2
    is_better = is_better or any(one.better_chance <= found.alpha_alone for one in alone)
    return replace(found, verdict="better") if is_better else found


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
    found = [find_chances_of_passes([(first.passes, second.passes)]) for first, second in pairs]
    worse = adjust_holm([chance for chance, _ in found])
    better = adjust_holm([chance for _, chance in found])
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


def _compare_scores(
    pairs: Sequence[tuple[CaseReport, CaseReport]], confidence: float, *, generalize: bool
) -> list[ScoreChange]:
    """Compare the graded scores that every case has values of, on both sides."""
    values = [(read_values(first), read_values(second)) for first, second in pairs]
    names = [name for name in values[0][0] if all(name in side for one in values for side in one)]
    lower = {
        score.scorer
        for first, _ in pairs
        for trial in first.counted
        for score in trial.scores
        if score.lower_is_better
    }
    found = [
        compare_values(
            [(one[name], two[name]) for one, two in values], confidence, generalize=generalize
        )
        for name in names
    ]
    turned = [name in lower for name in names]
    falls = [one.better if turn else one.worse for one, turn in zip(found, turned, strict=True)]
    rises = [one.worse if turn else one.better for one, turn in zip(found, turned, strict=True)]
    worse, better = adjust_holm(falls), adjust_holm(rises)
    return [
        ScoreChange(
            scorer=name,
            before=_mean([_mean(one[name]) for one, _ in values]),
            after=_mean([_mean(two[name]) for _, two in values]),
            difference=found[at],
            lower_is_better=turned[at],
            worse_chance=worse[at],
            better_chance=better[at],
        )
        for at, name in enumerate(names)
    ]


def _compare_measures(
    pairs: Sequence[tuple[CaseReport, CaseReport]], confidence: float, *, generalize: bool
) -> list[MeasureChange]:
    found: list[MeasureChange] = []
    for name in MEASURES:
        values = [(_numbers(first, name), _numbers(second, name)) for first, second in pairs]
        known = [(first, second) for first, second in values if first and second]
        if not known or len(known) < len(pairs):
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
