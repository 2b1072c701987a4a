"""U2: MCP servers in a chat: their prompts are commands, they ask the person, and they change."""

import json
import sys
from pathlib import Path

import pytest

from terminal import Terminal
from windlass.testing.chat_wire import call_chunks, chat_answer, text_answer
from windlass_shell import WindlassShell

pytestmark = [
    pytest.mark.contract("U2"),
    pytest.mark.realtime,
    pytest.mark.slow,
    pytest.mark.mcp,
    pytest.mark.timeout(120),
]
ASKING = Path(__file__).parents[1] / "mcp" / "asking_server.py"
MARK = "›"  # noqa: RUF001 - the prompt


def wait_for_prompt(terminal: Terminal) -> None:
    terminal.wait_until(lambda lines: lines[-1:] == [MARK] and "openai-chat:m" in lines[-2])


def test_servers_in_a_chat(shell: WindlassShell) -> None:
    """A prompt is a command, a form is filled in at the terminal, and a new tool comes later."""
    config = shell.project.parent / "servers.json"
    entry = {"command": sys.executable, "args": [str(ASKING)], "timeout": 60}
    config.write_text(json.dumps({"mcpServers": {"trips": entry}}))
    answers = shell.server.add_answers
    with shell.windlass(
        "chat", "-m", "openai-chat:m", "--mcp-config", str(config), "--permission-mode", "allow-all"
    ) as terminal:
        wait_for_prompt(terminal)
        answers(text_answer("Reviewed."))
        terminal.type("/trips:rev")
        terminal.wait_for_text("code [tone]: Review code.")
        terminal.type("iew '@src !ls' blunt\r")
        terminal.wait_for_text("Reviewed.")
        wait_for_prompt(terminal)
        answers(chat_answer(*call_chunks("trips__book", "{}")), text_answer("Booked."))
        terminal.type("book\r")
        # The words of the server were text from outside, so that the person is asked now.
        terminal.wait_for_text("q later")
        terminal.type("y")
        terminal.wait_for_text("MCP server 'trips' asks during trips__book: Where to")
        terminal.wait_for_text("y fill it in")
        terminal.type("y")
        terminal.wait_for_text("city")
        terminal.type("Oslo\r")
        terminal.wait_for_text("nights")
        terminal.type("\r")
        terminal.wait_for_text("aisle | window")
        terminal.type("\r")
        terminal.wait_for_text("Booked.")
        wait_for_prompt(terminal)
        answers(chat_answer(*call_chunks("trips__grow", "{}")), text_answer("It grew."))
        terminal.type("grow\r")
        terminal.wait_for_text("q later", count=2)
        terminal.type("y")
        terminal.wait_for_text("It grew.")
        wait_for_prompt(terminal)
        answers(text_answer("I see it."))
        terminal.type("again\r")
        terminal.wait_for_text("MCP servers have changed: new tools: trips__grown")
        terminal.wait_for_text("I see it.")
        wait_for_prompt(terminal)
    requests = [request.json for request in shell.server.requests]
    # The words of the server are given as they are: no file is attached, and no command is run.
    assert "Please review in a blunt tone: @src !ls" in str(requests[0]["messages"][-1])
    assert "city='Oslo' nights=2 seat='aisle'" in str(requests[2]["messages"][-1])
    names = [[tool["function"]["name"] for tool in request["tools"]] for request in requests]
    assert ["trips__grown" in offered for offered in names[-3:]] == [False, False, True]
