"""What servers publish about signing in is believed only about themselves."""

import asyncio
import contextlib
import time
from collections.abc import Sequence

import pytest

from windlass.core.errors import ConfigError
from windlass.tools.breaker import ToolUnavailable
from windlass.tools.mcp.config import McpHttp, mcp_settings
from windlass.tools.mcp.oauth.discovery import (
    ResourceMetadata,
    ServerMetadata,
    check_issuer,
    check_resource,
    choose_scope,
    join_scopes,
    resource_metadata_urls,
    server_metadata_urls,
)
from windlass.tools.mcp.oauth.grants import make_challenge
from windlass.tools.mcp.oauth.redirect import open_redirect
from windlass.tools.mcp.oauth.requests import (
    Challenge,
    OAuthRequests,
    check_encrypted,
    read_challenge,
)
from windlass.tools.mcp.oauth.settings import McpSignIn
from windlass.tools.mcp.oauth.tokens import McpToken, OAuthClient

pytestmark = pytest.mark.contract("T15")
SERVER = "https://mcp.example/team/mcp"


def test_a_challenge_is_read_from_the_header() -> None:
    words = 'Bearer realm="x, y", resource_metadata="https://a.example/r", scope="read  write"'
    found = read_challenge(401, {"www-authenticate": words})
    assert found == Challenge(scope="read write", resource_metadata="https://a.example/r")
    assert read_challenge(401, {}) == Challenge()
    assert read_challenge(403, {"www-authenticate": 'Bearer error="invalid_token"'}) is None
    wider = read_challenge(403, {"www-authenticate": "Bearer error=insufficient_scope, scope=w"})
    assert wider == Challenge(needs_scope=True, scope="w")
    assert read_challenge(200, {"www-authenticate": words}) is None


def test_documents_are_looked_for_where_the_specifications_put_them() -> None:
    named = Challenge(resource_metadata="https://mcp.example/r.json")
    assert resource_metadata_urls(SERVER, named) == [
        "https://mcp.example/r.json",
        "https://mcp.example/.well-known/oauth-protected-resource/team/mcp",
        "https://mcp.example/.well-known/oauth-protected-resource",
    ]
    assert server_metadata_urls("https://login.example") == [
        "https://login.example/.well-known/oauth-authorization-server",
        "https://login.example/.well-known/openid-configuration",
    ]
    assert server_metadata_urls("https://login.example/t1/") == [
        "https://login.example/.well-known/oauth-authorization-server/t1",
        "https://login.example/.well-known/openid-configuration/t1",
        "https://login.example/t1/.well-known/openid-configuration",
    ]


@pytest.mark.parametrize(
    ("resource", "is_right"),
    [
        (SERVER, True),
        ("https://MCP.example:443/team/", True),
        ("https://mcp.example", True),
        ("https://mcp.example/te", False),
        ("https://mcp.example/team/mcp/more", False),
        ("https://mcp.example:444/team/mcp", False),
        ("http://mcp.example/team/mcp", False),
        ("https://evil.example/team/mcp", False),
        ("https://mcp.example@evil.example/team/mcp", False),
        ("https://mcp.example/team/mcp?tenant=2", False),
    ],
)
def test_a_server_cannot_call_itself_by_the_name_of_another(
    resource: str, *, is_right: bool
) -> None:
    with contextlib.nullcontext() if is_right else pytest.raises(ConfigError):
        check_resource(SERVER, resource)


def test_an_authorization_server_cannot_speak_for_another() -> None:
    metadata = ServerMetadata(issuer="https://login.example/")
    check_issuer(metadata, "https://login.example", of_first_version=False)
    for issuer in ("https://login.example/t1", "https://other.example", "http://login.example"):
        with pytest.raises(ConfigError):
            check_issuer(metadata, issuer, of_first_version=False)
    older = ServerMetadata(issuer="https://mcp.example/oauth")
    check_issuer(older, "https://mcp.example:443", of_first_version=True)
    with pytest.raises(ConfigError):
        check_issuer(metadata, "https://mcp.example:443", of_first_version=True)


def test_rights_are_those_of_the_settings_then_of_the_challenge_then_of_the_document() -> None:
    server = ServerMetadata(issuer="i")
    resource = ResourceMetadata(resource="r", scopes_supported=["a", "b"])
    assert choose_scope("own", Challenge(scope="x"), resource, server) == "own"
    assert choose_scope(None, Challenge(scope="x"), resource, server) == "x"
    assert choose_scope(None, Challenge(), resource, server) == "a b"
    assert choose_scope(None, Challenge(), None, server) == ""
    lasting = ServerMetadata(issuer="i", scopes_supported=["a", "offline_access"])
    assert choose_scope(None, Challenge(scope="x"), resource, lasting) == "x offline_access"
    assert choose_scope(None, Challenge(), None, lasting) == ""
    assert join_scopes("a b", "b c", "") == "a b c"


def test_the_challenge_is_that_of_the_rfc() -> None:
    verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    assert make_challenge(verifier) == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


@pytest.mark.parametrize("url", ["http://mcp.example/x", "http://10.0.0.1/", "file:///etc/passwd"])
def test_nothing_secret_goes_over_plain_http(url: str) -> None:
    with pytest.raises(ConfigError, match="https"):
        check_encrypted(url)
    check_encrypted("http://127.0.0.1:8000/mcp")
    check_encrypted("http://localhost:8000/mcp")


@pytest.mark.parametrize(
    ("url", "addresses", "is_allowed"),
    [
        ("https://login.example/a", ["93.184.216.34"], True),
        ("https://login.example/a", ["10.0.0.5"], False),
        ("https://login.example/a", ["93.184.216.34", "169.254.169.254"], False),
        ("https://login.example/a", ["127.0.0.1"], False),
        ("https://127.0.0.1/a", [], False),
        ("https://169.254.169.254/latest", [], False),
        ("https://[::ffff:10.0.0.1]/a", [], False),
        ("https://mcp.example/a", ["10.0.0.5"], True),
        ("https://sso.corp.example/a", ["10.0.0.6"], True),
    ],
)
async def test_documents_of_a_public_server_do_not_lead_inside(
    url: str, addresses: Sequence[str], *, is_allowed: bool
) -> None:
    """Only hosts that the settings name need not be public: the server, and its issuer."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        return addresses

    requests = OAuthRequests(SERVER, "https://sso.corp.example", resolve=resolve)
    with contextlib.nullcontext() if is_allowed else pytest.raises(ToolUnavailable):
        await requests.check_address(url)


async def test_a_server_on_this_machine_leads_to_this_machine_only() -> None:
    requests = OAuthRequests("http://127.0.0.1:8000/mcp")
    await requests.check_address("http://127.0.0.1:9000/authorize")
    for url in ("https://10.0.0.1/a", "https://169.254.169.254/a"):
        with pytest.raises(ToolUnavailable):
            await requests.check_address(url)
    with pytest.raises(ConfigError):
        await requests.check_address("http://127.0.0.1:9000/a\x1b[2Jb")


async def ask_redirect(uri: str, query: str, host: str | None = None, method: str = "GET") -> str:
    place = uri.removeprefix("http://").removesuffix("/callback")
    address, _, port = place.partition(":")
    reader, writer = await asyncio.open_connection(address, int(port))
    lines = f"{method} /callback?{query} HTTP/1.1\r\nHost: {host or place}\r\n\r\n"
    writer.write(lines.encode())
    answer = (await reader.read()).decode()
    writer.close()
    return answer.split()[1]


@pytest.mark.realtime
async def test_only_the_answer_with_the_right_state_counts_and_only_once() -> None:
    async with open_redirect(None) as redirect:
        assert redirect.uri.startswith("http://127.0.0.1:")
        assert await ask_redirect(redirect.uri, "code=early&state=") == "400"
        state = redirect.make_state()
        assert await ask_redirect(redirect.uri, "code=evil&state=guessed") == "400"
        assert await ask_redirect(redirect.uri, "code=evil") == "400"
        assert await ask_redirect(redirect.uri, f"code=a&state={state}", "evil.example") == "404"
        assert await ask_redirect(redirect.uri, f"code=a&state={state}", method="POST") == "404"
        assert await ask_redirect(redirect.uri, f"code=good&state={state}&iss=i") == "200"
        assert await ask_redirect(redirect.uri, f"code=again&state={state}") == "400"
        answer = await redirect.wait()
    assert (answer.code, answer.issuer) == ("good", "i")


def test_a_token_is_not_shown() -> None:
    client = OAuthClient("me", "client-secret-1", "client_secret_post")
    token = McpToken(SERVER, SERVER, "i", "t", client, "access-token-1", "refresh-token-1")
    for text in (repr(token), str(token), repr(client), f"{[token]}"):
        assert "secret-1" not in text
        assert "token-1" not in text
    assert token.secrets == ("access-token-1", "refresh-token-1", "client-secret-1")
    assert token.is_fresh
    old = McpToken(SERVER, SERVER, "i", "t", client, "a", expires_at=time.time() + 5)
    assert not old.is_fresh


def read_http(auth: dict[str, object]) -> McpHttp:
    entry = {"url": SERVER, "auth": auth}
    (found,) = mcp_settings({"mcpServers": {"own": entry}}, {"S": "open-sesame"})
    assert isinstance(found, McpHttp)
    return found


def test_settings_may_name_a_client_and_an_issuer() -> None:
    auth = {"type": "authorization_code", "client_id": "me", "client_secret": "${S}"}
    found = read_http({**auth, "issuer": "https://login.example", "redirect_port": 8123})
    assert found.auth == McpSignIn(
        client_id="me",
        client_secret="open-sesame",
        issuer="https://login.example",
        redirect_port=8123,
    )
    assert "open-sesame" not in repr(found)


@pytest.mark.parametrize(
    ("auth", "words"),
    [
        ({"type": "magic"}, "no type 'magic'"),
        ({"type": "authorization_code", "client_secret": "x"}, "client_id"),
        ({"type": "authorization_code", "client_metadata_url": "http://x"}, "https://"),
        ({"type": "authorization_code", "redirect_port": True}, "redirect_port"),
        ({"type": "authorization_code", "redirect_port": 70_000}, "redirect_port"),
        ({"type": "authorization_code", "private_key": "x"}, "private_key"),
        ({"type": "client_credentials", "client_id": "x", "issuer": "y"}, "client_secret"),
    ],
)
def test_settings_that_are_not_understood_are_named(auth: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_http(auth)
