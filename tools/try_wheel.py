"""Build the wheel, install it into a fresh environment for each Python, and use it: `make wheels`.

    python tools/try_wheel.py python3.11 python3.12 python3.13

An interpreter that is not there is named and left out; at least one must be there.
"""
# ruff: noqa: S603, T201 - a script, which runs programs and prints what they say

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
PINS = ROOT / "requirements" / "run.txt"
PROGRAM = """
import windlass
from importlib import metadata
from windlass.testing import ScriptedModel

print(metadata.version("windlass"), windlass.Agent(ScriptedModel(["works"])).run_sync("Hi.").output)
"""


def run(*command: str | Path, cwd: Path) -> str:
    """Run a program, and return what it printed. Raises SystemExit with its errors if it fails."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command[0]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def build_wheel(folder: Path) -> Path:
    """Build a wheel with the environment's own hatchling."""
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    return next(folder.glob("*.whl"))


def try_wheel(python: str, wheel: Path, folder: Path) -> None:
    """Install the wheel and what is pinned, away from the repository; run an agent and the demo."""
    run(python, "-m", "venv", folder / "venv", cwd=folder)
    bin_folder = folder / "venv" / "bin"
    install = (bin_folder / "python", "-m", "pip", "install", "--quiet")
    run(*install, "--require-hashes", "--only-binary", ":all:", "-r", PINS, cwd=folder)
    run(*install, "--no-deps", wheel, cwd=folder)
    run(bin_folder / "python", "-m", "pip", "check", cwd=folder)
    version = run(bin_folder / "python", "--version", cwd=folder)
    print(version, run(bin_folder / "python", "-W", "error", "-c", PROGRAM, cwd=folder))
    run(bin_folder / "windlass", "demo", "--fast", cwd=folder)
    print(version, "windlass demo: nothing was done twice")


def main() -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        wheel = build_wheel(folder)
        found = [python for python in sys.argv[1:] if shutil.which(python)]
        for python in sys.argv[1:]:
            if python not in found:
                print("LEFT OUT:", python, "is not here")
                continue
            place = folder / Path(python).name
            place.mkdir()
            try_wheel(python, wheel, place)
        if not found:
            raise SystemExit("none of these interpreters is here")


if __name__ == "__main__":
    main()
