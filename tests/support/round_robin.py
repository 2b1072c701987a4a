"""An HTTP proxy that sends each request to the next replica, as a load balancer does.

A replica that cannot be reached is passed over. A reply that breaks off breaks off for the client.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web

HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})


class RoundRobinProxy:
    """Forwards requests to replicas in turn."""

    def __init__(self, replicas: Sequence[str], first: int = 0) -> None:
        """Make a proxy. `first`: the replica that gets the first request."""
        self.replicas = list(replicas)
        self.served: list[str] = []
        """Which replica answered each request."""
        self.address = ""
        self._next = first
        self._client: aiohttp.ClientSession | None = None

    async def forward(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        first = self._next
        self._next += 1
        for offset in range(len(self.replicas)):
            replica = self.replicas[(first + offset) % len(self.replicas)]
            try:
                return await self._pass_on(request, replica, body)
            except aiohttp.ClientConnectorError:
                continue
            except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
                # It died with the request in its hands: who knows what it did with it.
                break
        return web.Response(status=502, text="no replica answers")

    async def _pass_on(
        self, request: web.BaseRequest, replica: str, body: bytes
    ) -> web.StreamResponse:
        assert self._client is not None
        headers = {k: v for k, v in request.headers.items() if k.lower() not in HOP_BY_HOP}
        async with self._client.request(
            request.method,
            replica + request.path_qs,
            headers=headers,
            data=body or None,
            allow_redirects=False,
        ) as reply:
            self.served.append(replica)
            kept = {k: v for k, v in reply.headers.items() if k.lower() not in HOP_BY_HOP}
            response = web.StreamResponse(status=reply.status, headers=kept)
            await response.prepare(request)
            try:
                async for chunk in reply.content.iter_any():
                    await response.write(chunk)
            except (aiohttp.ClientError, ConnectionError):
                if request.transport is not None:
                    request.transport.abort()
                return response
            await response.write_eof()
            return response

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        """Forward for as long as the block lasts."""
        # A connection of its own for each request: none is left over from a replica that died.
        connector = aiohttp.TCPConnector(force_close=True, limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as client:
            self._client = client
            server = web.Server(self.forward, handler_cancellation=True)
            runner = web.ServerRunner(server, shutdown_timeout=1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
            try:
                yield
            finally:
                await runner.cleanup()
