"""Sends what a client without a socket would send, over one."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import aiohttp
from typing_extensions import override

from service import DirectClient
from windlass.server.messages import Reply, StreamReply


class SocketClient(DirectClient):
    """Sends what a client without a socket would send, over one."""

    def __init__(self, address: str, token: str) -> None:
        self.address = address
        self.token = token

    @override
    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        session = aiohttp.ClientSession(
            self.address, headers={"Authorization": f"Bearer {self.token}"}
        )
        return StreamReply(read_frames(session, method, path, body))


def check_reached(reply: aiohttp.ClientResponse) -> None:
    """Raise ClientError if the proxy reached no replica: a client then tries again."""
    if reply.status == 502:
        raise aiohttp.ClientConnectionError("no replica answers")


async def read_frames(
    session: aiohttp.ClientSession, method: str, path: str, body: Any
) -> AsyncGenerator[bytes]:
    async with session, session.request(method, path, json=body) as reply:
        check_reached(reply)
        assert reply.status == 200, await reply.text()
        frame = b""
        async for line in reply.content:
            frame += line
            if line == b"\n":
                yield frame
                frame = b""
