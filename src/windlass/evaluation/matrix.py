"""Several variants of an agent on the same cases: one budget, one table, and every pair compared.

    matrix = await evaluate_matrix(
        {"small": small_agent, "large": large_agent}, cases, name="models", repeat=5, budget="10"
    )

Each variant is its own evaluation, `NAME@VARIANT`: call it again after a crash, and all of
them continue where they were.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from typing_extensions import Unpack, override

from windlass.agent.agent import Agent
from windlass.core.errors import ConfigError
from windlass.core.text_clip import printable_chars
from windlass.evaluation.cases import Case, check_cases
from windlass.evaluation.comparing import compare_reports
from windlass.evaluation.comparison import ALPHA, Comparison, Verdict, format_points
from windlass.evaluation.evaluation_run import (
    EvaluateOptions,
    EvaluationRun,
    choose_journal,
    make_budget,
    run_together,
)
from windlass.evaluation.reports import Report
from windlass.evaluation.scores import Scorer
from windlass.evaluation.statistics import Interval
from windlass.evaluation.summaries import summarize_scores
from windlass.evaluation.trials import AgentMaker
from windlass.evaluation.wording import format_interval, format_rate, format_usd

VARIANTS_MIN = 2


class PairChange(msgspec.Struct, frozen=True, kw_only=True):
    """How the pass rate, or the mean of a graded score, differs between two variants."""

    first: str
    second: str
    score: str
    """The graded score; empty for the pass rate."""
    before: float
    after: float
    interval: Interval
    """Of the difference. All intervals of a matrix hold at the same time with its confidence."""
    chance: float
    """Two-sided, allowing for all comparisons of the matrix (Bonferroni)."""
    verdict: Verdict
    """Of the second variant beside the first."""


class MatrixReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the evaluation of several variants found."""

    name: str
    alpha: float
    generalize: bool
    variants: dict[str, Report]
    pairs: tuple[PairChange, ...]

    @property
    def table(self) -> list[tuple[str, ...]]:
        """The variants, one a line under a head; the one that passes most often first."""
        means = {
            name: {found.scorer: found.mean for found in summarize_scores(report.cases)}
            for name, report in self.variants.items()
        }
        scorers = list(dict.fromkeys(scorer for found in means.values() for scorer in found))
        rows = [("VARIANT", "PASSED", "RATE", "95 %", *scorers, "COST", "SECONDS")]
        ordered = sorted(self.variants.items(), key=lambda item: -item[1].passes.rate)
        for name, report in ordered:
            passes = report.passes
            seconds = report.spread_of("seconds")
            rows.append(
                (
                    printable_chars(name),
                    f"{passes.passed}/{passes.trials}",
                    format_rate(passes.rate) if passes.trials else "-",
                    format_interval(report.interval) if passes.trials else "-",
                    *(f"{means[name][one]:.3g}" if one in means[name] else "-" for one in scorers),
                    format_usd(report.usd),
                    f"{seconds.mean:.1f}" if seconds else "-",
                )
            )
        return rows

    @override
    def __str__(self) -> str:
        """Return the table, and what is beyond chance."""
        widths = [max(map(len, column)) for column in zip(*self.table, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in self.table
        ]
        return "\n".join([*lines, *describe_pairs(self)])


async def evaluate_matrix(
    variants: "Mapping[str, Agent[Any] | AgentMaker]",
    cases: Iterable[Case],
    *,
    name: str,
    scorers: Sequence[Scorer] = (),
    alpha: float = ALPHA,
    generalize: bool = False,
    **options: Unpack[EvaluateOptions],
) -> MatrixReport:
    """Try every case with every variant of an agent, and compare each with each.

    The options are those of `evaluate`. The budget is one for all variants, and `at_once` counts
    the trials of all. Raises ConfigError as `evaluate` does, and for fewer than two variants.
    """
    if len(variants) < VARIANTS_MIN:
        raise ConfigError(f"a matrix needs at least {VARIANTS_MIN} variants to compare")
    listed = check_cases(cases)
    journal = options.get("journal") or choose_journal(next(iter(variants.values())), None)
    shared = EvaluateOptions(**options)
    shared["journal"] = journal
    shared["budget"] = make_budget(name, options.get("budget"))
    runs = [
        EvaluationRun(agent, listed, f"{name}@{variant}", scorers, shared)
        for variant, agent in variants.items()
    ]
    reports = await run_together(runs, runs[0].at_once)
    return compare_variants(
        name, dict(zip(variants, reports, strict=True)), alpha=alpha, generalize=generalize
    )


def compare_variants(
    name: str, reports: Mapping[str, Report], *, alpha: float = ALPHA, generalize: bool = False
) -> MatrixReport:
    """Compare every pair of reports, allowing for how many comparisons there are.

    Variants without a trial that counts are in the table only. Raises ConfigError as
    `compare_reports` does.
    """
    counted = [variant for variant, report in reports.items() if report.counted]
    names = list(itertools.combinations(counted, 2))
    scored = {score.scorer for one in counted for score in summarize_scores(reports[one].cases)}
    looks = max(1, len(names) * (1 + len(scored)))
    found = [
        compare_reports(
            reports[first],
            reports[second],
            alpha=alpha / looks,
            generalize=generalize,
            measures=False,
        )
        for first, second in names
    ]
    pairs = [
        change
        for (first, second), comparison in zip(names, found, strict=True)
        for change in _read_changes(first, second, comparison, looks)
    ]
    return MatrixReport(
        name=name, alpha=alpha, generalize=generalize, variants=dict(reports), pairs=tuple(pairs)
    )


def _read_changes(first: str, second: str, found: Comparison, looks: int) -> list[PairChange]:
    changes = [
        (
            "",
            found.rate_before,
            found.rate_after,
            found.interval,
            found.worse_chance,
            found.better_chance,
        )
    ]
    for score in found.scores:
        difference = score.difference
        worse, better = difference.worse, difference.better
        if score.lower_is_better:
            worse, better = better, worse
        values = (score.before, score.after)
        changes.append((score.scorer, *values, difference.interval, worse, better))
    return [
        PairChange(
            first=first,
            second=second,
            score=name,
            before=before,
            after=after,
            interval=interval,
            chance=min(1.0, 2 * looks * min(worse, better)),
            verdict=_decide(worse, better, found.alpha / 2),
        )
        for name, before, after, interval, worse, better in changes
    ]


def _decide(worse: float, better: float, tail: float) -> Verdict:
    if worse <= tail:
        return "worse"
    return "better" if better <= tail else "same"


def describe_pairs(matrix: MatrixReport) -> list[str]:
    """Return a line for each pair that differs beyond chance, or one that says that none does."""
    lines: list[str] = []
    for pair in matrix.pairs:
        if pair.verdict == "same":
            continue
        if pair.score:
            ends = f"{pair.interval.low:+.2g} to {pair.interval.high:+.2g}"
            values = f"{pair.score} {pair.before:.3g} and {pair.after:.3g}"
        else:
            ends = f"{format_points(pair.interval)} points"
            values = f"{format_rate(pair.before)} and {format_rate(pair.after)}"
        words = f"{pair.second} is {pair.verdict} than {pair.first}: {values}"
        lines.append(printable_chars(f"{words} (difference {ends}, p {pair.chance:.3f})."))
    which = "cases like these" if matrix.generalize else "these cases"
    count = len(matrix.pairs)
    allowed = f"{count} comparisons on {which}, each p allows for all of them."
    return [*(lines or ["No two variants differ beyond chance."]), allowed]
