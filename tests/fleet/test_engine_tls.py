"""An engine behind TLS: certificates of both sides, and an API key."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

pytest.importorskip("temporalio", reason="needs the extra `temporal`")

from certificates import make_certificate
from temporal_server import run_servers, start_temporal
from windlass.fleet import EngineUnreachable, connect_engine

__all__ = ["run_servers"]
pytestmark = [pytest.mark.realtime, pytest.mark.slow]


class TlsFront:
    """Speaks TLS for the engine, and keeps the first bytes that clients send."""

    def __init__(self) -> None:
        self.port = 0
        self.received = b""
        self._tasks = set[asyncio.Task[None]]()
        self._writers = set[asyncio.StreamWriter]()

    async def serve_client(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", start_temporal().port)
        self._writers |= {writer, far_writer}

        async def pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            while data := await source.read(65_536):
                if source is reader:
                    self.received += data
                target.write(data)
            target.close()

        with suppress(OSError):
            await asyncio.gather(pass_on(reader, far_writer), pass_on(far_reader, writer))

    async def end(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def serve_tls(folder: Path, client: Path | None = None) -> AsyncGenerator[TlsFront]:
    """Stand before the engine with a certificate, and ask clients for theirs if one is given."""
    cert, key = make_certificate(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    context.set_alpn_protocols(["h2"])
    if client is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(client)
    front = TlsFront()
    server = await asyncio.start_server(front.serve_client, "127.0.0.1", 0, ssl=context)
    front.port = server.sockets[0].getsockname()[1]
    try:
        yield front
    finally:
        server.close()
        await front.end()


async def test_an_engine_is_reached_by_tls_with_an_api_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key goes to a server whose certificate counts, and to no other."""
    monkeypatch.setenv("TEMPORAL_API_KEY", "key-of-the-cloud")
    async with serve_tls(tmp_path) as front:
        address = f"temporal://127.0.0.1:{front.port}/default?tls=1"
        engine = await connect_engine(f"{address}&ca={tmp_path / 'cert.pem'}")
        assert not await engine.nudge("nobody")
        assert front.received.startswith(b"PRI * HTTP/2.0")
        with pytest.raises(EngineUnreachable):
            await connect_engine(address)


async def test_an_engine_may_ask_for_a_client_certificate(tmp_path: Path) -> None:
    own = tmp_path / "client"
    own.mkdir()
    cert, key = make_certificate(own)
    async with serve_tls(tmp_path, client=cert) as front:
        address = f"temporal://127.0.0.1:{front.port}/default?ca={tmp_path / 'cert.pem'}"
        engine = await connect_engine(f"{address}&cert={cert}&key={key}")
        assert not await engine.nudge("nobody")
        with pytest.raises(EngineUnreachable):
            await connect_engine(address)
