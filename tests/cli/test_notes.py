"""`windlass notes`: what agents have noted, for the person whose notes they are."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from windlass.cli.notes import notes

pytestmark = [pytest.mark.realtime, pytest.mark.contract("K1")]


def run(*words: str) -> Result:
    return CliRunner().invoke(notes, words)


def test_notes_are_added_found_corrected_and_forgotten(tmp_path: Path) -> None:
    """K2: by their id, or by its beginning."""
    where = ("--store", str(tmp_path / "notes.db"), "--project", "crane")
    assert run("add", "The hoist takes two tonnes.", "--title", "Hoist", *where).exit_code == 0
    found = run("search", "hoists", *where).output
    assert "Hoist: The hoist takes two tonnes." in found
    note = found.splitlines()[1].split()[0]
    corrected = run("correct", note, "The hoist takes three tonnes.", *where)
    assert corrected.output.startswith("Corrected; it is note ")
    assert "three tonnes" in run("list", *where).output
    assert "two tonnes" not in run("list", *where).output
    other = ("--store", str(tmp_path / "notes.db"), "--user", "ann")
    new = corrected.output.split()[4]
    assert "no note" in str(run("forget", new, *other).exception)
    assert run("forget", new[:12], *where).output == (
        "Forgotten: Hoist: The hoist takes three tonnes.\n"
    )
    assert "three tonnes" not in run("list", *where).output


def test_a_folder_is_ingested_and_what_is_left_out_is_listed(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "crane.md").write_text("# Crane\n\nIt lifts.\n")
    (folder / "a.bin").write_bytes(b"\0")
    where = ("--store", str(tmp_path / "notes.db"), "--project", "crane")
    done = run("ingest", str(folder), "--name", "docs", *where)
    assert "project crane: 1 stored, 0 unchanged, 0 forgotten, 0 failed, 1 left out" in done.output
    assert "docs/a.bin: its name matches none of the patterns" in done.output
    assert "It lifts." in run("search", "lifting", *where).output


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("list", "--project", "crane"), "no such store"),
        (("list",), "say whose notes"),
    ],
)
def test_a_mistake_is_told_with_the_way_out(
    words: tuple[str, ...], problem: str, tmp_path: Path
) -> None:
    result = run(*words, "--store", str(tmp_path / "none.db"))
    assert problem in str(result.exception)
    assert list(tmp_path.iterdir()) == []
