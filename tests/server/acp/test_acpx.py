"""An independent client of the Agent Client Protocol, from npm: `acpx`."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("acp", reason="needs the extra `acp`")

from editor import make_environment
from mcp_servers import node_program
from node_clients import require_packages
from windlass.testing import FaultServer, serve_in_thread
from windlass.testing.chat_wire import call_chunks, chat_answer, text_answer, text_chunk
from windlass.testing.wire import WireAnswer, stall, stream_answer

pytestmark = [
    pytest.mark.contract("A6"),
    pytest.mark.realtime,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]
WRITE = call_chunks("bash", '{"command":"echo hi >> out.txt"}')
WAIT_S = 90


@dataclass
class Acpx:
    """The program, with `windlass acp` as its agent."""

    command: list[str]
    project: Path
    env: dict[str, str]
    server: FaultServer

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self.command, *words],
            cwd=self.project,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *words: str) -> tuple[int, str]:
        child = self.start(*words)
        said = child.communicate(timeout=WAIT_S)[0]
        return child.returncode, said

    def wait_for_the_end_of_its_agent(self) -> None:
        """Wait until the process is gone that keeps the agent for a moment after a prompt.

        A prompt that comes while it ends would be refused, or dropped unread. It has gone when its
        lock is removed.
        """
        end = time.monotonic() + WAIT_S
        while list(Path(self.env["HOME"], ".acpx", "queues").glob("*.lock")):
            assert time.monotonic() < end, "it never ended"
            time.sleep(0.05)

    @property
    def effects(self) -> str:
        path = self.project / "out.txt"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def acpx(tmp_path: Path) -> Iterator[Acpx]:
    program = require_packages("acp") / "node_modules/acpx/dist/cli.js"
    node = node_program()
    project = tmp_path / "project"
    home = tmp_path / "home"
    project.mkdir()
    home.mkdir()
    agent = f"{sys.executable} -m windlass.cli acp"
    command = [node, str(program), "--agent", agent, "--auth-policy", "skip", "--ttl", "1"]
    with serve_in_thread(FaultServer()) as server:
        env = make_environment(home, server.url)
        env["PATH"] = f"{Path(node).parent}{os.pathsep}{env['PATH']}"
        yield Acpx(command, project, env, server)


def test_text_tools_and_an_approval(acpx: Acpx) -> None:
    acpx.server.add_answers(chat_answer(text_chunk("I write."), WRITE), text_answer("Written."))
    code, said = acpx.run("--approve-all", "--format", "json", "exec", "Write.")
    assert code == 0, said
    messages = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    updates = [one["params"]["update"] for one in messages if one.get("method") == "session/update"]
    # An update may also carry new content alone.
    states = [one["status"] for one in updates if one.get("toolCallId") and "status" in one]
    assert states == ["pending", "in_progress", "completed"]
    assert '"stopReason":"end_turn"' in said
    assert acpx.effects == "hi\n"
    code, said = acpx.run("sessions", "list")
    assert "Write." in said
    assert code == 0


def test_a_denial(acpx: Acpx) -> None:
    acpx.server.add_answers(chat_answer(WRITE), text_answer("Then not."))
    _, said = acpx.run("--deny-all", "exec", "Write.")
    assert "Denied: The user said no." in said
    assert "Then not." in said
    assert acpx.effects == ""


def test_an_error(acpx: Acpx) -> None:
    acpx.server.add_answers(WireAnswer(status=401, acts=(b'{"error":{"message":"no such key"}}',)))
    code, said = acpx.run("exec", "Hi.")
    assert code != 0
    assert "no such key" in said
    (acpx.project / "AGENTS.md").write_text("Be kind.\n")
    code, said = acpx.run("exec", "Hi.")
    assert code != 0
    assert "windlass trust" in said


def test_a_session_goes_on_in_another_process_of_the_agent(acpx: Acpx) -> None:
    """The agent's first process is gone by then: the session is loaded from the journal."""
    code, name = acpx.run("sessions", "new")
    assert code == 0, name
    acpx.server.add_answers(text_answer("First."), text_answer("Second."))
    code, said = acpx.run("prompt", "One.")
    assert "First." in said
    assert code == 0
    acpx.wait_for_the_end_of_its_agent()
    code, said = acpx.run("prompt", "Two.")
    assert "Second." in said
    assert code == 0
    history = json.dumps(acpx.server.requests[-1].json)
    assert all(text in history for text in ("One.", "First.", "Two."))


def test_a_cancel(acpx: Acpx) -> None:
    acpx.run("sessions", "new")
    acpx.server.add_answers(stream_answer(text_chunk("Once upon"), stall()))
    telling = acpx.start("prompt", "Tell a story.")
    end = time.monotonic() + WAIT_S
    while not acpx.server.requests:
        assert time.monotonic() < end
        time.sleep(0.05)
    _, said = acpx.run("cancel")
    assert "cancel" in said.lower()
    told = telling.communicate(timeout=WAIT_S)[0]
    assert "cancelled" in told
