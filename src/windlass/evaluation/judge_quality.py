"""Whether judges can be believed: agreement with one another and with people, and calibration."""

import math
from collections.abc import Mapping, Sequence

import msgspec

from windlass.core.errors import ConfigError
from windlass.evaluation.reports import Report
from windlass.evaluation.scores import Score
from windlass.evaluation.statistics import (
    Interval,
    PassCount,
    krippendorff_alpha,
    wilson_interval,
)

HALF = 0.5


class JudgeAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """How a judge compares with people, on the trials that both have judged."""

    judge: str
    alpha: float | None
    """Krippendorff's alpha of the judge and the people; None if there is nothing to agree on."""
    both_pass: int
    both_fail: int
    too_lenient: int
    """Trials that the judge passes and people fail."""
    too_strict: int
    """Trials that the judge fails and people pass."""


class StatedShare(msgspec.Struct, frozen=True):
    """The trials that got the same share of a judge's votes, and how many of them people pass."""

    share: float
    people: PassCount

    @property
    def interval(self) -> Interval:
        """The Wilson interval of the rate at which people pass such trials."""
        return wilson_interval(self.people.passed, self.people.trials)


class JudgeCalibration(msgspec.Struct, frozen=True, kw_only=True):
    """How often people pass what a judge passes with some share of its votes."""

    judge: str
    shares: tuple[StatedShare, ...]
    """From the lowest share to the highest."""
    error: float
    """The expected calibration error: how far the shares lie from the rates, over all trials."""
    brier: float
    """The mean square of share minus verdict of people: 0 is perfect, 0.25 is always one half."""


class PreferenceCount(msgspec.Struct, frozen=True):
    """What a judge of two replies said of the trials of a report."""

    better: int
    worse: int
    ties: int
    """Those that changed with the order among them."""
    order_changed: int
    """Trials on which the verdict changed with the order of the two replies."""


def compare_judges_with_people(
    report: Report, people: Mapping[str, bool], judges: Sequence[str] | None = None
) -> list[JudgeAgreement]:
    """Compare judges of a report with what people say, by the session of a trial.

    `judges` are names of scorers that pass or fail trials, such as a panel; by default, all judges
    that vote. Raises ConfigError if people judged a session that is not in the report, or none was
    judged by both.
    """
    found: list[JudgeAgreement] = []
    for name in _find_voters(report) if judges is None else judges:
        judged = _find_labelled(report, people, name)
        pairs = [(_passes(score), label) for score, label in judged]
        found.append(
            JudgeAgreement(
                judge=name,
                alpha=krippendorff_alpha([[float(a), float(b)] for a, b in pairs]),
                both_pass=pairs.count((True, True)),
                both_fail=pairs.count((False, False)),
                too_lenient=pairs.count((True, False)),
                too_strict=pairs.count((False, True)),
            )
        )
    return found


def calibrate_judges(report: Report, people: Mapping[str, bool]) -> list[JudgeCalibration]:
    """Return, for each judge that votes, how often people pass what it passes.

    `people` is what people say, by the session of a trial. Raises ConfigError as
    `compare_judges_with_people` does.
    """
    found: list[JudgeCalibration] = []
    for name in _find_voters(report):
        labels: dict[float, list[bool]] = {}
        for score, label in _find_labelled(report, people, name):
            labels.setdefault(_share(score), []).append(label)
        total = sum(map(len, labels.values()))
        rows = [
            StatedShare(share, PassCount(sum(given), len(given)))
            for share, given in sorted(labels.items())
        ]
        gaps = (abs(row.share - row.people.rate) * row.people.trials for row in rows)
        squares = ((share - one) ** 2 for share, given in labels.items() for one in given)
        found.append(
            JudgeCalibration(
                judge=name,
                shares=tuple(rows),
                error=math.fsum(gaps) / total,
                brier=math.fsum(squares) / total,
            )
        )
    return found


def find_agreement(
    report: Report, judges: Sequence[str] | None = None, *, graded: bool = False
) -> float | None:
    """Return Krippendorff's alpha of judges of a report with one another.

    `judges` are their names; by default, all judges that vote. With `graded`, the shares of their
    votes are compared instead of their verdicts, and shares that lie near to one another disagree
    less. A judge of two replies is rated by its value.
    """
    names = set(_find_voters(report) if judges is None else judges)
    units = [
        [
            _rate(score, graded=graded)
            for score in trial.scores
            if score.scorer in names and not score.missing
        ]
        for trial in report.trials
    ]
    return krippendorff_alpha(units, graded=graded)


def count_preferences(report: Report, judge: str) -> PreferenceCount:
    """Return how often a judge of two replies found that of the trial better or worse."""
    labels = [
        score.label
        for trial in report.trials
        for score in trial.scores
        if score.scorer == judge and not score.missing
    ]
    order_changed = labels.count("order")
    ties = labels.count("tie") + order_changed
    return PreferenceCount(labels.count("better"), labels.count("worse"), ties, order_changed)


def describe_judge(report: Report, judge: str) -> str | None:
    """Return how steady a judge is, in words; None if its verdicts do not show it."""
    if judge in _find_voters(report):
        kappa = report.judge_agreement(judge)
        return None if kappa is None else f"{judge} agrees with itself: Fleiss' kappa {kappa:.2f}"
    count = count_preferences(report, judge)
    if not (count.better or count.worse or count.ties):
        return None
    return (
        f"{judge}: {count.better} better, {count.worse} worse, {count.ties} ties; "
        f"{count.order_changed} changed with the order"
    )


def _find_voters(report: Report) -> list[str]:
    """Return the judges that vote on a rubric, in the order of the report."""
    scores = (score for trial in report.trials for score in trial.scores)
    return list(dict.fromkeys(score.scorer for score in scores if score.votes))


def _find_labelled(
    report: Report, people: Mapping[str, bool], judge: str
) -> list[tuple[Score, bool]]:
    """Return the scores of a judge on the trials that people judged, and what they say."""
    known = {trial.session: trial for trial in report.trials}
    for session in people:
        if session not in known:
            raise ConfigError(f"the report {report.name} has no trial {session!r}")
    found = [
        (score, label)
        for session, label in people.items()
        for score in known[session].scores
        if score.scorer == judge and not score.missing
    ]
    if not found:
        raise ConfigError(f"no trial was judged by both {judge} and a person")
    return found


def _share(score: Score) -> float:
    """Return the share of a judge's votes that pass the trial."""
    return sum(score.votes) / len(score.votes)


def _passes(score: Score) -> bool:
    # The judges of a panel fail no trial, so that only their votes say what they think of it.
    return bool(score.passed) if score.passed is not None else _share(score) > HALF


def _rate(score: Score, *, graded: bool) -> float:
    if score.value is not None:
        return score.value
    return _share(score) if graded else float(_passes(score))
