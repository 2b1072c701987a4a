"""A case is a test, in a project that asks for this plugin in its `conftest.py`.

    pytest_plugins = ["windlass.evaluation.pytest_plugin"]

    @pytest.mark.windlass_cases("cases.jsonl")
    def test_refunds(evaluate_case):
        evaluate_case(make_agent(), scorers=[used("refund", times=1)], repeat=3)

Invariant: a project that does not ask for it imports nothing of Windlass. One that does imports
only this file until the first case is collected.
"""

import asyncio
import os
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from windlass.lazy_modules import LazyModules, lazy_attributes

if TYPE_CHECKING:
    from windlass.core.audit.explain import explain as explain
    from windlass.evaluation.cases import (
        Case as Case,
        check_cases as check_cases,
        load_cases as load_cases,
        make_id as make_id,
    )
    from windlass.evaluation.evaluating import evaluate as evaluate
    from windlass.evaluation.reports import Report as Report
    from windlass.journals.memory import MemoryJournal as MemoryJournal
    from windlass.journals.urls import open_journal as open_journal

MARKER = "windlass_cases"
EXPLAINED_LINES = 30
LAZY_MODULES: LazyModules = {
    "windlass.core.audit.explain": "explain",
    "windlass.evaluation.cases": "Case check_cases load_cases make_id",
    "windlass.evaluation.evaluating": "evaluate",
    "windlass.evaluation.reports": "Report",
    "windlass.journals.memory": "MemoryJournal",
    "windlass.journals.urls": "open_journal",
}
_load = lazy_attributes(__name__, LAZY_MODULES)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("windlass")
    group.addoption(
        "--windlass-journal",
        metavar="NAME",
        help="keep the trials of evaluated cases in this journal, to be looked at afterwards",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{MARKER}(cases): a test for each case of a file, or of a list of cases"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of each case."""
    marker = metafunc.definition.get_closest_marker(MARKER)
    if marker is None:
        return
    cases = _find_cases(marker.args, metafunc.definition.path.parent)
    ids = [case.id for case in cases]
    metafunc.parametrize("windlass_case", cases, ids=ids, indirect=True)


def _find_cases(given: tuple[Any, ...], folder: Path) -> "list[Case]":
    if len(given) != 1:
        raise pytest.UsageError(f"@pytest.mark.{MARKER} takes a file of cases, or a list of them")
    source: str | os.PathLike[str] | Iterable[Case] = given[0]
    if isinstance(source, str | os.PathLike):
        return _load("load_cases")(folder / source)
    return _load("check_cases")(source)


@pytest.fixture
def windlass_case(request: pytest.FixtureRequest) -> "Case":
    """The case that this test is for."""
    return request.param


@pytest.fixture
def evaluate_case(windlass_case: "Case", request: pytest.FixtureRequest) -> Callable[..., "Report"]:
    """Try the case with an agent, and fail the test if too few trials pass.

    Takes an agent or a function that makes one, `rate_min` (1.0: all trials must pass), and the
    options of `evaluate`. Returns the report.
    """
    named = request.config.getoption("--windlass-journal")
    # A test is run again and again: each time with sessions of its own.
    name = f"{_load('make_id')(request.node.originalname)}-{os.urandom(4).hex()}"

    def run(agent: Any, *, rate_min: float = 1.0, **options: Any) -> "Report":  # noqa: ANN401 - as evaluate takes it
        journal = _load("open_journal")(named) if named else _load("MemoryJournal")()
        options.setdefault("journal", journal)
        work = _try_case(agent, windlass_case, {"name": name, **options}, rate_min)
        try:
            return asyncio.run(work)
        finally:
            close = getattr(journal, "close", None)
            if close is not None:
                close()

    return run


async def _try_case(
    agent: Any,  # noqa: ANN401 - as evaluate takes it
    case: "Case",
    options: dict[str, Any],
    rate_min: float,
) -> "Report":
    report: Report = await _load("evaluate")(agent, [case], **options)
    for warning in report.warnings:
        warnings.warn(pytest.PytestWarning(f"{case.id}: {warning}"), stacklevel=2)
    if report.passes.trials and report.is_complete and report.passes.rate >= rate_min:
        return report
    passes = report.passes
    lines = [f"{passes.passed} of {len(report.trials)} trials passed; {rate_min:.0%} must"]
    for trial in report.trials:
        if trial.status != "passed":
            lines += [f"{trial.session}: {trial.status}", *(f"  {line}" for line in trial.problems)]
    failed = next(trial for trial in report.trials if trial.status != "passed")
    facts = await options["journal"].read(failed.session)
    lines += ["", *list(_load("explain")(failed.session, facts))[-EXPLAINED_LINES:]]
    raise pytest.fail.Exception("\n".join(lines), pytrace=False)
