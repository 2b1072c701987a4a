"""U2: a chat at a real terminal, driven key by key, with its screen read back."""

import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from terminal import Terminal
from windlass.testing.chat_wire import call_chunks, chat_answer, text_answer, text_chunk
from windlass.testing.wire import WireAnswer, stall, stream_answer, wait
from windlass_shell import WindlassShell

pytestmark = [
    pytest.mark.contract("U2"),
    pytest.mark.realtime,
    pytest.mark.slow,
    pytest.mark.timeout(120),
]
MODEL = ["-m", "openai-chat:m"]
MARK = "›"  # noqa: RUF001 - the prompt
KEYS = "q later"
ESCAPE = "\x1b"
UP = "\x1b[A"
PASTE = "\x1b[200~{}\x1b[201~"


def wait_for_prompt(terminal: Terminal, mode: str = "ask", model: str = "m") -> str:
    """Wait until a prompt can be typed: no run, and nothing typed yet."""

    def is_ready(lines: Sequence[str]) -> bool:
        return lines[-1:] == [MARK] and lines[-2].startswith(f"openai-chat:{model} · {mode}")

    return terminal.wait_until(is_ready)


def said_by_person(message: dict[str, Any]) -> str:
    """The words of a prompt, without what the program added to it."""
    return message["content"].partition("\n\n")[0]


def write_slowly(*words: str) -> WireAnswer:
    """A reply whose words take their time, and that ends only when the client leaves."""
    acts = [act for word in words for act in (text_chunk(f"{word} "), wait(0.1))]
    return stream_answer(*acts, stall())


def bash(command: str) -> tuple[bytes, ...]:
    return call_chunks("bash", f'{{"command":"{command}"}}')


def test_a_prompt_has_many_lines_files_commands_and_a_history(  # noqa: PLR0915 - one chat
    shell: WindlassShell,
) -> None:
    (shell.project / "src").mkdir()
    (shell.project / "src" / "main.py").write_text("print('hello')\n")
    editor = shell.project / "editor.py"
    editor.write_text(
        "import sys, pathlib\nfile = pathlib.Path(sys.argv[1])\n"
        "file.write_text(file.read_text().replace('plain', 'edited'))\n"
    )
    shell.server.add_answers(*(text_answer(f"Reply {number}.") for number in range(1, 7)))
    command = f"{sys.executable} {editor}"
    with shell.windlass("chat", *MODEL, EDITOR=command, VISUAL=command) as terminal:
        wait_for_prompt(terminal)
        terminal.type(PASTE.format("one\ntwo\nthree"))
        terminal.wait_for_text("… three")
        terminal.type("\r")
        terminal.wait_for_text("Reply 1.")
        wait_for_prompt(terminal)
        terminal.type("see @mai")
        terminal.wait_for_text("src/main.py")
        terminal.type("\t")
        terminal.wait_for_text("see @src/main.py")
        terminal.type(" please\r")
        terminal.wait_for_text("attached: src/main.py")
        terminal.wait_for_text("Reply 2.")
        wait_for_prompt(terminal)
        terminal.type("!echo out; exit 3\r")
        terminal.wait_for_text("exit code 3")
        wait_for_prompt(terminal)
        terminal.type("above\x1b\rbelow\r")
        terminal.wait_for_text("Reply 3.")
        wait_for_prompt(terminal)
        # Ctrl-R finds the paste, as the one prompt that it was.
        terminal.type("\x12two")
        terminal.wait_for_text("… two")
        terminal.type("\r")
        terminal.type("\r")
        terminal.wait_for_text("Reply 4.")
        wait_for_prompt(terminal)
        terminal.type("plain\x07")
        terminal.wait_for_text(f"{MARK} edited")
        terminal.type("\r")
        terminal.wait_for_text("Reply 5.")
        wait_for_prompt(terminal)
        terminal.type("/too\r")
        terminal.wait_for_text("read_artifact")
        terminal.type("/tols\r")
        terminal.wait_for_text("there is no command /tols. Did you mean tools?")
        wait_for_prompt(terminal)
        terminal.type("\x04")
        assert terminal.wait_for_exit() == 0
        assert "To continue: windlass chat -r project-" in terminal.page.text
    with shell.windlass("chat", *MODEL) as terminal:
        wait_for_prompt(terminal)
        terminal.type(UP * 2)
        terminal.wait_for_text(f"{MARK} /too")
        terminal.type(UP)
        terminal.wait_for_text(f"{MARK} edited")
        terminal.type("\r")
        terminal.wait_for_text("Reply 6.")
        wait_for_prompt(terminal)
        terminal.type("\x04")
        assert terminal.wait_for_exit() == 0
    prompts = [request.json["messages"][-1] for request in shell.server.requests]
    assert prompts[0]["content"].startswith("one\ntwo\nthree\n")
    assert "print('hello')" in prompts[1]["content"]
    assert "The person ran `echo out; exit 3` (exit code 3):\nout" in prompts[2]["content"]
    assert prompts[2]["content"].startswith("above\nbelow\n")
    assert prompts[3]["content"].startswith("one\ntwo\nthree")
    assert [said_by_person(prompt).strip() for prompt in prompts[4:]] == ["edited", "edited"]


def test_the_first_message_says_where_and_when_and_the_instructions_do_not(
    shell: WindlassShell,
) -> None:
    subprocess.run(["git", "init", "-q", "-b", "trunk"], cwd=shell.project, check=True)
    (shell.project / "new.txt").write_text("x")
    shell.server.add_answers(text_answer("One."), text_answer("Two."))
    with shell.windlass(*MODEL[:0], width=100, WINDLASS_MODEL=MODEL[1]) as terminal:
        # Without a command, it is a chat.
        wait_for_prompt(terminal)
        terminal.type("first\r")
        terminal.wait_for_text("One.")
        wait_for_prompt(terminal)
        terminal.type("second\r")
        terminal.wait_for_text("Two.")
        wait_for_prompt(terminal)
        terminal.type("\x03")
        terminal.wait_for_text("Press Ctrl-C again to leave")
        terminal.type("\x03")
        assert terminal.wait_for_exit() == 0
    system, first, _, second = shell.server.requests[1].json["messages"]
    assert "Git: branch trunk, 0 changed and 1 new files" in first["content"]
    assert f"Folder: {shell.project}" in first["content"]
    assert "Date: " in first["content"]
    assert "Date: " not in system["content"]
    assert second["content"] == "second"
    with shell.windlass("chat", *MODEL, "-c") as terminal:
        # What it continues stands on the page, without what the program added.
        page = wait_for_prompt(terminal)
        terminal.type("\x04")
        assert terminal.wait_for_exit() == 0
    assert "Continuing project-" in page
    assert f"{MARK} second\nTwo.\n" in page
    assert "Date:" not in page


def test_during_a_run_typing_is_seen_steers_or_waits_and_escape_stops(
    shell: WindlassShell,
) -> None:
    words = [f"word{number}" for number in range(40)]
    shell.server.add_answers(
        write_slowly(*words),
        text_answer("After it."),
        chat_answer(text_chunk("Looking."), call_chunks("glob", '{"pattern":"*"}')),
        replace(text_answer("Heard."), before=(wait(0.5),)),
    )
    with shell.windlass("chat", *MODEL) as terminal:
        wait_for_prompt(terminal)
        terminal.type("go\r")
        terminal.wait_for_text("word2")
        terminal.type("half a tho")

        def shows_all(lines: Sequence[str]) -> bool:
            is_typed = lines[-1] == f"{MARK} half a tho"
            return is_typed and "writing" in lines[-2] and "step 1" in lines[-2]

        terminal.wait_until(shows_all)
        terminal.type("ught\t")
        page = terminal.wait_for_text("· queued: half a thought")
        # The words before and after the key are all there.
        assert "word0 word1 word2" in page
        terminal.wait_for_text("word12")
        assert "word8 word9 word10 word11 word12" in terminal.page.text.replace("\n", " ")
        terminal.type("kept")
        terminal.wait_for_text(f"{MARK} kept")
        terminal.type(ESCAPE)
        terminal.wait_for_text("✗ cancelled")
        # The queued prompt follows by itself, and the text that was not sent is still there.
        terminal.wait_for_text("After it.")
        terminal.wait_until(lambda lines: lines[-1] == f"{MARK} kept" and "ask" in lines[-2])
        terminal.type("\x15look\r")
        terminal.wait_for_text("Looking.")
        terminal.type("be brief\r")
        terminal.wait_for_text("Heard.")
        wait_for_prompt(terminal)
        assert f"{MARK} be brief" in terminal.page.text
        terminal.type("/exit\r")
        assert terminal.wait_for_exit() == 0
    said = [message["content"] for message in shell.server.requests[-1].json["messages"]]
    assert "half a thought" in said
    assert said[-1] == "be brief"


def test_questions_show_the_change_and_words_that_were_being_typed_do_not_answer(
    shell: WindlassShell,
) -> None:
    notes = shell.project / "notes.txt"
    notes.write_text("alpha\nbeta\ngamma\n")
    two = (
        *call_chunks("bash", '{"command":"touch a"}'),
        *call_chunks("bash", '{"command":"touch b"}', index=1),
    )
    shell.server.add_answers(
        chat_answer(
            call_chunks("edit", '{"path":"notes.txt","edits":[{"old":"betta","new":"B"}]}')
        ),
        replace(
            chat_answer(
                call_chunks("edit", '{"path":"notes.txt","edits":[{"old":"beta","new":"BETA"}]}')
            ),
            before=(wait(1.0),),
        ),
        chat_answer(two),
        text_answer("Done."),
    )
    with shell.windlass("chat", *MODEL) as terminal:
        wait_for_prompt(terminal)
        terminal.type("go\r")
        # The edit that cannot be made is refused without a question.
        refused = terminal.wait_for_text("Nothing was changed.")
        assert "The nearest text is at line 2: 'beta'." in refused.replace("\n  ", " ")
        assert KEYS not in refused
        terminal.type("yes, y")
        asked = terminal.wait_for_text("would be edited.")
        terminal.type("yyy")
        asked = terminal.wait_for_text(KEYS)
        assert "    -beta\n    +BETA\n" in asked
        assert notes.read_text() == "alpha\nbeta\ngamma\n"
        terminal.type("y")
        terminal.wait_for_text("2 calls wait for your answer:")
        assert notes.read_text() == "alpha\nBETA\ngamma\n"
        assert '1 bash(command="touch a")' in terminal.page.text.replace("  ", " ")
        terminal.wait_for_text(KEYS, count=2)
        terminal.type("a")
        terminal.wait_for_text("pattern (empty: exactly this call): bash(touch *)")
        terminal.type("\x7f" * 3 + " a)\r")
        terminal.wait_for_text("allows every call of bash for touch a")
        terminal.wait_for_text(KEYS, count=3)
        terminal.type("n")
        terminal.wait_for_text("reason (for the model")
        terminal.type("one is enough\r")
        terminal.wait_for_text("Done.")
        # Before the run has ended, Ctrl-C would stop it and leave the prompt as it is.
        terminal.wait_until(
            lambda lines: (
                lines[-1].startswith(f"{MARK} yes, y")
                and lines[-2].startswith("openai-chat:m · ask")
            )
        )
        terminal.type("\x03/permissions\r")
        terminal.wait_for_text("always bash(touch a)")
        # A Ctrl-C that comes as a signal, before the prompt can read keys, means the same.
        wait_for_prompt(terminal)
        terminal.process.send_signal(signal.SIGINT)
        terminal.wait_for_text("Press Ctrl-C again to leave")
        wait_for_prompt(terminal)
        terminal.type("/exit\r")
        assert terminal.wait_for_exit() == 0
    assert (shell.project / "a").exists()
    assert not (shell.project / "b").exists()


def test_commands_change_the_mode_the_model_and_the_session(  # noqa: PLR0915 - one chat
    shell: WindlassShell,
) -> None:
    shell.server.add_answers(
        text_answer("Plan: 1. Touch it."),
        chat_answer(call_chunks("write", '{"path":"made.txt","content":"made"}')),
        text_answer("Carried out."),
        text_answer("A summary of it all."),
        text_answer("Short now."),
        text_answer("Other."),
    )
    with shell.windlass("chat", *MODEL) as terminal:
        wait_for_prompt(terminal)
        terminal.type("\x1b[Z\x1b[Z")
        wait_for_prompt(terminal, "plan")
        terminal.type("make a file\r")
        terminal.wait_for_text("y carry it out")
        terminal.type("e")
        # The plan is carried out in a mode in which files may be changed.
        terminal.wait_for_text("Carried out.")
        wait_for_prompt(terminal, "allow-edits")
        assert (shell.project / "made.txt").read_text() == "made"
        terminal.type("/mode nonsense\r")
        terminal.wait_for_text("there is no mode 'nonsense'")
        terminal.type("/mode ask\r")
        wait_for_prompt(terminal)
        terminal.type("/compact\r")
        terminal.wait_for_text("begins with a summary")
        wait_for_prompt(terminal)
        terminal.type("and now\r")
        terminal.wait_for_text("Short now.")
        wait_for_prompt(terminal)
        terminal.type("/context\r")
        terminal.wait_for_text(" in 10 tools")
        terminal.type("/cost\r")
        terminal.wait_for_text("3 runs, 4 steps")
        terminal.type("/export talk.md\r")
        terminal.wait_for_text("Written:")
        terminal.type("/diff\r")
        terminal.wait_for_text("is not in a git repository")
        terminal.type("/fork\r")
        terminal.wait_for_text("a copy. The original stays")
        terminal.type("/model nope:x\r")
        terminal.wait_for_text("unknown provider")
        terminal.type("/clear\r")
        terminal.wait_for_text("A new session.")
        terminal.type("/model openai-chat:other\r")
        terminal.wait_for_text("openai-chat:other · ask ·")
        terminal.type("elsewhere\r")
        terminal.wait_for_text("Other.")
        wait_for_prompt(terminal, model="other")
        terminal.type("/resume\r")
        terminal.wait_for_text("of 3: type to search")
        terminal.type("make")
        terminal.wait_for_text("2 of 3: type to search")
        terminal.type("\r")
        terminal.wait_for_text("Continuing project-")
        terminal.wait_for_text("Short now.")
        wait_for_prompt(terminal, model="other")
        # One Ctrl-C is enough to leave the list.
        terminal.type("/resume\r")
        terminal.wait_for_text("of 3: type to search")
        terminal.type("\x03")
        terminal.wait_for_text("no session was chosen")
        terminal.type("/exit\r")
        assert terminal.wait_for_exit() == 0
    exported = (shell.project / "talk.md").read_text()
    assert "## Prompt\n\nmake a file\n" in exported
    assert "Plan mode" not in exported
    planned = shell.server.requests[0].json["messages"][-1]["content"]
    assert "Plan mode" in planned
    assert "The plan is accepted" in str(shell.server.requests[1].json["messages"][-1])
    assert "A summary of it all." in str(shell.server.requests[4].json["messages"])
    assert len(shell.server.requests[4].json["messages"]) < 8
    assert shell.server.requests[5].json["model"] == "other"


def test_a_chat_goes_on_after_a_question_for_later_and_after_ctrl_c(shell: WindlassShell) -> None:
    """C5, C3: the call is on record as cancelled, and the next prompt is answered."""
    shell.server.add_answers(
        chat_answer(bash("echo hi > out")),
        text_answer("Written."),
        chat_answer(bash("touch x")),
        text_answer("As you like."),
    )
    with shell.windlass("chat", *MODEL) as terminal:
        before = terminal.input_modes()
        wait_for_prompt(terminal)
        terminal.type("write\r")
        terminal.wait_for_text(KEYS)
        terminal.type("q")
        terminal.wait_for_text("suspended")
        wait_for_prompt(terminal)
        terminal.type("and now?\r")
        terminal.wait_for_text("/resume goes on with it")
        terminal.type("/resume\r")
        terminal.wait_for_text(KEYS, count=2)
        terminal.type("y")
        terminal.wait_for_text("Written.")
        wait_for_prompt(terminal)
        terminal.type("touch\r")
        terminal.wait_for_text(KEYS, count=3)
        terminal.type("\x03")
        terminal.wait_for_text("✗ cancelled")
        wait_for_prompt(terminal)
        terminal.type("never mind\r")
        terminal.wait_for_text("As you like.")
        wait_for_prompt(terminal)
        terminal.process.terminate()
        assert terminal.wait_for_exit() == 143
        assert terminal.input_modes() == before
    assert (shell.project / "out").exists()
    assert not (shell.project / "x").exists()


@pytest.mark.contract("T2")
def test_undo_takes_back_what_the_last_run_did_and_then_the_run_before_it(
    shell: WindlassShell,
) -> None:
    notes = shell.project / "notes.txt"
    notes.write_text("before")
    written = [call_chunks("write", f'{{"path":"notes.txt","content":"{word}"}}') for word in "ab"]
    first, second = (chat_answer(chunks) for chunks in written)
    shell.server.add_answers(first, text_answer("One."), second, text_answer("Two."))
    with shell.windlass("chat", *MODEL, "--permission-mode", "allow-edits") as terminal:
        for prompt, reply in (("go", "One."), ("again", "Two.")):
            wait_for_prompt(terminal, "allow-edits")
            terminal.type(f"{prompt}\r")
            terminal.wait_for_text(reply)
        for content in ("a", "before"):
            wait_for_prompt(terminal, "allow-edits")
            terminal.type("/undo\r")
            terminal.wait_until(lambda _, wanted=content: notes.read_text() == wanted)
        wait_for_prompt(terminal, "allow-edits")
        assert "Restored 'notes.txt'." in terminal.wait_for_text("undo_write")
        terminal.type("/undo\r")
        terminal.wait_for_text("no run with calls that can be undone")
