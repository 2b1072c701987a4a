"""A proxy between a worker and a server, which cuts, slows down or silences their connections.

It runs in a thread of its own, so that it goes on while the campaign waits for something else.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Literal, TypeVar

Fault = Literal["none", "refuse", "silence"]
CHUNK_BYTES = 65_536
T = TypeVar("T")
Connect = Callable[[], Coroutine[Any, Any, tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


class ProxyThread:
    """The event loop that all proxies of a campaign share."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="proxies", daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something in the loop of the proxies, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    def stop(self) -> None:
        """End all connections, and the thread."""
        self.call(self._cancel_tasks())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()

    async def _cancel_tasks(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class FaultProxy:
    """Passes connections on from a port of 127.0.0.1 to a server, with the fault of the moment.

    `refuse` closes what is open and refuses what is new, on both sides: a cable that was pulled and
    noticed. `silence` closes only the side of the server: the worker hears nothing more and does
    not know why, while the server has forgotten it. That is the worst of all partitions.
    """

    def __init__(self, thread: ProxyThread, connect: Connect) -> None:
        self._thread = thread
        self._connect = connect
        self._server: asyncio.Server | None = None
        self._links: set[_ProxyLink] = set()
        self._fault: Fault = "none"
        self.delay_s = 0.0
        """How long each piece of data takes, in both directions."""
        self.port = thread.call(self._listen())

    async def _listen(self) -> int:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._fault == "refuse":
            writer.close()
            return
        link = _ProxyLink(self, reader, writer)
        self._links.add(link)
        try:
            if self._fault == "silence":
                await link.healed.wait()
                return
            await link.carry(self._connect)
        except OSError:
            pass  # The server is away, or one side left.
        finally:
            self._links.discard(link)
            link.close()

    def set_fault(self, fault: Fault) -> None:
        """Begin a fault, or end it. What was silenced is closed at its end."""
        self._thread.call(self._set_fault(fault))

    async def _set_fault(self, fault: Fault) -> None:
        self._fault = fault
        for link in tuple(self._links):
            if fault == "silence":
                link.close_server()
            else:
                if fault == "refuse":
                    link.close()
                link.healed.set()

    def stop(self) -> None:
        self._thread.call(self._stop())

    async def _stop(self) -> None:
        if self._server is not None:
            self._server.close()
        await self._set_fault("refuse")


class _ProxyLink:
    """One connection, with its two sides."""

    def __init__(
        self, proxy: FaultProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._proxy = proxy
        self._reader = reader
        self._writer = writer
        self._server_writer: asyncio.StreamWriter | None = None
        self._is_silent = False
        self.healed = asyncio.Event()

    async def carry(self, connect: Connect) -> None:
        """Carry data both ways until one side leaves, or the link is silenced and healed."""
        reader, self._server_writer = await connect()
        up = asyncio.create_task(self._pump(self._reader, self._server_writer))
        down = asyncio.create_task(self._pump(reader, self._writer))
        try:
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            if self._is_silent:
                await self.healed.wait()
        finally:
            for task in (up, down):
                task.cancel()
            await asyncio.gather(up, down, return_exceptions=True)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                if self._proxy.delay_s:
                    await asyncio.sleep(self._proxy.delay_s)
                if self._is_silent:
                    return
                writer.write(data)
                await writer.drain()

    def close_server(self) -> None:
        """Let the server see that the connection is gone, and the worker nothing."""
        self._is_silent = True
        if self._server_writer is not None:
            self._server_writer.transport.abort()

    def close(self) -> None:
        for writer in (self._writer, self._server_writer):
            if writer is not None:
                writer.transport.abort()
