"""`windlass mcp login` and `logout`: a person signs in, and runs use what was kept."""

import json
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import keyring as keyring_module
import pytest
from keyring.backends import fail

from cli_types import Cli
from memory_keyring import MemoryKeyring, use_memory_keyring
from oauth_service import OAuthService
from windlass.testing import FaultServer, serve_in_thread

pytest.importorskip("mcp", reason="needs the extra `mcp`")
pytestmark = [pytest.mark.contract("T15"), pytest.mark.slow, pytest.mark.realtime]


@pytest.fixture
def keyring() -> Iterator[MemoryKeyring]:
    with use_memory_keyring() as backend:
        yield backend


@pytest.fixture
def service() -> OAuthService:
    return OAuthService()


@pytest.fixture
def tickets(cli: Cli, service: OAuthService) -> Iterator[str]:
    """A server of the project, behind OAuth."""
    with serve_in_thread(FaultServer(always=service)) as running:
        url = OAuthService.url_of(running)
        assert cli("mcp", "add", "tickets", url).exit_code == 0
        yield url


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A desktop whose browser goes where it is sent."""
    opened: list[str] = []

    def open_page(address: str) -> bool:
        opened.append(address)
        with urlopen(address, timeout=10) as page:
            return bool(page.read())

    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(webbrowser, "open", open_page)
    return opened


def test_who_has_signed_in_is_known_to_later_commands(
    cli: Cli,
    tickets: str,
    service: OAuthService,
    browser: list[str],
    keyring: MemoryKeyring,
    home: Path,
) -> None:
    tried = cli("mcp", "test", "tickets")
    words = " ".join(tried.output.split())
    assert (tried.exit_code, "windlass mcp login tickets" in words) == (1, True), words
    done = cli("mcp", "login", "tickets", "--scope", "write")
    assert done.exit_code == 0, done.output
    assert browser[0] in done.output
    assert "You are signed in at tickets." in done.output
    assert "tickets: 1 tools" in done.output
    assert service.sign_ins[0]["scope"] == "read write"
    again = cli("mcp", "test", "tickets")
    assert again.exit_code == 0, again.output
    (token,) = keyring.kept.values()
    assert json.loads(token)["access_token"].startswith("access-")
    for path in (path for path in home.rglob("*") if path.is_file()):
        assert b"access-" not in path.read_bytes()
    assert "access-" not in done.output + again.output + cli("secrets", "list").output
    gone = cli("mcp", "logout", "tickets")
    assert (gone.exit_code, gone.output) == (0, "You are signed out of tickets.\n")
    assert keyring.kept == {}
    assert service.revoked == [json.loads(token)["refresh_token"]]
    assert "not signed in" in cli("mcp", "logout", "tickets").output
    assert cli("mcp", "test", "tickets").exit_code == 1
    assert service.problems == []


def test_without_a_store_nobody_is_sent_to_sign_in(
    cli: Cli, tickets: str, browser: list[str]
) -> None:
    with use_memory_keyring():
        keyring_module.set_keyring(fail.Keyring())
        said = cli("mcp", "login", "tickets")
    assert (said.exit_code, "kept among your secrets" in said.output) == (2, True), said.output
    assert browser == []


def test_who_cannot_sign_in_is_told_why(
    cli: Cli, tickets: str, keyring: MemoryKeyring, project: Path
) -> None:
    cli("mcp", "add", "files", "mcp-server-files")
    cli("mcp", "add", "keyed", tickets, "-H", "Authorization=Bearer x")
    assert "a program on this machine" in cli("mcp", "login", "files").output
    assert "no sign-in is needed" in cli("mcp", "login", "keyed").output
    assert (
        "there is no server 'ticket'. Did you mean tickets?" in cli("mcp", "login", "ticket").output
    )
    own = project.parent / "own.json"
    own.write_text(json.dumps({"mcpServers": {"mine": {"url": "http://mcp.example/mcp"}}}))
    said = cli("mcp", "login", "mine", "--mcp-config", str(own))
    assert (said.exit_code, "must begin with https://" in said.output) == (2, True), said.output
