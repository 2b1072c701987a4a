"""A person at a real terminal: typing, approving, Ctrl-C, kill -9, and what the screen shows."""

import signal
import sys
from dataclasses import replace

import pytest

from terminal import Terminal
from windlass.testing.chat_wire import (
    call_chunks,
    chat_answer,
    text_answer,
    text_chunk,
    thinking_chunk,
)
from windlass.testing.wire import refuse_with, stall, stream_answer, wait
from windlass_shell import WINDLASS
from windlass_shell import WindlassShell as Shell

pytestmark = [pytest.mark.realtime, pytest.mark.slow, pytest.mark.timeout(120)]
MODEL = ["-m", "openai-chat:m"]
KEYS = "q later"


def bash(command: str) -> tuple[bytes, ...]:
    return call_chunks("bash", f'{{"command":"{command}"}}')


def test_a_run_streams_asks_and_ends(shell: Shell) -> None:
    """G6: yes, once."""
    shell.server.add_answers(
        chat_answer(
            thinking_chunk("Hm."), text_chunk("I will **write** it."), bash("echo hi > out.txt")
        ),
        text_answer("# Done\n\nIt is `written`."),
    )
    with shell.windlass("run", *MODEL, "write it") as terminal:
        asked = terminal.wait_for_text(KEYS)
        assert "Hm.\n\nI will write it.\n" in asked
        assert '→ bash(command="echo hi > out.txt")' in asked
        assert not (shell.project / "out.txt").exists()
        terminal.type("y")
        assert terminal.wait_for_exit() == 0
    page = terminal.page.text
    assert "Done\n\nIt is written.\n" in page
    assert "✓ completed · 2 steps" in page
    assert (shell.project / "out.txt").read_text() == "hi\n"
    assert "\x1b[1m" in terminal.raw


def test_no_with_a_reason(shell: Shell) -> None:
    """G3."""
    shell.server.add_answers(chat_answer(bash("rm x")), text_answer("Then not."))
    with shell.windlass("run", *MODEL, "go") as terminal:
        terminal.wait_for_text(KEYS)
        terminal.type("n")
        terminal.wait_for_text("reason (for the model")
        terminal.type("too risky\r")
        assert terminal.wait_for_exit() == 0
    assert "✗ denied: too risky" in terminal.page.text
    assert "too risky" in shell.server.requests[1].json["messages"][-1]["content"]


def test_a_long_command_can_be_seen_whole_before_it_is_approved(shell: Shell) -> None:
    """G6: nobody has to say yes to what they have not seen."""
    lines = [*(f": {at}" for at in range(20)), "touch the-last-line"]
    shell.server.add_answers(chat_answer(bash("\\n".join(lines))), text_answer("Then not."))
    with shell.windlass("run", *MODEL, "go") as terminal:
        asked = terminal.wait_for_text(KEYS)
        assert "+8 lines: s shows all" in asked
        terminal.type("y")
        assert "8 lines are not shown yet" in terminal.wait_for_text(KEYS, count=2)
        terminal.type("a")
        terminal.wait_for_text(KEYS, count=3)
        terminal.type("s")
        assert "    touch the-last-line" in terminal.wait_for_text(KEYS, count=4)
        terminal.type("q")
        assert terminal.wait_for_exit() == 3


def test_always_is_not_asked_again_and_a_pattern_must_cover_the_call(shell: Shell) -> None:
    shell.server.add_answers(
        chat_answer(bash("touch one")), chat_answer(bash("touch two")), text_answer("Both.")
    )
    with shell.windlass("run", *MODEL, "go") as terminal:
        terminal.wait_for_text(KEYS)
        terminal.type("a")
        asked = terminal.wait_for_text("pattern (empty: exactly this call): bash(touch *)")
        assert "bash(touch *) allows every command that begins with `touch`" in asked
        terminal.type("\x15bash(ls *)\r")
        terminal.wait_for_text("does not cover")
        terminal.wait_for_text(KEYS, count=2)
        terminal.type("a")
        terminal.wait_for_text("exactly this call): bash(touch *)")
        terminal.type("\r")
        assert terminal.wait_for_exit() == 0
    assert terminal.page.text.count("Run touch") == 1
    assert (shell.project / "two").exists()


def test_arguments_are_edited_in_the_persons_own_editor(shell: Shell) -> None:
    """G2: what runs is what the person wrote."""
    editor = shell.project / "editor.py"
    editor.write_text(
        "import sys, pathlib\nfile = pathlib.Path(sys.argv[1])\n"
        "file.write_text(file.read_text().replace('one', 'two'))\n"
    )
    shell.server.add_answers(chat_answer(bash("echo one > out")), text_answer("Done."))
    command = f"{sys.executable} {editor}"
    with shell.windlass("run", *MODEL, "go", EDITOR=command, VISUAL=command) as terminal:
        terminal.wait_for_text(KEYS)
        terminal.type("e")
        assert terminal.wait_for_exit() == 0
    assert '+  "command": "echo two > out"' in terminal.page.text
    assert (shell.project / "out").read_text() == "two\n"


def test_later_leaves_the_run_suspended_and_resume_asks_again(shell: Shell) -> None:
    """G6: nothing is lost, and the answer may come from another process."""
    shell.server.add_answers(chat_answer(bash("echo hi > out")), text_answer("Done."))
    with shell.windlass("run", *MODEL, "go") as terminal:
        terminal.wait_for_text(KEYS)
        terminal.type("q")
        assert terminal.wait_for_exit() == 3
        assert "windlass approve project-" in terminal.page.text
    with shell.windlass("resume") as terminal:
        terminal.wait_for_text(KEYS)
        terminal.type("y")
        assert terminal.wait_for_exit() == 0
    assert len(shell.server.requests) == 2
    assert (shell.project / "out").exists()


def test_a_key_that_was_pressed_too_early_answers_nothing(shell: Shell) -> None:
    shell.server.add_answers(replace(chat_answer(bash("echo hi > out")), before=(wait(1.0),)))
    with shell.windlass("run", *MODEL, "go") as terminal:
        terminal.wait_for_text("waiting for the model")
        terminal.type("yyyy")
        terminal.wait_for_text(KEYS)
        terminal.type("q")
        assert terminal.wait_for_exit() == 3
    assert not (shell.project / "out").exists()


def test_ctrl_c_stops_the_run_which_is_recorded(shell: Shell) -> None:
    """C5, C2: the partial text is kept, and the session can go on."""
    shell.server.add_answers(
        stream_answer(text_chunk("Once upon a time "), text_chunk("there"), stall()),
        text_answer("The end."),
    )
    with shell.windlass("run", *MODEL, "tell") as terminal:
        terminal.wait_for_text("Once upon")
        terminal.interrupt()
        assert terminal.wait_for_exit() == 130
        assert "✗ cancelled" in terminal.page.text
    with shell.windlass("run", *MODEL, "-c", "go on") as terminal:
        assert terminal.wait_for_exit() == 0
    assert "Once upon a time" in str(shell.server.requests[1].json["messages"])


def test_killed_at_a_question_and_resumed_it_finishes(shell: Shell) -> None:
    """J4: SIGKILL; no reply is paid for twice, and the work is done once."""
    shell.server.add_answers(chat_answer(bash("echo hi >> out")), text_answer("Finished."))
    with shell.windlass("run", *MODEL, "go") as terminal:
        terminal.wait_for_text(KEYS)
        terminal.kill()
    with shell.windlass("resume") as terminal:
        terminal.wait_for_text(KEYS)
        terminal.type("y")
        assert terminal.wait_for_exit() == 0
        assert "Finished." in terminal.page.text
    assert len(shell.server.requests) == 2
    assert (shell.project / "out").read_text() == "hi\n"


def test_killed_while_the_model_writes_and_resumed_it_finishes(shell: Shell) -> None:
    """J4, S6."""
    shell.server.add_answers(
        stream_answer(text_chunk("Half of "), text_chunk("it"), stall()), text_answer("Else.")
    )
    with shell.windlass("run", *MODEL, "go") as terminal:
        terminal.wait_for_text("Half of")
        terminal.kill()
    with shell.windlass("run", *MODEL, "something else") as terminal:
        assert terminal.wait_for_exit() == 0
        assert "unfinished run in this folder: windlass resume project-" in terminal.page.text
    shell.server.add_answers(text_answer("All of it."))
    with shell.windlass("resume", "--all") as terminal:
        assert terminal.wait_for_exit() == 0
    assert "All of it." in terminal.page.text


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_what_ends_the_process_does_not_end_the_run(
    shell: Shell, number: signal.Signals, code: int
) -> None:
    shell.server.add_answers(chat_answer(bash("echo hi >> out")), text_answer("Finished."))
    with shell.windlass("run", *MODEL, "go") as terminal:
        terminal.wait_for_text(KEYS)
        terminal.process.send_signal(number)
        assert terminal.wait_for_exit() == code
        assert "to resume: windlass resume project-" in terminal.page.text
    with shell.windlass("resume") as terminal:
        terminal.wait_for_text(KEYS)
        terminal.type("y")
        assert terminal.wait_for_exit() == 0
    assert (shell.project / "out").read_text() == "hi\n"


def test_a_terminal_that_is_closed_at_a_question_answers_nothing(shell: Shell) -> None:
    """G6, C5: it is not a "no": the question stays open, and the next terminal asks it."""
    shell.server.add_answers(chat_answer(bash("echo hi >> out")), text_answer("Finished."))
    with shell.windlass("run", *MODEL, "go") as terminal:
        terminal.wait_for_text(KEYS)
        terminal.close_window()
        assert terminal.process.wait(30) == 129
    with shell.windlass("resume") as terminal:
        terminal.wait_for_text(KEYS)
        terminal.type("y")
        assert terminal.wait_for_exit() == 0
    assert len(shell.server.requests) == 2
    assert (shell.project / "out").read_text() == "hi\n"


UNHEARD = (
    "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN);"
    "os.execvp(sys.argv[1], sys.argv[1:])"
)
"""Starts a program as `nohup` does."""


def test_a_terminal_that_is_closed_unheard_answers_nothing_either(shell: Shell) -> None:
    """G6: without a signal, it is noticed only by reading and writing that fail."""
    shell.server.add_answers(chat_answer(bash("echo hi >> out")), text_answer("Finished."))
    program = [sys.executable, "-c", UNHEARD, *WINDLASS, "run", *MODEL, "go"]
    with Terminal(program, env=shell.env, cwd=shell.project) as terminal:
        terminal.wait_for_text(KEYS)
        terminal.close_window()
        assert terminal.process.wait(30) > 0
    with shell.windlass("resume") as terminal:
        terminal.wait_for_text(KEYS)
        terminal.type("y")
        assert terminal.wait_for_exit() == 0
    assert len(shell.server.requests) == 2


def test_a_run_that_is_not_kept_ends_with_its_terminal(shell: Shell) -> None:
    """C5: that nothing can be written there any more does not keep the process alive."""
    shell.server.add_answers(stream_answer(text_chunk("Once upon a time "), stall()))
    with shell.windlass("run", *MODEL, "--no-session", "tell") as terminal:
        terminal.wait_for_text("Once upon")
        terminal.close_window()
        assert terminal.process.wait(30) == 129


IN_BACKGROUND = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
allow = lambda: signal.signal(signal.SIGTTOU, signal.SIG_DFL)
job = subprocess.Popen(sys.argv[2:], process_group=0, preexec_fn=allow)
os.tcsetpgrp(0, job.pid)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
os.tcsetpgrp(0, os.getpgrp())
job.send_signal(signal.SIGTERM)
_, status = os.waitpid(job.pid, os.WUNTRACED)
job.kill()
sys.exit(1 if os.WIFSTOPPED(status) else os.waitstatus_to_exitcode(status))
"""


def test_a_run_in_the_background_leaves_the_terminal_alone_and_ends(shell: Shell) -> None:
    """C5: the kernel stops a background process that changes the mode of the terminal."""
    shell.server.add_answers(chat_answer(bash("touch t")))
    sign = shell.project / "to-the-background"
    job = [sys.executable, "-c", IN_BACKGROUND, str(sign), *WINDLASS, "run", *MODEL, "go"]
    with Terminal(job, env=shell.env, cwd=shell.project) as terminal:
        terminal.wait_for_text(KEYS)
        sign.touch()
        assert terminal.wait_for_exit() == 143


def test_a_window_that_is_made_smaller(shell: Shell) -> None:
    shell.server.add_answers(
        chat_answer(text_chunk("word " * 30), call_chunks("glob", '{"pattern":"*"}')),
        replace(text_answer("less " * 30), before=(wait(1.0),)),
    )
    with shell.windlass("run", *MODEL, "go", width=90) as terminal:
        wide = terminal.wait_for_text("No file matches").splitlines()
        terminal.resize(50)
        assert terminal.wait_for_exit() == 0
    lines = terminal.page.text.splitlines()
    assert max(len(line) for line in wide if "word" in line) > 80
    assert max(len(line) for line in lines if "less" in line) <= 50


@pytest.mark.parametrize(("keys", "code"), [("y", 0), ("q", 3), ("\x03", 130), ("SIGTERM", 143)])
def test_however_a_question_ends_the_terminal_is_left_as_it_was(
    shell: Shell, keys: str, code: int
) -> None:
    shell.server.add_answers(chat_answer(bash("touch t")), text_answer("Done."))
    with shell.windlass("run", *MODEL, "go") as terminal:
        before = terminal.input_modes()
        terminal.wait_for_text(KEYS)
        assert terminal.input_modes() != before
        if keys == "SIGTERM":
            terminal.process.send_signal(signal.SIGTERM)
        else:
            terminal.type(keys)
        assert terminal.wait_for_exit() == code
        assert terminal.input_modes() == before


def test_the_footer_says_what_is_waited_for_and_goes_away(shell: Shell) -> None:
    busy = refuse_with(503, {"error": {"message": "busy"}}, {"Retry-After": "1"})
    shell.server.add_answers(busy, replace(text_answer("Here."), before=(wait(1.5),)))
    with shell.windlass("run", *MODEL, "go") as terminal:
        assert "step 1" in terminal.wait_for_text("retrying in")
        terminal.wait_for_text("waiting for the model")
        assert terminal.wait_for_exit() == 0
    page = terminal.page.text
    assert "waiting for" not in page
    assert "Here." in page


def test_a_reply_that_is_judged_first_is_shown_once(shell: Shell) -> None:
    """G3: it is withheld while it comes, and then it is there."""
    (shell.project / "p.toml").write_text('deny_replies = ["*secret*"]\nallow = ["read"]')
    shell.server.add_answers(text_answer("The secret is out."), text_answer("Nothing to tell."))
    with shell.windlass("run", *MODEL, "go", "--policy", "p.toml") as terminal:
        assert terminal.wait_for_exit() == 0
    assert terminal.page.text.count("Nothing to tell.") == 1
    assert "The secret is out." not in terminal.page.text


def test_no_colour_means_no_escape_codes_and_no_footer(shell: Shell) -> None:
    shell.server.add_answers(text_answer("**Plain**."))
    with shell.windlass("run", *MODEL, "go", NO_COLOR="1") as terminal:
        assert terminal.wait_for_exit() == 0
    assert "\x1b" not in terminal.raw
    assert "**Plain**." in terminal.page.text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_page_keeps_to_the_width_of_the_window(shell: Shell, width: int) -> None:
    shell.server.add_answers(text_answer("word " * 60))
    with shell.windlass("run", *MODEL, "go", width=width) as terminal:
        assert terminal.wait_for_exit() == 0
    lines = terminal.page.text.splitlines()
    assert max(map(len, lines)) <= width
    assert any(len(line) > min(width, 96) - 6 for line in lines)
