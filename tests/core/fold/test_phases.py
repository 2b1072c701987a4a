"""The table of call phases: complete, without dead ends, and drawn in the docs as it is."""

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from windlass.core.fold.phases import CALL_PHASES, NEXT_ACTION, PhaseFact
from windlass.core.state import CallPhase

ROOT = Path(__file__).parents[3]
TOOL = ROOT / "tools" / "phase_diagram.py"


def test_every_phase_has_a_row_and_an_action() -> None:
    assert set(CALL_PHASES) == set(NEXT_ACTION) == set(get_args(CallPhase))


def test_every_fact_leads_somewhere() -> None:
    used = {fact for row in CALL_PHASES.values() for fact in row}
    assert used == set(get_args(PhaseFact))


@pytest.mark.parametrize("phase", get_args(CallPhase))
def test_a_run_can_end_and_be_resumed_in_every_phase(phase: CallPhase) -> None:
    row = CALL_PHASES[phase]
    assert row["RunEnded"] == "closed"
    assert {fact for fact in get_args(PhaseFact) if fact.startswith("RunResumed")} <= set(row)


@pytest.mark.contract("L2")
def test_only_a_cleared_call_or_an_interrupted_read_can_start() -> None:
    starts = {
        (phase, fact)
        for phase, row in CALL_PHASES.items()
        for fact, target in row.items()
        if target == "started"
    }
    assert starts == {
        ("cleared", "CallStarted"),
        ("cleared", "CallStarted: repeatable"),
        ("interrupted", "CallStarted: repeatable"),
    }


@pytest.mark.contract("L2")
def test_only_a_verdict_or_an_answer_clears_a_call() -> None:
    clearing = {
        fact
        for phase, row in CALL_PHASES.items()
        for fact, target in row.items()
        if target == "cleared" and phase != "cleared"
    }
    assert clearing == {"CallJudged: allow", "CallAnswered: allow"}


def test_nothing_reopens_a_closed_call() -> None:
    assert set(CALL_PHASES["closed"].values()) == {"closed"}


def test_the_diagram_in_the_docs_is_that_of_the_table() -> None:
    done = subprocess.run(
        [sys.executable, TOOL, "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_diagram_that_differs_from_the_table_is_noticed() -> None:
    check = (
        f"import sys; sys.path.insert(0, {str(TOOL.parent)!r}); import phase_diagram as diagram;"
        "text = diagram.PAGE.read_text('utf-8');"
        "assert diagram.update_page(text) == text;"
        "row = dict(diagram.CALL_PHASES['asked']); row['CallFinished'] = 'closed';"
        "diagram.CALL_PHASES['asked'] = row;"
        "assert diagram.update_page(text) != text"
    )
    done = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
