"""U2: a list of models, a return to an earlier message, the whole transcript, and long pastes."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from terminal import Terminal
from windlass.cli.chat.keys import Pastes
from windlass.cli.chat.references import ShellNotes, expand_prompt, names_file
from windlass.cli.screen import UNICODE_GLYPHS
from windlass.core.messages import ImagePart
from windlass.testing.chat_wire import (
    call_chunks,
    chat_answer,
    text_answer,
    text_chunk,
    thinking_chunk,
)
from windlass_shell import WindlassShell

pytestmark = pytest.mark.contract("U2")
PERSON = UNICODE_GLYPHS.person
CHAT = ("chat", "-m", "openai-chat:m", "--permission-mode", "allow-edits")
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c4944415478da63f8cfc0"
    "00000301010018dd8db00000000049454e44ae426082"
)


def wait_for_prompt(terminal: Terminal) -> None:
    """Wait until the last line is an empty prompt below the mode."""

    def is_ready(lines: Sequence[str]) -> bool:
        shown = [line.rstrip() for line in lines if line.strip()]
        return len(shown) > 1 and shown[-1] == PERSON and "allow-edits" in shown[-2]

    terminal.wait_until(is_ready)


@pytest.mark.realtime
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_rewind_returns_files_and_conversation_to_before_a_message(shell: WindlassShell) -> None:
    """The message is at the prompt again, in a copy: the session itself loses nothing."""
    notes = shell.project / "notes.txt"
    notes.write_text("before")
    write = call_chunks("write", '{"path":"notes.txt","content":"after"}')
    shell.server.add_answers(
        text_answer("One."), chat_answer(write), text_answer("Two."), text_answer("Anew.")
    )
    with shell.windlass(*CHAT) as terminal:
        for prompt, reply in (("first", "One."), ("second", "Two.")):
            wait_for_prompt(terminal)
            terminal.type(f"{prompt}\r")
            terminal.wait_for_text(reply)
        wait_for_prompt(terminal)
        assert notes.read_text() == "after"
        terminal.type("/rewind\r")
        terminal.wait_for_text("before which message?")
        terminal.type("second\r")
        terminal.wait_for_text("n neither")
        terminal.type("b")
        terminal.wait_for_text("stays as it was")
        assert notes.read_text() == "before"
        terminal.wait_for_text(f"{PERSON} second", count=2)
        terminal.type(" try\r")
        terminal.wait_for_text("Anew.")
    sent = [str(message["content"]) for message in shell.server.requests[-1].json["messages"]]
    assert [text.startswith("first") for text in sent].count(True) == 1
    assert "second try" in sent[-1]
    assert not any("Two." in text for text in sent)


@pytest.mark.realtime
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_transcript_has_the_thinking_and_whole_results(shell: WindlassShell) -> None:
    (shell.project / "long.txt").write_text("\n".join(f"line {at}" for at in range(60)))
    read = call_chunks("read", '{"path":"long.txt"}')
    shell.server.add_answers(
        chat_answer(thinking_chunk("Let me see."), text_chunk("Reading."), read),
        text_answer("Done."),
    )
    with shell.windlass(*CHAT, "--thinking", "hide", PAGER="tee page.txt") as terminal:
        wait_for_prompt(terminal)
        terminal.type("go\r")
        terminal.wait_for_text("Done.")
        wait_for_prompt(terminal)
        terminal.type("\x0f")
        terminal.wait_until(lambda _: "line 59" in read_file(shell.project / "page.txt"))
    assert "(thinking) Let me see." in read_file(shell.project / "page.txt")


def read_file(path: Path) -> str:
    return path.read_text() if path.exists() else ""


@pytest.mark.realtime
@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("width", [44, 100])
def test_a_long_paste_is_folded_and_sent_whole(shell: WindlassShell, width: int) -> None:
    shell.server.add_answers(text_answer("Read."))
    pasted = "\r".join(f"row {at}" for at in range(45))
    with shell.windlass(*CHAT, width=width) as terminal:
        wait_for_prompt(terminal)
        terminal.type(f"look: \x1b[200~{pasted}\x1b[201~")
        terminal.wait_for_text("look: [45 lines]")
        terminal.type(" please\r")
        terminal.wait_for_text("Read.")
        assert "row 44" not in terminal.page.text
    sent = str(shell.server.requests[-1].json["messages"][-1]["content"])
    assert "row 44" in sent
    assert "[45 lines]" not in sent


@pytest.mark.realtime
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_model_is_chosen_from_a_list_and_kept_for_the_project(shell: WindlassShell) -> None:
    with shell.windlass(*CHAT) as terminal:
        wait_for_prompt(terminal)
        terminal.type("/model\r")
        terminal.wait_for_text("Which model?")
        terminal.type("openai:gpt-5-mini")
        terminal.wait_for_text("> openai:gpt-5-mini")
        terminal.type("\r")
        terminal.wait_for_text("openai:gpt-5-mini · allow-edits")
        terminal.type("/model save\r")
        terminal.wait_for_text('model = "openai:gpt-5-mini"')
    assert 'model = "openai:gpt-5-mini"' in (shell.project / "windlass.toml").read_text()


def test_two_pastes_of_one_length_are_told_apart() -> None:
    pastes = Pastes()
    one, two = ("\n".join([word] * 20) for word in ("a", "b"))
    marks = pastes.add(one), pastes.add(two)
    assert marks == ("[20 lines]", "[20 lines, another]")
    assert pastes.add(one) == marks[0]
    assert pastes.unfold(f"{marks[0]} and {marks[1]}") == f"{one} and {two}"
    assert pastes.fold(f"{one} and {two}") == f"{marks[0]} and {marks[1]}"
    assert pastes.add("a\r\nb") == "a\nb"


@pytest.mark.parametrize("form", ["{}", "'{}'", "file://{}"])
def test_a_picture_that_is_dropped_on_the_terminal_is_attached(tmp_path: Path, form: str) -> None:
    picture = tmp_path / "shot.png"
    picture.write_bytes(PIXEL)
    prompt = expand_prompt(f"what is {form.format(picture)}", tmp_path, ShellNotes())
    assert [type(part) for part in prompt.parts[1:]] == [ImagePart]
    assert prompt.labels == ("untrusted", "private")


def test_a_path_with_escaped_spaces_is_a_picture_and_no_command(tmp_path: Path) -> None:
    picture = tmp_path / "a shot.png"
    picture.write_bytes(PIXEL)
    dropped = str(picture).replace(" ", "\\ ")
    assert names_file(f"{dropped} what is this?")
    assert not names_file("/help")
    assert len(expand_prompt(dropped, tmp_path, ShellNotes()).parts) == 2
