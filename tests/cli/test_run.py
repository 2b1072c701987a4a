"""`windlass run` over a real wire to a scripted provider: prompts in, replies and codes out."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from cli_types import Cli, approval_in
from windlass import RunResult
from windlass.cli.exit_codes import NOTHING, USAGE, WAITS
from windlass.testing import FaultServer
from windlass.testing.chat_wire import call_chunks, chat_answer, text_answer, text_chunk
from windlass.testing.wire import refuse_with

pytestmark = [pytest.mark.slow, pytest.mark.realtime]
OWN_SERVER = Path(__file__).parent.parent / "mcp" / "own_server.py"
ALLOW = ("--permission-mode", "allow-all")
NAMES = ("old.txt", "new.txt")
RUN = ("run", "-m", "openai-chat:m")


def asked(server: FaultServer, at: int = -1) -> list[dict[str, Any]]:
    """What the model was shown, without the system prompt and without what the program added."""
    messages = server.requests[at].json["messages"][1:]
    first = messages[0]["content"]
    if isinstance(first, str):
        messages[0]["content"] = first.partition("\n\n\n\n<surroundings>")[0]
    return messages


def session_in(output: str) -> str:
    return output.rsplit("session ", 1)[1].split(maxsplit=1)[0]


def test_the_reply_alone_is_on_standard_output(cli: Cli, server: FaultServer) -> None:
    """What is piped on is the reply; what happened is on the other stream."""
    server.add_answers(
        chat_answer(text_chunk("Looking."), call_chunks("glob", '{"pattern":"*"}')),
        text_answer("All *done*."),
    )
    done = cli(*RUN, "look", "around")
    assert (done.exit_code, done.stdout) == (0, "All *done*.\n")
    assert '→ glob(pattern="*")' in done.stderr
    assert "✓ completed · 2 steps" in done.stderr
    assert asked(server, 0) == [{"role": "user", "content": "look around"}]


def test_quiet_says_nothing_else(cli: Cli, server: FaultServer) -> None:
    server.add_answers(text_answer("Done."))
    done = cli(*RUN, "-q", "go")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "Done.\n", "")


def test_a_run_is_tagged_and_found_by_its_tags(cli: Cli, server: FaultServer) -> None:
    server.add_answers(text_answer("Done."), text_answer("Done."))
    assert cli(*RUN, "-q", "one", "--tag", "team=billing", "--tag", "env=a=b").exit_code == 0
    assert cli(*RUN, "-q", "two").exit_code == 0
    (found,) = json.loads(cli("sessions", "list", "--json", "--tag", "env=a=b").stdout)
    assert (found["title"], found["tags"]) == ("one", {"team": "billing", "env": "a=b"})
    assert "one [env=a=b] [team=billing]" in cli("sessions", "list").stdout
    assert cli("sessions", "list", "--tag", "team=sales").stdout == "No sessions.\n"
    refused = cli(*RUN, "three", "--tag", "billing")
    assert refused.exit_code == 2
    assert "'billing' is not a tag: write it as KEY=VALUE" in refused.stderr


@pytest.mark.contract("S6")
def test_what_follows_a_broken_reply_is_fixed_when_the_run_starts(
    cli: Cli, server: FaultServer
) -> None:
    """S6: on the command line, a reply that breaks off is asked for again."""
    server.add_answers(text_answer("Done."))
    done = cli(*RUN, "go", "--output-format", "stream-json")
    started = next(json.loads(line) for line in done.stdout.splitlines() if "RunStarted" in line)
    assert started["on_partial"] == "restart"


@pytest.mark.parametrize(
    ("args", "stdin", "prompt"),
    [
        (["-"], "all of it\n", "all of it\n"),
        ([], "from a pipe\n", "from a pipe"),
        (["review this"], "a diff\n", "review this\n\na diff"),
    ],
)
def test_standard_input_is_a_prompt_or_a_part_of_one(
    cli: Cli, server: FaultServer, args: list[str], stdin: str, prompt: str
) -> None:
    server.add_answers(text_answer("Yes."))
    assert cli(*RUN, *args, stdin=stdin).exit_code == 0
    assert asked(server)[0]["content"] == prompt


def test_the_result_as_json(cli: Cli, server: FaultServer) -> None:
    server.add_answers(text_answer("Done."))
    done = cli(*RUN, "go", "--output-format", "json")
    told = json.loads(done.stdout)
    assert {key: told[key] for key in ("type", "outcome", "text", "session", "run")} == {
        "type": "result",
        "outcome": "completed",
        "text": "Done.",
        "session": told["session"],
        "run": 1,
    }
    assert told["charges"][0]["model"] == "openai-chat:m"
    assert RunResult.from_json(done.stdout).to_json() == done.stdout.strip()
    assert (told["usage"]["input"], told["steps"], told["questions"]) == (12, 1, [])


def test_what_a_run_did_can_be_undone(cli: Cli, server: FaultServer) -> None:
    """A file gets its bytes back, and one that was created is gone."""
    Path("old.txt").write_text("before")
    write = [call_chunks("write", json.dumps({"path": name, "content": "x"})) for name in NAMES]
    server.add_answers(*(chat_answer(chunk) for chunk in write), text_answer("Done."))
    assert cli(*RUN, *ALLOW, "go").exit_code == 0
    assert Path("old.txt").read_text() == "x"
    done = cli("undo", *ALLOW)
    assert done.exit_code == 0, done.stderr
    assert "Restored 'old.txt'." in done.stdout
    assert Path("old.txt").read_text() == "before"
    assert not Path("new.txt").exists()
    again = cli("undo", *ALLOW)
    assert "no run with calls that can be undone" in again.stderr


@pytest.mark.contract("U2")
def test_an_undo_that_was_typed_is_not_asked_about_but_a_rule_can_deny_it(
    cli: Cli, server: FaultServer, project: Path
) -> None:
    """Two changes of one file are shown as one difference: from what it is to what it was."""
    notes = project / "notes.txt"
    notes.write_text("one\ntwo\n")
    written = ["one\\nthree\\n", "one\\nfour\\n"]
    steps = [call_chunks("write", f'{{"path":"notes.txt","content":"{text}"}}') for text in written]
    server.add_answers(*(chat_answer(step) for step in steps), text_answer("Done."))
    assert cli(*RUN, *ALLOW, "go").exit_code == 0
    (project / "deny.toml").write_text('deny = ["undo_write"]\n')
    denied = cli("undo", "--permission-mode", "ask", "--policy", "deny.toml")
    assert denied.exit_code != 0
    assert notes.read_text() == "one\nfour\n"
    done = cli("undo", "--permission-mode", "ask")
    assert done.exit_code == 0, done.stderr
    assert notes.read_text() == "one\ntwo\n"
    shown = done.stderr.split("Restored")[0]
    assert (shown.count("-four"), shown.count("+two"), "three" in shown) == (1, 1, False)
    assert "It cannot be redone" in shown


@pytest.mark.contract("U2")
def test_the_reply_cache_finds_the_same_prompt_again(
    cli: Cli, server: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first message has no time in it then, which would make each prompt another one."""
    monkeypatch.setenv("WINDLASS_REPLY_CACHE", str(tmp_path / "replies"))
    server.add_answers(text_answer("Once."))
    for _ in range(2):
        assert cli(*RUN, "what is here?").stdout == "Once.\n"
    assert len(server.requests) == 1
    assert "Date:" not in str(server.requests[0].json["messages"])


def test_a_run_that_does_not_complete_is_undone_if_asked_for(cli: Cli, server: FaultServer) -> None:
    Path("old.txt").write_text("before")
    write = [call_chunks("write", json.dumps({"path": name, "content": "x"})) for name in NAMES]
    server.add_answers(*(chat_answer(chunk) for chunk in write))
    done = cli(*RUN, *ALLOW, "--max-steps", "2", "--on-failure", "undo", "go")
    assert done.exit_code != 0
    assert "What it did is undone" in done.stderr
    assert Path("old.txt").read_text() == "before"
    assert not Path("new.txt").exists()


def test_every_event_as_a_line_of_json(cli: Cli, server: FaultServer) -> None:
    """E1, L3: the events as they come, and the result as the last line."""
    server.add_answers(text_answer("Done."))
    lines = [
        json.loads(line)
        for line in cli(*RUN, "go", "--output-format", "stream-json").stdout.splitlines()
    ]
    assert lines[0]["type"] == "RunStarted"
    assert "".join(line["text"] for line in lines if line["type"] == "TextDelta") == "Done."
    assert [line["type"] for line in lines[-2:]] == ["RunEnded", "result"]


def test_the_reply_must_fit_a_schema(cli: Cli, server: FaultServer, project: Path) -> None:
    """A reply that does not fit is asked for again; the value is in the result."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    (project / "s.json").write_text(json.dumps(schema))
    server.add_answers(text_answer('{"n": "x"}'), text_answer('{"n": 3}'))
    done = cli(*RUN, "count", "--output-format", "json", "--output-schema", "s.json")
    assert (done.exit_code, json.loads(done.stdout)["output"]) == (0, {"n": 3})
    assert len(server.requests) == 2


def test_a_session_goes_on_and_a_copy_leaves_it_alone(cli: Cli, server: FaultServer) -> None:
    server.add_answers(
        text_answer("One."), text_answer("Two."), text_answer("Three."), text_answer("Four.")
    )
    first = session_in(cli(*RUN, "a").stderr)
    again = cli(*RUN, "-c", "b")
    assert session_in(again.stderr) == first
    assert [one["content"] for one in asked(server)] == ["a", "One.", "b"]
    copied = cli(*RUN, "-r", first[-6:], "--fork", "c")
    assert session_in(copied.stderr) not in (first, "")
    assert [one["content"] for one in asked(server)][-2:] == ["Two.", "c"]
    assert cli(*RUN, "--resume", first, "d").exit_code == 0
    assert "c" not in [one["content"] for one in asked(server)]


def test_without_a_session_nothing_is_kept(cli: Cli, server: FaultServer, home: Path) -> None:
    server.add_answers(text_answer("Done."))
    assert cli(*RUN, "--no-session", "go").exit_code == 0
    assert list(home.rglob("*.db")) == []


def test_a_picture_goes_along(cli: Cli, server: FaultServer, project: Path) -> None:
    """P7."""
    (project / "p.png").write_bytes(b"\x89PNG\r\n\x1a\n0000")
    server.add_answers(text_answer("A picture."))
    assert cli(*RUN, "what is it?", "--image", "p.png").exit_code == 0
    assert [part["type"] for part in asked(server)[0]["content"]] == ["text", "image_url", "text"]


def test_the_tools_that_are_offered_are_chosen(cli: Cli, server: FaultServer) -> None:
    """T16."""
    server.add_answers(*[text_answer("Done.")] * 4)

    def offered(*flags: str) -> set[str]:
        assert cli(*RUN, "go", *flags).exit_code == 0
        tools = server.requests[-1].json.get("tools", [])
        return {tool["function"]["name"] for tool in tools}

    assert offered("--tools", "none") == set()
    assert {"read", "write", "bash"} <= offered()
    assert offered("--tools", "read,gl*") == {"read", "glob"}
    reading = offered("--tools", "read-only,-fetch")
    assert {"read", "grep"} <= reading
    assert not {"bash", "write", "fetch"} & reading


@pytest.mark.contract("G5")
def test_what_changes_things_waits_for_a_person(
    cli: Cli, server: FaultServer, project: Path
) -> None:
    """G5, G6: nobody is there to ask, so the run waits; the answer comes from another command."""
    write = call_chunks("write", '{"path":"out.txt","content":"x"}')
    server.add_answers(chat_answer(write), text_answer("Written."))
    asks = cli(*RUN, "write it")
    assert (asks.exit_code, asks.stdout) == (3, "")
    name = session_in(asks.stderr)
    assert f"windlass approve {name} c1_0" in asks.stderr
    assert not (project / "out.txt").exists()
    yes = cli("approve", *approval_in(asks.stderr))
    assert (yes.exit_code, yes.stdout) == (0, "Written.\n")
    assert (project / "out.txt").read_text() == "x"


@pytest.mark.contract("G6")
def test_all_that_would_run_is_shown_before_and_when_it_is_approved(
    cli: Cli, server: FaultServer
) -> None:
    """W4: the tail of a command is not cut off, however long its beginning is."""
    command = f": {'x' * 400} ; : the-tail"
    server.add_answers(
        chat_answer(call_chunks("bash", f'{{"command":"{command}"}}')), text_answer("Done.")
    )

    def is_shown(stderr: str) -> bool:
        # It is wrapped, at any character.
        return "".join(command.split()) in "".join(stderr.split())

    asks = cli(*RUN, "do it")
    assert is_shown(asks.stderr)
    yes = cli("approve", *approval_in(asks.stderr))
    assert is_shown(yes.stderr)
    assert (yes.exit_code, yes.stdout) == (0, "Done.\n")


@pytest.mark.contract("G5")
def test_what_a_write_changes_is_shown_when_it_is_approved(
    cli: Cli, server: FaultServer, project: Path
) -> None:
    """As in the chat: the lines that differ from the file as it is now, and before the answer."""
    (project / "notes.txt").write_text("one\ntwo\n")
    write = call_chunks("write", '{"path":"notes.txt","content":"one\\nthree\\n"}')
    server.add_answers(chat_answer(write), text_answer("Written."))
    asks = cli(*RUN, "Note it.")
    yes = cli("approve", *approval_in(asks.stderr))
    assert yes.exit_code == 0, yes.stderr
    shown = yes.stderr.split("Written.")[0]
    assert "as things are now" in shown
    assert "-two" in shown
    assert "+three" in shown
    assert (project / "notes.txt").read_text() == "one\nthree\n"


@pytest.mark.contract("G6")
@pytest.mark.parametrize("lines", [1, 100])
def test_without_a_terminal_a_call_is_approved_by_session_and_digest(
    cli: Cli, server: FaultServer, lines: int
) -> None:
    """G6, W4: no call is approved by habit, and none that came after the one that was read."""
    command = "\\n".join([": x"] * lines + [": the-tail"])
    server.add_answers(
        chat_answer(call_chunks("bash", f'{{"command":"{command}"}}')), text_answer("Done.")
    )
    asks = cli(*RUN, "do it")
    name = session_in(asks.stderr)
    assert "    : the-tail" in asks.stderr
    digest = asks.stderr.rsplit("--digest ", 1)[1].split()[0]
    for options in ((), ("-q",), ("--always",), ("--digest", "0" * 32)):
        refused = cli("approve", name, "c1_0", *options)
        assert refused.exit_code == 2
        assert "nothing was approved" in refused.stderr
    nameless = cli("approve", "--digest", digest)
    assert nameless.exit_code == 2
    assert f"windlass approve {name} c1_0 --digest {digest}" in " ".join(nameless.stderr.split())
    assert len(server.requests) == 1
    yes = cli("approve", name, "c1_0", "--digest", digest)
    assert (yes.exit_code, yes.stdout) == (0, "Done.\n")


@pytest.mark.contract("G6")
def test_a_later_call_with_the_same_arguments_has_to_be_named(
    cli: Cli, server: FaultServer, project: Path
) -> None:
    """A digest is one of arguments: the call that was read may be answered by now."""
    ask = chat_answer(call_chunks("bash", '{"command":"echo x >> out"}'))
    server.add_answers(ask, ask, text_answer("Twice."))
    asks = cli(*RUN, "do it")
    name, call, *digest = approval_in(asks.stderr)
    assert call == "c1_0"
    assert cli("approve", name, *digest).exit_code == WAITS
    refused = cli("approve", name, *digest)
    assert refused.exit_code == USAGE
    assert "nothing was approved: call c1_0 had the same digest" in " ".join(refused.stderr.split())
    assert (project / "out").read_text() == "x\n"
    assert cli("approve", name, "c2_0", *digest).stdout == "Twice.\n"


@pytest.mark.contract("G6")
def test_a_long_call_can_be_denied_at_once(cli: Cli, server: FaultServer) -> None:
    command = "\\n".join([": x"] * 100)
    server.add_answers(
        chat_answer(call_chunks("bash", f'{{"command":"{command}"}}')), text_answer("All right.")
    )
    name = session_in(cli(*RUN, "do it").stderr)
    assert cli("deny", name).stdout == "All right.\n"


def test_a_denial_reaches_the_model_with_its_reason(
    cli: Cli, server: FaultServer, project: Path
) -> None:
    """G3."""
    server.add_answers(
        chat_answer(call_chunks("bash", '{"command":"touch x"}')), text_answer("All right.")
    )
    name = session_in(cli(*RUN, "do it").stderr)
    no = cli("deny", name[-6:], "--reason", "not today")
    assert (no.exit_code, no.stdout) == (0, "All right.\n")
    assert "not today" in asked(server)[-1]["content"]
    assert not (project / "x").exists()


def test_an_answer_need_not_go_on(cli: Cli, server: FaultServer) -> None:
    server.add_answers(chat_answer(call_chunks("bash", '{"command":"make"}')), text_answer("Done."))
    asks = cli(*RUN, "do it")
    name = session_in(asks.stderr)
    words = approval_in(asks.stderr)
    assert cli("approve", *words, "--always", "bash(make)", "--no-resume").exit_code == 0
    assert len(server.requests) == 1
    assert cli("approve", name).exit_code == 12
    assert cli("resume", name).stdout == "Done.\n"


def test_permission_modes(cli: Cli, server: FaultServer, project: Path) -> None:
    """G5."""
    call = chat_answer(call_chunks("write", '{"path":"f","content":"1"}'))
    server.add_answers(call, text_answer("No."), call, text_answer("Yes."))
    assert cli(*RUN, "x", "--permission-mode", "read-only").exit_code == 0
    assert not (project / "f").exists()
    assert cli(*RUN, "x", "--permission-mode", "allow-all").exit_code == 0
    assert (project / "f").exists()


def test_a_policy_file_decides(cli: Cli, server: FaultServer, project: Path) -> None:
    """G4."""
    (project / "p.toml").write_text('default = "deny"\nallow = ["write(ok.txt)"]')
    both = call_chunks("write", '{"path":"ok.txt","content":"1"}')
    server.add_answers(
        chat_answer(both),
        chat_answer(call_chunks("write", '{"path":"no.txt","content":"1"}')),
        text_answer("Done."),
    )
    assert cli(*RUN, "x", "--policy", "p.toml").exit_code == 0
    assert [path.name for path in sorted(project.glob("*.txt"))] == ["ok.txt"]


@pytest.mark.parametrize(
    ("flags", "answers", "code"),
    [
        (["--max-steps", "1"], [chat_answer(call_chunks("glob", '{"pattern":"*"}'))], 4),
        (["--max-tokens", "10"], [], 4),
        ([], [refuse_with(401, {"error": {"message": "bad key"}})], 1),
        ([], [chat_answer(text_chunk("Half a"), stop="length")], 7),
        ([], [chat_answer(), chat_answer()], 6),
    ],
    ids=["steps", "tokens", "auth", "truncated", "empty"],
)
def test_each_class_of_outcome_has_its_code(
    cli: Cli, server: FaultServer, flags: list[str], answers: list[Any], code: int
) -> None:
    """L4."""
    server.add_answers(*answers)
    done = cli(*RUN, "go", *flags)
    assert done.exit_code == code, done.stderr
    assert "Traceback" not in done.output


def test_an_agent_of_the_project_runs_by_name(cli: Cli, server: FaultServer, project: Path) -> None:
    (project / "windlass.toml").write_text(
        'model = "openai-chat:other"\n[agents.critic]\nmodel = "openai-chat:m"\n'
        'instructions = "Be harsh."\ntools = ["none"]\n'
    )
    server.add_answers(text_answer("Bad."))
    assert cli("run", "--trust", "--agent", "critic", "look").stdout == "Bad.\n"
    sent = server.requests[0].json
    assert (sent["model"], sent["messages"][0]["content"], "tools" in sent) == (
        "m",
        "Be harsh.",
        False,
    )


def test_a_run_that_was_killed_goes_on_by_name_or_by_folder(
    cli: Cli, server: FaultServer, project: Path
) -> None:
    """J4: what was recorded is not asked for again."""
    server.add_answers(
        chat_answer(call_chunks("bash", '{"command":"echo one >> log"}')), text_answer("Finished.")
    )
    assert cli(*RUN, "count").exit_code == 3
    waiting = cli("resume")
    assert (waiting.exit_code, len(server.requests)) == (3, 1)
    assert cli("approve", *approval_in(waiting.stderr)).stdout == "Finished.\n"
    assert (project / "log").read_text() == "one\n"
    assert cli("resume").exit_code == 12


@pytest.mark.slow
def test_the_tools_of_mcp_servers_are_tools_like_others(
    cli: Cli, server: FaultServer, project: Path, tmp_path: Path
) -> None:
    """T15: from the project's `.mcp.json`, in a run, behind the same gate."""
    pytest.importorskip("mcp")
    own = {"command": sys.executable, "args": [str(OWN_SERVER), str(tmp_path)]}
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"own": own}}))
    server.add_answers(text_answer("Hello."))
    assert cli(*RUN, "go", "--trust").exit_code == 0
    names = {tool["function"]["name"] for tool in server.requests[0].json["tools"]}
    assert any(name.startswith("own") for name in names)
    assert {"read", "bash"} <= names


@pytest.mark.slow
def test_a_server_that_cannot_be_reached_stops_the_run_before_it_begins(
    cli: Cli, server: FaultServer, project: Path
) -> None:
    bad = {"command": sys.executable, "args": ["-c", "raise SystemExit(3)"]}
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"bad": bad}}))
    server.add_answers(text_answer("Hello."))
    done = cli(*RUN, "go", "--trust")
    assert (done.exit_code, len(server.requests)) == (2, 0)
    bad["required"] = False
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"bad": bad}}))
    without = cli(*RUN, "go", "--trust")
    assert (without.exit_code, "continuing without the MCP server bad" in without.stderr) == (
        0,
        True,
    )


def test_a_run_with_another_set_up_is_resumed_only_with_consent(
    cli: Cli, server: FaultServer
) -> None:
    """J9."""
    server.add_answers(chat_answer(call_chunks("bash", '{"command":"make"}')), text_answer("Done."))
    name = session_in(cli(*RUN, "go").stderr)
    changed = cli("resume", name, "--tools", "bash", "--permission-mode", "allow-all")
    assert changed.exit_code == 2
    assert "tool read is gone" in changed.stderr
    assert "--consent" in changed.stderr
    agreed = ("resume", name, "--tools", "bash", "--permission-mode", "allow-all", "--consent")
    assert cli(*agreed).exit_code == 3


def test_a_key_reaches_neither_the_page_nor_the_journal(
    cli: Cli, server: FaultServer, home: Path
) -> None:
    """P3, G8."""
    key = os.environ["OPENAI_API_KEY"]
    server.add_answers(
        chat_answer(call_chunks("read", '{"path":"secret.txt"}')), text_answer(f"It is {key}.")
    )
    Path("secret.txt").write_text(key)
    done = cli(*RUN, "look", "--output-format", "stream-json")
    assert key not in done.output
    kept = b"".join(path.read_bytes() for path in home.rglob("*.db*"))
    assert kept
    assert key.encode() not in kept


def test_what_the_project_tells_its_agents_is_read(
    cli: Cli, server: FaultServer, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X5: from the root of the repository down, behind the system prompt."""
    (project / ".git").mkdir()
    (project / "AGENTS.md").write_text("Use tabs.")
    deep = project / "src"
    deep.mkdir()
    (deep / "AGENTS.md").write_text("Not here.")
    monkeypatch.chdir(deep)
    server.add_answers(text_answer("Yes."))
    assert cli(*RUN, "go", "--trust", "-s", "Be brief.").exit_code == 0
    system = server.requests[0].json["messages"][0]["content"]
    assert system.index("Be brief.") < system.index("Use tabs.") < system.index("Not here.")


def test_the_skills_of_the_project_can_be_read(
    cli: Cli, server: FaultServer, project: Path
) -> None:
    """X5: the name and what it is for at once, the body on demand."""
    folder = project / "skills" / "release"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: release\ndescription: How to.\n---\nTag it.\n")
    server.add_answers(
        chat_answer(call_chunks("skill", '{"name":"release"}')), text_answer("Read.")
    )
    assert cli(*RUN, "go", "--trust").exit_code == 0
    first, second = (asked.json["messages"] for asked in server.requests)
    assert "- release: How to." in first[0]["content"]
    assert "Tag it." not in first[0]["content"]
    assert "Tag it." in second[-1]["content"]


def test_another_journal_may_be_named(cli: Cli, server: FaultServer, project: Path) -> None:
    server.add_answers(chat_answer(call_chunks("bash", '{"command":"make"}')), text_answer("Done."))
    name = session_in(cli(*RUN, "go", "--journal", "here.db").stderr)
    assert (project / "here.db").exists()
    assert cli("approve", name).exit_code == 12
    assert cli("deny", name, "--journal", "here.db").exit_code == 0


@pytest.mark.contract("U2")
def test_an_answer_needs_no_session_if_only_one_run_waits(cli: Cli, server: FaultServer) -> None:
    assert cli("approve").exit_code == NOTHING
    ask = chat_answer(call_chunks("bash", '{"command":"touch made"}'))
    server.add_answers(ask, text_answer("Done."), ask, ask)
    assert cli(*RUN, "first").exit_code == WAITS
    no = cli("deny")
    assert (no.exit_code, no.stdout) == (0, "Done.\n")
    names = [session_in(cli(*RUN, prompt).stderr) for prompt in ("second", "third")]
    several = cli("deny")
    assert several.exit_code == USAGE
    assert all(name in several.stderr for name in names)


@pytest.mark.contract("U1")
def test_read_only_mode_and_a_limit_of_one_say_what_they_are(cli: Cli, server: FaultServer) -> None:
    touch = chat_answer(call_chunks("bash", '{"command":"touch made"}'))
    server.add_answers(touch, text_answer("Then not."), touch)
    denied = cli(*RUN, "go", "--permission-mode", "read-only")
    assert "denied: In read-only mode, only tools that read may be called." in denied.stderr
    limited = cli(*RUN, "go", "--max-steps", "1", "--permission-mode", "allow-all")
    assert "the limit of 1 step is reached" in limited.stderr


@pytest.mark.contract("G8")
def test_a_reply_cannot_steer_the_terminal_behind_a_pipe(cli: Cli, server: FaultServer) -> None:
    """A pager would obey it. Letters, tabs and lines arrive as they are."""
    server.add_answers(text_answer("a\x1b]0;title\x07b\x1b[2J\tü\r\x00\u200d👩‍🚀\nend\x9b31m."))
    done = cli(*RUN, "go")
    assert done.stdout == "ab\tü\r\u200d👩‍🚀\nend.\n"
