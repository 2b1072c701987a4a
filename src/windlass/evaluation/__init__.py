"""Evaluation: whether a change made an agent better. Every trial is a session.

from windlass.evaluation import Case, evaluate, never, used

report = await evaluate(agent, cases, name="refunds", repeat=5, scorers=[used("refund")])
"""

from typing import TYPE_CHECKING

from windlass.lazy_modules import LazyModules, lazy_attributes

if TYPE_CHECKING:
    from windlass.evaluation.cases import (
        Case as Case,
        ForkPoint as ForkPoint,
        load_cases as load_cases,
        sample_cases as sample_cases,
        write_cases as write_cases,
    )
    from windlass.evaluation.comparing import compare_reports as compare_reports
    from windlass.evaluation.comparison import Comparison as Comparison
    from windlass.evaluation.evaluating import evaluate as evaluate, rescore as rescore
    from windlass.evaluation.evaluation_run import (
        EvaluateOptions as EvaluateOptions,
        EvaluationProgress as EvaluationProgress,
    )
    from windlass.evaluation.file_scorers import (
        command_passes as command_passes,
        file_contains as file_contains,
        file_equals as file_equals,
        no_file as no_file,
        only_changed as only_changed,
    )
    from windlass.evaluation.forks import cases_from_sessions as cases_from_sessions
    from windlass.evaluation.html_report import render_report as render_report
    from windlass.evaluation.inspect_adapter import inspect_solver as inspect_solver
    from windlass.evaluation.judge_quality import (
        JudgeAgreement as JudgeAgreement,
        JudgeCalibration as JudgeCalibration,
        PreferenceCount as PreferenceCount,
        StatedShare as StatedShare,
        calibrate_judges as calibrate_judges,
        compare_judges_with_people as compare_judges_with_people,
        count_preferences as count_preferences,
        find_agreement as find_agreement,
    )
    from windlass.evaluation.judges import (
        JudgePanel as JudgePanel,
        ModelJudge as ModelJudge,
        PairwiseJudge as PairwiseJudge,
        judge as judge,
        panel as panel,
        prefer as prefer,
    )
    from windlass.evaluation.matrix import (
        MatrixReport as MatrixReport,
        compare_variants as compare_variants,
        evaluate_matrix as evaluate_matrix,
    )
    from windlass.evaluation.pydantic_adapter import (
        make_pydantic_report as make_pydantic_report,
        pydantic_scorer as pydantic_scorer,
        read_pydantic_dataset as read_pydantic_dataset,
    )
    from windlass.evaluation.records import TrialCall as TrialCall, TrialRecord as TrialRecord
    from windlass.evaluation.reports import (
        CaseReport as CaseReport,
        Report as Report,
        TrialReport as TrialReport,
        load_report as load_report,
        save_report as save_report,
    )
    from windlass.evaluation.scorers import (
        asked_before as asked_before,
        cost_at_most as cost_at_most,
        ended_as as ended_as,
        in_order as in_order,
        label as label,
        never as never,
        output_contains as output_contains,
        output_equals as output_equals,
        output_fits as output_fits,
        output_matches as output_matches,
        says_nothing_of as says_nothing_of,
        seconds_at_most as seconds_at_most,
        similar as similar,
        steps_at_most as steps_at_most,
        used as used,
    )
    from windlass.evaluation.scores import Score as Score, Scorer as Scorer
    from windlass.evaluation.summaries import (
        ConfusionMatrix as ConfusionMatrix,
        GroupSummary as GroupSummary,
        ScoreSummary as ScoreSummary,
        count_labels as count_labels,
        group_cases as group_cases,
        summarize_scores as summarize_scores,
    )
    from windlass.evaluation.trials import Trial as Trial

LAZY_MODULES: LazyModules = {
    "windlass.evaluation.cases": "Case ForkPoint load_cases sample_cases write_cases",
    "windlass.evaluation.comparing": "compare_reports",
    "windlass.evaluation.comparison": "Comparison",
    "windlass.evaluation.evaluating": "evaluate rescore",
    "windlass.evaluation.evaluation_run": "EvaluateOptions EvaluationProgress",
    "windlass.evaluation.file_scorers": (
        "command_passes file_contains file_equals no_file only_changed"
    ),
    "windlass.evaluation.forks": "cases_from_sessions",
    "windlass.evaluation.html_report": "render_report",
    "windlass.evaluation.inspect_adapter": "inspect_solver",
    "windlass.evaluation.judge_quality": (
        "JudgeAgreement JudgeCalibration PreferenceCount StatedShare calibrate_judges "
        "compare_judges_with_people count_preferences find_agreement"
    ),
    "windlass.evaluation.judges": "JudgePanel ModelJudge PairwiseJudge judge panel prefer",
    "windlass.evaluation.matrix": "MatrixReport compare_variants evaluate_matrix",
    "windlass.evaluation.pydantic_adapter": (
        "make_pydantic_report pydantic_scorer read_pydantic_dataset"
    ),
    "windlass.evaluation.records": "TrialCall TrialRecord",
    "windlass.evaluation.reports": "CaseReport Report TrialReport load_report save_report",
    "windlass.evaluation.scorers": (
        "asked_before cost_at_most ended_as in_order label never output_contains "
        "output_equals output_fits output_matches says_nothing_of seconds_at_most "
        "similar steps_at_most used"
    ),
    "windlass.evaluation.scores": "Score Scorer",
    "windlass.evaluation.summaries": (
        "ConfusionMatrix GroupSummary ScoreSummary count_labels group_cases summarize_scores"
    ),
    "windlass.evaluation.trials": "Trial",
}
if not TYPE_CHECKING:  # To a type checker, `__getattr__` would make every name a valid one.
    __getattr__ = lazy_attributes(__name__, LAZY_MODULES)
