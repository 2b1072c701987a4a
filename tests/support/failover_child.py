"""A driver that pays bills until it is killed: `python failover_child.py dsn folder session`."""

import asyncio
import sys
from pathlib import Path
from typing import Any

from windlass import Agent, Tool, tool
from windlass.journals.postgres.journal import PostgresJournal
from windlass.testing import ScriptedModel, call

LEASE_S = 2.0


def make_pay_tool(folder: Path) -> Tool[..., Any]:
    """A write without a key: each call adds a line to a file."""

    @tool
    async def pay(bill: int) -> str:
        """Pay a bill."""
        with (folder / "payments").open("a") as file:
            file.write(f"{bill}\n")
        await asyncio.sleep(0.05)
        return "paid"

    return pay


async def drive(dsn: str, folder: Path, session: str) -> None:
    async with PostgresJournal(dsn, lease_s=LEASE_S) as journal:
        script = [call("pay", {"bill": number}) for number in range(10_000)]
        agent = Agent(ScriptedModel(script), tools=[make_pay_tool(folder)], journal=journal)
        await agent.run("Pay.", session=session)


if __name__ == "__main__":
    asyncio.run(drive(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
