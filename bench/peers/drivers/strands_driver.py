"""Strands Agents, for the comparison: `stream_async`, with one client for all requests."""

import asyncio

import errands
from lane import PROMPT, Driver, Order, Play, Shown, serve
from openai import AsyncOpenAI
from strands import Agent, tool
from strands.models.openai import OpenAIModel
from strands.session import FileSessionManager

TOOLS = [tool(errands.look), tool(errands.nap), tool(errands.pay)]


def _model(order: Order) -> OpenAIModel:
    return OpenAIModel(client=AsyncOpenAI(base_url=order.url, api_key="none"), model_id="m")


def _agent(model: OpenAIModel, order: Order) -> Agent:
    options = {}
    if order.store:
        options["session_manager"] = FileSessionManager(order.session, storage_dir=order.store)
    return Agent(model=model, tools=TOOLS, callback_handler=None, **options)


async def _watch(agent: Agent, shown: Shown, prompt: str | None) -> str:
    final = ""
    async for event in agent.stream_async(prompt):
        if "data" in event:
            shown(event["data"])
        elif "result" in event:
            result = event["result"]
            if result.stop_reason not in ("end_turn", "stop_sequence"):
                return f"{result.stop_reason}: {result}"
            final = str(result).removesuffix("\n")
    return final


class Strands(Driver):
    package = "strands-agents"
    durable = "FileSessionManager"

    def make(self, order: Order) -> Play:
        model = _model(order)
        _agent(model, order)
        prompt = None if order.resume else PROMPT

        async def play(shown: Shown) -> str:
            # An agent holds its conversation: each run has its own.
            return await _watch(_agent(model, order), shown, prompt)

        return play

    async def cancelled(self, order: Order, shown: Shown, stop: asyncio.Event) -> str:
        agent = _agent(_model(order), order)
        work = asyncio.ensure_future(_watch(agent, shown, PROMPT))
        await stop.wait()
        agent.cancel()
        try:
            return f"a result: {(await work)[:60]}"
        except Exception as error:  # noqa: BLE001 - how it says so is what is asked
            return f"raises {type(error).__name__}"


if __name__ == "__main__":
    serve(Strands())
