"""A process without file descriptors: its run fails for now, and can be resumed."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.realtime, pytest.mark.contract("J4")]

PROGRAM = """
import asyncio, os, resource, sys
from windlass import Agent, FailedByJournal, tool
from windlass.core.errors import ModelError
from windlass.journals import SqliteJournal
from windlass.testing import ScriptedModel, call

HARD = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
sent = []

@tool
def send(to: str) -> str:
    "Send something."
    sent.append(to)
    # From here on, nothing can be opened.
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, HARD))
    return "sent"

class Connecting(ScriptedModel):
    async def stream(self, prompt):
        try:
            os.close(os.open(sys.argv[1], os.O_RDONLY))
        except OSError as error:
            if sys.argv[2] == "wrapped":
                raise ModelError("network", "cannot connect") from error
            raise
        async for piece in super().stream(prompt):
            yield piece

async def main():
    with SqliteJournal(sys.argv[1]) as journal:
        model = Connecting([call("send", {"to": "ann"}), "Done."])
        agent = Agent(model, tools=[send], journal=journal)
        try:
            await agent.run("Go.", session="s")
        except FailedByJournal as failed:
            print(failed)
            print(failed.result.recorded, failed.result.outcome)
        resource.setrlimit(resource.RLIMIT_NOFILE, (HARD, HARD))
        facts = [type(fact).__name__ for fact in await journal.read("s")]
        print(facts[-1], "RunEnded" in facts)
        result = await agent.resume("s")
        print(result.text, sent)

asyncio.run(main())
"""


@pytest.mark.parametrize("error", ["plain", "wrapped"])
def test_a_run_without_file_descriptors_can_be_resumed(tmp_path: Path, error: str) -> None:
    """J4: as after a full disk, nothing is recorded as an end, and no effect happens twice."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "s.db"), error]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    told, *rest = ran.stdout.splitlines()
    assert told.startswith("this process has no file descriptors left. The run is open")
    assert rest == [
        "False failed",
        "RunReleased False",
        "Done. ['ann']",
    ]
