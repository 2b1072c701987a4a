"""Reports: what an evaluation found, as data that can be kept, compared and shown."""

import os
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Literal

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.messages import EXACT_MATH
from windlass.evaluation.cases import Case
from windlass.evaluation.records import TrialOutcome, TrialRecord
from windlass.evaluation.scores import Score
from windlass.evaluation.statistics import (
    Interval,
    PassCount,
    Spread,
    describe_spread,
    fleiss_kappa,
    pass_at_k,
    pass_hat_k,
    wilson_interval,
)

REPORT_VERSION = 2
"""2: a score may only measure, or label."""

TrialStatus = Literal["passed", "failed", "waiting", "error", "not_run", "unscored"]
"""The last four say nothing about the agent, so they are left out of all rates.

`waiting`: a person or a worker has to come first. `error`: the provider, the tools' services or the
journal failed, or it was cancelled. `not_run`: the budget was used up. `unscored`: it ended, and a
scorer failed or a judge gave no verdict.
"""
AGENT_FAULTS = ("output_misfit", "context_overflow")
"""Faults of a failed run that the agent itself brought about."""


class TrialReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one trial did."""

    session: str
    status: TrialStatus
    outcome: TrialOutcome = "working"
    reason: str = ""
    """Why it ended so, in words."""
    scores: tuple[Score, ...] = ()
    steps: int = 0
    tokens: int = 0
    usd: Decimal | None = None
    """What the agent cost, without judges; None if a price is not known."""
    seconds: float = 0.0

    @property
    def counts(self) -> bool:
        """Whether it says something about the agent."""
        return self.status in ("passed", "failed")

    @property
    def problems(self) -> list[str]:
        """What went wrong, a line for each score that did not pass."""
        return [
            f"{score.scorer}: {score.reason}" if score.reason else score.scorer
            for score in self.scores
            if score.passed is False
        ]


class CaseReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the trials of one case did."""

    id: str
    digest: str
    """Of what was asked: reports of other questions are not compared."""
    expected_digest: str = ""
    """Of what was expected; empty in reports of earlier versions."""
    tags: tuple[str, ...] = ()
    metadata: dict[str, str | int | float | bool] = {}
    trials: tuple[TrialReport, ...] = ()

    @property
    def counted(self) -> list[TrialReport]:
        """The trials that count: those that were not stopped by something outside them."""
        return [trial for trial in self.trials if trial.counts]

    @property
    def passes(self) -> PassCount:
        """How many of the trials that count passed."""
        counted = self.counted
        return PassCount(sum(trial.status == "passed" for trial in counted), len(counted))


class Report(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an evaluation found."""

    name: str
    repeat: int
    cases: tuple[CaseReport, ...]
    model: str = ""
    instructions: str = ""
    agent: str = ""
    scorers: tuple[str, ...] = ()
    budget_usd: Decimal | None = None
    budget_tokens: int | None = None
    created: float = 0.0
    """Seconds since the epoch."""
    warnings: tuple[str, ...] = ()
    """What a reader should know before trusting the rates, in words."""
    unpriced: tuple[str, ...] = ()
    """The models that were used and have no known price."""
    version: int = REPORT_VERSION

    @property
    def trials(self) -> list[TrialReport]:
        """The trials of all cases."""
        return [trial for case in self.cases for trial in case.trials]

    @property
    def counted(self) -> list[TrialReport]:
        """The trials that say something about the agent."""
        return [trial for trial in self.trials if trial.counts]

    @property
    def is_complete(self) -> bool:
        """Whether every trial was run to its end and scored."""
        return len(self.counted) == len(self.trials)

    @property
    def passes(self) -> PassCount:
        """How many of the trials that count passed, over all cases."""
        counted = self.counted
        return PassCount(sum(trial.status == "passed" for trial in counted), len(counted))

    @property
    def interval(self) -> Interval:
        """The Wilson interval of the pass rate."""
        return wilson_interval(self.passes.passed, self.passes.trials)

    @property
    def scorer_errors(self) -> dict[str, list[str]]:
        """The sessions of the trials that a scorer gave no verdict on, by the scorer's name."""
        found: dict[str, list[str]] = {}
        for trial in self.trials:
            for score in trial.scores:
                if score.missing:
                    found.setdefault(score.scorer, []).append(trial.session)
        return found

    @property
    def flaky_cases(self) -> list[str]:
        """The cases of which some trials passed and some did not."""
        return [case.id for case in self.cases if case.passes.is_flaky]

    def pass_at(self, k: int) -> float | None:
        """Return pass@k, averaged over the cases with at least k trials; None if there are none."""
        return self._average(k, pass_at_k)

    def pass_hat(self, k: int) -> float | None:
        """Return pass^k, averaged over the cases with at least k trials; None if there are none."""
        return self._average(k, pass_hat_k)

    def _average(self, k: int, of: Callable[[PassCount, int], float]) -> float | None:
        values = [of(case.passes, k) for case in self.cases if case.passes.trials >= k]
        return sum(values) / len(values) if values else None

    @property
    def usd(self) -> Decimal | None:
        """What the agent cost in all trials; None if a price is not known."""
        return _add_up(trial.usd for trial in self.trials if trial.tokens or trial.usd)

    @property
    def judge_usd(self) -> Decimal | None:
        """What the judges cost; None if a price is not known."""
        return _add_up(score.usd for score in self._judgements())

    @property
    def judge_tokens(self) -> int:
        """The tokens that judges used."""
        return sum(score.tokens for score in self._judgements())

    def _judgements(self) -> list[Score]:
        scores = (score for trial in self.trials for score in trial.scores)
        return [score for score in scores if score.votes or score.tokens]

    def judge_agreement(self, scorer: str) -> float | None:
        """Return Fleiss' kappa of a judge with itself; None if there is nothing to agree on."""
        votes = [score.votes for score in self._judgements() if score.scorer == scorer]
        most = max((len(vote) for vote in votes), default=0)
        # A judgement that failed has fewer votes, which the formula does not allow for.
        table = [[sum(vote), most - sum(vote)] for vote in votes if len(vote) == most]
        return fleiss_kappa(table)

    @property
    def judges(self) -> list[str]:
        """The names of the judges, in the order in which they appear in the report."""
        return list(dict.fromkeys(score.scorer for score in self._judgements()))

    def spread_of(self, field: Literal["usd", "steps", "seconds", "tokens"]) -> Spread | None:
        """Return mean and spread of a number over the trials; None if it is not known."""
        values = [getattr(trial, field) for trial in self.counted]
        if any(value is None for value in values):
            return None
        return describe_spread([float(value) for value in values])

    def find_case(self, case_id: str) -> CaseReport | None:
        """Return the report of a case; None if there is none of this id."""
        return next((case for case in self.cases if case.id == case_id), None)


def _add_up(amounts: Iterable[Decimal | None]) -> Decimal | None:
    total = Decimal(0)
    for amount in amounts:
        if amount is None:
            return None
        total = EXACT_MATH.add(total, amount)
    return total


def report_trial(trial: TrialRecord, scores: Sequence[Score]) -> TrialReport:
    """Return what a trial did. One without scores passes if its run completed."""
    return TrialReport(
        session=trial.session,
        status=find_disturbance(trial) or _judge_scores(trial, scores),
        outcome=trial.outcome,
        reason=trial.reason,
        scores=tuple(scores),
        steps=trial.steps,
        tokens=trial.tokens,
        usd=trial.usd,
        seconds=round(trial.seconds, 3),
    )


def find_disturbance(trial: TrialRecord) -> TrialStatus | None:
    """Return why a trial says nothing about the agent; None if it does."""
    if trial.outcome in ("suspended", "paused", "working", "released"):
        return "waiting"
    if trial.was_out_of_money:
        return "not_run"
    fault = trial.state.run.fault if trial.state.run else None
    if trial.outcome == "cancelled":
        return "error"
    if trial.outcome == "failed" and (fault is None or fault.kind not in AGENT_FAULTS):
        return "error"
    return None


def _judge_scores(trial: TrialRecord, scores: Sequence[Score]) -> TrialStatus:
    if any(score.missing for score in scores):
        # Also if another scorer failed it: to count only such trials would lower the rate.
        return "unscored"
    decided = [score.passed for score in scores if score.passed is not None]
    passed = all(decided) if decided else trial.outcome == "completed"
    return "passed" if passed else "failed"


def report_case(case: Case, trials: Sequence[TrialReport]) -> CaseReport:
    return CaseReport(
        id=case.id,
        digest=case.digest,
        expected_digest=case.expected_digest,
        tags=case.tags,
        metadata=case.metadata,
        trials=tuple(trials),
    )


def encode_report(report: Report) -> bytes:
    """Return a report as JSON, with a line for each field."""
    return msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n"


def decode_report(data: bytes, place: str) -> Report:
    """Read a report. Raises ConfigError, with the place, if it is not one."""
    try:
        report = msgspec.json.decode(data, type=Report)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ConfigError(f"{place} is not a report of an evaluation: {error}") from None
    if report.version > REPORT_VERSION:
        raise ConfigError(f"{place} was written by a newer Windlass: upgrade this one to read it")
    return report


def save_report(report: Report, path: str | os.PathLike[str]) -> None:
    """Write a report as JSON, whole or not at all."""
    path = Path(path)
    partial = path.with_name(f".{path.name}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial.write_bytes(encode_report(report))
    partial.replace(path)


def load_report(path: str | os.PathLike[str]) -> Report:
    """Read a report from a file. Raises ConfigError if it is not one."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: the report cannot be read: {error.strerror}") from None
    return decode_report(data, str(path))
