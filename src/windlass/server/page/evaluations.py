"""Evaluations as the page shows them: rates, cases, and the sessions of their trials."""

from collections.abc import Mapping, Sequence
from decimal import Decimal

import msgspec

from windlass.evaluation.reports import CaseReport, Report, TrialReport
from windlass.evaluation.statistics import Interval, wilson_interval
from windlass.evaluation.stored_reports import StoredEvaluation, list_evaluations, read_evaluation
from windlass.evaluation.summaries import (
    ConfusionMatrix,
    GroupSummary,
    ScoreSummary,
    count_labels,
    group_cases,
    list_group_keys,
    summarize_scores,
)
from windlass.server.access import Caller
from windlass.server.errors import ApiError
from windlass.server.service import Service


class ListedEvaluation(msgspec.Struct, frozen=True, kw_only=True):
    """One line about an evaluation."""

    name: str
    updated: float
    model: str
    cases: int
    planned: int
    """Trials in all."""
    done: int
    passed: int
    counted: int
    """Trials that say something about the agent: the rate is of these."""
    interval: Interval
    """Of the pass rate, with 95 % confidence."""


class EvaluationList(msgspec.Struct, frozen=True):
    """The evaluations of the caller, the latest first."""

    evaluations: Sequence[ListedEvaluation]


class ListedScore(msgspec.Struct, frozen=True, kw_only=True):
    """What a scorer says about a trial."""

    scorer: str
    passed: bool | None
    """None if it only measures."""
    value: float | None
    label: str | None
    reason: str
    missing: bool
    """The scorer failed, or a judge gave no verdict."""


class ListedTrial(msgspec.Struct, frozen=True, kw_only=True):
    """One trial: its session can be opened."""

    session: str
    status: str
    outcome: str
    problems: Sequence[str]
    scores: Sequence[ListedScore]
    steps: int
    seconds: float
    usd: Decimal | None


class EvaluatedCase(msgspec.Struct, frozen=True, kw_only=True):
    """How the trials of a case went."""

    id: str
    passed: int
    counted: int
    interval: Interval
    is_flaky: bool
    tags: Sequence[str]
    trials: Sequence[ListedTrial]


class EvaluationReply(msgspec.Struct, frozen=True, kw_only=True):
    """An evaluation with its cases and trials."""

    evaluation: ListedEvaluation
    instructions: str
    scorers: Sequence[str]
    warnings: Sequence[str]
    """What a reader should know before trusting the rates, in words."""
    usd: Decimal | None
    judge_usd: Decimal | None
    pass_at: float | None
    """The chance that at least one of all repeats passes; None with fewer trials."""
    pass_hat: float | None
    """The chance that all repeats pass."""
    repeat: int
    scores: Sequence[ScoreSummary]
    """The means of graded scores."""
    groups: Mapping[str, Sequence[GroupSummary]]
    """Rates and means of groups of cases, by what they have in common."""
    labels: Sequence[ConfusionMatrix]
    cases: Sequence[EvaluatedCase]


async def list_for_page(service: Service, caller: Caller) -> EvaluationList:
    """Return the evaluations that a caller may see."""
    owner = None if caller.is_admin else caller.name
    return EvaluationList(list(map(describe, await list_evaluations(service.journal, owner))))


async def read_for_page(service: Service, caller: Caller, name: str) -> EvaluationReply:
    """Return one evaluation. Raises ApiError 404 if there is none that the caller may see."""
    stored = await read_evaluation(service.journal, name) if name else None
    if stored is None or not (caller.is_admin or stored.caller == caller.name):
        raise ApiError(
            404,
            "evaluation_not_found",
            f"There is no evaluation {name[:100]!r} of yours.",
            "GET /page/evaluations lists them.",
        )
    report = stored.report or Report(name=stored.name, repeat=1, cases=())
    return EvaluationReply(
        evaluation=describe(stored),
        instructions=report.instructions,
        scorers=report.scorers,
        warnings=report.warnings,
        usd=report.usd,
        judge_usd=report.judge_usd,
        pass_at=report.pass_at(report.repeat),
        pass_hat=report.pass_hat(report.repeat),
        repeat=report.repeat,
        scores=summarize_scores(report.cases),
        groups={key: group_cases(report, key) for key in list_group_keys(report)},
        labels=count_labels(report),
        cases=[_describe_case(case) for case in report.cases],
    )


def describe(stored: StoredEvaluation) -> ListedEvaluation:
    report = stored.report
    passes = report.passes if report else None
    passed = passes.passed if passes else 0
    counted = passes.trials if passes else 0
    return ListedEvaluation(
        name=stored.name,
        updated=stored.updated,
        model=report.model if report else "",
        cases=len(report.cases) if report else 0,
        planned=stored.trials,
        done=len(report.trials) if report else 0,
        passed=passed,
        counted=counted,
        interval=wilson_interval(passed, counted),
    )


def _describe_case(case: CaseReport) -> EvaluatedCase:
    passes = case.passes
    return EvaluatedCase(
        id=case.id,
        passed=passes.passed,
        counted=passes.trials,
        interval=wilson_interval(passes.passed, passes.trials),
        is_flaky=passes.is_flaky,
        tags=case.tags,
        trials=[_describe_trial(trial) for trial in case.trials],
    )


def _describe_trial(trial: TrialReport) -> ListedTrial:
    return ListedTrial(
        session=trial.session,
        status=trial.status,
        outcome=trial.outcome,
        problems=trial.problems,
        scores=[
            ListedScore(
                scorer=score.scorer,
                passed=score.passed,
                value=score.value,
                label=score.label,
                reason=score.reason,
                missing=score.missing,
            )
            for score in trial.scores
        ],
        steps=trial.steps,
        seconds=trial.seconds,
        usd=trial.usd,
    )
