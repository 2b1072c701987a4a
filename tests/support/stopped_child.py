"""A driver that is stopped inside a tool: `python stopped_child.py dsn folder guard`."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

from windlass import NOT_DONE, Agent, RunContext, Tool, WindlassError, tool
from windlass.journals.postgres.journal import PostgresJournal
from windlass.testing import ScriptedModel, call


class PaymentService:
    """A service outside: a line for each payment, and the highest token that it has seen."""

    def __init__(self, folder: Path) -> None:
        self.payments = folder / "payments"
        self._token = folder / "token"

    def pay(self, token: int) -> None:
        with self.payments.open("a") as file:
            file.write(f"{token}\n")

    def pay_fenced(self, token: int) -> None:
        """Refuse a token that is lower than one that was used before."""
        highest = int(self._token.read_text()) if self._token.exists() else 0
        if token < highest:
            raise PermissionError(f"the token {token} is out of date")
        self._token.write_text(str(token))
        self.pay(token)


def make_pay_tool(folder: Path, guard: str, wait: Callable[[], bool]) -> Tool[..., object]:
    """A write that waits in the middle; `guard` is how it makes sure that it may still act."""
    service = PaymentService(folder)

    def was_paid(context: RunContext) -> object:
        del context
        return "paid" if service.payments.exists() else NOT_DONE

    async def pay_async(context: RunContext) -> str:
        """Pay the bill."""
        while wait():  # noqa: ASYNC110 - it waits for a file
            await asyncio.sleep(0.01)
        if guard == "ask" and not await context.still_driving():
            return "not paid"
        if guard == "token":
            service.pay_fenced(context.fencing_token)
        else:
            service.pay(context.fencing_token)
        return "paid"

    def pay_sync(context: RunContext) -> str:
        """Pay the bill."""
        while wait():
            context.wait(0.01)
        if not context.check_driving():
            return "not paid"
        service.pay(context.fencing_token)
        return "paid"

    function = pay_sync if guard == "ask in a thread" else pay_async
    return tool(function, name="pay", reconcile=was_paid)


async def drive(dsn: str, folder: Path, guard: str) -> None:
    def wait() -> bool:
        (folder / "inside").touch()
        return not (folder / "go").exists()

    async with PostgresJournal(dsn) as journal:
        agent = Agent(
            ScriptedModel([call("pay"), "Paid."]),
            tools=[make_pay_tool(folder, guard, wait)],
            journal=journal,
        )
        try:
            result = await agent.run("Pay.", session="s")
            print(result.outcome, flush=True)  # noqa: T201
        except WindlassError as error:
            print(type(error).__name__, flush=True)  # noqa: T201


if __name__ == "__main__":
    asyncio.run(drive(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
