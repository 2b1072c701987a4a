"""The planted bugs are looked after: each fits the code, and a sample of them is noticed."""

import importlib.util
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

PROOF = Path(__file__).parents[2] / "proof"
RUNNER = PROOF / "mutants" / "run.py"
PROMISES = tomllib.loads((PROOF / "promises.toml").read_text("utf-8"))
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
CHOSEN = ["key-changes-with-each-try", "grant-for-another-tool", "many-probes-at-once"]
"""One for each way to notice it: the simulator, tests that all are tried with, tests of its own."""
SEEDS_OF_THE_SAMPLE = "0:40"
TESTS_OF_THE_SECOND = ("tests/core/fold/test_calls.py",)


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
    assert all(edit.old != edit.new for one in MUTANTS for edit in one.edits)


@pytest.mark.contract("V3")
def test_each_promise_has_a_mutant_or_a_reason() -> None:
    """A promise that no planted bug breaks is one whose tests were never tested."""
    built = PROMISES["built"]
    reasons = PROMISES["without_mutant"]
    broken = {mutant.breaks for mutant in MUTANTS}
    assert broken <= {*built, *PROMISES["unbuilt"]}, "proof/promises.toml does not know these"
    assert [name for name in built if name not in broken] == list(reasons)
    assert all(reason.endswith(".") for reason in reasons.values())
    assert len({*built, *PROMISES["unbuilt"]}) == len(built) + len(PROMISES["unbuilt"])


def test_the_tests_that_mutants_name_are_there() -> None:
    """V3: a test that was renamed would silently make its mutant cost a minute."""
    root = PROOF.parent
    for mutant in MUTANTS:
        for test in mutant.tests:
            path, _, name = test.partition("::")
            function = f"def {name.partition('[')[0]}("
            assert (root / path).exists(), mutant.name
            assert not name or function in (root / path).read_text("utf-8"), (mutant.name, test)


class FakeChildren:
    """Child processes of the runner that end as they are told to."""

    def __init__(self, *outcomes: tuple[int, str]) -> None:
        self._outcomes: Iterator[tuple[int, str]] = iter(outcomes)
        self.commands: list[tuple[str, ...]] = []

    def __call__(
        self, _source: Path, *arguments: str, cpu_s: int = 0
    ) -> "subprocess.CompletedProcess[str]":
        assert cpu_s > 0
        self.commands.append(arguments)
        code, output = next(self._outcomes)
        return subprocess.CompletedProcess(arguments, code, output, "")


TIMED_OUT = "Timeout (>20.0s) from pytest-timeout.\nFAILED tests/a.py::test_a\n"
HERE = Path()


def _run_named(*outcomes: tuple[int, str], monkeypatch: pytest.MonkeyPatch) -> str | None:
    monkeypatch.setattr(runner, "_run_child", FakeChildren(*outcomes))
    monkeypatch.setattr(runner, "measure_tests", lambda _tests: runner.TestBaseline([], 60))
    return runner._run_tests(HERE, ("tests/a.py",), runner.TestBaseline([], 60))


@pytest.mark.contract("V3")
def test_a_simulator_that_is_out_of_time_has_found_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be the machine that is slow: what hangs has to hang in the tests as well."""
    monkeypatch.setattr(runner, "_run_child", FakeChildren((runner.OUT_OF_TIME, "")))
    assert runner._run_simulator(HERE, 60) is None


@pytest.mark.contract("V3")
def test_a_slow_test_is_no_verdict_unless_it_hangs_alone_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passed, hung = (0, ""), (1, TIMED_OUT)
    assert _run_named(hung, passed, passed, monkeypatch=monkeypatch) is None
    assert _run_named(hung, hung, monkeypatch=monkeypatch) == "tests/a.py::test_a"


@pytest.mark.contract("V3")
def test_a_loop_without_end_and_a_failed_test_are_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    spinning = _run_named((runner.OUT_OF_TIME, ""), monkeypatch=monkeypatch)
    assert spinning == "tests/a.py: hangs: it used 60 s of processor time"
    failed = _run_named((1, "FAILED tests/a.py::test_b\n"), monkeypatch=monkeypatch)
    assert failed == "tests/a.py::test_b"


@pytest.mark.slow
@pytest.mark.contract("V3")
def test_only_processor_time_counts(tmp_path: Path) -> None:
    """A process that waits for its turn is not one that hangs."""
    spinning = runner._run_child(tmp_path, "-c", "while True: pass", cpu_s=1)
    assert spinning.returncode == runner.OUT_OF_TIME
    waiting = runner._run_child(tmp_path, "-c", "import time; time.sleep(2)", cpu_s=1)
    assert waiting.returncode == 0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_sample_of_the_mutants_is_noticed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """V2: `make mutants` shows it for all of them, with all the tests."""
    monkeypatch.setattr(runner, "SEEDS", SEEDS_OF_THE_SAMPLE)
    monkeypatch.setattr(runner, "TESTS", TESTS_OF_THE_SECOND)
    monkeypatch.setattr(runner, "SLOW_TESTS", ())
    only = [argument for name in CHOSEN for argument in ("--only", name)]
    assert runner.main(only) == 0, capsys.readouterr().out
