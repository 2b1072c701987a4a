"""The OpenAI Agents SDK, for the comparison: `Runner.run_streamed` over chat completions."""

import asyncio
from pathlib import Path

import errands
from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    Runner,
    RunResultStreaming,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from lane import PROMPT, Driver, Order, Play, Shown, serve
from openai import AsyncOpenAI
from openai.types.responses import ResponseTextDeltaEvent

set_tracing_disabled(disabled=True)


class OpenAiAgents(Driver):
    package = "openai-agents"
    durable = "SQLiteSession"

    def _start(self, order: Order) -> tuple[Agent, dict]:
        client = AsyncOpenAI(base_url=order.url, api_key="none")
        tools = [function_tool(each) for each in (errands.look, errands.nap, errands.pay)]
        model = OpenAIChatCompletionsModel(model="m", openai_client=client)
        options: dict = {"max_turns": order.steps}
        if order.store:
            options["session"] = SQLiteSession(order.session, Path(order.store) / "openai.db")
        return Agent(name="bench", model=model, tools=tools), options

    def make(self, order: Order) -> Play:
        agent, options = self._start(order)

        async def play(shown: Shown) -> str:
            # A session keeps the items of a run; there is no call that takes a run up again.
            prompt = "Go on." if order.resume else PROMPT
            result = Runner.run_streamed(agent, prompt, **options)
            await _watch(result, shown)
            return result.final_output

        return play

    async def cancelled(self, order: Order, shown: Shown, stop: asyncio.Event) -> str:
        agent, options = self._start(order)
        result = Runner.run_streamed(agent, PROMPT, **options)
        work = asyncio.ensure_future(_watch(result, shown))
        await stop.wait()
        result.cancel()
        try:
            await work
        except Exception as error:  # noqa: BLE001 - how it says so is what is asked
            return f"raises {type(error).__name__}"
        return "the stream ends"


async def _watch(result: RunResultStreaming, shown: Shown) -> None:
    async for event in result.stream_events():
        if event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent):
            shown(event.data.delta)


if __name__ == "__main__":
    serve(OpenAiAgents())
