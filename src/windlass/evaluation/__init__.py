"""Evaluation: whether a change made an agent better. Every trial is a session.

from windlass.evaluation import Case, evaluate, never, used

report = await evaluate(agent, cases, name="refunds", repeat=5, scorers=[used("refund")])
"""

from typing import TYPE_CHECKING

from windlass.lazy_modules import LazyModules, lazy_attributes

if TYPE_CHECKING:
    from windlass.evaluation.cases import Case, ForkPoint, load_cases, write_cases
    from windlass.evaluation.comparison import Comparison, compare_reports
    from windlass.evaluation.evaluating import (
        EvaluateOptions,
        EvaluationProgress,
        evaluate,
        rescore,
    )
    from windlass.evaluation.file_scorers import (
        command_passes,
        file_contains,
        file_equals,
        no_file,
        only_changed,
    )
    from windlass.evaluation.forks import cases_from_sessions
    from windlass.evaluation.html_report import render_report
    from windlass.evaluation.inspect_adapter import inspect_solver
    from windlass.evaluation.judges import ModelJudge, judge
    from windlass.evaluation.pydantic_adapter import (
        make_pydantic_report,
        pydantic_scorer,
        read_pydantic_dataset,
    )
    from windlass.evaluation.records import TrialCall, TrialRecord
    from windlass.evaluation.reports import (
        CaseReport,
        Report,
        TrialReport,
        load_report,
        save_report,
    )
    from windlass.evaluation.scorers import (
        Score,
        Scorer,
        asked_before,
        cost_at_most,
        ended_as,
        in_order,
        never,
        output_contains,
        output_equals,
        output_fits,
        output_matches,
        says_nothing_of,
        seconds_at_most,
        steps_at_most,
        used,
    )
    from windlass.evaluation.trials import Trial

__all__ = [
    "Case",
    "CaseReport",
    "Comparison",
    "EvaluateOptions",
    "EvaluationProgress",
    "ForkPoint",
    "ModelJudge",
    "Report",
    "Score",
    "Scorer",
    "Trial",
    "TrialCall",
    "TrialRecord",
    "TrialReport",
    "asked_before",
    "cases_from_sessions",
    "command_passes",
    "compare_reports",
    "cost_at_most",
    "ended_as",
    "evaluate",
    "file_contains",
    "file_equals",
    "in_order",
    "inspect_solver",
    "judge",
    "load_cases",
    "load_report",
    "make_pydantic_report",
    "never",
    "no_file",
    "only_changed",
    "output_contains",
    "output_equals",
    "output_fits",
    "output_matches",
    "pydantic_scorer",
    "read_pydantic_dataset",
    "render_report",
    "rescore",
    "save_report",
    "says_nothing_of",
    "seconds_at_most",
    "steps_at_most",
    "used",
    "write_cases",
]

LAZY_MODULES: LazyModules = {
    "Case": "windlass.evaluation.cases",
    "CaseReport": "windlass.evaluation.reports",
    "Comparison": "windlass.evaluation.comparison",
    "EvaluateOptions": "windlass.evaluation.evaluating",
    "EvaluationProgress": "windlass.evaluation.evaluating",
    "ForkPoint": "windlass.evaluation.cases",
    "ModelJudge": "windlass.evaluation.judges",
    "Report": "windlass.evaluation.reports",
    "Score": "windlass.evaluation.scorers",
    "Scorer": "windlass.evaluation.scorers",
    "Trial": "windlass.evaluation.trials",
    "TrialCall": "windlass.evaluation.records",
    "TrialRecord": "windlass.evaluation.records",
    "TrialReport": "windlass.evaluation.reports",
    "asked_before": "windlass.evaluation.scorers",
    "cases_from_sessions": "windlass.evaluation.forks",
    "command_passes": "windlass.evaluation.file_scorers",
    "compare_reports": "windlass.evaluation.comparison",
    "cost_at_most": "windlass.evaluation.scorers",
    "ended_as": "windlass.evaluation.scorers",
    "evaluate": "windlass.evaluation.evaluating",
    "file_contains": "windlass.evaluation.file_scorers",
    "file_equals": "windlass.evaluation.file_scorers",
    "in_order": "windlass.evaluation.scorers",
    "inspect_solver": "windlass.evaluation.inspect_adapter",
    "judge": "windlass.evaluation.judges",
    "load_cases": "windlass.evaluation.cases",
    "load_report": "windlass.evaluation.reports",
    "make_pydantic_report": "windlass.evaluation.pydantic_adapter",
    "never": "windlass.evaluation.scorers",
    "no_file": "windlass.evaluation.file_scorers",
    "only_changed": "windlass.evaluation.file_scorers",
    "output_contains": "windlass.evaluation.scorers",
    "output_equals": "windlass.evaluation.scorers",
    "output_fits": "windlass.evaluation.scorers",
    "output_matches": "windlass.evaluation.scorers",
    "pydantic_scorer": "windlass.evaluation.pydantic_adapter",
    "read_pydantic_dataset": "windlass.evaluation.pydantic_adapter",
    "render_report": "windlass.evaluation.html_report",
    "rescore": "windlass.evaluation.evaluating",
    "save_report": "windlass.evaluation.reports",
    "says_nothing_of": "windlass.evaluation.scorers",
    "seconds_at_most": "windlass.evaluation.scorers",
    "steps_at_most": "windlass.evaluation.scorers",
    "used": "windlass.evaluation.scorers",
    "write_cases": "windlass.evaluation.cases",
}
if not TYPE_CHECKING:  # To a type checker, `__getattr__` would make every name a valid one.
    __getattr__ = lazy_attributes(__name__, LAZY_MODULES)
