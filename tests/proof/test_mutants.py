"""The planted bugs are looked after: each fits the code, and a sample of them is noticed."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

RUNNER = Path(__file__).parents[2] / "proof" / "mutants" / "run.py"
LEAST = 20


def _load_runner() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutants_run", RUNNER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # A dataclass looks itself up there.
    spec.loader.exec_module(module)
    return module


runner = _load_runner()
MUTANTS = runner.load_mutants()
CHOSEN = [
    "key-changes-with-each-try",
    "late-result-changes-history",
    "usage-of-a-failed-attempt-not-added",
    "reply-shown-before-it-is-judged",
    "grant-for-another-tool",
]
"""From all over the core. The simulator notices each but the last, which the tests notice."""
TESTS_OF_THE_LAST = ("tests/core/fold",)


def test_each_mutant_fits_the_code() -> None:
    """V2: the text that a mutant replaces is there exactly once, or it would be off in silence."""
    assert runner.misfits() == []


def test_the_list_is_a_list() -> None:
    """V2: enough of them, each with a name and a promise of its own to break."""
    names = [mutant.name for mutant in MUTANTS]
    assert len(names) >= LEAST
    assert len(set(names)) == len(names)
    bodies = [tuple((edit.file, edit.old, edit.new) for edit in one.edits) for one in MUTANTS]
    assert len(set(bodies)) == len(bodies)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_sample_of_the_mutants_is_noticed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """V2: `make mutants` shows it for all of them, with all the tests."""
    monkeypatch.setattr(runner, "TESTS", TESTS_OF_THE_LAST)
    monkeypatch.setattr(runner, "SLOW_TESTS", ())
    only = [argument for name in CHOSEN for argument in ("--only", name)]
    assert runner.main(only) == 0, capsys.readouterr().out
