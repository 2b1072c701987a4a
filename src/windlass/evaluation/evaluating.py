"""Evaluate an agent: every case several times, each trial a session, scored from its facts.

    report = await evaluate(agent, cases, name="nightly", repeat=5, scorers=[used("refund")])

Call it again with the same name after a crash, and it continues where it was.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from typing_extensions import Unpack

from windlass.agent.agent import Agent
from windlass.core.errors import ConfigError
from windlass.evaluation.cases import Case, check_cases
from windlass.evaluation.evaluation_run import (
    EvaluateOptions,
    EvaluationRun,
    check_evaluation_name,
    run_together,
)
from windlass.evaluation.reports import Report
from windlass.evaluation.scores import Scorer
from windlass.evaluation.stored_reports import read_evaluation
from windlass.evaluation.trials import AgentMaker, Trial, find_recorded_trials
from windlass.ports import Journal


async def evaluate(
    agent: Agent[Any] | AgentMaker,
    cases: Iterable[Case],
    *,
    name: str,
    scorers: Sequence[Scorer] = (),
    **options: Unpack[EvaluateOptions],
) -> Report:
    """Try every case with an agent, and return what was found.

    `agent` is an agent, or a function that makes the agent of a `Trial`, with tools for its copy of
    the workspace. Each trial is the session `eval/NAME/CASE/N`. A trial passes if all scorers and
    all checks of its case pass; without any, if its run completes. Trials that were run before are
    scored again and not run again. Raises ConfigError if the options do not fit, or if the name was
    used for another agent.
    """
    evaluation = EvaluationRun(agent, check_cases(cases), name, scorers, options)
    (report,) = await run_together([evaluation], evaluation.at_once)
    return report


async def rescore(
    journal: Journal,
    cases: Iterable[Case],
    *,
    name: str,
    repeat: int | None = None,
    scorers: Sequence[Scorer] = (),
    folder: Path | None = None,
) -> Report:
    """Score the recorded trials of an evaluation again. No model is asked but a judge.

    Every recorded trial of the cases is scored; with `repeat`, only the first ones of each case.
    Trials that were never run are missing from the rates, and recorded cases that are not among
    `cases` are named in the warnings. Raises ConfigError if no trial is on record.
    """
    listed = check_cases(cases)
    recorded = await find_recorded_trials(journal, check_evaluation_name(name))
    if not recorded:
        raise ConfigError(f"the journal has no trial of an evaluation {name!r}")
    stored = await read_evaluation(journal, name)
    planned = stored.report.repeat if stored is not None and stored.report is not None else 1
    options = EvaluateOptions(
        journal=journal,
        repeat=repeat or max(planned, *recorded.values()),
        folder=folder,
        caller=stored.caller if stored is not None else "",
    )
    evaluation = EvaluationRun(_refuse_agent, listed, name, scorers, options)
    evaluation.warn_of_unscored_cases(sorted(recorded.keys() - {case.id for case in listed}))
    return await evaluation.score_only()


def _refuse_agent(_trial: Trial) -> Agent[Any]:
    raise ConfigError("trials are scored here, and not run")
