"""Plants each known bug in turn and shows that the tests notice it: `make mutants`.

A mutant is caught by the simulator, or else by the fast tests of the runtime, of secrets and of the
core. Each mutant has its own copy of `src`, which comes before the installed Windlass on the import
path of its child processes. As many mutants run at once as there are cores (`--at-once`).
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
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
    "tests/journals/test_upgrade.py",
    "tests/models/test_plain_calls.py",
    "tests/models/test_small_models.py",
    "tests/tools/test_blocking.py",
    "tests/tools/test_large_results.py",
    "tests/tools/test_private_files.py",
    "tests/tools/test_toolbox.py",
    "tests/gates/test_typed_addresses.py",
    "tests/adversary/test_hostile_control.py",
    "tests/adversary/test_hostile_exports.py",
    "tests/adversary/test_hostile_projects.py",
    "tests/adversary/test_hostile_schemas.py",
    "tests/adversary/test_named_scripts.py",
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
SIMULATION_S = 30.0
"""The time limit of the simulator for a mutant, unless the machine is slow."""
TESTS_S = 90.0
"""The time limit of the tests for a mutant, unless the machine is slow."""
BASELINE_S = 900.0
"""The time limit of the simulator and of the tests without any mutant."""
SLOWDOWN_MAX = 4.0
"""A mutant may take this many times as long as the code without it, because others run beside it.

One that takes longer counts as caught: it hangs.
"""
PASSED = 0
"""The exit code of pytest if all tests pass."""
FAILED = 1
"""The exit code of pytest if the tests ran and some failed."""


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


@dataclass(frozen=True, slots=True)
class TestBaseline:
    """How the tests fare without any mutant."""

    failing_tests: list[str]
    """Tests that fail anyway. They prove nothing and are left out."""
    seconds: float
    """The time limit of a folder of tests for a mutant."""


@dataclass(frozen=True, slots=True)
class MutantVerdict:
    mutant: Mutant
    caught_by: str | None
    seconds: float


def load_mutants() -> list[Mutant]:
    tables = [tomllib.loads(path.read_text("utf-8")) for path in LISTS]
    return [_parse_mutant(**entry) for table in tables for entry in table["mutant"]]


def _parse_mutant(
    *, name: str, breaks: str, file: str, old: str, new: str, also: Sequence[dict[str, str]] = ()
) -> Mutant:
    return Mutant(
        name, breaks, (SourceEdit(file, old, new), *(SourceEdit(**edit) for edit in also))
    )


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
                    compile(path.read_text("utf-8"), str(path), "exec")
            except (MutantMisfit, OSError, SyntaxError) as error:
                found.append(f"{mutant.name}: {error}")
    return found


def try_mutant(mutant: Mutant, simulation_s: float) -> MutantVerdict:
    """Plant a mutant in a copy of the source, and find out what notices it."""
    began = time.monotonic()
    with TemporaryDirectory(prefix=f"mutant-{mutant.name}-") as folder:
        source = _copy_source(Path(folder), mutant.edits)
        caught_by = _run_simulator(source, simulation_s) or _run_tests(source)
    return MutantVerdict(mutant, caught_by, time.monotonic() - began)


def measure_simulator() -> float:
    """Run the simulator without any mutant, and return its time limit for a mutant.

    Raises MutantMisfit if the simulator finds something.
    """
    with TemporaryDirectory(prefix="mutant-none-") as folder:
        source = _copy_source(Path(folder), ())
        began = time.monotonic()
        noticed = _run_simulator(source, BASELINE_S)
    if noticed:
        raise MutantMisfit(f"without any mutant, {noticed}")
    return max(SIMULATION_S, SLOWDOWN_MAX * (time.monotonic() - began))


def measure_tests() -> TestBaseline:
    """Run the tests without any mutant: once, and only if the simulator let a mutant through.

    Raises MutantMisfit if they cannot run.
    """
    with _measuring:
        return _measure_tests_once()


_measuring = Lock()


@cache
def _measure_tests_once() -> TestBaseline:
    failing: list[str] = []
    began = time.monotonic()
    with TemporaryDirectory(prefix="mutant-none-") as folder:
        source = _copy_source(Path(folder), ())
        for tests in filter(None, (TESTS, SLOW_TESTS)):
            done = _run_pytest(source, *tests, seconds=BASELINE_S)
            if done.returncode not in (PASSED, FAILED):
                raise MutantMisfit(
                    f"without any mutant, the tests do not run:\n{done.stdout}{done.stderr}"
                )
            failing += _failed_tests(done)
    for test in failing:
        print(f"left out, because it fails without any mutant: {test}")
    return TestBaseline(failing, max(TESTS_S, SLOWDOWN_MAX * (time.monotonic() - began)))


def _copy_source(folder: Path, edits: Sequence[SourceEdit]) -> Path:
    source = folder / "src"
    shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("*.pyc.*"))
    for edit in edits:
        edit.apply(source)
    found = _run_child(source, "-c", _PRINT_ORIGIN, seconds=20).stdout.strip()
    if Path(found) != source / "windlass" / "__init__.py":
        raise MutantMisfit(f"the child processes import {found} instead of the copy")
    return source


_PRINT_ORIGIN = (
    "import importlib.util as u; print(getattr(u.find_spec('windlass'), 'origin', None))"
)


def _run_child(source: Path, *arguments: str, seconds: float) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {
        "PYTHONPATH": str(source),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(source.parent / "hypothesis"),
        "HYPOTHESIS_PROFILE": "dev",
    }
    command = [sys.executable, *arguments]
    try:
        return subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            timeout=seconds,
            capture_output=True,
            text=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, -1, f"did not end within {seconds:g} s", "")


def _run_simulator(source: Path, seconds: float) -> str | None:
    """Return the first finding of the simulator; None if there is none."""
    arguments = "-m", "proof.simulate", "--seeds", SEEDS
    done = _run_child(source, *arguments, seconds=seconds)
    if done.returncode == 0:
        return None
    line = (done.stdout or done.stderr.strip().splitlines()[-1]).splitlines()[0]
    found = re.search(r"--seeds (\d+):\d+\s+# (.*)", line)
    return f"seed {found[1]}: {found[2]}" if found else f"simulator: {line}"


def _run_tests(source: Path) -> str | None:
    """Return the first test that fails; None if all pass."""
    baseline = measure_tests()
    left_out = [f"--deselect={test}" for test in baseline.failing_tests]
    for folder in (*TESTS, *SLOW_TESTS):
        done = _run_pytest(source, folder, "-x", *left_out, seconds=baseline.seconds)
        if done.returncode != PASSED:
            output = done.stdout.splitlines() or ["no output"]
            return next(iter(_failed_tests(done)), f"{folder}: {output[-1]}")
    return None


def _run_pytest(
    source: Path, *arguments: str, seconds: float
) -> "subprocess.CompletedProcess[str]":
    chosen = () if arguments[0] in SLOW_TESTS else ("-m", "not slow")
    return _run_child(
        source,
        *("-m", "pytest", *arguments, *chosen, "-q", "--tb=no", "-rfE", "--timeout=20"),
        *("-p", "no:cacheprovider", "--hypothesis-seed=0"),
        seconds=seconds,
    )


def _failed_tests(done: "subprocess.CompletedProcess[str]") -> list[str]:
    return re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)


def _report_rows(verdicts: Sequence[MutantVerdict]) -> Iterator[str]:
    width = max((len(verdict.mutant.name) for verdict in verdicts), default=6)
    yield f"{'mutant':{width}}  {'breaks':6}  {'time':>6}  caught by"
    for verdict in verdicts:
        caught_by = (verdict.caught_by or "NOTHING: it survives")[:110]
        mutant = verdict.mutant
        yield f"{mutant.name:{width}}  {mutant.breaks:6}  {verdict.seconds:4.1f} s  {caught_by}"


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
        simulation_s = measure_simulator()
        with ThreadPoolExecutor(at_once) as pool:
            verdicts = list(pool.map(partial(try_mutant, simulation_s=simulation_s), chosen))
    except MutantMisfit as misfit:
        print(f"error: {misfit}", file=sys.stderr)
        return 2
    print(*_report_rows(verdicts), sep="\n")
    alive = sum(verdict.caught_by is None for verdict in verdicts)
    took = time.monotonic() - began
    print(f"{len(verdicts)} mutants in {took:.0f} s: {len(verdicts) - alive} caught, {alive} alive")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
