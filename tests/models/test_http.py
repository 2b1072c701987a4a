"""One POST over real HTTP on loopback: events at once, connections pooled, errors in words."""

import asyncio
import errno
import gzip
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

import pytest

from windlass.core.errors import ModelError, is_out_of_files
from windlass.http import client
from windlass.http.errors import HttpError
from windlass.http.urls import find_proxy
from windlass.models.http import post as http
from windlass.models.http.post import REST_S, STREAM_OPENED, ReplyProgress, post_sse
from windlass.models.http.provider_errors import RequestTarget
from windlass.ports import Timeouts
from windlass.testing.chat_wire import sse_event, text_answer, text_chunk
from windlass.testing.fault_server import FaultServer, serve_in_thread
from windlass.testing.wire import (
    WireAnswer,
    append_acts,
    drop,
    hang_up,
    refuse_with,
    reset,
    stall,
    stream_answer,
    wait,
)

TIMEOUTS = Timeouts()


def target(url: str) -> RequestTarget:
    return RequestTarget(vendor="acme", url=url, model="m", key_env="ACME_API_KEY")


async def post(url: str, **more: str) -> AsyncGenerator[tuple[str, bytes]]:
    """Send a request and give its events, without the notice that the stream is open."""
    headers = {"Content-Type": "application/json", **more}
    path = f"{url}/chat/completions"
    reads = post_sse(path, b'{"a":1}', headers, target=target(url), timeouts=TIMEOUTS)
    async with aclosing(reads):
        async for events in reads:
            for event in events:
                yield event


async def collect_events(url: str, **more: str) -> list[tuple[str, bytes]]:
    async with aclosing(post(url, **more)) as stream:
        return [event async for event in stream]


async def expect_error(url: str) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await collect_events(url)
    return caught.value


async def test_a_request_goes_out_as_it_is() -> None:
    async with FaultServer(stream_answer(b"data: x\n\n")) as server:
        assert await collect_events(server.url, Authorization="Bearer k") == [("", b"x")]
    (asked,) = server.requests
    assert (asked.method, asked.path, asked.body) == ("POST", "/v1/chat/completions", b'{"a":1}')
    assert asked.headers["authorization"] == "Bearer k"
    assert asked.headers["accept"] == "text/event-stream"


async def test_a_large_body_goes_out_whole() -> None:
    """P7: images are large."""
    body = b"x" * 3_000_000
    async with FaultServer(text_answer("hi")) as server:
        url = server.url
        async with aclosing(
            post_sse(f"{url}/x", body, {}, target=target(url), timeouts=TIMEOUTS)
        ) as stream:
            assert len([event async for event in stream]) > 1
    assert server.requests[0].body == body
    assert server.requests[0].headers["content-length"] == str(len(body))


async def test_an_event_is_given_out_as_soon_as_it_is_there() -> None:
    """S4, E2: a client that buffers would show nothing of a stream that does not end."""
    async with FaultServer(stream_answer(b"data: 1\n\n", b"data: 2\n\n", stall())) as server:
        stream = post(server.url)
        assert await anext(stream) == ("", b"1")
        assert await anext(stream) == ("", b"2")
        await stream.aclose()
        await asyncio.wait_for(server.requests[0].client_left.wait(), 5)


async def test_a_stream_that_is_left_is_closed_at_once() -> None:
    """C1: the server sees the client go, and not at the end of its answer."""
    async with FaultServer(stream_answer(b"data: 1\n\n", stall())) as server:
        asking = asyncio.create_task(collect_events(server.url))
        await asyncio.sleep(1)
        asking.cancel()
        await asyncio.wait([asking])
        assert asking.cancelled()
        await asyncio.wait_for(server.requests[0].client_left.wait(), 5)


async def test_connections_are_used_again() -> None:
    async with FaultServer(always=text_answer("hi")) as server:
        for _ in range(3):
            await collect_events(server.url)
    assert [asked.connection for asked in server.requests] == [1, 1, 1]


async def test_the_connection_of_a_reply_that_ended_is_used_again() -> None:
    """S8: the rest of the response is read in the background, if it comes at all."""
    slow_end = append_acts(text_answer("hi"), wait(0.5))
    async with FaultServer(slow_end, slow_end, append_acts(slow_end, stall())) as server:
        for _ in range(3):
            await leave_after_first_event(server.url, ReplyProgress(ended=True))
            await asyncio.sleep(0.9)
        assert not server.requests[2].client_left.is_set()
        await asyncio.wait_for(server.requests[2].client_left.wait(), REST_S)
    assert [asked.connection for asked in server.requests] == [1, 1, 1]


async def test_the_connection_of_a_reply_that_did_not_end_is_closed() -> None:
    async with FaultServer(append_acts(text_answer("hi"), stall())) as server:
        await leave_after_first_event(server.url, ReplyProgress())
        await asyncio.wait_for(server.requests[0].client_left.wait(), 0.1)


async def test_a_server_that_sends_on_after_the_end_is_left() -> None:
    flood = append_acts(text_answer("hi"), *[b": " + b"x" * 10_000 + b"\n"] * 100, stall())
    async with FaultServer(flood) as server:
        await leave_after_first_event(server.url, ReplyProgress(ended=True))
        await asyncio.wait_for(server.requests[0].client_left.wait(), REST_S / 2)


async def leave_after_first_event(url: str, progress: ReplyProgress) -> None:
    body = b'{"a":1}'
    events = post_sse(
        f"{url}/x", body, {}, target=target(url), timeouts=TIMEOUTS, progress=progress
    )
    assert await anext(events) == STREAM_OPENED
    await anext(events)
    await events.aclose()


@pytest.mark.realtime
async def test_a_connection_that_the_server_closed_is_not_used_again() -> None:
    """llama.cpp promises to keep connections open, and closes each of them at once."""
    with serve_in_thread(FaultServer(always=replace(text_answer("hi"), after=(drop(),)))) as server:
        for _ in range(5):
            await collect_events(server.url)
            time.sleep(0.05)  # noqa: ASYNC251 - the loop must not see the connection close
    assert [asked.connection for asked in server.requests] == [1, 2, 3, 4, 5]


async def test_requests_at_the_same_time_do_not_wait_for_one_another() -> None:
    async with FaultServer(always=stream_answer(b"data: 1\n\n", stall())) as server:
        streams = [post(server.url) for _ in range(120)]
        first = await asyncio.gather(*(anext(stream) for stream in streams))
        assert first == [("", b"1")] * 120
        await asyncio.gather(*(stream.aclose() for stream in streams))


def test_the_connections_of_a_loop_end_with_it() -> None:
    """A session that nobody closes would warn, and warnings are errors here."""

    async def ask() -> None:
        async with FaultServer(text_answer("hi")) as server:
            await collect_events(server.url)

    for _ in range(2):
        asyncio.run(ask())
    assert client._pools == {}


async def test_a_compressed_stream_is_read_all_the_same() -> None:
    packed = gzip.compress(b"data: 1\n\ndata: 2\n\n")
    headers = (("Content-Type", "text/event-stream"), ("Content-Encoding", "gzip"))
    async with FaultServer(WireAnswer(headers=headers, acts=(packed[:9], packed[9:]))) as server:
        assert await collect_events(server.url) == [("", b"1"), ("", b"2")]


async def test_a_redirect_is_not_followed() -> None:
    """P3: a key must not follow it to another host."""
    elsewhere = refuse_with(307, "", {"Location": "http://127.0.0.1:9/else"})
    async with FaultServer(elsewhere) as server:
        error = await expect_error(server.url)
    assert error.fault.kind == "bad_request"
    assert "http://127.0.0.1:9/else" in str(error)


@pytest.mark.parametrize(
    ("response", "told"),
    [
        (refuse_with(200, "<html>Sign in</html>"), "a web page"),
        (refuse_with(200, {"choices": []}), "application/json"),
    ],
    ids=["page", "json"],
)
async def test_a_success_that_is_no_stream_is_an_error(response: WireAnswer, told: str) -> None:
    """S2: a proxy's page, or a base URL that points elsewhere."""
    async with FaultServer(response) as server:
        error = await expect_error(server.url)
    assert (error.fault.kind, error.fault.retryable) == ("bad_request", False)
    assert told in str(error)
    assert "base_url" in str(error)


async def test_an_error_with_a_status_of_success_is_that_error() -> None:
    error = {"error": {"code": 429, "message": "slow down, try again in 3s"}}
    async with FaultServer(refuse_with(200, error)) as server:
        fault = (await expect_error(server.url)).fault
    assert (fault.kind, fault.retry_after_s) == ("rate_limit", 3.0)


async def test_a_closed_port_names_the_host_and_the_fix() -> None:
    async with FaultServer() as server:
        pass
    error = await expect_error(server.url)
    assert (error.fault.kind, error.fault.retryable) == ("network", True)
    assert "127.0.0.1" in str(error)
    assert "running" in str(error)


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        (hang_up(reset()), "network"),
        (hang_up(drop()), "network"),
        (hang_up(reset(), after_head=True), "incomplete_stream"),
        (hang_up(drop(), after_head=True), "incomplete_stream"),
        (stream_answer(text_chunk("a"), reset()), "incomplete_stream"),
        (stream_answer(text_chunk("a"), drop()), "incomplete_stream"),
    ],
)
async def test_a_broken_connection_is_classified(response: WireAnswer, kind: str) -> None:
    """S2, S8: before the head it is the network's fault, after it the stream is incomplete."""
    async with FaultServer(response) as server:
        error = await expect_error(server.url)
    assert (error.fault.kind, error.fault.retryable) == (kind, True)
    assert "127.0.0.1" in str(error)
    assert "\n" not in str(error)


async def test_a_server_that_speaks_no_tls_is_told_apart() -> None:
    async def blunt(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(blunt, "127.0.0.1", 0)
    async with server:
        error = await expect_error(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
    assert (error.fault.kind, error.fault.retryable) == ("network", False)
    assert "http://" in str(error)


async def test_a_key_with_a_line_break_is_not_in_the_error() -> None:
    """P3."""
    async with FaultServer(text_answer("hi")) as server:
        with pytest.raises(ModelError) as caught:
            await collect_events(server.url, Authorization="Bearer sk-very\nsecret")
    assert "secret" not in str(caught.value)


async def test_connecting_has_a_time_limit() -> None:
    """S4. The backlog of a listener that never accepts is full, so that nobody answers."""
    loop = asyncio.get_running_loop()
    short = Timeouts(connect_s=2.0)
    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0, backlog=1)
    host, port = server.sockets[0].getsockname()
    loop.remove_reader(server.sockets[0].fileno())
    fillers = [asyncio.create_task(_connect(host, port)) for _ in range(8)]
    await asyncio.sleep(0.5)
    try:
        url = f"http://{host}:{port}/v1"
        with pytest.raises(ModelError) as caught:
            async with aclosing(
                post_sse(url, b"", {}, target=target(url), timeouts=short)
            ) as stream:
                await anext(stream)
        assert caught.value.fault.kind == "network"
        assert "within 2 s" in str(caught.value)
    finally:
        for filler in fillers:
            filler.cancel()
        await asyncio.gather(*fillers, return_exceptions=True)
        server.close()
        await server.wait_closed()


async def _connect(host: str, port: int) -> None:
    _, writer = await asyncio.open_connection(host, port)
    try:
        await asyncio.Future[None]()
    finally:
        writer.close()


async def test_the_last_event_counts_without_its_blank_line() -> None:
    async with FaultServer(
        append_acts(stream_answer(sse_event(b"1")), b"data: [DONE]\n")
    ) as server:
        assert await collect_events(server.url) == [("", b"1"), ("", b"[DONE]")]


@pytest.mark.parametrize(
    ("url", "environ", "proxy"),
    [
        ("https://api.x.ai/v1", {"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
        ("https://api.x.ai/v1", {"https_proxy": "http://p:1"}, "http://p:1"),
        ("https://api.x.ai/v1", {"ALL_PROXY": "http://p:2"}, "http://p:2"),
        ("https://api.x.ai/v1", {"HTTP_PROXY": "http://p:1"}, None),
        ("http://models.lan/v1", {"http_proxy": "http://p:1"}, "http://p:1"),
        ("http://models.lan/v1", {"http_proxy": "http://p:1", "NO_PROXY": ".lan"}, None),
        ("https://api.x.ai/v1", {"HTTPS_PROXY": "http://p:1", "no_proxy": "a.com, x.ai"}, None),
        ("https://api.x.ai/v1", {"HTTPS_PROXY": "http://p:1", "no_proxy": "*"}, None),
        ("http://localhost:11434/v1", {"http_proxy": "http://p:1"}, None),
        ("http://127.0.0.1:8000/v1", {"all_proxy": "http://p:1"}, None),
        ("http://[::1]:8000/v1", {"all_proxy": "http://p:1"}, None),
        ("http://127.example.com/v1", {"all_proxy": "http://p:1"}, "http://p:1"),
        ("http://localhost.example.com/v1", {"all_proxy": "http://p:1"}, "http://p:1"),
        ("https://api.x.ai/v1", {}, None),
    ],
)
def test_the_proxy_is_the_one_that_the_environment_names(
    url: str, environ: dict[str, str], proxy: str | None
) -> None:
    assert find_proxy(url, environ) == proxy


async def test_a_request_goes_through_the_proxy() -> None:
    async with FaultServer(text_answer("hi")) as server:
        proxy = server.url.removesuffix("/v1")
        url = "http://models.invalid/v1"
        async with aclosing(
            post_sse(f"{url}/x", b"", {}, target=target(url), timeouts=TIMEOUTS, proxy=proxy)
        ) as stream:
            async for _ in stream:
                pass
    assert server.requests[0].path == "http://models.invalid/v1/x"


async def test_a_proxy_that_is_not_there_is_named() -> None:
    async with FaultServer() as server:
        proxy = server.url.removesuffix("/v1")
    url = "http://models.invalid/v1"
    with pytest.raises(ModelError) as caught:
        await anext(post_sse(url, b"", {}, target=target(url), timeouts=TIMEOUTS, proxy=proxy))
    assert caught.value.fault.kind == "network"
    assert "proxy" in str(caught.value)


async def test_a_proxy_that_refuses_is_named() -> None:
    async with FaultServer(refuse_with(403)) as server:
        proxy = server.url.removesuffix("/v1")
        url = "https://models.invalid/v1"
        with pytest.raises(ModelError) as caught:
            await anext(post_sse(url, b"", {}, target=target(url), timeouts=TIMEOUTS, proxy=proxy))
    assert caught.value.fault.kind == "network"
    assert "(403)" in str(caught.value)


@pytest.mark.parametrize("url", ["https:///v1", "gopher://host/v1", "http://host:port/v1"])
async def test_an_address_that_is_none_is_an_error_of_ours(url: str) -> None:
    error = await expect_error(url)
    assert (error.fault.kind, error.fault.retryable) == ("network", False)
    assert "base_url" in str(error)


@pytest.mark.parametrize(
    ("error", "told", "retryable"),
    [
        (HttpError("host", "there is no host"), "no host api.acme.ai", True),
        (HttpError("certificate", "self-signed"), "SSL_CERT_FILE", False),
        (HttpError("lost", "the server closed the connection"), "was lost (the server", True),
    ],
)
def test_what_a_network_does_is_told_in_words(
    error: HttpError, told: str, retryable: object
) -> None:
    broken = http._network_error(error, target("https://api.acme.ai/v1"), TIMEOUTS, 1.0)
    assert told in str(broken)
    assert (broken.fault.kind, broken.fault.retryable) == ("network", retryable)


async def test_a_machine_without_files_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking again would not help, and the run can be resumed."""

    async def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", refuse)
    error = await expect_error("http://127.0.0.1:9/v1")
    assert is_out_of_files(error)
    assert "file descriptor" in str(error)
    assert error.__context__ is None
    assert error.__cause__ is not None
    assert error.__cause__.__traceback__ is None


@pytest.mark.parametrize(
    "raw",
    [
        b"nonsense\r\n\r\n",
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\nzz\r\nboom"
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\n"
            b"Content-Length: 8\r\n\r\nnot gzip"
        ),
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
    ],
    ids=["head", "chunks", "gzip", "header"],
)
async def test_nonsense_on_the_wire_is_an_error_of_ours(raw: bytes) -> None:
    """S2: whatever the server sends, nothing but a ModelError comes out."""
    async with FaultServer(hang_up(raw)) as server:
        error = await expect_error(server.url)
    assert error.fault.retryable
    assert error.fault.kind in {"network", "incomplete_stream"}
    assert len(str(error)) < 200
