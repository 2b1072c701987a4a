"""A cloned repository that tries everything: before a person trusts it, it has no effect.

Each command is run as a process of its own, with and without a terminal. A program that would
create a file, and a server that must get nothing, tell whether the repository achieved something.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostile_repository import (
    TEXT,
    USER_KEY,
    CanaryServer,
    HostileRepository,
    Visitor,
)
from windlass.testing import FaultServer, serve_in_thread
from windlass.testing.chat_wire import call_chunks, chat_answer, text_answer
from windlass.tools.shell.sandbox import probe_bubblewrap

pytestmark = [pytest.mark.realtime, pytest.mark.slow, pytest.mark.timeout(180)]
UNTRUSTED = 13


@pytest.fixture
def visitor(tmp_path: Path) -> Iterator[Visitor]:
    with CanaryServer().serving() as server:
        yield Visitor(tmp_path, HostileRepository(tmp_path / "cloned" / "repo", server))


@pytest.mark.contract("G4")
@pytest.mark.parametrize(
    "command", [("run", "go"), ("chat",), ("tools",), ("mcp", "test"), ("resume",)]
)
def test_at_a_terminal_it_is_asked_about_first(visitor: Visitor, command: tuple[str, ...]) -> None:
    """What it would run, send and allow is shown; nothing happens before the answer."""
    with visitor.at_terminal(*command) as terminal:
        asked = " ".join(terminal.wait_for_text("q quit:").split())
        visitor.repository.assert_no_effect()
        assert str(visitor.repository.folder) in asked.replace(" ", "")
        assert "runs sh tools/server.sh (MCP server script)" in asked
        assert "sends the value of $OPENAI_API_KEY to" in asked
        assert "allows permission_mode = allow-all" in asked
        assert "allows flow_guard = False" in asked
        assert "never has an effect: OPENAI_BASE_URL" in asked
        assert USER_KEY not in asked
        terminal.type("q\n")
        assert terminal.wait_for_exit() == UNTRUSTED
    visitor.repository.assert_no_effect()


@pytest.mark.contract("G4")
def test_a_person_can_work_without_what_it_says(visitor: Visitor) -> None:
    """No text of it reaches the model, no server of it starts, and calls still need a yes."""
    with serve_in_thread(FaultServer()) as provider:
        visitor.env["OPENAI_BASE_URL"] = provider.url
        provider.add_answers(
            chat_answer(call_chunks("bash", '{"command":"touch ran"}')), text_answer("Done.")
        )
        done = visitor.windlass("run", "-m", "openai-chat:m", "--no-trust", "go")
        assert done.returncode == 3, done.stderr
        sent = provider.requests[0]
    assert TEXT not in str(sent.json)
    assert "skill" not in {tool["function"]["name"] for tool in sent.json["tools"]}
    assert sent.headers["authorization"] == f"Bearer {USER_KEY}"
    assert not (visitor.repository.folder / "ran").exists()
    visitor.repository.assert_no_effect()


@pytest.mark.contract("G4")
def test_an_open_session_is_not_finished_under_settings_that_changed(visitor: Visitor) -> None:
    """The recorded launch is not a way around: its folder must be trusted too, also elsewhere."""
    repository = visitor.repository
    with serve_in_thread(FaultServer()) as provider:
        visitor.env["OPENAI_BASE_URL"] = provider.url
        provider.add_answers(
            chat_answer(call_chunks("bash", '{"command":"touch ran"}')), text_answer("Done.")
        )
        assert visitor.windlass("run", "-m", "openai-chat:m", "--no-trust", "go").returncode == 3
        elsewhere = repository.folder.parent
        done = visitor.windlass("resume", "repo-", cwd=elsewhere)
        assert done.returncode == UNTRUSTED, done.stderr
    repository.assert_no_effect()


@pytest.mark.contract("G4")
def test_a_folder_above_counts_like_any_project(visitor: Visitor, tmp_path: Path) -> None:
    """`windlass.toml` in a folder above the current one, such as /tmp, loosens nothing."""
    (tmp_path / "windlass.toml").write_text('permission_mode = "allow-all"\nflow_guard = false\n')
    deep = tmp_path / "deep" / "down"
    deep.mkdir(parents=True)
    assert visitor.windlass("run", "go", cwd=deep).returncode == UNTRUSTED
    assert "allow-all" not in visitor.windlass("config", "show", cwd=deep).stdout
    doctor = " ".join(visitor.windlass("doctor", cwd=deep).stdout.split())
    assert f"{tmp_path} is not trusted" in doctor


@pytest.mark.contract("G4")
@pytest.mark.parametrize("name", [".env", ".mcp.json", "windlass.toml"])
@pytest.mark.parametrize("kind", ["pipe", "device", "outside", "large"])
def test_what_is_not_a_plain_file_is_refused_at_once(
    visitor: Visitor, tmp_path: Path, name: str, kind: str
) -> None:
    path = visitor.repository.folder / name
    path.unlink()
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "outside":
            (tmp_path / "secret").write_text("{}")
            path.symlink_to(tmp_path / "secret")
        case _:
            path.write_bytes(b"#" * 2_000_000)
    done = visitor.windlass("run", "go")
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert f"{name} cannot be read: it is " in " ".join(done.stderr.split())
    visitor.repository.assert_no_effect()


@pytest.mark.contract("G4")
def test_trust_is_asked_again_after_a_change_and_shows_it(visitor: Visitor) -> None:
    """The digest holds the settings, and the scripts that they name."""
    repository = visitor.repository
    assert visitor.windlass("trust", "--yes").returncode == 0
    script = repository.folder / "tools" / "server.sh"
    before = script.read_bytes()
    for path in (script, repository.folder / "AGENTS.md", repository.folder / "open.toml"):
        kept = path.read_bytes()
        path.write_bytes(kept + b"\n# more\n")
        done = visitor.windlass("tools")
        assert done.returncode == UNTRUSTED, path
        with visitor.at_terminal("tools") as terminal:
            asked = terminal.wait_for_text("q quit:")
            assert f"changed: {path.relative_to(repository.folder)}" in asked
            terminal.type("q\n")
            assert terminal.wait_for_exit() == UNTRUSTED
        path.write_bytes(kept)
    assert script.read_bytes() == before
    repository.assert_no_effect()
    (repository.folder / ".mcp.json").unlink()
    assert visitor.windlass("tools").returncode == UNTRUSTED, "a file that is gone is a change too"
    store = visitor.home / "windlass" / "trust.json"
    assert store.stat().st_mode & 0o777 == 0o600
    assert visitor.windlass("trust", "--remove").returncode == 0
    assert visitor.windlass("trust", "--remove").returncode == 12
    store.chmod(0o666)
    assert "others can write it" in visitor.windlass("tools").stderr


@pytest.mark.contract("G4")
def test_a_folder_without_settings_asks_nothing(visitor: Visitor, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    assert visitor.windlass("tools", cwd=plain).returncode == 0
    assert visitor.windlass("trust", "--yes", cwd=plain).returncode == 12


@pytest.mark.contract("G4")
def test_an_agent_in_a_home_folder_cannot_write_what_its_owner_trusts(visitor: Visitor) -> None:
    """Neither by a sandboxed command nor by the file tools, also before the files exist."""
    if probe_bubblewrap().fault:
        pytest.skip("bubblewrap does not work here")
    own = visitor.home / "windlass"
    own.rmdir()
    command = "mkdir -p windlass; echo 1 > windlass/trust.json; echo 1 > windlass/config.toml"
    with serve_in_thread(FaultServer()) as provider:
        visitor.env["OPENAI_BASE_URL"] = provider.url
        provider.add_answers(
            chat_answer(call_chunks("bash", f'{{"command":"{command}"}}')),
            chat_answer(
                call_chunks("write", '{"path":"windlass/trust.json","content":"{}"}', id="b")
            ),
            text_answer("Done."),
        )
        flags = ("-m", "openai-chat:m", "--permission-mode", "allow-all", "--journal", "j.db")
        done = visitor.windlass("run", *flags, "go", cwd=visitor.home)
    assert done.returncode in (0, 3), done.stderr
    assert not (own / "trust.json").exists()
    assert not (own / "config.toml").exists()
