"""What the page of a chat shows of a change: once before it is made, and once when it is undone."""

import re

import pytest

from windlass.testing.chat_wire import call_chunks, chat_answer, text_answer
from windlass_shell import WindlassShell

pytestmark = [
    pytest.mark.realtime,
    pytest.mark.slow,
    pytest.mark.timeout(120),
    pytest.mark.contract("U2"),
]
CHAT = ("chat", "-m", "openai-chat:m")
EDIT = call_chunks("edit", '{"path":"calc.py","edits":[{"old":"a - b","new":"a + b"}]}')
COLOUR = re.compile(r"\x1b\[(?:[0-9]+;)*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;[0-9]+)*m")


@pytest.mark.parametrize("width", [48, 100])
def test_a_difference_is_shown_once_and_its_undo_is_not_asked_about(
    shell: WindlassShell, width: int
) -> None:
    """The question shows what will change, and the undo shows the reverse."""
    calc = shell.project / "calc.py"
    calc.write_text("def add(a, b):\n    return a - b\n")
    shell.server.add_answers(chat_answer(EDIT), text_answer("Fixed."))
    with shell.windlass(*CHAT, width=width) as terminal:
        terminal.wait_for_text(" ask")
        terminal.type("fix it\r")
        terminal.wait_for_text("q later")
        terminal.type("y")
        terminal.wait_for_text("completed · 2 steps")
        assert terminal.page.text.count("+    return a + b") == 1
        assert "return a + b" in calc.read_text()
        terminal.type("/undo\r")
        terminal.wait_for_text("Restored 'calc.py'.")
        page = terminal.page.text
        assert "return a - b" in calc.read_text()
        assert page.count("-    return a + b") == 1
        assert page.count("Edit calc.py?") == 1
        assert "cannot be redone" in " ".join(page.split())


def test_without_colour_the_prompt_has_none_either(shell: WindlassShell) -> None:
    """NO_COLOR holds for the line editor as for the page."""
    shell.server.add_answers(text_answer("A **bold** word."))
    with shell.windlass(*CHAT, NO_COLOR="1") as terminal:
        terminal.wait_for_text(" ask")
        terminal.type("/he\t")
        terminal.type("\x15hello\r")
        terminal.wait_for_text("completed")
        terminal.type("\x04")
        assert terminal.wait_for_exit() == 0
    assert COLOUR.findall(terminal.raw) == []
