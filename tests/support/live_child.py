"""A process that drives or watches a session: `python live_child.py what store name`.

The store is the path of a SQLite file, or the URL of a Postgres server with the schema as its name.
"""

import asyncio
import json
import sys
from typing import Any

from windlass import Agent, Deny, tool
from windlass.core.setup import ModelInfo
from windlass.journals.live import socket_server, socket_watch
from windlass.journals.postgres.journal import PostgresJournal
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing import FixedGate, ScriptedModel, ScriptedReply, call, pause, say, think

WORDS = [f"word{at} " for at in range(50)]
SECRET = "hunter2-of-the-hill"
PAUSE_S = 0.05


@tool(effect="read")
async def look() -> str:
    """Look."""
    return "seen"


def open_journal(store: str, name: str) -> Any:
    if store.startswith("postgres"):
        return PostgresJournal(store, schema=name)
    return SqliteJournal(store)


def make_script(words: list[str] = WORDS) -> list[ScriptedReply]:
    pieces = [piece for word in words for piece in (say(word), pause(PAUSE_S))]
    return [[*pieces, call("look")], [say("All "), pause(0.2), say("done.")]]


async def drive(journal: Any, *options: str) -> None:
    """Run a session whose model speaks slowly."""
    if "impatient" in options:
        socket_server.INTEREST_S = 0.5
    pieces = [say("It is hunter"), pause(0.3), say("2-of-the-"), pause(0.3), say("hill.")]
    if "secret" in options:
        script: list[ScriptedReply] = [[pause(0.5), *pieces]]
    elif "flood" in options:
        flood = [piece for _ in range(30) for piece in (say("x" * 100_000), pause(0.06))]
        script = [[say("Begin. "), pause(1), *flood]]
    else:
        script = make_script()
    info = ModelInfo("scripted:model", output_max=2_000_000)
    model = ScriptedModel(script, info=info, token_chars=100_000)
    agent = Agent(model, tools=[look], journal=journal, secrets={"P": SECRET})
    await agent.run("Go.", session="s")


async def delegate(journal: Any) -> None:
    """Run a session whose sub-agent thinks, speaks and writes a call, slowly."""
    words = [piece for word in WORDS for piece in (say(word), pause(PAUSE_S))]
    script: list[ScriptedReply] = [[call("look")], [think("Hm."), *words, call("look")], "Seen."]
    child = Agent(
        ScriptedModel(script, token_chars=100),
        tools=[look],
    )
    model = ScriptedModel([[call("helper", {"task": "Look."})], "All done."])
    await Agent(model, tools=[child.as_tool("helper")], journal=journal).run("Go.", session="s")


async def withhold(journal: Any) -> None:
    """Run a session whose first reply is denied once it has been judged."""
    gate = FixedGate(replies=lambda text: Deny("no") if "word" in text else _ALLOW, delay_s=0.5)
    script: list[ScriptedReply] = [[say("word1 "), pause(0.5), say("word2")], "Sorry."]
    agent = Agent(ScriptedModel(script), gate=gate, journal=journal)
    await agent.run("Go.", session="s")


async def resume(journal: Any) -> None:
    """Go on with a session whose driver was killed in its first reply."""
    agent = Agent(ScriptedModel(make_script()), tools=[look], journal=journal)
    await agent.resume("s")


async def watch(journal: Any, *options: str) -> None:
    """Print each event as a line, once it is told to begin."""
    if "impatient" in options:
        socket_watch.RENEW_S = 0.1
        socket_watch.SEARCH_S = 0.1
    agent = Agent(ScriptedModel([]), journal=journal)
    print("ready", flush=True)  # noqa: T201
    await asyncio.to_thread(sys.stdin.readline)
    async for event in agent.watch("s"):
        line = {"seq": event.seq, "nth": event.nth, "type": type(event).__name__}
        print(json.dumps({**line, "text": getattr(event, "text", "")}), flush=True)  # noqa: T201


_ALLOW: Any = FixedGate()._verdict


async def main(what: str, store: str, name: str, *options: str) -> None:
    journal = open_journal(store, name)
    works: dict[str, Any] = {
        "drive": drive,
        "withhold": withhold,
        "resume": resume,
        "watch": watch,
        "delegate": delegate,
    }
    try:
        await works[what](journal, *options)
    finally:
        if isinstance(journal, PostgresJournal):
            await journal.aclose()
        else:
            journal.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
