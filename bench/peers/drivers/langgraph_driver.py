"""LangGraph, for the comparison: `create_agent` over ChatOpenAI, streamed by messages."""

from contextlib import nullcontext
from pathlib import Path

import errands
from lane import PROMPT, Driver, Order, Play, Shown, serve
from langchain.agents import create_agent
from langchain_core.messages import AIMessageChunk
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

MODES = ["messages", "updates"]


class LangGraph(Driver):
    package = "langgraph"
    durable = "AsyncSqliteSaver"

    def make(self, order: Order) -> Play:
        model = ChatOpenAI(model="m", base_url=order.url, api_key="none", stream_usage=True)
        tools = [errands.look, errands.nap, errands.pay]
        shared = None if order.store else create_agent(model, tools)
        config = {
            "recursion_limit": 2 * order.steps + 10,
            "configurable": {"thread_id": order.session},
        }
        path = str(Path(order.store) / "langgraph.db")
        given = None if order.resume else {"messages": [{"role": "user", "content": PROMPT}]}

        async def play(shown: Shown) -> str:
            final = ""
            kept = AsyncSqliteSaver.from_conn_string(path) if order.store else nullcontext()
            async with kept as saver:
                agent = shared or create_agent(model, tools, checkpointer=saver)
                async for mode, part in agent.astream(given, config, stream_mode=MODES):
                    if mode == "messages":
                        message, _ = part
                        if isinstance(message, AIMessageChunk):
                            shown(message.text)
                    elif update := part.get("model"):
                        final = update["messages"][-1].text
            return final

        return play


if __name__ == "__main__":
    serve(LangGraph())
