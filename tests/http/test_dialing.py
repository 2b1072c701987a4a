"""Opening connections: TLS, proxies, names with several addresses."""

import asyncio
import gc
import ipaddress
import socket
import ssl
from base64 import b64encode
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from certificates import make_certificate
from raw_server import RawConnection, answering, raw_server
from windlass.http import dialing
from windlass.http.client import send_request
from windlass.http.errors import HttpError
from windlass.http.urls import parse_proxy

HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


async def ask(url: str, proxy: str | None = None, addresses: Sequence[str] = ()) -> bytes:
    response = await send_request("GET", url, headers={}, proxy=proxy, addresses=addresses)
    try:
        return await response.read_up_to(100)
    finally:
        response.close()


async def expect_error(
    url: str, proxy: str | None = None, addresses: Sequence[str] = ()
) -> HttpError:
    with pytest.raises(HttpError) as caught:
        await ask(url, proxy, addresses)
    assert str(caught.value).isprintable()
    assert "secret" not in str(caught.value)
    return caught.value


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ssl.SSLContext]:
    """A server's context, whose certificate the client trusts."""
    cert, key = make_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    served.load_cert_chain(cert, key)
    yield served
    dialing._load_certificates.cache_clear()


# ── TLS ──────────────────────────────────────────────────────────────────────


@pytest.mark.realtime
async def test_an_authority_of_ones_own_is_trusted(context: ssl.SSLContext) -> None:
    async with raw_server(answering(HELLO, HELLO), context=context) as server:
        assert await ask(server.url) == b"hello"
        assert await ask(server.url) == b"hello"
    assert server.connections == 1


@pytest.mark.realtime
async def test_an_authority_that_is_unknown_is_not_trusted(
    context: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    async with raw_server(answering(HELLO), context=context) as server:
        assert (await expect_error(server.url)).problem == "certificate"
        gc.collect()


@pytest.mark.realtime
async def test_the_certificate_must_be_that_of_the_name(context: ssl.SSLContext) -> None:
    """Also where the address was checked before: it says nothing about the name."""
    async with raw_server(answering(HELLO), context=context) as server:
        url = f"https://other.invalid:{server.port}/"
        error = await expect_error(url, addresses=["127.0.0.1"])
        assert error.problem == "certificate"
        gc.collect()


@pytest.mark.realtime
async def test_a_server_without_tls(context: ssl.SSLContext) -> None:
    del context

    async def play(connection: RawConnection) -> None:
        await connection.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with raw_server(play) as server:
        error = await expect_error(server.url.replace("http:", "https:"))
    assert error.problem in {"tls", "lost"}


@pytest.mark.realtime
async def test_a_cancel_in_a_handshake_leaves_nothing_open() -> None:
    """C1."""

    async def play(connection: RawConnection) -> None:
        await connection.wait_until_left()

    async with raw_server(play) as server:
        task = asyncio.create_task(ask(server.url.replace("http:", "https:")))
        await server.reached.wait()
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.left.wait(), 5)
        gc.collect()


# ── proxies ──────────────────────────────────────────────────────────────────


class TunnelProxy:
    """A proxy that connects everything to one port of this machine."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.heads: list[str] = []

    async def play(self, connection: RawConnection) -> None:
        self.heads.append(await connection.read_head())
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        await connection.send(b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n")
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._copy(connection.reader, writer))
                group.create_task(self._copy(reader, connection.writer))
        finally:
            writer.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        writer.close()


@pytest.mark.realtime
async def test_an_encrypted_request_goes_through_a_tunnel(context: ssl.SSLContext) -> None:
    """P3: the password of the proxy is for the proxy alone."""
    heads: list[str] = []

    async def play(connection: RawConnection) -> None:
        for _ in range(2):
            heads.append(await connection.read_head())
            await connection.send(HELLO)

    async with raw_server(play, context=context) as server:
        tunnel = TunnelProxy(server.port)
        async with raw_server(tunnel.play) as proxy:
            address = proxy.url.replace("//", "//me:s%C3%A9cret@")
            url = "https://127.0.0.1:1/"
            assert await ask(url, address) == b"hello"
            assert await ask(url, address) == b"hello"
    password = b64encode("me:sécret".encode()).decode()
    assert [head.split("\r\n")[0] for head in heads] == ["GET / HTTP/1.1"] * 2
    assert "Proxy" not in "".join(heads)
    (head,) = tunnel.heads
    assert head == (
        "CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: 127.0.0.1:1\r\n"
        f"Proxy-Authorization: Basic {password}\r\n\r\n"
    )


@pytest.mark.realtime
async def test_a_proxy_may_be_encrypted_itself(context: ssl.SSLContext) -> None:
    async with raw_server(answering(HELLO), context=context) as server:
        tunnel = TunnelProxy(server.port)
        async with raw_server(tunnel.play, context=context) as proxy:
            assert await ask("https://127.0.0.1:1/", proxy.url) == b"hello"
            gc.collect()


@pytest.mark.realtime
async def test_the_certificate_behind_a_tunnel_is_checked(context: ssl.SSLContext) -> None:
    async with raw_server(answering(HELLO), context=context) as server:
        tunnel = TunnelProxy(server.port)
        async with raw_server(tunnel.play) as proxy:
            error = await expect_error("https://[::1]:8443/", proxy.url)
            assert error.problem == "certificate"
            assert tunnel.heads[0].startswith("CONNECT [::1]:8443 HTTP/1.1\r\nHost: [::1]:8443\r\n")
            gc.collect()


async def test_a_plain_request_is_asked_of_the_proxy() -> None:
    heads: list[str] = []

    async def play(connection: RawConnection) -> None:
        for _ in range(2):
            heads.append(await connection.read_head())
            await connection.send(HELLO)

    async with raw_server(play) as proxy:
        address = proxy.url.replace("//", "//me:you@")
        assert await ask("http://a.invalid/x?y", address) == b"hello"
        # No scheme, as people write it; it is another route, for it has no password.
        assert await ask("http://b.invalid:8080/", proxy.url.removeprefix("http://")) == b"hello"
    assert heads[0].startswith("GET http://a.invalid/x?y HTTP/1.1\r\nHost: a.invalid\r\n")
    assert "Proxy-Authorization: Basic bWU6eW91\r\n" in heads[0]
    assert heads[1].startswith("GET http://b.invalid:8080/ HTTP/1.1\r\nHost: b.invalid:8080\r\n")
    assert "Authorization" not in heads[1]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n", "407"),
        (b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 900\r\n\r\nabc", "502"),
    ],
)
async def test_a_proxy_that_refuses(answer: bytes, problem: str) -> None:
    async with raw_server(answering(answer)) as proxy:
        error = await expect_error("https://a.invalid/", proxy.url)
        assert (error.problem, str(error.status)) == ("proxy_refused", problem)
        await asyncio.wait_for(proxy.left.wait(), 1)


async def test_a_proxy_that_says_something_before_its_time_is_left() -> None:
    """What stands behind its answer would be taken for the server's."""
    early = b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\n\r\nforged"
    async with raw_server(answering(early)) as proxy:
        error = await expect_error("https://a.invalid/", proxy.url)
        assert error.problem == "proxy_refused"


@pytest.mark.parametrize("address", ["socks5://h:1", "http://", "http://h:x"])
async def test_an_address_that_no_proxy_has(address: str) -> None:
    assert (await expect_error("https://a.invalid/", address)).problem == "proxy"


async def test_a_proxy_that_is_not_there() -> None:
    async with raw_server(answering()) as proxy:
        pass
    assert (await expect_error("https://a.invalid/", proxy.url)).problem == "proxy"
    assert (await expect_error("http://a.invalid/", proxy.url)).problem == "proxy"


def test_the_password_of_a_proxy_is_in_no_error() -> None:
    with pytest.raises(HttpError) as caught:
        parse_proxy("http://me:secret@h:x")
    assert "secret" not in str(caught.value)


@pytest.mark.realtime
async def test_a_cancel_while_a_proxy_connects_leaves_nothing_open() -> None:
    """C1."""

    async def play(connection: RawConnection) -> None:
        await connection.read_head()
        await connection.wait_until_left()

    async with raw_server(play) as proxy:
        task = asyncio.create_task(ask("https://a.invalid/", proxy.url))
        await proxy.reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(proxy.left.wait(), 5)


# ── names and addresses ──────────────────────────────────────────────────────


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
async def test_an_address_of_ipv6() -> None:
    heads: list[str] = []

    async def play(connection: RawConnection) -> None:
        heads.append(await connection.read_head())
        await connection.send(HELLO)

    async with raw_server(play, host="::1") as server:
        assert await ask(server.url) == b"hello"
    assert f"Host: [::1]:{server.port}\r\n" in heads[0]


async def test_a_name_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(*_: object, **__: object) -> list[object]:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", unknown)
    for _ in range(2):
        assert (await expect_error("http://name.invalid/")).problem == "host"


async def test_a_port_that_nothing_listens_on() -> None:
    async with raw_server(answering()) as server:
        pass
    assert (await expect_error(server.url)).problem == "refused"
    pinned = ["127.0.0.1", "127.0.0.2"]
    assert (await expect_error(server.url, addresses=pinned)).problem == "refused"


async def test_an_address_that_hangs_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that drops IPv6 is common."""
    loop = asyncio.get_running_loop()
    connect = loop.sock_connect
    tried: list[str] = []

    async def sock_connect(sock: socket.socket, address: tuple[str, int]) -> None:
        tried.append(address[0])
        assert ipaddress.ip_address(address[0]).is_loopback
        if address[0] != "127.0.0.3":
            await asyncio.Event().wait()
        await connect(sock, address)

    monkeypatch.setattr(loop, "sock_connect", sock_connect)
    async with raw_server(answering(HELLO), host="127.0.0.3") as server:
        pinned = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
        assert await ask(server.url, addresses=pinned) == b"hello"
        gc.collect()
    assert tried == pinned


async def test_of_two_addresses_that_answer_one_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other socket is closed, also if both are there in the same turn of the loop."""
    loop = asyncio.get_running_loop()
    connect = loop.sock_connect
    gate = asyncio.Event()

    async def sock_connect(sock: socket.socket, address: tuple[str, int]) -> None:
        await connect(sock, address)
        await gate.wait()

    monkeypatch.setattr(loop, "sock_connect", sock_connect)
    async with raw_server(answering(HELLO)) as server:
        task = asyncio.create_task(ask(server.url, addresses=["127.0.0.1", "127.0.0.1"]))
        await asyncio.sleep(1)
        gate.set()
        assert await task == b"hello"
        gc.collect()
    assert server.connections == 2
