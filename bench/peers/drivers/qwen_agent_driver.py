"""Qwen-Agent, for the comparison: `Assistant` with native calls (`use_raw_api`). Not async."""

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

from lane import PROMPT, Driver, Order, Play, Shown, serve

# Read when the package is imported: its limit of replies, and where it keeps its files.
os.environ["QWEN_AGENT_MAX_LLM_CALL_PER_RUN"] = "1000"
os.environ["QWEN_AGENT_DEFAULT_WORKSPACE"] = str(Path(mkdtemp()) / "workspace")

import errands_sync
from qwen_agent.agents import Assistant
from qwen_agent.tools.base import BaseTool


def _tool(function: Callable[..., str], field: str) -> BaseTool:
    class Errand(BaseTool):
        name = function.__name__
        description = (function.__doc__ or "").splitlines()[0]
        parameters = {  # noqa: RUF012 - the shape that the base class asks for
            "type": "object",
            "properties": {field: {"type": "integer"}},
            "required": [field],
        }

        def call(self, params: str | dict, **_: object) -> str:
            given = json.loads(params) if isinstance(params, str) else params
            return function(**given)

    return Errand()


class QwenAgent(Driver):
    package = "qwen-agent"
    awaited = False

    def make(self, order: Order) -> Play:
        llm = {
            "model": "m",
            "model_type": "oai",
            "model_server": order.url,
            "api_key": "none",
            "generate_cfg": {"use_raw_api": True, "max_input_tokens": 1_000_000},
        }
        tools = [
            _tool(errands_sync.look, "at"),
            _tool(errands_sync.nap, "at"),
            _tool(errands_sync.pay, "amount"),
        ]
        agent = Assistant(llm=llm, function_list=tools)

        def play(shown: Shown) -> str:
            messages: list[dict] = []
            seen: list[int] = []
            for messages in agent.run([{"role": "user", "content": PROMPT}]):
                _show_new(messages, seen, shown)
            return str(messages[-1]["content"]) if messages else ""

        return play

    async def cancelled(self, order: Order, shown: Shown, stop: asyncio.Event) -> str:
        """It has no cancel: whoever waits for it waits until the model says something."""
        work = asyncio.ensure_future(asyncio.to_thread(self.make(order), shown))
        await stop.wait()
        await work
        return "returned"


def _show_new(messages: list[dict], seen: list[int], shown: Shown) -> None:
    """Each time it gives all messages so far; what is new of them is what a person sees."""
    del seen[len(messages) :]
    for at, message in enumerate(messages):
        if at == len(seen):
            seen.append(0)
        if at >= len(messages) - 2 and message["role"] == "assistant":
            text = str(message["content"] or "")
            shown(text[seen[at] :])
            seen[at] = len(text)


if __name__ == "__main__":
    serve(QwenAgent())
