"""Do all that a release needs, but publish nothing: `make release-check`.

    python tools/release_check.py dist

Wheel and sdist are built twice from the last commit, in different folders and with different file
modes, and a third time from the sdist: the bytes must be the same. Each step of the set-up must
check hashes, licences and advisories must be in order, and the wheel must work alone. What was
built is left in the folder, with its hashes, its bill of materials and where it comes from.
"""
# ruff: noqa: T201 - a script, which prints what it did

import hashlib
import json
import os
import re
import sys
import tarfile
import tomllib
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import dependency_audit
from sbom import describe_release
from select_locked import ENTRY
from try_wheel import ROOT, run, try_wheel

_INSTALLS = re.compile(r"^\s*@?\$\(INSTALL\)(.*)$", re.MULTILINE)
_BOM = "windlass.cdx.json"


def unpack_commit(folder: Path, umask: int) -> Path:
    """Unpack the last commit into a folder, with the file modes that this mask leaves."""
    tree = folder / "tree"
    tree.mkdir(parents=True)
    run("git", "archive", "--output", folder / "commit.tar", "HEAD", cwd=ROOT)
    with tarfile.open(folder / "commit.tar") as archive:
        archive.extractall(tree, filter="data")
    for path in sorted(tree.rglob("*")):
        path.chmod(path.stat().st_mode & ~umask)
    return tree


def build(tree: Path, *targets: str) -> dict[str, bytes]:
    """Build these targets of a tree, and return the bytes of each file that comes of it."""
    out = tree.parent / f"{tree.name}-built"
    chosen = [part for target in targets for part in ("-t", target)]
    run(sys.executable, "-m", "hatchling", "build", "-d", out, *chosen, cwd=tree)
    return {path.name: path.read_bytes() for path in sorted(out.iterdir())}


def build_twice(folder: Path) -> dict[str, bytes]:
    """Build wheel and sdist twice, and the wheel from the sdist.

    Raises SystemExit if they differ.
    """
    first = build(unpack_commit(folder / "a", 0o000), "wheel", "sdist")
    second = build(unpack_commit(folder / "elsewhere" / "b", 0o077), "wheel", "sdist")
    compare("built a second time", first, second)
    (sdist,) = (name for name in first if name.endswith(".tar.gz"))
    (folder / sdist).write_bytes(first[sdist])
    with tarfile.open(folder / sdist) as archive:
        archive.extractall(folder / "sdist", filter="data")
    (tree,) = (folder / "sdist").iterdir()
    wheels = {name: content for name, content in first.items() if name.endswith(".whl")}
    compare("built from the sdist", wheels, build(tree, "wheel"))
    return first


def compare(how: str, first: dict[str, bytes], second: dict[str, bytes]) -> None:
    """Raises SystemExit that names the files which are not the same."""
    names = sorted(first.keys() | second.keys())
    if changed := [name for name in names if first.get(name) != second.get(name)]:
        raise SystemExit(f"{', '.join(changed)}: {how}, the bytes are not the same")
    print(f"{', '.join(names)}: {how}, the same bytes")


def check_hashes(root: Path) -> None:
    """Raises SystemExit if something would be installed whose hash nobody checks."""
    for lock in dependency_audit.LOCKS:
        entries = ENTRY.findall((root / "requirements" / lock).read_text("utf-8"))
        bare = [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry]
        if bare:
            raise SystemExit(f"requirements/{lock} has no hash of {', '.join(bare)}: make lock")
    for options in _INSTALLS.findall((root / "Makefile").read_text("utf-8")):
        if "--require-hashes" not in options and "--no-deps" not in options:
            raise SystemExit(f"the Makefile installs without --require-hashes:{options}")
    print("every step of the set-up checks hashes")


def check_notes(root: Path, number: str) -> None:
    """Raises SystemExit if the changelog has no notes for this version."""
    notes = (root / "CHANGELOG.md").read_text("utf-8")
    wanted = "Unreleased" if ".dev" in number else number
    if not re.search(rf"^## \[{re.escape(wanted)}\]", notes, re.MULTILINE):
        raise SystemExit(f"CHANGELOG.md has no section [{wanted}] for version {number}")
    print(f"version {number}: the changelog has [{wanted}]")


def describe_origin(files: dict[str, bytes]) -> dict[str, object]:
    """Return where these files come from, and how anyone can build them again."""
    return {
        "commit": run("git", "rev-parse", "HEAD", cwd=ROOT),
        "tree": run("git", "rev-parse", "HEAD^{tree}", cwd=ROOT),
        "python": sys.version.split()[0],
        "hatchling": version("hatchling"),
        "build": "git checkout COMMIT && make setup && .venv/bin/python -m hatchling build",
        "sha256": {name: hashlib.sha256(files[name]).hexdigest() for name in sorted(files)},
    }


def write_release(folder: Path, files: dict[str, bytes]) -> None:
    """Write what is published, with its hashes and where it comes from."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {**files, _BOM: (json.dumps(describe_release(ROOT), indent=1) + "\n").encode()}
    origin = describe_origin(files)
    files["provenance.json"] = (json.dumps(origin, indent=1) + "\n").encode()
    lines = [f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files)]
    files["SHA256SUMS"] = "".join(lines).encode()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    print(f"{len(files)} files in {os.path.relpath(folder)}; nothing was published")


def main() -> None:
    """Check everything, then leave the release in the folder that the command line names."""
    if changed := run("git", "status", "--porcelain", cwd=ROOT):
        raise SystemExit(f"commit first; a release is made from a commit:\n{changed}")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    check_notes(ROOT, project["version"])
    check_hashes(ROOT)
    if dependency_audit.main(["check"]):
        raise SystemExit("licences or advisories are not in order")
    with TemporaryDirectory() as name:
        folder = Path(name)
        files = build_twice(folder)
        (wheel,) = (name for name in files if name.endswith(".whl"))
        (folder / wheel).write_bytes(files[wheel])
        place = folder / "alone"
        place.mkdir()
        try_wheel("python3.11", folder / wheel, place)
        write_release(Path(sys.argv[1]), files)


if __name__ == "__main__":
    main()
