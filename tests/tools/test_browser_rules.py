"""The rules of the browser that need no browser: references to elements, and the proxy of pages."""

import asyncio
import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import pytest

from windlass.core.errors import ModelRetry
from windlass.tools.browser.guarded_proxy import GuardedProxy
from windlass.tools.browser.references import read_tree
from windlass.tools.web.addresses import AllowedHosts

TREE = """- generic [active] [ref=e1]:
  - heading "Pay \\"now\\"" [level=1] [ref=e2]
  - text: button "Cancel" [ref=e4]
  - paragraph [ref=e3]: "- button \\"Help\\" [ref=e4]"
  - 'button "Pay: all" [ref=e4]'
  - iframe [ref=e5]:
    - link "Inside" [ref=f1e2] [cursor=pointer]:
      - /url: /x"""


# ── references ───────────────────────────────────────────────────────────────


def test_elements_come_from_the_tree_and_never_from_text() -> None:
    tree = read_tree(TREE, 7, 10_000)
    assert tree.elements == {
        "p7e1": "generic",
        "p7e2": 'heading Pay "now"',
        "p7e3": "paragraph",
        "p7e4": "button Pay: all",
        "p7e5": "iframe",
        "p7f1e2": "link Inside",
    }
    assert '- text: button "Cancel" [ref=e4]' in tree.text
    assert "'button \"Pay: all\" [ref=p7e4]'" in tree.text


def test_a_call_names_what_it_clicks() -> None:
    """The person who is asked reads the name: a text of the page cannot give another one."""
    tree = read_tree(TREE, 7, 10_000)
    assert tree.find_element("p7e4", 'button "Pay: all"') == "e4"
    assert tree.find_element("[ref=p7f1e2]", "the LINK inside") == "f1e2"
    assert tree.find_element("p7e3", "anything, because it has no name") == "e3"
    with pytest.raises(ModelRetry, match=r"p7e4 is: button Pay: all\."):
        tree.find_element("p7e4", 'button "Cancel"')


@pytest.mark.parametrize("reference", ["p6e4", "p8e4", "p7e99", "p7f2e2"])
def test_a_reference_of_another_document_is_refused(reference: str) -> None:
    with pytest.raises(ModelRetry, match="not on the page that is shown now"):
        read_tree(TREE, 7, 10_000).find_element(reference, 'button "Pay: all"')


@pytest.mark.parametrize("reference", ["e4", "p7e4 >> css=button", "css=button", ""])
def test_a_reference_is_never_a_selector(reference: str) -> None:
    with pytest.raises(ModelRetry, match="is not a reference"):
        read_tree(TREE, 7, 10_000).find_element(reference, 'button "Pay: all"')


@pytest.mark.contract("T10")
def test_a_long_tree_is_cut_between_lines_and_says_so() -> None:
    tree = read_tree(TREE, 7, 80)
    assert tree.text.splitlines()[-1] == f"[the page is longer: {len(TREE)} characters in all]"
    assert len(tree.text.splitlines()) == 3


# ── the proxy ────────────────────────────────────────────────────────────────


class Upstream:
    """A server that keeps what it was sent, and answers as it was told to."""

    def __init__(self, reply: bytes) -> None:
        self.reply = reply
        self.sent: list[bytes] = []
        self.port = 0
        self.connections: list[asyncio.Task[None] | None] = []

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(asyncio.current_task())
        # A tunnel through the proxy may be closed before anything was sent in it.
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            self.sent.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(self.reply)
            while data := await reader.read(1_000):
                self.sent.append(data)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


@asynccontextmanager
async def proxied(
    reply: bytes = b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nhi",
    names: dict[str, list[Sequence[str]]] | None = None,
) -> AsyncIterator[tuple[Upstream, GuardedProxy, int]]:
    """Run a server, and a proxy that may reach it and nothing else of this machine."""
    upstream = Upstream(reply)
    server = await asyncio.start_server(upstream.handle, "127.0.0.1", 0)
    upstream.port = server.sockets[0].getsockname()[1]

    async def resolve(name: str, _port: int) -> Sequence[str]:
        return (names or {})[name].pop(0)

    proxy = GuardedProxy(AllowedHosts([f"127.0.0.1:{upstream.port}"]), resolve)
    port = int((await proxy.start()).rpartition(":")[2])
    login = "{username}:{password}".format(**proxy.credentials)
    LOGINS[port] = base64.b64encode(login.encode()).decode()
    try:
        yield upstream, proxy, port
    finally:
        await proxy.close()
        server.close()
        await server.wait_closed()
        await asyncio.gather(*filter(None, upstream.connections))


LOGINS: dict[int, str] = {}
"""The login of each proxy, by its port."""


async def ask(port: int, request: str, *, login: str | None = None) -> bytes:
    """Send a request to the proxy, and return all that it answers within the test."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    request += f"\nProxy-Authorization: Basic {LOGINS[port] if login is None else login}"
    writer.write(request.replace("\n", "\r\n").encode() + b"\r\n\r\n")
    answer = b""
    with suppress(ConnectionError, TimeoutError):
        async with asyncio.timeout(5):
            while not answer.endswith((b"hi", b"established\r\n\r\n")):
                data = await reader.read(1_000)
                if not data:
                    break
                answer += data
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()
    return answer


@pytest.mark.realtime
@pytest.mark.contract("T13")
@pytest.mark.parametrize("login", ["", "d2luZGxhc3M6", "!"])
async def test_another_program_of_the_machine_cannot_use_the_proxy(login: str) -> None:
    """T13: it has no password, so that what the browser may reach stays the browser's."""
    async with proxied() as (upstream, _, port):
        for request in (
            f"GET http://127.0.0.1:{upstream.port}/ HTTP/1.1",
            f"CONNECT 127.0.0.1:{upstream.port} HTTP/1.1",
        ):
            answer = await ask(port, request, login=login)
            assert answer.startswith(b"HTTP/1.1 407 ")
        assert upstream.sent == []


@pytest.mark.realtime
async def test_a_request_reaches_its_server_and_ends_its_connection() -> None:
    """A second request on it could be for another host, with the cookies of that host."""
    async with proxied() as (upstream, _, port):
        url = f"http://127.0.0.1:{upstream.port}"
        head = f"GET {url}?a=1 HTTP/1.1\nHost: x\nProxy-Connection: keep-alive\nCookie: c=1"
        answer = await ask(port, head)
        assert answer.startswith(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n")
        assert answer.endswith(b"\r\n\r\nhi")
        assert upstream.sent == [
            b"GET /?a=1 HTTP/1.1\r\nHost: x\r\nCookie: c=1\r\nConnection: close\r\n\r\n"
        ]
        assert await ask(port, f"CONNECT 127.0.0.1:{upstream.port} HTTP/1.1") != b""


@pytest.mark.realtime
@pytest.mark.contract("T13")
async def test_what_may_not_be_reached_gets_no_answer() -> None:
    async with proxied(names={"inside.test": [["10.0.0.7"]] * 2}) as (upstream, proxy, port):
        for request in (
            "GET http://127.0.0.1:1/ HTTP/1.1",
            "CONNECT 127.0.0.1:1 HTTP/1.1",
            "CONNECT inside.test:443 HTTP/1.1",
            "GET http://inside.test/ HTTP/1.1",
            "CONNECT 169.254.169.254:80 HTTP/1.1",
            "GET http://2130706433/ HTTP/1.1",
        ):
            assert await ask(port, request) == b""
        assert len(proxy.take_refusals()) == 4
        assert proxy.take_refusals() == []
        for request in (f"GET /for-a-server HTTP/1.1\nHost: 127.0.0.1:{upstream.port}", "nonsense"):
            assert await ask(port, request) == b""
        assert upstream.sent == []


@pytest.mark.realtime
@pytest.mark.contract("T13")
async def test_a_name_that_changes_its_address_is_checked_each_time() -> None:
    """DNS rebinding: the address that was checked is the one that is connected to."""
    names: dict[str, list[Sequence[str]]] = {"rebind.test": [["127.0.0.1"], ["127.0.0.1", "::1"]]}
    async with proxied(names=names) as (upstream, proxy, port):
        url = f"GET http://rebind.test:{upstream.port}/ HTTP/1.1"
        assert (await ask(port, url)).endswith(b"hi")
        assert await ask(port, url) == b""
        assert "::1, which is not a public address" in proxy.take_refusals()[0]
        assert len(upstream.sent) == 1
