"""What the agents are given to do: the same tools for everyone, async."""

import asyncio
import os
from pathlib import Path

NAP_S = 0.05
EFFECTS = "BENCH_EFFECTS"
"""The variable that names the file in which an effect leaves its mark."""
STUCK_S = "BENCH_STUCK_S"


class Seen:
    """How often the tools ran, and how many at one time at the most."""

    ran = 0
    at_once = 0
    awake = 0
    arguments: list[str] = []  # noqa: RUF012 - one process, one count


def began(argument: object) -> None:
    Seen.ran += 1
    Seen.awake += 1
    Seen.at_once = max(Seen.at_once, Seen.awake)
    if len(Seen.arguments) < 100:
        Seen.arguments.append(str(argument))


def ended() -> None:
    Seen.awake -= 1


def mark(amount: int) -> None:
    """The effect: a line in a file, on the disk before anything else happens."""
    with Path(os.environ[EFFECTS]).open("a", encoding="utf-8") as file:
        file.write(f"paid {amount}\n")
        file.flush()
        os.fsync(file.fileno())


async def look(at: int) -> str:
    """Look at a parcel.

    Args:
        at: its number.
    """
    began(at)
    ended()
    return f"parcel {at}"


async def nap(at: int) -> str:
    """Wait for a parcel.

    Args:
        at: its number.
    """
    began(at)
    await asyncio.sleep(NAP_S)
    ended()
    return f"parcel {at}"


async def pay(amount: int) -> str:
    """Pay for a parcel.

    Args:
        amount: how much.
    """
    began(amount)
    mark(amount)
    await asyncio.sleep(float(os.environ.get(STUCK_S, "0")))
    ended()
    return f"parcel {amount}"
