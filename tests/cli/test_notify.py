"""U2: a person who looks elsewhere learns that a question waits, or that a long run has ended."""

import io
import sys
from pathlib import Path

import pytest
from typing_extensions import override

from windlass.cli.notify import notify
from windlass.testing.chat_wire import call_chunks, chat_answer
from windlass_shell import WindlassShell

pytestmark = pytest.mark.contract("U2")


class FakeTerminal(io.StringIO):
    @override
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("how", "written"),
    [("bell", "\a"), ("osc9", "\x1b]9;windlass asks: May?\a"), ("off", ""), ("", "")],
)
def test_a_sign_is_a_code_that_moves_nothing(
    monkeypatch: pytest.MonkeyPatch, how: str, written: str
) -> None:
    terminal = FakeTerminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    notify(how, "windlass asks: May?")
    assert terminal.getvalue() == written


def test_what_a_model_wrote_cannot_end_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = FakeTerminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    notify("osc9", "a\a\x1b[2Jb")
    assert terminal.getvalue().count("\a") == 1
    assert "\x1b[" not in terminal.getvalue()


def test_a_pipe_gets_no_code_and_a_broken_command_breaks_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, io.StringIO())
    notify("bell", "x")
    notify("no-such-program-anywhere --now", "x")
    notify("an 'open quote", "x")
    assert isinstance(sys.stdout, io.StringIO)
    assert sys.stdout.getvalue() == ""


@pytest.mark.realtime
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_question_rings_and_runs_the_users_command(shell: WindlassShell, tmp_path: Path) -> None:
    """The command is the user's setting, and gets the message as its last argument."""
    script = tmp_path / "told.sh"
    script.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/told.txt\n')
    script.chmod(0o755)
    ask = chat_answer(call_chunks("bash", '{"command":"rm x"}'))
    shell.server.add_answers(ask, ask)
    run = ("run", "-m", "openai-chat:m", "go")
    for how in ("", str(script)):
        with shell.windlass(*run, WINDLASS_NOTIFY=how or "bell") as terminal:
            terminal.wait_for_text("q later")
            assert ("\a" in terminal.raw) == (not how)
            terminal.type("q")
            assert terminal.wait_for_exit() == 3
    assert "windlass asks: " in (tmp_path / "told.txt").read_text()
