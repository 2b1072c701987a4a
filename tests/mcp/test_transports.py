"""Servers over the older transport, and behind the authorization servers of others."""

import asyncio
import logging
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from mcp_peers import open_servers, tool_caller
from windlass.core.errors import ConfigError
from windlass.tools.mcp import http
from windlass.tools.mcp.config import McpHttp
from windlass.tools.mcp.oauth.keeper import TokenKeeper
from windlass.tools.mcp.oauth.tokens import MemoryTokens
from windlass.tools.mcp.servers import McpServers

pytestmark = [pytest.mark.slow, pytest.mark.realtime]
SERVER = Path(__file__).parent / "token_server.py"
SDK_SERVER = Path(__file__).parent / "sdk_auth_server.py"


@contextmanager
def serving(kind: str, program: Path = SERVER) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, program, kind, str(port)])
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


async def wait_for(url: str) -> None:
    port = int(url.rpartition(":")[2])
    async with asyncio.timeout(30):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
                continue
            writer.close()
            return


@pytest.mark.contract("T15")
async def test_a_server_of_the_older_transport_works() -> None:
    with serving("sse") as url:
        await wait_for(url)
        entry = {"type": "sse", "url": f"{url}/sse", "timeout": 20}
        async with open_servers(own=entry) as servers:
            result = await tool_caller(await servers.tools())("greet", name="Ann")
    assert result.text == "Hello Ann"


@pytest.mark.contract("T15")
async def test_a_program_gets_its_token_by_its_credentials() -> None:
    with serving("oauth") as url:
        await wait_for(url)
        auth: dict[str, Any] = {
            "type": "client_credentials",
            "client_id": "clerk",
            "client_secret": "open-sesame-1234",
            "issuer": url,
        }
        entry = {"type": "http", "url": f"{url}/mcp", "timeout": 20, "auth": auth}
        async with open_servers(own=entry) as servers:
            call = tool_caller(await servers.tools())
            assert (await call("greet", name="Ann")).text == "Hello Ann"
        wrong = {**entry, "auth": {**auth, "client_secret": "not-that-one"}}
        with pytest.raises(ConfigError) as refused:
            async with open_servers(own=wrong) as servers:
                await servers.tools()
        elsewhere = {**entry, "auth": {**auth, "issuer": "http://127.0.0.1:9"}}
        with pytest.raises(ConfigError):
            async with open_servers(own=elsewhere) as servers:
                await servers.tools()
    assert "not-that-one" not in str(refused.value)
    assert "own" in str(refused.value)


@pytest.mark.contract("T15")
@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post", "none"])
async def test_the_authorization_server_of_the_sdk_takes_each_way_to_name_a_client(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    """T15: sign-in, renewal and sign-out; it wants `client_id` in the form, also beside Basic."""
    tokens = MemoryTokens()
    sign_ins: list[str] = []

    async def show_page(address: str) -> None:
        sign_ins.append(address)
        with await asyncio.to_thread(urlopen, address, timeout=10) as page:
            assert b"signed in" in page.read()

    with serving(method, SDK_SERVER) as url:
        await wait_for(url)
        settings = McpHttp(name="own", url=f"{url}/mcp", timeout_s=20)
        seen: set[str] = set()
        for sign_in in (show_page, None):
            async with McpServers([settings], tokens=tokens, sign_in=sign_in) as servers:
                call = tool_caller(await servers.tools())
                assert (await call("greet", name="Ann")).text == "Hello Ann"
            token = tokens.load(settings.url)
            assert token is not None
            assert token.client.method == method
            seen.add(token.access_token)
        with caplog.at_level(logging.WARNING, "windlass"):
            assert await TokenKeeper("own", settings.url, tokens=tokens).sign_out()
        # A client that has named itself gets no further without a secret in this form.
        refused = [] if method == "client_secret_post" else ["client_secret: Field required"]
        assert [words.rpartition("invalid_request: ")[2] for words in caplog.messages] == refused
    assert (len(sign_ins), len(seen)) == (1, 2)


@pytest.mark.contract("T15")
async def test_an_event_of_the_older_transport_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that is too long breaks the connection, and the model is told."""
    monkeypatch.setattr(http, "ANSWER_BYTES_MAX", 20_000)
    with serving("sse") as url:
        await wait_for(url)
        entry = {"type": "sse", "url": f"{url}/sse", "timeout": 20}
        async with open_servers(own=entry) as servers:
            call = tool_caller(await servers.tools())
            assert (await call("greet", name="Ann")).kind == "value"
            assert (await call("greet", name="x" * 60_000)).kind != "value"
