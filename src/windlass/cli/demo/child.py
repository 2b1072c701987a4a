"""A worker as its parent sees it: a process that streams events, and that can be killed."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import msgspec
from msgspec.structs import replace

from windlass.core.events import Event, NestedEvent

LOG_FILE = "worker.log"
END_S = 10.0
"""How long a worker may take to end once it has said its last event."""

_decode = msgspec.json.Decoder[Event](Event).decode


class WorkerProcess:
    """One worker. Leaving the block ends it, whatever happened."""

    def __init__(self, what: Literal["run", "resume"], folder: Path, *, fast: bool) -> None:
        self._log = folder / LOG_FILE
        pace = "fast" if fast else "calm"
        # A group of its own: Ctrl-C is the parent's to hear, and the parent's to pass on.
        # `-P`: a file in the current folder must not pass for a module of ours.
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - this very Python, our own module
                [sys.executable, "-P", "-m", "windlass.cli.demo.worker", what, str(folder), pace],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                process_group=0,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def read_events(self) -> Iterator[Event]:
        """The events, as they come, until the process ends."""
        for line in self._process.stdout or ():
            event = _decode(line)
            if isinstance(event, NestedEvent):
                event = replace(event, event=msgspec.convert(event.event, Event))
            yield event

    def kill(self) -> bool:
        """End it with SIGKILL; whether that, and nothing before it, was its end."""
        self._process.kill()
        return self._process.wait() == -signal.SIGKILL

    def failure_reason(self) -> str | None:
        """Why it ended, if it did not end well."""
        if (code := self._process.wait(END_S)) == 0:
            return None
        said = self._log.read_text("utf-8", "replace").strip().splitlines()
        return f"exit code {code}: {said[-1] if said else 'it said nothing'}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
