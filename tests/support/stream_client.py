"""A client of the service that remembers the id of the last event, and comes back with it."""

import asyncio
import json
from collections import Counter

import aiohttp


class StreamClient:
    """Starts runs, and watches one of them over any number of connections."""

    def __init__(self, address: str, token: str) -> None:
        self.address = address
        self.headers = {"Authorization": f"Bearer {token}"}
        self.session = ""
        self.seen: list[int] = []
        self.facts: list[str] = []
        self.connections = 0

    async def start(self, prompt: str) -> None:
        async with (
            aiohttp.ClientSession(self.address, headers=self.headers) as client,
            client.post("/runs", json={"prompt": prompt}) as reply,
        ):
            assert reply.status == 202
            self.session = (await reply.json())["session"]

    async def read_until(self, fact: str, times: int = 1) -> bool:
        """Read events until a kind of fact has come so often. Returns whether the stream ended."""
        headers = {**self.headers, "Accept": "text/event-stream"}
        if self.seen:
            headers["Last-Event-ID"] = str(self.seen[-1])
        async with (
            aiohttp.ClientSession(self.address, headers=headers) as client,
            client.get(f"/runs/{self.session}/events") as events,
        ):
            assert events.status == 200, await events.text()
            self.connections += 1
            number = 0
            async for raw in events.content:
                line = raw.decode().strip()
                if line.startswith("id: "):
                    number = int(line[4:])
                elif line.startswith("data: ") and number:
                    self.seen.append(number)
                    self.facts.append(json.loads(line[6:])["type"])
                    number = 0
                    if self.facts.count(fact) >= times:
                        return False
        return True

    async def follow_until(self, fact: str, times: int = 1) -> None:
        """Read until a kind of fact has come so often, and connect again whenever it is cut off."""
        while Counter(self.facts)[fact] < times:
            try:
                await self.read_until(fact, times)
            except aiohttp.ClientError:
                # As a browser does after the `retry:` of the stream, only sooner.
                await asyncio.sleep(0.05)
