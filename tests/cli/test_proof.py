"""The demo's proof must be able to fail: each record is falsified in turn."""

import asyncio
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import apsw
import pytest

from windlass.cli.demo.proof import gather_evidence, run_checks
from windlass.cli.demo.task import JOURNAL, prepare_folder
from windlass.cli.demo.worker import WorkerProcess
from windlass.core.events import CallProgress, StepProposed
from windlass.journals.sqlite.journal import SqliteJournal

pytestmark = [pytest.mark.realtime, pytest.mark.slow]


@pytest.fixture(scope="module")
def played() -> Iterator[Path]:
    """The folder of a demo that went well."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        prepare_folder(folder)
        with WorkerProcess("run", folder, fast=True) as child:
            assert any(isinstance(event, CallProgress) for event in child.read_events())
            assert child.kill()
        with WorkerProcess("resume", folder, fast=True) as child:
            assert list(child.read_events())
            assert child.failure_reason() is None
        yield folder


@pytest.fixture
def folder(played: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(played, tmp_path / "copy"))


def failing(folder: Path, kills: int = 1) -> list[int]:
    made = run_checks(asyncio.run(gather_evidence(folder, kills)))
    return [at for at, check in enumerate(made) if not check.holds]


def again(name: str) -> Callable[[Path], None]:
    """The last line of a file is there twice."""

    def falsify(folder: Path) -> None:
        lines = (folder / name).read_text("utf-8").splitlines()
        (folder / name).write_text("\n".join([*lines, lines[-1], ""]), "utf-8")

    return falsify


def another_key(folder: Path) -> None:
    line = "refund order=1042 amount=42.50 EUR to=card key=demo/c9_9\n"
    (folder / "outbox.txt").write_text(line, "utf-8")


def deleted(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def tampered(folder: Path) -> None:
    with apsw.Connection(str(folder / "journal.db")) as file:
        file.execute("UPDATE records SET body = replace(body, '42.50', '99.50')")


def without_the_clerk(folder: Path) -> None:
    with SqliteJournal(folder / JOURNAL) as journal:
        assert asyncio.run(journal.delete("demo/c2_0"))


def meter_of_another(folder: Path) -> None:
    meter = folder / "meter.txt"
    meter.write_text(
        meter.read_text("utf-8").replace("clerk, reply 1", "support, reply 1"), "utf-8"
    )


def test_the_proof_holds(folder: Path) -> None:
    assert failing(folder) == []


def test_a_run_that_nobody_killed_proves_nothing(folder: Path) -> None:
    assert failing(folder, kills=0) == [4]


@pytest.mark.parametrize(
    ("falsify", "broken"),
    [
        (again("outbox.txt"), 0),
        (another_key, 0),
        (deleted("outbox.txt"), 0),
        (again("meter.txt"), 1),
        (meter_of_another, 1),
        (without_the_clerk, 2),
        (deleted("payments.csv"), 3),
        (again("payments.csv"), 3),
        (deleted("report.md"), 4),
        (tampered, 5),
        (deleted("journal.db"), 5),
    ],
)
def test_the_proof_fails_when_a_record_is_false(
    folder: Path, falsify: Callable[[Path], None], broken: int
) -> None:
    falsify(folder)
    assert broken in failing(folder)


def no_notes(folder: Path) -> None:
    (folder / JOURNAL).unlink()


def no_way_to_refund(folder: Path) -> None:
    skill = folder / "skills" / "refunds" / "SKILL.md"
    skill.write_text(skill.read_text("utf-8").replace("clerk", "till"), "utf-8")


def no_charges(folder: Path) -> None:
    (folder / "payments.csv").write_text("order,paid_on,amount\n", "utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("spoil", [no_notes, no_way_to_refund, no_charges])
def test_the_model_goes_by_what_it_is_shown(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    """Its lines are a script; that the note, the skill and the clerk reach it is real."""
    prepare_folder(tmp_path)
    spoil(tmp_path)
    with WorkerProcess("run", tmp_path, fast=True) as child:
        events = list(child.read_events())
        assert child.failure_reason() is None
    said = [event.reply.text for event in events if isinstance(event, StepProposed)]
    assert said[-1].startswith("I cannot continue: the prompt does not say ")
    assert not (tmp_path / "outbox.txt").exists()
