"""What can go wrong, sorted by who must act."""

import re
from typing import get_args

import pytest

from facts import Story, failed_attempt, make_fault
from windlass.core import errors
from windlass.core import result as results
from windlass.core.errors import (
    RETRYABLE_KINDS,
    Fault,
    FaultKind,
    ForOperator,
    IllegalFact,
    JournalCorrupt,
    ModelError,
    SetupDrifted,
    WindlassError,
)
from windlass.core.result import (
    FailedByBug,
    FailedByJournal,
    FailedByModel,
    FailedByOutput,
    FailedByTools,
    RunFailed,
    build_result,
    raise_if_failed,
)

CLASSES = {
    name: found
    for name, found in (vars(errors) | vars(results)).items()
    if isinstance(found, type) and issubclass(found, WindlassError)
}


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    """Style 11: print the tree in the docstring, and hold it there."""
    assert errors.__doc__ is not None
    parents: list[str] = []
    drawn: dict[str, str] = {}
    for line in errors.__doc__.splitlines():
        found = re.match(r"(?P<branches>[│├└─ ]*)(?P<name>[A-Z]\w+)(?: {2}|$)", line)
        if found is None:
            continue
        depth = len(found["branches"]) // 4
        parents[depth:] = [found["name"]]
        drawn[found["name"]] = parents[depth - 1] if depth else "Exception"
    real = {name: found.__base__.__name__ for name, found in CLASSES.items() if found.__base__}
    assert drawn == real


@pytest.mark.parametrize("kind", get_args(FaultKind))
def test_a_class_of_error_knows_whether_asking_again_may_help(kind: FaultKind) -> None:
    """S2."""
    assert ModelError(kind, "it broke").fault.retryable is (kind in RETRYABLE_KINDS)


def test_an_adapter_may_know_better() -> None:
    """S2: `retryable` and `retry_after`."""
    error = ModelError("other", "busy", retryable=True, retry_after_s=3.0)
    assert error.fault == Fault("other", "busy", retryable=True, retry_after_s=3.0)
    assert str(error) == "busy"
    assert not ModelError("server", "gone for good", retryable=False).fault.retryable


@pytest.mark.parametrize("kind", ["auth", "bad_request", "context_overflow", "other", "bug"])
def test_what_a_second_request_cannot_mend_is_not_retryable(kind: FaultKind) -> None:
    """S2."""
    assert kind not in RETRYABLE_KINDS


@pytest.mark.parametrize(
    ("kind", "raised"),
    [
        ("output_misfit", FailedByOutput),
        ("tools", FailedByTools),
        ("journal", FailedByJournal),
        ("bug", FailedByBug),
        ("server", FailedByModel),
        ("auth", FailedByModel),
    ],
)
def test_a_failed_run_raises_by_class_and_carries_its_result(
    kind: FaultKind, raised: type[RunFailed]
) -> None:
    """L6."""
    story = (
        Story()
        .start_run()
        .fail_attempt(failed_attempt(kind))
        .end_run("failed", fault=make_fault(kind))
    )
    result = build_result(story.state, recorded=True)
    with pytest.raises(raised, match=f"^a fault: {kind}$") as caught:
        raise_if_failed(result)
    assert type(caught.value) is raised
    assert caught.value.result is result
    assert caught.value.fault == make_fault(kind)


def test_drift_is_told_with_the_way_out() -> None:
    """J9: says so and asks for consent."""
    error = SetupDrifted(["the instructions differ", "tool look is gone"])
    assert error.drift == ("the instructions differ", "tool look is gone")
    assert "tool look is gone" in str(error)
    assert "consent=True" in str(error)


def test_an_illegal_fact_is_a_corrupt_journal_and_nobodys_errand() -> None:
    assert issubclass(IllegalFact, JournalCorrupt)
    assert not issubclass(JournalCorrupt, ForOperator)
