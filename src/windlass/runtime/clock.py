"""Time and chance as they are."""

import asyncio
import random
import time


class RealClock:
    """The machine's own clock and dice."""

    def now(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def random_fraction(self) -> float:
        return random.random()  # noqa: S311 - jitter, not a secret
