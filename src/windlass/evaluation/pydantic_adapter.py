"""Cases, evaluators and reports of pydantic-evals, in an evaluation whose trials are sessions.

    cases = read_pydantic_dataset(dataset)
    scorers = [pydantic_scorer(one) for one in dataset.evaluators]
    report = await evaluate(agent, cases, name="nightly", scorers=scorers, repeat=5)
    make_pydantic_report(report, cases).print()

The other way round needs nothing of ours: `dataset.evaluate(task)` takes any async function, such
as one that returns `(await agent.run(inputs)).output`.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from windlass.core.errors import ConfigError
from windlass.evaluation.cases import Case, make_id
from windlass.evaluation.records import TrialRecord
from windlass.evaluation.reports import CaseReport, Report, TrialReport
from windlass.evaluation.scores import Score, Scorer

if TYPE_CHECKING:
    from pydantic_evals import Dataset
    from pydantic_evals.evaluators import EvaluationResult, Evaluator
    from pydantic_evals.reporting import EvaluationReport, ReportCase


def read_pydantic_dataset(dataset: "Dataset[Any, Any, Any]") -> list[Case]:
    """Return the cases of a dataset. Inputs that are not text are asked as JSON.

    Evaluators are not read: give them to `evaluate` with `pydantic_scorer`.
    """
    cases: list[Case] = []
    for number, given in enumerate(dataset.cases, 1):
        inputs: Any = given.inputs
        prompt = inputs if isinstance(inputs, str) else msgspec.json.encode(inputs).decode()
        cases.append(
            Case(
                id=make_id(given.name or f"case-{number}"),
                prompt=prompt,
                expected=_as_plain(given.expected_output),
                tags=_read_tags(given.metadata),
            )
        )
    return cases


def _read_tags(metadata: object) -> tuple[str, ...]:
    """Return the tags of a case: those that its metadata has under `tags`."""
    if not isinstance(metadata, Mapping):
        return ()
    tags = cast("Mapping[str, object]", metadata).get("tags", ())
    return tuple(map(str, cast("Sequence[object]", tags))) if isinstance(tags, list | tuple) else ()


def _as_plain(value: object) -> Any:  # noqa: ANN401 - plain data
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else value


def pydantic_scorer(evaluator: "Evaluator[Any, Any, Any]") -> Scorer:
    """Return a scorer that asks an evaluator of pydantic-evals.

    A trial passes if all that it returns is true; a number passes if it is above zero. Spans are
    not recorded: what an evaluator could read off them is in the facts.
    """

    async def score(trial: TrialRecord) -> Score:
        from pydantic_evals.evaluators import EvaluatorContext  # noqa: PLC0415 - not ours to need
        from pydantic_evals.otel import SpanTree  # noqa: PLC0415 - as above

        context: EvaluatorContext[Any, Any, Any] = EvaluatorContext(
            name=trial.case.id,
            inputs=trial.case.prompt,
            metadata=None,
            expected_output=trial.case.expected,
            output=trial.output,
            duration=trial.seconds,
            _span_tree=SpanTree(),
            attributes={"session": trial.session},
            metrics={"steps": trial.steps, "tokens": trial.tokens},
        )
        found: Any = await evaluator.evaluate_async(context)
        values = {name: found}
        if isinstance(found, Mapping):
            values = dict(cast("Mapping[str, Any]", found))
        failed = [name for name, value in values.items() if not getattr(value, "value", value)]
        reasons = [str(getattr(values[name], "reason", None) or name) for name in failed]
        return Score(scorer=name, passed=not failed, reason="; ".join(reasons))

    name = evaluator.get_serialization_name()
    score.__name__ = name
    return score


def make_pydantic_report(
    report: Report, cases: Sequence[Case]
) -> "EvaluationReport[str, str, dict[str, Any]]":
    """Return a report as pydantic-evals has it: a case for each trial that counts.

    Trials that say nothing about the agent are its failures. Raises ConfigError if pydantic-evals
    is not installed, or a case of the report is not among the cases.
    """
    try:
        from pydantic_evals.reporting import (  # noqa: PLC0415 - not ours to need
            EvaluationReport,
            ReportCaseFailure,
        )
    except ModuleNotFoundError:
        raise ConfigError("pydantic-evals is not installed: pip install pydantic-evals") from None
    by_id = {case.id: case for case in cases}
    passed: list[ReportCase[str, str, dict[str, Any]]] = []
    failures: list[ReportCaseFailure[str, str, dict[str, Any]]] = []
    for tried in report.cases:
        case = by_id.get(tried.id)
        if case is None:
            raise ConfigError(f"the case {tried.id} of the report is not among the cases")
        for number, trial in enumerate(tried.trials, 1):
            if trial.counts:
                passed.append(_make_case(case, tried, trial, number))
                continue
            failures.append(
                ReportCaseFailure(
                    name=f"{tried.id}/{number}",
                    inputs=case.prompt,
                    metadata={"session": trial.session},
                    expected_output=case.expected,
                    error_message=trial.reason or trial.status,
                    error_stacktrace="",
                    source_case_name=tried.id,
                )
            )
    return EvaluationReport(name=report.name, cases=passed, failures=failures)


def _make_case(
    case: Case, tried: CaseReport, trial: TrialReport, number: int
) -> "ReportCase[str, str, dict[str, Any]]":
    from pydantic_evals.evaluators import EvaluationResult as Found  # noqa: PLC0415 - as above
    from pydantic_evals.evaluators import EvaluatorSpec  # noqa: PLC0415 - not ours to need
    from pydantic_evals.reporting import ReportCase  # noqa: PLC0415 - as above

    source = EvaluatorSpec(name="windlass", arguments=None)

    def find(score: Score, value: Any) -> "EvaluationResult[Any]":  # noqa: ANN401 - as they have it
        return Found(name=score.scorer, value=value, reason=score.reason or None, source=source)

    metrics: dict[str, float | int] = {"steps": trial.steps, "tokens": trial.tokens}
    if trial.usd is not None:
        metrics["usd"] = float(trial.usd)
    return ReportCase(
        name=f"{tried.id}/{number}",
        inputs=case.prompt,
        metadata={"session": trial.session},
        expected_output=case.expected,
        output=trial.outcome,
        metrics=metrics,
        attributes={},
        scores={s.scorer: find(s, s.value) for s in trial.scores if s.value is not None},
        labels={s.scorer: find(s, s.label) for s in trial.scores if s.label is not None},
        assertions={s.scorer: find(s, s.passed) for s in trial.scores if s.passed is not None},
        task_duration=trial.seconds,
        total_duration=trial.seconds,
        source_case_name=tried.id,
    )
