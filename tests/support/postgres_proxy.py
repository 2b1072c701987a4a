"""Stands between a journal and its server, and fails in one chosen way."""

import asyncio
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Literal

Trouble = Literal["lose the request", "lose the answer", "delay the request", "swallow the request"]
SOCKET = ".s.PGSQL.5432"


class PostgresProxy:
    """Forwards both directions until a trouble is set. Each trouble happens once."""

    def __init__(self, folder: Path, target: Path) -> None:
        self.folder = folder
        self.trouble: Trouble | None = None
        self.made = 0
        self.target = target
        """The folder of the server's socket."""
        self._late: list[tuple[bytes, asyncio.StreamWriter]] = []
        self._open = set[asyncio.StreamWriter]()
        self._server: asyncio.Server | None = None
        self._tasks = set[asyncio.Task[None]]()

    async def up(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve_client, self.folder / SOCKET)

    def down(self) -> None:
        """Nobody gets in any more, and all who were in are out."""
        if self._server is not None:
            self._server.close()
            self._server = None
            (self.folder / SOCKET).unlink()
        for writer in self._open:
            writer.transport.abort()

    async def deliver(self) -> None:
        """Bring what was delayed to the server after all, and wait until it has seen to it."""
        for data, writer in self._late:
            writer.write(data)
            await writer.drain()
        await asyncio.sleep(0.2)
        self._late.clear()

    async def _serve_client(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        far_reader, far_writer = await asyncio.open_unix_connection(self.target / SOCKET)
        self._open |= {writer, far_writer}
        losing = asyncio.Event()

        async def onward() -> None:
            while data := await reader.read(65_536):
                trouble, self.trouble = self.trouble, None
                self.made += trouble is not None
                if trouble == "lose the answer":
                    losing.set()
                elif trouble == "delay the request":
                    self._late.append((data, far_writer))
                    writer.transport.abort()
                    return
                elif trouble == "lose the request":
                    break
                elif trouble == "swallow the request":
                    continue
                far_writer.write(data)
            far_writer.close()

        async def back() -> None:
            while data := await far_reader.read(65_536):
                if losing.is_set():
                    writer.transport.abort()
                    return
                writer.write(data)
            writer.close()

        with suppress(OSError):
            await asyncio.gather(onward(), back(), return_exceptions=True)

    async def end(self) -> None:
        self.down()
        await asyncio.wait(self._tasks, timeout=5)


@asynccontextmanager
async def proxy_to(dsn: str) -> AsyncGenerator[tuple[PostgresProxy, str]]:
    """A proxy, and the address under which the server is reached through it."""
    address, _, folder = dsn.partition("?host=")
    with tempfile.TemporaryDirectory(prefix="windlass-pp-") as own:
        proxy = PostgresProxy(Path(own), Path(folder))
        await proxy.up()
        try:
            yield proxy, f"{address}?host={own}"
        finally:
            await proxy.end()
