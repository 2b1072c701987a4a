"""The pytest plugin: a case is a test, and a project without cases pays nothing."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.contract("Q4"), pytest.mark.slow]
ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "tests" / "support"
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


LOADED = """
import sys

def test_what_is_loaded():
    print("loaded:", sorted(name for name in sys.modules if name.split(".")[0] == "windlass"))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what an installation of the package tells about it, such as its plugins."""
    folder = tmp_path_factory.mktemp("installed")
    code = "import sys; from hatchling.build import build_editable; build_editable(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, folder], cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    # All other packages, without the installation that this test runs in.
    for package in Path(pytest.__file__).parents[1].iterdir():
        if not package.name.startswith(("windlass", "_editable", "__pycache__")):
            (folder / package.name).symlink_to(package)
    return folder


def run_scratch_project(folder: Path, installed: Path) -> str:
    (folder / "test_loaded.py").write_text(LOADED)
    done = subprocess.run(
        [sys.executable, "-S", "-m", "pytest", "-s", "-p", "no:schemathesis"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={
            "PYTHONPATH": f"{installed}:{ROOT / 'src'}",
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder),
        },
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    return done.stdout


def test_a_project_that_does_not_ask_for_the_plugin_imports_nothing_of_it(
    tmp_path: Path, installed: Path
) -> None:
    """What is installed in its environment does not run in its tests."""
    assert "loaded: []" in run_scratch_project(tmp_path, installed)


def test_a_project_that_asks_for_the_plugin_has_it(tmp_path: Path, installed: Path) -> None:
    """Q4."""
    (tmp_path / "conftest.py").write_text(
        'pytest_plugins = ["windlass.evaluation.pytest_plugin"]\n'
    )
    assert "windlass.evaluation.pytest_plugin" in run_scratch_project(tmp_path, installed)
