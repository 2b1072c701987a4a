"""The pytest plugin: a case is a test, and a project without cases pays nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.contract("Q4"), pytest.mark.slow]
SUPPORT = Path(__file__).parent.parent / "support"
CASES = """\
{"id": "one", "prompt": "Refund order 1."}
{"id": "two", "prompt": "Refund order 2."}
"""
TESTS = """
import pytest
from evaluated import Shop, answer_order, model_of, question_of, shop_agent
from windlass.evaluation import Case, used
from windlass.journals import MemoryJournal
from windlass.testing import say

def reply(prompt):
    return say("No.") if "order 2" in question_of(prompt) else answer_order(prompt)

@pytest.mark.windlass_cases("cases.jsonl")
def test_refunds(evaluate_case, windlass_case):
    agent = shop_agent(Shop(), MemoryJournal(), reply)
    report = evaluate_case(agent, scorers=[used("refund", times=1)], repeat=2)
    assert report.passes.trials == 2
    assert windlass_case.id == "one"

@pytest.mark.windlass_cases([Case(id="half", prompt="Refund order 2.")])
def test_a_lower_rate(evaluate_case):
    evaluate_case(shop_agent(Shop(), MemoryJournal(), reply), scorers=[used("refund")], rate_min=0)

@pytest.mark.windlass_cases([Case(id="unread", prompt="Refund order 2.", expected="refunded")])
def test_what_nobody_compares(evaluate_case):
    evaluate_case(shop_agent(Shop(), MemoryJournal(), reply), scorers=[used("refund")], rate_min=0)

def test_without_cases():
    pass
"""


def run_pytest(folder: Path, *words: str) -> str:
    command = [sys.executable, "-m", "pytest", "-p", "windlass.evaluation.pytest_plugin", "-v"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "-p", "no:schemathesis", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PYTHONPATH": str(SUPPORT), "PATH": "/usr/bin:/bin", "HOME": str(folder)},
    )
    return done.stdout + done.stderr


def test_a_case_is_a_test(tmp_path: Path) -> None:
    """Q4: each has its own name and result; a failure says what went wrong, and why."""
    (tmp_path / "cases.jsonl").write_text(CASES)
    (tmp_path / "test_shop.py").write_text(TESTS)
    shown = run_pytest(tmp_path, "--windlass-journal", "trials.db")
    assert "test_refunds[one] PASSED" in shown
    assert "test_refunds[two] FAILED" in shown
    assert "test_a_lower_rate[half] PASSED" in shown
    assert "4 passed" in shown
    assert 'PytestWarning: unread: 1 case has "expected", and no scorer looks at it' in shown
    assert "0 of 2 trials passed; 100% must" in shown
    assert "used('refund', times=1): refund ran 0 times instead of 1" in shown
    assert "Run 1 began" in shown
    assert (tmp_path / "trials.db").is_file()


def test_the_plugin_imports_nothing_until_it_is_used() -> None:
    code = (
        "import sys, windlass.evaluation.pytest_plugin;"
        "print(sorted(n for n in sys.modules if n.startswith('windlass')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == str(
        [
            "windlass",
            "windlass.evaluation",
            "windlass.evaluation.pytest_plugin",
            "windlass.lazy_modules",
        ]
    )
