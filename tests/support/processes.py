"""Child processes of a test, which are gone when the test is over."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


class ChildProcess:
    """A running script of this folder: it reads and writes lines."""

    def __init__(self, script: str, *arguments: object) -> None:
        command = [sys.executable, FOLDER / script, *map(str, arguments)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        # Without a buffer, Python loses the rest of a long line if the process is stopped in it.
        environment.pop("PYTHONUNBUFFERED", None)
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, env=environment, text=True, **pipes)

    def read_line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def write_line(self, line: str) -> None:
        assert self.process.stdin is not None
        print(line, file=self.process.stdin, flush=True)

    def kill(self) -> None:
        """SIGKILL, and gone."""
        self.process.kill()
        self.process.wait()

    def read_rest(self) -> list[str]:
        """All that it still said, up to its end."""
        assert self.process.stdout is not None
        return self.process.stdout.read().split()


@contextmanager
def start_child(*arguments: object) -> Iterator[ChildProcess]:
    """Start `lease_child.py`."""
    with start_process("lease_child.py", *arguments) as one:
        yield one


@contextmanager
def start_process(script: str, *arguments: object) -> Iterator[ChildProcess]:
    """Start a script of this folder."""
    one = ChildProcess(script, *arguments)
    with one.process:
        try:
            yield one
        finally:
            one.process.kill()
