"""Signing in at a server in this process, whose authorization server checks what real ones do."""

import asyncio
import dataclasses
import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import httpx2
import pytest

from mcp_peers import tool_caller
from memory_keyring import MemoryKeyring, use_memory_keyring
from oauth_service import OAuthService
from windlass.core.errors import ConfigError
from windlass.project.mcp_tokens import SecretTokens
from windlass.project.secrets import SecretStore
from windlass.testing import FaultServer
from windlass.testing.fault_server import ReceivedRequest
from windlass.testing.wire import WireAnswer, refuse_with
from windlass.tools.breaker import ToolUnavailable
from windlass.tools.mcp.config import McpHttp
from windlass.tools.mcp.http import _build_auth
from windlass.tools.mcp.oauth.grants import ShowPage
from windlass.tools.mcp.oauth.keeper import TokenKeeper
from windlass.tools.mcp.oauth.settings import McpAuth, McpSignIn
from windlass.tools.mcp.oauth.tokens import McpTokenStore, MemoryTokens
from windlass.tools.mcp.servers import McpServers

pytestmark = [pytest.mark.contract("T15")]


async def be_person(address: str) -> None:
    """Open the address as a browser does, and go where it leads."""
    with await asyncio.to_thread(urlopen, address, timeout=10) as page:
        assert b"signed in" in page.read()


@asynccontextmanager
async def serving(service: OAuthService) -> AsyncGenerator[str]:
    async with FaultServer(always=service) as server:
        yield OAuthService.url_of(server)


@asynccontextmanager
async def connected(
    url: str,
    tokens: McpTokenStore | None = None,
    sign_in: ShowPage | None = None,
    auth: McpAuth | None = None,
) -> AsyncGenerator[McpServers]:
    settings = McpHttp(name="own", url=url, auth=auth, timeout_s=20)
    async with McpServers([settings], tokens=tokens, sign_in=sign_in) as servers:
        yield servers


async def greet(servers: McpServers, name: str = "Ann") -> str:
    result = await tool_caller(await servers.tools())("greet", name=name)
    return result.text


@pytest.mark.parametrize("method", ["none", "client_secret_basic", "client_secret_post"])
async def test_a_person_signs_in_once_and_the_token_is_kept(method: str) -> None:
    """With PKCE, state, redirect, resource and client as the server wants them."""
    service = OAuthService(method=method)
    tokens = MemoryTokens()
    async with serving(service) as url:
        async with connected(url, tokens, be_person) as servers:
            assert await greet(servers) == "Hello Ann"
        async with connected(url, tokens) as servers:
            assert await greet(servers) == "Hello Ann"
    assert service.problems == []
    assert len(service.sign_ins) == 1
    assert len(service.clients) == 1


async def test_without_a_person_the_error_says_what_to_do() -> None:
    """Nothing waits, and nothing is fetched but the server itself."""
    service = OAuthService()
    async with FaultServer(always=service) as server:
        async with connected(OAuthService.url_of(server)) as servers:
            with pytest.raises(ConfigError, match=r"To sign in: windlass mcp login own$"):
                await servers.tools()
        assert {request.path for request in server.requests} == {"/mcp"}


async def test_a_token_whose_time_is_up_is_renewed_and_kept() -> None:
    service = OAuthService()
    tokens = MemoryTokens()
    async with serving(service) as url:
        async with connected(url, tokens, be_person) as servers:
            await greet(servers)
            first = tokens.load(url)
            service.expire_tokens()
            assert await greet(servers) == "Hello Ann"
        assert first is not None
        assert tokens.load(url) not in (first, None)
        # What the clock says is enough, before the server refuses anything.
        service.expires_in = 1
        service.expire_tokens()
        async with connected(url, tokens) as servers:
            await greet(servers)
    assert service.refreshes >= 2
    assert service.problems == []
    assert len(service.sign_ins) == 1


async def test_a_refresh_token_that_is_not_renewed_is_kept() -> None:
    service = OAuthService(rotates=False)
    tokens = MemoryTokens()
    async with serving(service) as url, connected(url, tokens, be_person) as servers:
        for _ in range(3):
            await greet(servers)
            service.expire_tokens()
    assert (service.refreshes, service.problems, len(service.sign_ins)) == (2, [], 1)


@pytest.fixture
def system() -> Iterator[MemoryKeyring]:
    with use_memory_keyring() as backend:
        yield backend


async def test_of_two_runs_one_renews_the_token(system: MemoryKeyring, tmp_path: Path) -> None:
    """A refresh token that is used twice ends the sign-in: the server takes it for stolen."""
    service = OAuthService()

    def open_store() -> SecretTokens:
        return SecretTokens(SecretStore(tmp_path / "secrets.toml"), tmp_path / "locks")

    async with serving(service) as url:
        async with connected(url, open_store(), be_person) as servers:
            await greet(servers)
        service.expire_tokens()
        async with connected(url, open_store()) as one, connected(url, open_store()) as other:
            assert await asyncio.gather(greet(one), greet(other)) == ["Hello Ann"] * 2
    assert (service.refreshes, service.problems, len(service.sign_ins)) == (1, [], 1)


def list_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def test_tokens_are_masked_and_in_no_file(
    system: MemoryKeyring, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    service = OAuthService(method="client_secret_post")
    secrets = SecretStore(tmp_path / "secrets.toml")
    tokens = SecretTokens(secrets, tmp_path)
    async with serving(service) as url, connected(url, tokens, be_person) as servers:
        said = await greet(servers, "token")
        service.expire_tokens()
        said += await greet(servers, "token")
    assert said.startswith("Hello ")
    kept = "".join(system.kept.values())
    assert "access-" in kept
    written = "".join(path.read_text() for path in list_files(tmp_path))
    shown = said + caplog.text + written
    assert "access-" not in shown
    assert "refresh-" not in shown
    assert any(value.startswith("access-") for value in secrets.revealed.values())
    assert any(value.startswith("refresh-") for value in secrets.revealed.values())


async def test_a_person_may_take_longer_than_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are asked once, before the connection is opened."""
    monkeypatch.setattr("mcp.client.session.DISCOVER_TIMEOUT_SECONDS", 0.2)
    monkeypatch.setattr("windlass.tools.mcp.link.CONNECT_S_MAX", 2.0)

    async def think(address: str) -> None:
        await asyncio.sleep(2.5)
        await be_person(address)

    service = OAuthService()
    async with serving(service) as url:
        settings = McpHttp(name="own", url=url, timeout_s=2)
        async with McpServers([settings], sign_in=think) as servers:
            assert await greet(servers) == "Hello Ann"
        # A token that the server has withdrawn is no reason to hurry them either.
        tokens = MemoryTokens()
        await TokenKeeper("own", url, tokens=tokens, show_page=be_person).sign_in({})
        service.forget_sign_ins()
        async with McpServers([settings], tokens=tokens, sign_in=think) as servers:
            assert await greet(servers) == "Hello Ann"
    assert (len(service.sign_ins), service.problems) == (3, ["the refresh token is unknown"])


async def test_more_rights_are_asked_for_when_a_call_needs_them() -> None:
    service = OAuthService(call_scope="write")
    async with serving(service) as url, connected(url, sign_in=be_person) as servers:
        assert await greet(servers) == "Hello Ann"
    assert [query["scope"] for query in service.sign_ins] == ["read", "read write"]
    assert service.problems == []
    assert len(service.clients) == 1


async def test_without_a_person_the_error_names_the_rights() -> None:
    service = OAuthService(call_scope="write")
    tokens = MemoryTokens()
    async with serving(service) as url:
        async with connected(url, tokens, be_person) as servers:
            await servers.tools()
        async with connected(url, tokens) as servers:
            said = await greet(servers)
    assert "windlass mcp login own --scope 'read write'" in said
    assert len(service.sign_ins) == 1


async def test_a_person_is_not_asked_again_for_what_did_not_help() -> None:
    service = OAuthService(call_scope="write", grants="read")
    async with serving(service) as url, connected(url, sign_in=be_person) as servers:
        for _ in range(3):
            assert "does not cover" in await greet(servers)
    assert len(service.sign_ins) == 2


async def test_a_token_that_is_refused_at_once_is_not_asked_for_again() -> None:
    service = OAuthService(expires_in=-1)
    async with serving(service) as url, connected(url, sign_in=be_person) as servers:
        for _ in range(2):
            with pytest.raises(ConfigError, match="refuses the token"):
                await servers.tools()
    assert len(service.sign_ins) == 1


@pytest.mark.parametrize(
    ("service", "words"),
    [
        (OAuthService(answer_iss="https://evil.example"), "another authorization server"),
        (OAuthService(answer_iss=None), "does not say which server"),
        (OAuthService(server_metadata={"code_challenge_methods_supported": ["plain"]}), "PKCE"),
        (OAuthService(server_metadata={"code_challenge_methods_supported": None}), "PKCE"),
        (OAuthService(server_metadata={"issuer": "https://evil.example"}), "says that it is"),
        (OAuthService(resource_metadata={"resource": "https://a.example"}), "says that it is"),
        (
            OAuthService(resource_metadata={"authorization_servers": ["https://10.1.2.3"]}),
            "not a public address",
        ),
        (
            OAuthService(server_metadata={"token_endpoint": "http://login.example/token"}),
            "must begin with https://",
        ),
        (
            OAuthService(server_metadata={"authorization_endpoint": "file:///bin/sh"}),
            "must begin with https://",
        ),
        (
            OAuthService(server_metadata={"registration_endpoint": None}),
            "does not register clients",
        ),
    ],
)
async def test_nobody_gets_a_token_if_something_is_wrong(service: OAuthService, words: str) -> None:
    async with serving(service) as url, connected(url, sign_in=be_person) as servers:
        with pytest.raises(ConfigError, match=words):
            await servers.tools()
    assert not service._grants


async def test_an_issuer_of_the_settings_is_the_only_one() -> None:
    service = OAuthService()
    auth = McpSignIn(issuer="https://login.example")
    async with serving(service) as url, connected(url, sign_in=be_person, auth=auth) as servers:
        with pytest.raises(ConfigError, match="issuer of the settings"):
            await servers.tools()
    assert service.sign_ins == []


async def test_documents_are_bounded_and_not_compressed() -> None:
    service = OAuthService(resource_metadata={"resource_name": "x" * 300_000})
    async with FaultServer(always=service) as server:
        keeper = TokenKeeper("own", OAuthService.url_of(server), show_page=be_person)
        with pytest.raises(ConfigError, match="too long"):
            await keeper.sign_in({})
        assert {one.headers["accept-encoding"] for one in server.requests} == {"identity"}
    assert service.sign_ins == []


async def test_a_page_in_the_place_of_a_document_is_none() -> None:
    """Some sites answer any address with their own page, or with JSON that is nested deeply."""
    service = OAuthService()
    odd = {
        "/.well-known/oauth-protected-resource/mcp": "<p>Welcome</p>",
        "/.well-known/oauth-protected-resource": "[" * 100_000,
    }

    def answer(request: ReceivedRequest) -> WireAnswer:
        if request.path in odd:
            return refuse_with(200, odd[request.path])
        return service(request)

    async with FaultServer(always=answer) as server:
        token = await TokenKeeper("own", OAuthService.url_of(server), show_page=be_person).sign_in(
            {}
        )
    assert token.issuer == token.resource.removesuffix("/mcp")
    assert service.problems == []


async def test_a_failure_of_the_authorization_server_ends_no_sign_in() -> None:
    """The token stays, and the next attempt renews it."""
    service = OAuthService()
    is_down = False

    def answer(request: ReceivedRequest) -> WireAnswer:
        if is_down and request.path == "/token":
            return refuse_with(503)
        return service(request)

    tokens = MemoryTokens()
    async with FaultServer(always=answer) as server:
        url = OAuthService.url_of(server)
        async with connected(url, tokens, be_person) as servers:
            await greet(servers)
            service.expire_tokens()
            is_down = True
            with pytest.raises(ConfigError, match="gave no token \\(HTTP 503\\)"):
                await servers.tools()
            is_down = False
            assert await greet(servers) == "Hello Ann"
    assert len(service.sign_ins) == 1


async def test_the_token_goes_to_its_own_server_only() -> None:
    """Not to another host, port or scheme, and not where a redirect leads."""
    service = OAuthService()
    seen: list[tuple[str, bool]] = []

    def record(request: httpx2.Request) -> httpx2.Response:
        seen.append((str(request.url), "authorization" in request.headers))
        return httpx2.Response(200)

    async with serving(service) as url:
        keeper = TokenKeeper("own", url, show_page=be_person)
        await keeper.sign_in({})
        others = [
            "http://127.0.0.1:9/mcp",
            url.replace("127.0.0.1", "localhost"),
            url.replace("http:", "https:"),
            "https://evil.example/mcp",
        ]
        transport = httpx2.MockTransport(record)
        async with httpx2.AsyncClient(transport=transport, auth=_build_auth(keeper)) as client:
            for address in [url, *others]:
                await client.post(address)
    assert seen == [(url, True), *((address, False) for address in others)]


async def test_a_redirect_does_not_carry_the_token_away() -> None:
    service = OAuthService()
    async with FaultServer(always=refuse_with(404)) as other:
        moved = False

        def answer(request: ReceivedRequest) -> WireAnswer:
            if moved and request.path == "/mcp":
                return refuse_with(307, "", {"Location": OAuthService.url_of(other)})
            return service(request)

        async with FaultServer(always=answer) as server:
            url = OAuthService.url_of(server)
            async with connected(url, sign_in=be_person) as servers:
                await greet(servers)
                moved = True
                with pytest.raises(Exception, match="edirect"):
                    await servers.tools()
        assert not any("authorization" in request.headers for request in other.requests)


async def test_no_token_is_asked_for_or_sent_over_plain_http() -> None:
    keeper = TokenKeeper("own", "http://mcp.example/mcp", show_page=be_person)
    with pytest.raises(ConfigError, match="must begin with https://"):
        await keeper.sign_in({})


async def test_a_run_notices_that_somebody_has_signed_in_or_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a service does that was started before."""
    monkeypatch.setattr("windlass.tools.mcp.link.RECONNECT_BACKOFF_S", 0.0)
    service = OAuthService()
    tokens = MemoryTokens()
    async with serving(service) as url, connected(url, tokens) as servers:
        with pytest.raises(ConfigError, match="mcp login"):
            await servers.tools()
        person = TokenKeeper("own", url, tokens=tokens, show_page=be_person)
        await person.sign_in({})
        assert await greet(servers) == "Hello Ann"
        await person.sign_out()
        service.expire_tokens()
        with pytest.raises(ConfigError, match="mcp login"):
            await servers.tools()
    assert service.problems == []


async def test_a_server_of_the_older_transport_is_asked_by_get() -> None:
    service = OAuthService()

    def answer(request: ReceivedRequest) -> WireAnswer:
        if (request.method, request.path) == ("POST", "/mcp"):
            return refuse_with(405)
        if (request.method, request.path) == ("GET", "/mcp"):
            return service(dataclasses.replace(request, method="POST", body=b'{"method": ""}'))
        return service(request)

    async with FaultServer(always=answer) as server:
        url = OAuthService.url_of(server)
        token = await TokenKeeper("own", url, show_page=be_person).sign_in({})
    assert token.access_token.startswith("access-")
    assert service.problems == []


async def test_signing_out_forgets_the_token_and_gives_it_back() -> None:
    service = OAuthService()
    tokens = MemoryTokens()
    async with serving(service) as url:
        keeper = TokenKeeper("own", url, tokens=tokens, show_page=be_person)
        token = await keeper.sign_in({})
        assert tokens.load(url) == token
        assert await keeper.sign_out()
        assert not await keeper.sign_out()
        assert tokens.load(url) is None
    assert service.revoked == [token.refresh_token]


async def test_an_own_header_is_used_as_it_is() -> None:
    """Whoever sets a token by hand gets no other one, and is not asked to sign in."""
    service = OAuthService()
    async with FaultServer(always=service) as server:
        settings = McpHttp(
            name="own",
            url=OAuthService.url_of(server),
            headers={"authorization": "Bearer by-hand"},
        )
        async with McpServers([settings], sign_in=be_person) as servers:
            with pytest.raises(ConfigError, match="HTTP 401"):
                await servers.tools()
        sent: set[Any] = {request.headers.get("authorization") for request in server.requests}
    assert sent == {"Bearer by-hand"}
    assert service.sign_ins == []


async def test_a_refusal_shows_no_secret() -> None:
    """A server may repeat what it was sent."""
    service = OAuthService(method="client_secret_post")

    def answer(request: ReceivedRequest) -> WireAnswer:
        if request.path == "/token":
            words = {"error": "invalid_grant", "error_description": request.body.decode()}
            return refuse_with(400, words)
        return service(request)

    async with FaultServer(always=answer) as server:
        url = OAuthService.url_of(server)
        with pytest.raises(ConfigError) as refused:
            await TokenKeeper("own", url, show_page=be_person).sign_in({})
    ((secret, _),) = service.clients.values()
    (code,) = service._codes
    assert "invalid_grant" in str(refused.value)
    assert secret not in str(refused.value)
    assert code not in str(refused.value)


async def test_another_process_that_renews_too_long_is_waited_for_in_vain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.project.mcp_tokens.LOCK_S_MAX", 0.1)
    one, other = (SecretTokens(SecretStore(tmp_path / "s.toml"), tmp_path) for _ in range(2))
    async with one.lock("https://a.example/"):
        async with other.lock("https://b.example/"):
            pass
        with pytest.raises(ToolUnavailable, match="too long"):
            async with other.lock("https://a.example/"):
                pass
    async with other.lock("https://a.example/"):
        pass
