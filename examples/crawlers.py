"""How do many workers share many runs? Each page is read once, whoever reads it."""

import argparse
import asyncio
from collections import Counter

from windlass import Agent, tool
from windlass.journals import MemoryJournal
from windlass.server import SessionWorker, WorkLimits
from windlass.testing import ScriptedModel, call

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", help="such as openai:gpt-5; without one, a script answers")
MODEL = parser.parse_args().model
PAGES = [f"https://example.com/{number}" for number in range(20)]
reads: Counter[str] = Counter()


@tool
async def read_page(url: str) -> str:
    """Read a page."""
    reads[url] += 1
    return "a page"


def crawler(journal: MemoryJournal) -> Agent[str]:  # On many machines: a Postgres journal.
    read = lambda asked: call("read_page", {"url": asked.messages[0].text})  # noqa: E731
    reply = lambda asked: "Read." if len(asked.messages) > 1 else read(asked)  # noqa: E731
    model = MODEL or ScriptedModel([reply] * 99)
    return Agent(model, name="crawler", tools=[read_page], journal=journal)


async def main() -> None:
    journal = MemoryJournal()
    workers = [SessionWorker([crawler(journal)], WorkLimits(runs=4)) for _ in range(3)]
    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    starter = crawler(journal)
    runs = [await starter.start(url, key=url, drive=False) for url in PAGES]
    results = await asyncio.gather(*(run.result() for run in runs))
    print(Counter(result.outcome for result in results), max(reads.values()))
    for task in tasks:
        task.cancel()


asyncio.run(main())
