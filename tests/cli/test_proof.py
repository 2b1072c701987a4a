"""The demo's proof must be able to fail: each record is falsified in turn."""

import asyncio
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import apsw
import pytest

from windlass.cli.demo.child import Child
from windlass.cli.demo.proof import checks, gather
from windlass.cli.demo.task import lay_out
from windlass.core.events import CallProgress

pytestmark = pytest.mark.realtime


@pytest.fixture(scope="module")
def played() -> Iterator[Path]:
    """The folder of a demo that went well."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        lay_out(folder)
        with Child("run", folder, fast=True) as child:
            assert any(isinstance(event, CallProgress) for event in child.events())
            assert child.kill()
        with Child("resume", folder, fast=True) as child:
            assert list(child.events())
            assert child.trouble() is None
        yield folder


@pytest.fixture
def folder(played: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(played, tmp_path / "copy"))


def failing(folder: Path, kills: int = 1) -> list[int]:
    made = checks(asyncio.run(gather(folder, kills)))
    return [at for at, check in enumerate(made) if not check.holds]


def again(name: str) -> Callable[[Path], None]:
    """The last line of a file is there twice."""

    def falsify(folder: Path) -> None:
        lines = (folder / name).read_text("utf-8").splitlines()
        (folder / name).write_text("\n".join([*lines, lines[-1], ""]), "utf-8")

    return falsify


def another_key(folder: Path) -> None:
    (folder / "outbox.txt").write_text("refund order=1042 amount=42.50 EUR key=demo/c9_9\n")


def deleted(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def tampered(folder: Path) -> None:
    with apsw.Connection(str(folder / "journal.db")) as file:
        file.execute("UPDATE records SET body = replace(body, '42.50', '99.50')")


def test_the_proof_holds(folder: Path) -> None:
    assert failing(folder) == []


def test_a_run_that_nobody_killed_proves_nothing(folder: Path) -> None:
    assert failing(folder, kills=0) == [3]


@pytest.mark.parametrize(
    ("falsify", "broken"),
    [
        (again("outbox.txt"), 0),
        (another_key, 0),
        (deleted("outbox.txt"), 0),
        (again("meter.txt"), 1),
        (deleted("payments.csv"), 2),
        (again("payments.csv"), 2),
        (deleted("report.md"), 3),
        (tampered, 4),
        (deleted("journal.db"), 4),
    ],
)
def test_the_proof_fails_when_a_record_is_false(
    folder: Path, falsify: Callable[[Path], None], broken: int
) -> None:
    falsify(folder)
    assert broken in failing(folder)
