"""Two services in processes of their own, on one Postgres, behind a round-robin proxy."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from postgres import dsn_of
from round_robin import RoundRobinProxy
from service_process import ServiceProcess, free_port, make_token, serve_process
from stream_client import StreamClient


@dataclass
class Replicas:
    """Two services on one journal, and the proxy in front of them."""

    folder: Path
    services: list[ServiceProcess]
    proxy: RoundRobinProxy
    token: str
    restart: Callable[[int], None]

    def make_client(self) -> StreamClient:
        return StreamClient(self.proxy.address, self.token)

    async def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """Return the status and the decoded body of a reply, by way of the proxy."""
        sent = {"Authorization": f"Bearer {self.token}", **(headers or {})}
        async with (
            aiohttp.ClientSession(self.proxy.address, headers=sent) as client,
            client.request(method, path, json=body) as reply,
        ):
            data = await reply.read()
            return reply.status, json.loads(data) if data else None

    def read_effects(self) -> list[str]:
        path = self.folder / "effects.txt"
        return path.read_text().splitlines() if path.exists() else []


@asynccontextmanager
async def run_replicas(folder: Path, app: str, first: int = 0) -> AsyncGenerator[Replicas]:
    """Run two services of an app. `first`: the one that gets the first request."""
    journal = await asyncio.to_thread(dsn_of, folder)
    token = await make_token(journal)
    ports = [free_port(), free_port()]
    with ExitStack() as stack:

        def start(port: int) -> ServiceProcess:
            return stack.enter_context(serve_process(folder, port, app=app, journal=journal))

        services = [await asyncio.to_thread(start, port) for port in ports]
        proxy = RoundRobinProxy([service.address for service in services], first)

        def restart(at: int) -> None:
            services[at] = start(ports[at])

        async with proxy.run():
            yield Replicas(folder, services, proxy, token, restart)
