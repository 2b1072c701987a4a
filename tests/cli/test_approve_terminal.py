"""`windlass approve` at a real terminal: the call is shown, and then the person is asked."""

import pytest

from windlass.testing.chat_wire import call_chunks, chat_answer, text_answer
from windlass_shell import WindlassShell as Shell

pytestmark = [
    pytest.mark.realtime,
    pytest.mark.slow,
    pytest.mark.timeout(120),
    pytest.mark.contract("G6", "U2"),
]
RUN = ("run", "-m", "openai-chat:m", "go")
KEYS = "q later"


def bash(command: str) -> tuple[bytes, ...]:
    return call_chunks("bash", f'{{"command":"{command}"}}')


def leave_waiting(shell: Shell) -> None:
    """Begin a run, and say "later" to its question."""
    with shell.windlass(*RUN) as terminal:
        terminal.wait_for_text(KEYS)
        terminal.type("q")
        assert terminal.wait_for_exit() == 3


def answer(shell: Shell, key: str) -> tuple[int, str]:
    """Run `windlass approve`, and press a key at its question; its exit code and its page."""
    with shell.windlass("approve") as terminal:
        terminal.wait_for_text(KEYS)
        terminal.type(key)
        return terminal.wait_for_exit(), terminal.page.text


@pytest.mark.parametrize("width", [50, 120])
def test_nothing_runs_before_the_person_says_yes(shell: Shell, width: int) -> None:
    """G6: also in a narrow terminal, the command is read before it is approved."""
    shell.server.add_answers(chat_answer(bash("echo hi > out.txt")), text_answer("Written."))
    leave_waiting(shell)
    with shell.windlass("approve", width=width) as terminal:
        assert "command: echo hi > out.txt" in terminal.wait_for_text(KEYS)
        assert not (shell.project / "out.txt").exists()
        terminal.type("y")
        assert terminal.wait_for_exit() == 0
    assert "Written." in terminal.page.text
    assert (shell.project / "out.txt").read_text() == "hi\n"


def test_no_and_later_are_answers_too(shell: Shell) -> None:
    shell.server.add_answers(chat_answer(bash("rm x")), text_answer("Then not."))
    leave_waiting(shell)
    code, page = answer(shell, "q")
    assert code == 3
    assert "The run still waits: windlass approve project-" in page
    assert len(shell.server.requests) == 1
    with shell.windlass("approve") as terminal:
        terminal.wait_for_text(KEYS)
        terminal.type("n")
        terminal.wait_for_text("reason (for the model")
        terminal.type("too risky\r")
        assert terminal.wait_for_exit() == 0
    assert "too risky" in shell.server.requests[1].json["messages"][-1]["content"]


def test_a_kill_while_it_asks_leaves_the_run_waiting(shell: Shell) -> None:
    """G6: a closed terminal is not a yes."""
    shell.server.add_answers(chat_answer(bash("touch made")), text_answer("Done."))
    leave_waiting(shell)
    with shell.windlass("approve") as terminal:
        terminal.wait_for_text(KEYS)
        terminal.kill()
    assert not (shell.project / "made").exists()
    assert answer(shell, "y")[0] == 0
    assert (shell.project / "made").exists()


def test_a_yes_is_for_the_question_on_the_screen(shell: Shell) -> None:
    """G6: answered elsewhere meanwhile, with a new question after it: the new one still waits."""
    shell.server.add_answers(
        chat_answer(bash("touch one")), chat_answer(bash("rm -rf two")), text_answer("Done.")
    )
    (shell.project / "two").mkdir()
    leave_waiting(shell)
    with shell.windlass("approve") as first:
        assert "touch one" in first.wait_for_text(KEYS)
        with shell.windlass("approve") as second:
            second.wait_for_text(KEYS)
            second.type("y")
            assert "rm -rf two" in second.wait_for_text(KEYS, count=2)
            second.type("q")
            assert second.wait_for_exit() == 3
        first.type("y")
        assert first.wait_for_exit() != 0
    assert (shell.project / "two").exists()
