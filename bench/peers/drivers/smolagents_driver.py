"""smolagents, for the comparison: `ToolCallingAgent` with streamed outputs. It is not async."""

import asyncio

import errands_sync
from lane import PROMPT, Driver, Order, Play, Shown, serve
from smolagents import ChatMessageStreamDelta, FinalAnswerStep, LogLevel, OpenAIModel, tool
from smolagents import ToolCallingAgent as Agent

TOOLS = [tool(errands_sync.look), tool(errands_sync.nap), tool(errands_sync.pay)]


def _agent(model: OpenAIModel, order: Order) -> Agent:
    return Agent(
        tools=TOOLS,
        model=model,
        stream_outputs=True,
        max_steps=order.steps,
        max_tool_threads=32 if order.wide else None,
        verbosity_level=LogLevel.OFF,
    )


def _watch(agent: Agent, shown: Shown) -> str:
    final = ""
    for event in agent.run(PROMPT, stream=True):
        if isinstance(event, ChatMessageStreamDelta):
            shown(event.content or "")
        elif isinstance(event, FinalAnswerStep):
            final = event.output
    return final


class Smolagents(Driver):
    package = "smolagents"
    awaited = False

    def make(self, order: Order) -> Play:
        model = OpenAIModel(model_id="m", api_base=order.url, api_key="none")
        _agent(model, order)
        # An agent holds its conversation: each run has its own.
        return lambda shown: _watch(_agent(model, order), shown)

    async def cancelled(self, order: Order, shown: Shown, stop: asyncio.Event) -> str:
        model = OpenAIModel(model_id="m", api_base=order.url, api_key="none")
        agent = _agent(model, order)
        work = asyncio.ensure_future(asyncio.to_thread(_watch, agent, shown))
        await stop.wait()
        agent.interrupt()
        try:
            await work
        except Exception as error:  # noqa: BLE001 - how it says so is what is asked
            return f"raises {type(error).__name__}"
        return "returned"


if __name__ == "__main__":
    serve(Smolagents())
