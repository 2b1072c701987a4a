"""U2: commands of the user's own and /review, in a chat at a real terminal."""

import subprocess
from pathlib import Path

import pytest

from windlass.testing.chat_wire import text_answer
from windlass_shell import WindlassShell

pytestmark = [
    pytest.mark.realtime,
    pytest.mark.slow,
    pytest.mark.timeout(120),
    pytest.mark.contract("U2"),
]
CHAT = ("chat", "-m", "openai-chat:m")


def last_prompt(shell: WindlassShell) -> str:
    return str(shell.server.requests[-1].json["messages"][-1]["content"])


def test_a_file_is_a_command_and_nothing_in_it_is_run(shell: WindlassShell) -> None:
    """Tab completes it. A text that begins with `!` is a prompt, and not a command of the shell."""
    folder = Path(shell.env["HOME"]) / ".windlass" / "commands"
    folder.mkdir(parents=True)
    (folder / "mend.md").write_text("---\ndescription: mend an issue\n---\n!touch made $1")
    shell.server.add_answers(text_answer("Mended."))
    with shell.windlass(*CHAT) as terminal:
        terminal.wait_for_text(" ask")
        terminal.type("/men")
        terminal.wait_for_text("mend an issue")
        terminal.type("\t 7\r")
        terminal.wait_for_text("Mended.")
    assert "!touch made 7" in last_prompt(shell)
    assert not (shell.project / "made").exists()


def test_review_gives_the_changes_of_the_working_tree(shell: WindlassShell) -> None:
    git = ("git", "-c", "user.name=x", "-c", "user.email=x@example.com")
    (shell.project / "calc.py").write_text("a = 1\n")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "one")):
        subprocess.run([*git, *words], cwd=shell.project, check=True)
    (shell.project / "calc.py").write_text("a = 2\n")
    shell.server.add_answers(text_answer("One mistake."))
    with shell.windlass(*CHAT) as terminal:
        terminal.wait_for_text(" ask")
        terminal.type("/review the names\r")
        terminal.wait_for_text("One mistake.")
    prompt = last_prompt(shell)
    assert "+a = 2" in prompt
    assert "the names" in prompt
