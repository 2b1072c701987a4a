"""Windlass, for the comparison."""

import asyncio
from pathlib import Path

import errands
from lane import PROMPT, Driver, Order, Play, Shown, serve

from windlass import Agent, AttemptDiscarded, Event, Limits, LoopPolicy, TextDelta, Toolbox, tool
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.models.resolve import resolve_model

TOOLS = Toolbox(
    [
        tool(errands.look, effect="read"),
        tool(errands.nap, effect="read"),
        tool(errands.pay, effect="write"),
    ]
)


class Windlass(Driver):
    package = "windlass"
    durable = "SqliteJournal"

    def make(self, order: Order) -> Play:
        agent = self._agent(order)

        async def play(shown: Shown) -> str:
            def on_event(event: Event) -> None:
                match event:
                    case TextDelta():
                        shown(event.text)
                    case AttemptDiscarded():
                        shown.discard()
                    case _:
                        pass

            watcher = on_event if order.watched else None
            if order.resume:
                result = await agent.resume(order.session, on_event=watcher)
            else:
                session = order.session if order.store else None
                # The column of the page for text that cannot be taken back.
                on_partial = "fail" if order.watched else "restart"
                result = await agent.run(
                    PROMPT, on_event=watcher, session=session, on_partial=on_partial
                )
            if result.outcome != "completed":
                raise Unfinished(f"{result.outcome}: {result.error or result.partial_text}")
            return result.text

        return play

    def _agent(self, order: Order) -> Agent[str]:
        journal = SqliteJournal(Path(order.store) / "windlass.db") if order.store else None
        model = resolve_model("openai-compatible:m", base_url=order.url, environ={})
        rules = LoopPolicy(calls_at_once_max=32) if order.wide else LoopPolicy()
        limits = Limits(steps=order.steps)
        return Agent(model, tools=TOOLS, limits=limits, journal=journal, rules=rules)

    async def cancelled(self, order: Order, shown: Shown, stop: asyncio.Event) -> str:
        agent = self._agent(order)

        def on_event(event: Event) -> None:
            if isinstance(event, TextDelta):
                shown(event.text)

        work = asyncio.ensure_future(agent.run(PROMPT, session=order.session, on_event=on_event))
        await stop.wait()
        agent.cancel(order.session)
        result = await work
        return f"a result: {result.outcome}, {len(result.partial_text)} characters kept"


class Unfinished(Exception):
    """The run ended otherwise than completed."""


if __name__ == "__main__":
    serve(Windlass())
