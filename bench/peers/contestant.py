"""The process of a contestant, as the measuring program sees it."""

import contextlib
import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from roster import Peer

QUIET = {
    "OPENAI_API_KEY": "none",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "LANGCHAIN_TRACING_V2": "false",
    "LANGSMITH_TRACING": "false",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "OTEL_SDK_DISABLED": "true",
    "DO_NOT_TRACK": "1",
}
"""No keys, no traces, no telemetry: only the work is measured."""


class ContestantSilent(Exception):
    """The contestant did not answer in time, or its process has ended."""


class ContestantProcess:
    """A process that takes one job after another."""

    def __init__(self, peer: Peer, **environment: str) -> None:
        self.peer = peer
        # Bytecode comes with the installation: none may be written while the clock runs.
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - open for as long as the process is
        self._rest = b""
        self.process = subprocess.Popen(
            [str(peer.python), str(peer.driver)],
            env={**inherited, **QUIET, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )

    def ask(self, do: str, wait_s: float, **job: Any) -> dict[str, Any]:  # noqa: ANN401
        self.send(do, **job)
        return self.wait_for_answer(wait_s)

    def send(self, do: str, **job: Any) -> None:  # noqa: ANN401
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps({"do": do, **job}).encode() + b"\n")
            self.process.stdin.flush()

    def wait_for_answer(self, within_s: float) -> dict[str, Any]:
        assert self.process.stdout is not None
        until = time.monotonic() + within_s
        while b"\n" not in self._rest:
            left = max(0.0, until - time.monotonic())
            ready, _, _ = select.select([self.process.stdout], [], [], left)
            if not ready:
                raise ContestantSilent(f"no answer within {within_s:g} s")
            piece = os.read(self.process.stdout.fileno(), 65_536)
            if not piece:
                raise ContestantSilent(f"gone: {self.last_words()}")
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)

    def last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {self.process.poll()}"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self._errors):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


@contextlib.contextmanager
def start_contestant(peer: Peer, **environment: str) -> Iterator[ContestantProcess]:
    """Start a process that ends with the block."""
    process = ContestantProcess(peer, **environment)
    try:
        yield process
    finally:
        process.kill()
