"""Pydantic AI, for the comparison: `run_stream_events`, with a cancellation token.

It has no store of its own; what is durable is so by DBOS, one of the engines that it documents, on
SQLite. Tools with effects are steps, as its page says.
"""

import asyncio
from collections.abc import AsyncIterable

import errands
from lane import PROMPT, Driver, Order, Play, Shown, serve
from pydantic_ai import (
    Agent,
    AgentRunResultEvent,
    CancellationToken,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    UsageLimits,
)
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


class PydanticAi(Driver):
    package = "pydantic-ai-slim"
    durable = "DBOS"

    def make(self, order: Order, token: CancellationToken | None = None) -> Play:
        model = OpenAIChatModel("m", provider=OpenAIProvider(base_url=order.url, api_key="none"))
        if order.store:
            return _durable(model, order)
        agent = Agent(model, tools=[errands.look, errands.nap, errands.pay])
        limits = UsageLimits(request_limit=order.steps)

        async def play(shown: Shown) -> str:
            final = ""
            streamed = agent.run_stream_events(
                PROMPT, usage_limits=limits, cancellation_token=token
            )
            async with streamed as events:
                async for event in events:
                    _show(event, shown)
                    if isinstance(event, AgentRunResultEvent):
                        final = event.result.output
            return final

        return play

    async def cancelled(self, order: Order, shown: Shown, stop: asyncio.Event) -> str:
        token = CancellationToken()
        work = asyncio.ensure_future(self.make(order, token)(shown))
        await stop.wait()
        token.cancel()
        try:
            await work
        except Exception as error:  # noqa: BLE001 - how it says so is what is asked
            return f"raises {type(error).__name__}"
        return "returned"


def _show(event: object, shown: Shown) -> None:
    match event:
        case PartStartEvent(part=TextPart(content=text)):
            shown(text)
        case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
            shown(text)
        case _:
            pass


def _durable(model: OpenAIChatModel, order: Order) -> Play:
    from dbos import DBOS, SetWorkflowID  # noqa: PLC0415 - loaded by those who use it
    from pydantic_ai.durable_exec.dbos import DBOSDurability  # noqa: PLC0415

    seen: list[Shown] = []

    async def watch(_: object, events: AsyncIterable[object]) -> None:
        async for event in events:
            if seen:
                _show(event, seen[0])

    DBOS.destroy(destroy_registry=True)
    DBOS(
        config={
            "name": "bench",
            "system_database_url": f"sqlite:///{order.store}/dbos.sqlite",
            "log_level": "ERROR",
            "run_admin_server": False,
        }
    )
    tools = [DBOS.step()(each) for each in (errands.look, errands.nap, errands.pay)]
    kept = DBOSDurability(event_stream_handler=watch)
    agent = Agent(model, name="bench", tools=tools, capabilities=[kept])
    limits = UsageLimits(request_limit=order.steps)

    @DBOS.workflow(name="run")
    async def run(prompt: str) -> str:
        return (await agent.run(prompt, usage_limits=limits)).output

    # What a dead process left pending is taken up again by this.
    DBOS.launch()

    async def play(shown: Shown) -> str:
        seen.append(shown)
        if order.resume:
            handle = await DBOS.retrieve_workflow_async(order.session)
            return await handle.get_result()
        with SetWorkflowID(order.session):
            return await run(PROMPT)

    return play


if __name__ == "__main__":
    serve(PydanticAi())
