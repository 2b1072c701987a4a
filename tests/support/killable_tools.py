"""Tools that run in a process of their own, and are at the top of a module."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from windlass import ModelRetry, tool


@dataclass
class Point:
    x: int
    y: int


@tool(executor="process", effect="read")
def add(left: Point, right: Point) -> Point:
    """Add two points, and say so on standard output."""
    sys.stdout.write("not a part of the answer\n")
    return Point(left.x + right.x, left.y + right.y)


@tool(executor="process", effect="read")
def whoami() -> int:
    """Return the process id."""
    return os.getpid()


@tool(executor="process")
def fail(kind: str) -> str:
    """Fail in one way or another."""
    match kind:
        case "retry":
            raise ModelRetry("Say it otherwise.")
        case "network":
            raise ConnectionRefusedError("nobody listens")
        case "own":
            raise subprocess.SubprocessError("broken")
        case _:
            os._exit(3)


@tool(executor="process", timeout=1.5)
def run_away(folder: str) -> str:
    """Start another process, and work on and on; nothing stops it but a kill."""
    beat = "import sys, time\nwhile True: open(sys.argv[1], 'a').write('.'); time.sleep(0.02)"
    with subprocess.Popen([sys.executable, "-c", beat, str(Path(folder, "grandchild"))]):
        while True:
            with Path(folder, "child").open("a") as file:
                file.write(".")
            time.sleep(0.02)


def multiply(left: int, right: int) -> int:
    """Multiply two numbers."""
    return left * right
