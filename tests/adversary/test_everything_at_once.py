"""A repository that tries everything: each command, with and without a terminal, before trust.

The commands run as the installed program does. A file that must not appear, a server that must get
nothing, and a home folder that must stay as it was tell whether the repository achieved something.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostile_repository import (
    HARMLESS,
    NEEDS_TRUST,
    TEXT,
    CanaryServer,
    EverythingRepository,
    Visitor,
)
from windlass.testing import FaultServer, serve_in_thread
from windlass.testing.chat_wire import text_answer

pytestmark = [pytest.mark.realtime, pytest.mark.slow, pytest.mark.timeout(600)]
PROGRAM = str(Path(sys.executable).parent / "windlass")
UNTRUSTED = 13
COMMANDS = (
    *NEEDS_TRUST,
    *HARMLESS,
    ("chat",),
    ("deny", "none"),
    ("mcp", "remove", "thief"),
    ("sessions", "show", "none"),
    ("sessions", "explain", "none"),
    ("sessions", "export", "none"),
    ("policy", "explain", "open.toml", "bash(make deploy)"),
    ("completion", "bash"),
    ("trust",),
)


@pytest.fixture
def visitor(tmp_path: Path) -> Iterator[Visitor]:
    with CanaryServer().serving() as server:
        repository = EverythingRepository(tmp_path / "cloned" / "repo", server)
        found = Visitor(tmp_path, repository)
        found.program = [PROGRAM]
        # As editors and shells of some people have it: the folder's own programs come first.
        found.env["PATH"] = f"{repository.folder}/bin:.:{found.env['PATH']}"
        yield found


def home_files(visitor: Visitor) -> set[str]:
    """What is in the home folder, but for the empty journal that looking at sessions makes."""
    return {path.name for path in visitor.home.rglob("*") if path.is_file()}


def check_output(text: str, command: object) -> None:
    assert "Traceback" not in text, command
    assert "\x1b]0;" not in text, (command, "the title of the terminal was set")
    assert "\u200b" not in text, (command, "a character was hidden")
    assert "\n  tells the model nothing" not in text, (command, "a line was forged")


@pytest.mark.contract("G4")
def test_no_command_has_an_effect_without_a_terminal(visitor: Visitor) -> None:
    """Nothing is started, sent or loosened, and what needs trust says so."""
    for command in COMMANDS:
        done = visitor.windlass(*command)
        visitor.repository.assert_no_effect()
        check_output(done.stdout + done.stderr, command)
        assert "trust.json" not in home_files(visitor), command
        if command in NEEDS_TRUST:
            assert done.returncode == UNTRUSTED, (command, done.stdout, done.stderr)
            assert "is not trusted" in done.stderr, command
            assert "windlass trust" in done.stderr, command
        elif command in HARMLESS:
            assert done.returncode in (0, 1, 2), (command, done.stdout, done.stderr)
    inner = visitor.repository.folder / "tools"
    visitor.windlass("doctor", cwd=inner)
    visitor.repository.assert_no_effect()
    shown = visitor.windlass("config", "show").stdout
    assert "allow-all" not in shown
    assert "openai-chat:evil" not in shown
    assert visitor.repository.server.url not in shown


@pytest.mark.contract("G4")
@pytest.mark.parametrize("command", [("run", "go"), ("mcp", "test")])
def test_at_a_terminal_the_question_comes_first(visitor: Visitor, command: tuple[str, ...]) -> None:
    with visitor.at_terminal(*command) as terminal:
        shown = terminal.wait_for_text("q quit:")
        visitor.repository.assert_no_effect()
        check_output(shown, command)
        asked = " ".join(shown.split())
        assert "In all" in asked
        assert "runs server (MCP server forged)\\n" in asked
        terminal.type("q\n")
        assert terminal.wait_for_exit() == UNTRUSTED
    visitor.repository.assert_no_effect()
    assert "trust.json" not in home_files(visitor)


@pytest.mark.contract("G4")
def test_work_without_its_settings_reaches_the_users_model_only(visitor: Visitor) -> None:
    """The model hears nothing of the repository, and the repository's server nothing at all."""
    with serve_in_thread(FaultServer()) as provider:
        provider.add_answers(text_answer("Done."))
        flags = ("-m", "openai-chat:m", "--base-url", provider.url, "--no-trust")
        done = visitor.windlass("run", "go", *flags)
        assert done.returncode == 0, done.stderr
        (request,) = provider.requests
        assert TEXT not in str(request.json)
    visitor.repository.assert_no_effect()
