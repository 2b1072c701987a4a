"""Secrets by name: found where a person declared them, shown to nobody, masked everywhere."""

import json
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from keyring.errors import NoKeyringError

from memory_keyring import MemoryKeyring, use_memory_keyring
from windlass.agent.options import parts_of
from windlass.core.errors import ConfigError, NothingToDo
from windlass.journals.memory import MemoryJournal
from windlass.project.agents import load_agent
from windlass.project.secrets import SecretEnvironment, SecretStore

VALUE = "correct-horse-battery-staple"


@pytest.fixture
def system() -> Iterator[MemoryKeyring]:
    with use_memory_keyring() as backend:
        yield backend


@pytest.fixture
def store(tmp_path: Path) -> SecretStore:
    return SecretStore(tmp_path / "config" / "secrets.toml")


def printing(text: str) -> list[str]:
    return [sys.executable, "-c", f"print({text!r})"]


@pytest.mark.contract("G8")
def test_a_value_is_in_the_systems_store_and_in_no_file(
    system: MemoryKeyring, store: SecretStore, tmp_path: Path
) -> None:
    store.save_value("OPENAI_API_KEY", VALUE)
    file = tmp_path / "config" / "secrets.toml"
    assert VALUE not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert SecretStore(file).find("OPENAI_API_KEY") == VALUE
    assert {name: each.shown for name, each in store.list_sources().items()} == {
        "OPENAI_API_KEY": "keyring"
    }
    store.delete("OPENAI_API_KEY")
    assert not system.kept
    assert SecretStore(file).find("OPENAI_API_KEY") is None
    with pytest.raises(NothingToDo, match="no secret OPENAI_API_KEY"):
        store.delete("OPENAI_API_KEY")


def test_a_command_prints_it_each_time_and_no_shell_sees_it(store: SecretStore) -> None:
    store.save_command("TOKEN", [*printing(f"{VALUE}\nsecond line"), "$(touch x); `touch y`"])
    assert store.find("TOKEN") == VALUE
    assert store.revealed == {"TOKEN": VALUE}
    assert not Path("x").exists()


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ([sys.executable, "-c", f"print('{VALUE}'); raise SystemExit(3)"], "ended with code 3"),
        (["/no/such/program"], "failed: FileNotFoundError"),
        ([sys.executable, "-c", ""], "is empty"),
    ],
)
def test_a_command_that_fails_is_an_error_without_what_it_said(
    store: SecretStore, command: list[str], says: str
) -> None:
    store.save_command("TOKEN", command)
    with pytest.raises(ConfigError, match=says) as failed:
        store.find("TOKEN")
    assert VALUE not in str(failed.value)


def test_the_environment_goes_first_and_what_is_passed_on_has_no_secrets(
    store: SecretStore,
) -> None:
    store.save_command("TOKEN", printing(VALUE))
    store.save_command("OTHER", printing(VALUE))
    environ = SecretEnvironment({"TOKEN": "mine", "PATH": "/bin"}, store)
    assert environ["TOKEN"] == "mine"
    assert environ.get("OTHER") == VALUE
    assert environ.get("NONE") is None
    assert dict(environ) == {"TOKEN": "mine", "PATH": "/bin"}


def test_without_a_store_of_the_system_it_says_what_to_do(
    system: MemoryKeyring, store: SecretStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise NoKeyringError("none")

    monkeypatch.setattr(system, "set_password", refuse)
    with pytest.raises(ConfigError, match="--command"):
        store.save_value("TOKEN", VALUE)
    assert store.list_sources() == {}


@pytest.mark.parametrize("name", ["", "a b", "1x", "x]\n[y", "é"])
def test_names_are_plain(store: SecretStore, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the name"):
        store.save_command(name, ["true"])


def test_a_broken_file_is_an_error(store: SecretStore, tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "secrets.toml").write_text("[TOKEN]\nvalue = 'x'\n")
    with pytest.raises(ConfigError, match=r"secrets\.toml"):
        store.find("TOKEN")


@pytest.mark.contract("G8")
@pytest.mark.realtime
async def test_a_model_gets_its_key_from_the_store_and_it_is_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    SecretStore().save_command("OPENAI_API_KEY", printing(VALUE))
    SecretStore().save_command("MY_SERVER_WORD", printing("another-value-here"))
    folder = tmp_path / "project"
    folder.mkdir()
    server = {"command": "no-such-server", "env": {"WORD": "${MY_SERVER_WORD}"}, "required": False}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"word": server}}))
    agent = load_agent({"model": "openai:gpt-5"}, folder, trust=True)
    async with agent.open_session(MemoryJournal()) as opened:
        mask = parts_of(opened.agent).mask
        assert VALUE not in mask.mask_text(f"the key is {VALUE}.")
        assert "another-value-here" not in mask.mask_text("it is another-value-here.")
