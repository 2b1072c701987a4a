"""`fetch`: against a real server on loopback, which only `allow` lets it reach."""

import asyncio
import gzip
import subprocess
import sys
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.errors import ConfigError
from windlass.core.messages import ImagePart, ToolResult
from windlass.testing.clock import VirtualClock
from windlass.testing.tools import call_context, cleared_call
from windlass.tools.toolbox import Toolbox
from windlass.tools.web.addresses import AllowedHosts
from windlass.tools.web.fetch import WebPage, fetch_tool, to_readable

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)
Answer = bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]


def answer(body: bytes, kind: str = "text/plain", status: str = "200 OK", **more: str) -> bytes:
    headers = {"Content-Type": kind, "Content-Length": str(len(body)), **more}
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items() if value]
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode() + body


def redirect(to: str) -> bytes:
    return answer(b"", status="302 Found", Location=to)


class Server:
    """Answers by path, and keeps what was asked."""

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self.answers = dict(answers)
        self.asked: list[str] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.asked.append(head)
            found = self.answers.get(head.split()[1], answer(b"", status="404 Not Found"))
            if isinstance(found, bytes):
                writer.write(found)
                await writer.drain()
            else:
                await found(writer)
        writer.close()


@asynccontextmanager
async def serving(answers: Mapping[str, Answer]) -> AsyncIterator[Server]:
    served = Server(answers)
    running: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        try:
            await served.handle(reader, writer)
        finally:
            running.discard(task)

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    served.port = server.sockets[0].getsockname()[1]
    try:
        yield served
    finally:
        server.close()
        for task in list(running):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await server.wait_closed()


async def fetch(url: str, **options: Any) -> ToolResult:
    box = Toolbox([fetch_tool(**{"allow": ["127.0.0.1"], **options})])
    return await box.run(cleared_call(box.specs[0], {"url": url}), call_context())


async def shown(body: bytes, kind: str = "text/html", **more: str) -> str:
    async with serving({"/": answer(body, kind, **more)}) as server:
        result = await fetch(f"{server.url}/")
        assert result.kind == "value", result.text
        return result.text.removeprefix(f"{server.url}/\n")


def at(*addresses: str) -> Callable[[str, int], Awaitable[Sequence[str]]]:
    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return addresses

    return resolve


def test_its_spec() -> None:
    """G7, T2: it brings in what strangers wrote, and sends out what is asked for."""
    spec = fetch_tool().spec
    assert (spec.name, spec.effect, spec.labels) == ("fetch", "read", ("untrusted", "external"))


@pytest.mark.slow
def test_aiohttp_is_imported_at_the_first_use() -> None:
    code = "import sys, windlass.tools.core_toolset; sys.exit('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ── where it may go ──────────────────────────────────────────────────────────

INSIDE = [
    "127.0.0.1",
    "127.8.9.10",
    "10.0.0.1",
    "172.16.5.5",
    "192.168.1.1",
    "169.254.169.254",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "0.0.0.0",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "fe80::1",
    "fe80::1%eth0",
    "fd00:ec2::254",
    "fec0::1",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
    "2001:db8::1",
    *("3fff::1", "3fff:fff::1", "2001:2::1", "2001:10::1", "2001:20::1", "3ffe::1", "5f00::1"),
    *("2002:808:808::1", "2620:4f:8000::1", "192.31.196.1", "192.52.193.1", "192.175.48.1"),
]


@pytest.mark.parametrize("address", INSIDE)
async def test_a_host_that_resolves_to_the_inside_is_refused(address: str) -> None:
    """T13: private, loopback, link-local, multicast, reserved, unique-local and metadata."""
    result = await fetch("http://harmless.example/", resolve=at(address), allow=[])
    assert result.kind == "error"
    assert "not a public address" in result.text
    mixed = await fetch("http://harmless.example/", resolve=at("8.8.8.8", address), allow=[])
    assert "not a public address" in mixed.text


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "169.254.169.254",
        "0.0.0.0",
        "localhost",
        "127.1",
        "2130706433",
        "0177.0.0.1",
        "127.0.0.1.",
        "①②⑦.0.0.1",
        "[fe80::1%25eth0]",
    ],
)
async def test_the_inside_is_refused_however_it_is_written(host: str) -> None:
    """T13."""
    result = await fetch(f"http://{host}:8000/", allow=[])
    assert result.kind == "error"
    assert any(
        why in result.text for why in ("not a public", "in full", "no host", "not a valid http")
    )


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("file:///etc/passwd", "http or https"),
        ("ftp://example.com/", "http or https"),
        ("gopher://127.0.0.1/", "http or https"),
        ("javascript:alert(1)", "http or https"),
        ("example.com", "http or https"),
        ("http://", "http or https"),
        ("http://[::1/", "http or https"),
        ("http://example.com:99999/", "http or https"),
        ("http://me:secret@example.com/", "Leave them out"),
        ("http://example.com/" + "x" * 5_000, "too long"),
    ],
)
async def test_other_addresses_are_refused(url: str, why: str) -> None:
    """T13, T9: and not repeated."""
    result = await fetch(url, resolve=at("8.8.8.8"))
    assert (result.kind, why in result.text) == ("error", True)
    assert "secret" not in result.text


async def test_a_redirect_to_the_inside_is_refused() -> None:
    """T13: on every redirect."""
    async with serving({}) as inside:
        inside.answers["/"] = answer(b"secret")
        async with serving({"/": redirect("/on")}) as server:
            for to in (inside.url, f"http://[::1]:{inside.port}/", "http://169.254.169.254/x"):
                server.answers["/on"] = redirect(to)
                result = await fetch(f"{server.url}/", allow=[f"127.0.0.1:{server.port}"])
                assert "not a public address" in result.text
            server.answers["/on"] = redirect("file:///etc/passwd")
            assert "redirects to" in (await fetch(f"{server.url}/")).text
        assert inside.asked == []


async def test_the_name_is_asked_for_once() -> None:
    """T13: a name that means something else the second time (DNS rebinding) changes nothing."""
    answers = iter([["127.0.0.1"], ["127.0.0.2"]])
    asked: list[str] = []

    async def resolve(host: str, _port: int) -> Sequence[str]:
        asked.append(host)
        return next(answers)

    async with serving({"/": answer(b"here")}) as server:
        url = f"http://rebinding.example:{server.port}/"
        result = await fetch(url, resolve=resolve, allow=["127.0.0.1"])
        assert result.text == f"{url}\n\nhere"
        assert f"Host: rebinding.example:{server.port}" in server.asked[0]
    assert asked == ["rebinding.example"]


async def test_what_is_allowed() -> None:
    """T13: a host by its name, an address or a network; with a port or without."""
    local = at("127.0.0.1")
    async with serving({"/": answer(b"here")}) as server:
        url = f"http://mine.test:{server.port}/"
        for allow in ("mine.test", f"mine.test:{server.port}", "127.0.0.0/8", "127.0.0.1"):
            assert (await fetch(url, resolve=local, allow=[allow])).kind == "value"
        for allow in ("other.test", "mine.test:1", "127.0.0.1:1", "10.0.0.0/8", "::1"):
            assert (await fetch(url, resolve=local, allow=[allow])).kind == "error"


@pytest.mark.parametrize("allow", ["localhost", ["http://x/"], [""]])
def test_what_cannot_be_allowed(allow: Any) -> None:
    with pytest.raises(ConfigError, match="allow"):
        fetch_tool(allow=allow)


def test_ipv6_can_be_allowed_with_a_port() -> None:
    AllowedHosts(["[::1]:80"]).check_host("::1", 80, ["::1"])
    AllowedHosts(["[::1]"]).check_host("::1", 81, ["::1"])


# ── how far it goes ──────────────────────────────────────────────────────────


async def test_redirects_are_followed_five_times() -> None:
    """T13."""
    answers = {f"/{hop}": redirect(f"{hop + 1}") for hop in range(6)}
    async with serving({**answers, "/6": answer(b"too far"), "/5": redirect("/6")}) as server:
        assert "More than 5 redirects" in (await fetch(f"{server.url}/0")).text
        assert (await fetch(f"{server.url}/1")).text == f"{server.url}/6\n\ntoo far"


async def test_a_slow_drip_ends_in_time(clock: VirtualClock) -> None:
    """T13, T5: the time is for the whole page."""

    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        while True:
            writer.write(b".")
            await writer.drain()
            await asyncio.sleep(1)

    async with serving({"/": drip}) as server:
        result = await fetch(f"{server.url}/", seconds_max=5)
    assert (result.kind, "within 5 s" in result.text) == ("error", True)
    assert clock.elapsed_s < 10


async def test_a_huge_body_is_cut() -> None:
    """T13, T10."""
    sent = 0

    async def flood(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        while True:
            writer.write(b"x" * 65_536)
            await writer.drain()
            sent += 65_536

    async with serving({"/": flood}) as server:
        result = await fetch(f"{server.url}/", bytes_max=300_000)
    assert "[only the first 293 kB were read]" in result.text
    assert sent < 20 * 2**20


@pytest.mark.slow
async def test_a_bomb_does_not_go_off() -> None:
    """T13: what is packed is unpacked up to the bound only."""
    bomb = gzip.compress(b"x" * 100_000_000, 9)
    async with serving({"/": answer(bomb, Content_Encoding="gzip")}) as server:
        result = await fetch(f"{server.url}/")
    assert "[only the first 2 MB were read]" in result.text


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", gzip.compress(b"hello", mtime=0)),
        ("deflate", zlib.compress(b"hello")),
        ("deflate", zlib.compress(b"hello")[2:-4]),
        ("identity", b"hello"),
    ],
)
async def test_packed_bodies_are_unpacked(encoding: str, packed: bytes) -> None:
    """T13."""
    assert await shown(packed, "text/plain", Content_Encoding=encoding) == "\nhello"


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (answer(b"", status="404 Not Found"), "404 Not Found"),
        (answer(b"", status="599 \x1b"), "answered 599"),
        (answer(b"x", Content_Encoding="br"), "compression 'br'"),
        (answer(b"x", Content_Encoding="gzip"), "cannot be decompressed"),
        (b"nonsense\r\n\r\n", "does not answer correctly"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nx", "does not answer correctly"),
        (b"", "does not answer correctly"),
    ],
)
async def test_a_failing_server_is_told(sent: bytes, why: str) -> None:
    """T7: in a line, and neither tried again nor held against the tool (T11)."""
    async with serving({"/": sent}) as server:
        result = await fetch(f"{server.url}/")
        assert len(server.asked) <= 2  # aiohttp asks again when a server hangs up on it.
    assert result.kind == "error"
    assert why in result.text
    assert result.text.isprintable()


async def test_nobody_there() -> None:
    """T7."""

    async def unknown(_host: str, _port: int) -> Sequence[str]:
        raise OSError("no such name")

    assert "no host" in (await fetch("http://x.example/", resolve=unknown)).text
    async with serving({}) as server:
        url = server.url
    assert "does not answer" in (await fetch(url)).text


# ── what it shows ────────────────────────────────────────────────────────────


async def test_html_becomes_text() -> None:
    """T13."""
    page = b"""<!doctype html><html><head><title> A &amp; B </title><style>p{}</style></head><body>
      <script>alert("no")</script><h1>Top</h1><p>Some <b>bold</b>
      text, <a href="/there?x=1#y">a link</a>.</p>
      <ul><li>one</li><li>two<ol><li>in</li></ol></li></ul>
      <table><tr><th>k</th><th>v</th></tr><tr><td>a</td><td>1</td></tr></table>
      <pre>x = 1\n  y</pre><img src=x alt="a cat"><br>end"""
    async with serving({"/": answer(page, "text/html; charset=utf-8")}) as server:
        told = (await fetch(f"{server.url}/")).text
        link = f"{server.url}/there?x=1#y"
    assert told == (
        f"{server.url}/\nTitle: A & B\n\n# Top\n\nSome bold text, a link ({link}).\n\n"
        "- one\n- two\n  1. in\n\n| k | v\n| a | 1\n\nx = 1\n  y\n\n[a cat]\nend"
    )


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        ("é".encode("latin-1"), "text/plain; charset=latin-1", "é"),
        ("é".encode("latin-1"), "text/plain; charset=utf-8", "\ufffd"),
        ("é".encode(), "text/plain; charset=no-such-thing", "é"),
        (b"abc", "text/plain; charset=base64", "abc"),
        (b"abc-", "text/plain; charset=punycode", "abc-"),
        ("é".encode("utf-16"), "text/plain", "é"),
        ("é".encode("utf-16-le"), "text/plain; charset=utf-16-le", "é"),
        (b"<meta charset='latin-1'>\xe9", "text/html", "é"),
        (b'{"a": 1}', "application/json", '{"a": 1}'),
        (b"<html><p>x", "", "x"),
        (b"<b>x</b>", "text/plain", "<b>x</b>"),
        (b"<script>x</script>", "text/html", "[the page has no text"),
    ],
)
async def test_text_is_read_as_it_is_meant(body: bytes, kind: str, text: str) -> None:
    """T13: also where the server is wrong about it."""
    assert (await shown(body, kind)).startswith(f"\n{text}")


async def test_pictures_are_parts_and_the_rest_is_refused_by_name() -> None:
    """T13, P7."""
    answers: dict[str, Answer] = {
        "/png": answer(PNG, "application/octet-stream"),
        "/pdf": answer(b"%PDF-1.7", "application/pdf"),
        "/zip": answer(b"PK\x03\x04", "application/zip"),
    }
    async with serving(answers) as server:
        assert (await fetch(f"{server.url}/png")).content == (ImagePart("image/png", PNG),)
        assert "more than" in (await fetch(f"{server.url}/png", bytes_max=20)).text
        assert "is a PDF document" in (await fetch(f"{server.url}/pdf")).text
        assert "a zip archive (application/zip)" in (await fetch(f"{server.url}/zip")).text


TAGS = st.sampled_from(
    [
        "<p>",
        "</p>",
        "<a\thref=x>",
        "</a>",
        "<ul>",
        "<li>",
        "</ul>",
        "<pre>",
        "<svg>",
        "</svg>",
        "<td>",
        "<title>",
        "</title>",
        "<script>",
        "</script>",
        "<!--",
        "-->",
        "<a\thref=//[x>",
        "&lt",
    ]
)


@given(st.lists(st.one_of(TAGS, st.text(max_size=8))))
def test_any_page_becomes_text(pieces: list[str]) -> None:
    """T13: whatever it holds."""
    page = WebPage(
        "http://x/", "text/html", None, "".join(pieces).encode("utf-8", "replace"), is_cut=False
    )
    if b"\x00" not in page.data and not page.data.startswith((b"\xff", b"\xfe")):
        assert isinstance(to_readable(page), str)
