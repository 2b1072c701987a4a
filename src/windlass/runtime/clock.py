"""The clock of the machine: the real time and real random numbers."""

import asyncio
import random
import time


class RealClock:
    """Implements `ports.Clock` with the machine's time and Python's random numbers."""

    def now(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def random_fraction(self) -> float:
        return random.random()  # noqa: S311 - jitter, not a secret
