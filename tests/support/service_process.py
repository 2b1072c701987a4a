"""`windlass serve` as a process of its own, to be killed, stopped and started again."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from windlass.project.journals import open_journal
from windlass.server.tokens import TokenStore

APP = '''"""An agent that writes four lines, one at a time, and says so in the end."""

from pathlib import Path

from windlass import Agent, tool
from windlass.core.messages import ToolResults
from windlass.testing import ScriptedModel, call, pause, say

LINES = 4


@tool(effect="write")
def note(line: int) -> str:
    """Write a line."""
    with Path("effects.txt").open("a") as effects:
        effects.write(f"{line}\\n")
    return f"wrote {line}"


def reply(prompt):
    done = sum(isinstance(message, ToolResults) for message in prompt.messages)
    if done == LINES:
        return [say("All "), pause(0.2), say("done.")]
    return [say(f"Line {done}"), pause(0.4), say("."), call("note", {"line": done})]


agents = Agent(ScriptedModel([reply] * 100), name="writer", tools=[note])
'''


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


async def make_token(journal: str, caller: str = "ann") -> str:
    """Make a token in the journal of a service, as `windlass token create` does."""
    async with open_journal(journal) as opened:
        return (await TokenStore(opened).create(caller)).secret


class ServiceProcess:
    """A service that runs until it is stopped. Its log is in `service.log` of its folder."""

    def __init__(self, folder: Path, port: int, *flags: str, app: str, journal: str) -> None:
        self.address = f"http://127.0.0.1:{port}"
        (folder / "app.py").write_text(app)
        command = [
            *(sys.executable, "-m", "windlass.cli", "serve", "app:agents"),
            *("--port", str(port), "--journal", journal or str(folder / "sessions.db")),
            *("--log-format", "json", *flags),
        ]
        with (folder / "service.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def wait_until_ready(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith("Serving ")

    def kill(self) -> None:
        """SIGKILL, and gone."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@contextmanager
def serve_process(
    folder: Path, port: int, *flags: str, app: str = APP, journal: str = ""
) -> Iterator[ServiceProcess]:
    """Start a service and wait until it takes requests; it is gone when the block ends.

    Its journal is a file in its folder unless one is named.
    """
    started = ServiceProcess(folder, port, *flags, app=app, journal=journal)
    try:
        started.wait_until_ready()
        yield started
    finally:
        started.kill()
        assert started.process.stdout is not None
        started.process.stdout.close()
