"""A machine without bubblewrap: the person who is asked learns of it, or nothing starts."""

import json
from pathlib import Path

import pytest

from cli_types import Cli
from shells import require_tier
from windlass.cli.exit_codes import OUTCOME_CODES
from windlass.testing import FaultServer
from windlass.testing.chat_wire import call_chunks, chat_answer
from windlass.tools.shell import sandbox as module

pytestmark = [pytest.mark.realtime, pytest.mark.contract("T13")]
RUN = ("run", "-m", "openai-chat:m", "--output-format", "json")


def question_about_a_command(cli: Cli, server: FaultServer) -> str:
    server.add_answers(chat_answer(call_chunks("bash", '{"command": "make"}')))
    done = cli(*RUN, "go")
    assert done.exit_code == OUTCOME_CODES["suspended"], done.output
    return json.loads(done.stdout)["questions"][0]["question"]


@pytest.fixture
def no_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_find_bubblewrap", lambda _root: None)


@pytest.mark.usefixtures("no_bubblewrap")
def test_the_question_says_that_nothing_confines_a_command(cli: Cli, server: FaultServer) -> None:
    question = question_about_a_command(cli, server)
    assert "There is no sandbox here" in question
    assert "use the network" in question


def test_the_question_says_what_confines_a_command(cli: Cli, server: FaultServer) -> None:
    require_tier("bubblewrap")
    question = question_about_a_command(cli, server)
    assert "It runs in a sandbox without a network" in question


@pytest.mark.usefixtures("no_bubblewrap")
@pytest.mark.parametrize("place", ["flag", "file"])
def test_a_sandbox_can_be_required(cli: Cli, server: FaultServer, home: Path, place: str) -> None:
    flags = ("--sandbox", "require") if place == "flag" else ()
    if place == "file":
        (home / "windlass").mkdir()
        (home / "windlass" / "config.toml").write_text('sandbox = "require"\n')
    done = cli(*RUN, *flags, "go")
    assert done.exit_code == 2
    assert "the sandbox must be bubblewrap, but bubblewrap is not installed" in done.stderr
    assert server.requests == []
