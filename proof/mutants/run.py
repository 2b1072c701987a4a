"""Plants each known bug in turn and shows that the tests notice it: `make mutants`.

A mutant is caught by the tests that it names, or else by the simulator, or else by the fast tests
of the runtime, of secrets and of the core. Each mutant has its own copy of `src`, which comes first
on the import path of its child processes. As many mutants run at once as
there are cores (`--at-once`).

A busy machine proves nothing: limits are in seconds of processor time, and a test that waits too
long must do so twice, while the same test passes without the mutant.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCE = ROOT / "src"
LISTS = sorted(Path(__file__).parent.glob("*.toml"))
SEEDS = "0:150"
TESTS = (
    "tests/runtime",
    "tests/agent/test_late_results.py",
    "tests/agent/test_live.py",
    "tests/agent/test_artifact_reader.py",
    "tests/agent/test_secrets.py",
    "tests/agent/test_earlier_messages.py",
    "tests/agent/test_mistakes.py",
    "tests/agent/test_program_exit.py",
    "tests/agent/test_reply_hold.py",
    "tests/core",
    "tests/journals/test_lost_files.py",
    "tests/journals/test_memory.py",
    "tests/journals/test_names.py",
    "tests/journals/test_signing.py",
    "tests/journals/test_upgrade.py",
    "tests/models/test_plain_calls.py",
    "tests/models/test_small_models.py",
    "tests/tools/test_blocking.py",
    "tests/agent/test_large_prompts.py",
    "tests/tools/test_large_results.py",
    "tests/tools/test_private_files.py",
    "tests/tools/test_toolbox.py",
    "tests/gates/test_typed_addresses.py",
    "tests/adversary/test_hostile_control.py",
    "tests/adversary/test_hostile_exports.py",
    "tests/adversary/test_hostile_globs.py",
    "tests/adversary/test_hostile_projects.py",
    "tests/adversary/test_hostile_schemas.py",
    "tests/adversary/test_named_scripts.py",
    "tests/adversary/test_rewritten_secrets.py",
    "tests/adversary/test_unseen_arguments.py",
    "tests/project/test_journals.py",
    "tests/project/test_server_trust.py",
    "tests/project/test_trust.py",
)
SLOW_TESTS = (
    "tests/adversary/test_named_files.py",
    "tests/adversary/test_state_folder.py",
    "tests/mcp/test_large_answers.py",
    "tests/tools/test_sandbox_escapes.py",
)
"""Files of which the slow tests are run as well."""
CPU_S = 60
"""The processor time that a child process for a mutant may use, unless the machine is slow."""
BASELINE_CPU_S = 900
"""The processor time of the simulator and of the tests without any mutant."""
SLOWDOWN_MAX = 4
"""A mutant may use this many times the time that the code without it took; then it hangs."""
WALL_S = 1800
"""A child that only waits is stopped after this time. That is no verdict."""
TEST_S = 20
"""The time limit of a test. Past it, the test is run again, alone and with `LONE_TEST_S`."""
LONE_TEST_S = 60
OUT_OF_TIME = -int(signal.SIGXCPU)
"""The return code of a child that used up its processor time."""
PASSED = 0
"""The exit code of pytest if all tests pass."""
FAILED = 1
"""The exit code of pytest if the tests ran and some failed."""
NO_TESTS = 5
"""The exit code of pytest if no test was left to run."""
HANGS_MAX = 5
"""So many tests may be slow because the machine is; after that, the others prove nothing."""


class MutantMisfit(Exception):
    """A mutant no longer matches the code, or the tests fail without any mutant."""


@dataclass(frozen=True, slots=True)
class SourceEdit:
    file: str
    old: str
    new: str

    def apply(self, source: Path) -> None:
        path = source / "windlass" / self.file
        text = path.read_text("utf-8")
        count = text.count(self.old)
        if count != 1:
            raise MutantMisfit(f"{self.file} holds this {count} times, not once:\n{self.old}")
        path.write_text(text.replace(self.old, self.new), "utf-8")
        # Python would take bytecode of the same second and size for that of the new text.
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
            compiled.unlink()


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    breaks: str
    edits: tuple[SourceEdit, ...]
    tests: tuple[str, ...] = ()
    """Tests that notice it. They run first, the slow ones too; a mutant that they miss goes on."""


@dataclass(frozen=True, slots=True)
class TestBaseline:
    """How tests fare without any mutant."""

    failing_tests: list[str]
    """Tests that fail anyway. They prove nothing and are left out."""
    cpu_s: int
    """The processor time that they may use with a mutant."""
    marks: str = ""
    """The marks by which they were chosen, as an expression of pytest."""


@dataclass(frozen=True, slots=True)
class MutantVerdict:
    mutant: Mutant
    caught_by: str | None
    seconds: float


def load_mutants() -> list[Mutant]:
    tables = [tomllib.loads(path.read_text("utf-8")) for path in LISTS]
    return [_parse_mutant(**entry) for table in tables for entry in table["mutant"]]


def _parse_mutant(
    *,
    name: str,
    breaks: str,
    file: str,
    old: str,
    new: str,
    also: Sequence[dict[str, str]] = (),
    tests: Sequence[str] = (),
) -> Mutant:
    edits = SourceEdit(file, old, new), *(SourceEdit(**edit) for edit in also)
    return Mutant(name, breaks, edits, tuple(tests))


def misfits() -> list[str]:
    """Return the mutants that no longer match the code, each with the reason."""
    found: list[str] = []
    with TemporaryDirectory(prefix="mutant-fit-") as folder:
        for at, mutant in enumerate(load_mutants()):
            source = Path(folder) / str(at)
            try:
                for edit in mutant.edits:
                    path = source / "windlass" / edit.file
                    if not path.exists():
                        path.parent.mkdir(parents=True, exist_ok=True)
                        shutil.copy(SOURCE / "windlass" / edit.file, path)
                    edit.apply(source)
                    # The page's modules are not Python.
                    if path.suffix == ".py":
                        compile(path.read_text("utf-8"), str(path), "exec")
            except (MutantMisfit, OSError, SyntaxError) as error:
                found.append(f"{mutant.name}: {error}")
    return found


def try_mutant(mutant: Mutant, simulation_s: int, named: TestBaseline) -> MutantVerdict:
    """Plant a mutant in a copy of the source, and find out what notices it.

    `named` tells how the tests that mutants name fare without them.
    """
    began = time.monotonic()
    with TemporaryDirectory(prefix=f"mutant-{mutant.name}-") as folder:
        source = _copy_source(Path(folder), mutant.edits)
        caught_by = _run_tests(source, mutant.tests, named) if mutant.tests else None
        if caught_by is None:
            caught_by = _run_simulator(source, simulation_s) or _run_all_tests(source)
    verdict = MutantVerdict(mutant, caught_by, time.monotonic() - began)
    print(_report_row(verdict), flush=True)
    return verdict


def measure_simulator() -> int:
    """Run the simulator without any mutant, and return its processor time for a mutant.

    Raises MutantMisfit if the simulator finds something.
    """
    with TemporaryDirectory(prefix="mutant-none-") as folder:
        source = _copy_source(Path(folder), ())
        began = time.monotonic()
        noticed = _run_simulator(source, BASELINE_CPU_S)
    if noticed:
        raise MutantMisfit(f"without any mutant, {noticed}")
    return _limit_cpu(began)


def _limit_cpu(began: float) -> int:
    return max(CPU_S, int(SLOWDOWN_MAX * (time.monotonic() - began)))


def measure_tests(tests: tuple[str, ...], marks: str = "") -> TestBaseline:
    """Run tests without any mutant: once, and only when a mutant needs them.

    Raises MutantMisfit if they cannot run.
    """
    with _measuring:
        return _measure_tests_once(tests, marks)


_measuring = Lock()


@cache
def _measure_tests_once(tests: tuple[str, ...], marks: str) -> TestBaseline:
    began = time.monotonic()
    with TemporaryDirectory(prefix="mutant-none-") as folder:
        source = _copy_source(Path(folder), ())
        # A machine that is busy must not make a test fail here either.
        patient = f"--timeout={SLOWDOWN_MAX * LONE_TEST_S}"
        done = _run_pytest(source, *tests, patient, "-m", marks, cpu_s=BASELINE_CPU_S)
    if done.returncode not in (PASSED, FAILED):
        raise MutantMisfit(f"without any mutant, the tests do not run:\n{done.stdout}{done.stderr}")
    failing = _failed_tests(done)
    for test in failing:
        print(f"left out, because it fails without any mutant: {test}")
    return TestBaseline(failing, _limit_cpu(began), marks)


def _copy_source(folder: Path, edits: Sequence[SourceEdit]) -> Path:
    source = folder / "src"
    shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("*.pyc.*"))
    for edit in edits:
        edit.apply(source)
    found = _run_child(source, "-c", _PRINT_ORIGIN).stdout.strip()
    if Path(found) != source / "windlass" / "__init__.py":
        raise MutantMisfit(f"the child processes import {found} instead of the copy")
    return source


_PRINT_ORIGIN = (
    "import importlib.util as u; print(getattr(u.find_spec('windlass'), 'origin', None))"
)


_LIMIT_CPU = """
import os, resource, sys
seconds = int(sys.argv[1])
# At the first limit comes SIGXCPU, by which a hang is told from a kill for want of memory.
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""


def _run_child(
    source: Path, *arguments: str, cpu_s: int = CPU_S
) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {
        "PYTHONPATH": str(source),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(source.parent / "hypothesis"),
        "HYPOTHESIS_PROFILE": "dev",
    }
    command = [sys.executable, "-c", _LIMIT_CPU, str(cpu_s), *arguments]
    try:
        return subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            timeout=WALL_S,
            capture_output=True,
            text=True,
            check=False,
        )
    except subprocess.TimeoutExpired as expired:
        raise MutantMisfit(f"no verdict: {arguments} did not end within {WALL_S} s") from expired


def _run_simulator(source: Path, cpu_s: int) -> str | None:
    """Return the first finding of the simulator; None if there is none.

    A simulator that runs out of time has found nothing. What hangs there hangs in the tests too.
    """
    done = _run_child(source, "-m", "proof.simulate", "--seeds", SEEDS, cpu_s=cpu_s)
    if done.returncode in (0, OUT_OF_TIME):
        return None
    line = (done.stdout or done.stderr.strip().splitlines()[-1]).splitlines()[0]
    found = re.search(r"--seeds (\d+):\d+\s+# (.*)", line)
    return f"seed {found[1]}: {found[2]}" if found else f"simulator: {line}"


def _run_all_tests(source: Path) -> str | None:
    """Return the first of all tests that fails; None if all pass."""
    for tests, marks in ((TESTS, "not slow"), (SLOW_TESTS, "")):
        for folder in tests:
            found = _run_tests(source, (folder,), measure_tests(tests, marks))
            if found:
                return found
    return None


def _run_tests(source: Path, tests: tuple[str, ...], baseline: TestBaseline) -> str | None:
    """Return the first of these tests that fails or hangs; None if all pass."""
    left_out = [f"--deselect={test}" for test in baseline.failing_tests]
    for _ in range(HANGS_MAX):
        chosen = *tests, *left_out, "-m", baseline.marks
        done = _run_pytest(source, "-x", *chosen, cpu_s=baseline.cpu_s)
        if done.returncode in (PASSED, NO_TESTS):
            return None
        if done.returncode == OUT_OF_TIME:
            return f"{tests[0]}: hangs: it used {baseline.cpu_s} s of processor time"
        failed = next(iter(_failed_tests(done)), None)
        if failed is None:
            return f"{tests[0]}: {(done.stdout.splitlines() or ['no output'])[-1]}"
        if "from pytest-timeout" not in done.stdout or _hangs_alone(source, failed):
            return failed
        left_out.append(f"--deselect={failed}")
    return None


def _hangs_alone(source: Path, test: str) -> bool:
    """Return whether a test fails alone, with more time, and passes without the mutant."""
    # The name of a case may hold spaces, which end it in the summary: all cases are run.
    function = test.partition("[")[0]
    done = _run_pytest(source, function, f"--timeout={LONE_TEST_S}", cpu_s=CPU_S)
    return done.returncode != PASSED and not measure_tests((function,)).failing_tests


def _run_pytest(source: Path, *arguments: str, cpu_s: int) -> "subprocess.CompletedProcess[str]":
    return _run_child(
        source,
        *("-m", "pytest", f"--timeout={TEST_S}", *arguments, "-q", "--tb=line", "-rfE"),
        *("-p", "no:cacheprovider", "--hypothesis-seed=0"),
        cpu_s=cpu_s,
    )


def _failed_tests(done: "subprocess.CompletedProcess[str]") -> list[str]:
    return re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)


def _report_row(verdict: MutantVerdict) -> str:
    caught_by = (verdict.caught_by or "NOTHING: it survives")[:110]
    mutant = verdict.mutant
    return f"{mutant.name:50}  {mutant.breaks:4}  {verdict.seconds:5.1f} s  {caught_by}"


def _parse_options(argv: Sequence[str] | None) -> tuple[list[Mutant], int]:
    """Return the chosen mutants, and how many to try at once."""
    parser = argparse.ArgumentParser(prog="proof/mutants/run.py", description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", help="only this mutant")
    cores = os.cpu_count() or 1
    parser.add_argument(
        "--at-once", type=int, default=cores, metavar="N", help=f"mutants at once ({cores})"
    )
    options = parser.parse_args(argv)
    everything = load_mutants()
    chosen = [mutant for mutant in everything if not options.only or mutant.name in options.only]
    if options.only and len(chosen) != len(set(options.only)):
        parser.error(f"known mutants: {', '.join(mutant.name for mutant in everything)}")
    if options.at_once < 1:
        parser.error("--at-once must be at least 1")
    return chosen, options.at_once


def main(argv: Sequence[str] | None = None) -> int:
    chosen, at_once = _parse_options(argv)
    if wrong := misfits():
        print(*wrong, sep="\n", file=sys.stderr)
        return 2
    began = time.monotonic()
    try:
        simulation_s = CPU_S if all(mutant.tests for mutant in chosen) else measure_simulator()
        tests = sorted({test for mutant in chosen for test in mutant.tests})
        named = measure_tests(tuple(tests)) if tests else TestBaseline([], CPU_S)
        with ThreadPoolExecutor(at_once) as pool:
            attempt = partial(try_mutant, simulation_s=simulation_s, named=named)
            verdicts = list(pool.map(attempt, chosen))
    except MutantMisfit as misfit:
        print(f"error: {misfit}", file=sys.stderr)
        return 2
    alive = sum(verdict.caught_by is None for verdict in verdicts)
    took = time.monotonic() - began
    print(f"{len(verdicts)} mutants in {took:.0f} s: {len(verdicts) - alive} caught, {alive} alive")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
