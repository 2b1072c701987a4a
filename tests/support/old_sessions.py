"""The sessions of the corpus of old journals: how each is made, and who can go on with it.

The agents here must stay as they are: what they are set up with is recorded in every corpus, and
the tests go on with the sessions that were left open.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from decimal import Decimal
from typing import Any

import msgspec

from story import When, play_story
from windlass import (
    Agent,
    Compaction,
    KnowledgeRecalled,
    Limits,
    LoopPolicy,
    ModelInfo,
    RetryPolicy,
    RunFailed,
    tool,
)
from windlass.core.events import Event
from windlass.core.setup import Price
from windlass.core.verdicts import Allow, Ask, Deny, Modify, Verdict
from windlass.ports import GateRequest, Journal
from windlass.testing import (
    FixedGate,
    PowerCut,
    PowerCutJournal,
    ScriptedModel,
    ScriptedReply,
    call,
    drop,
    fail,
    say,
    stall,
    think,
    usage,
)
from windlass.testing.journals import append_facts
from windlass.testing.samples import facts_of_every_kind
from windlass.tools.run_context import RunContext

PRICED = ModelInfo(
    "scripted:model", price=Price(Decimal(3), Decimal(15)), window=4_000, output_max=500
)
QUICK = RetryPolicy(wait_base_s=0.001, wait_max_s=0.002)
SAMPLES = "every kind of fact"
"""Made of single facts: it folds, and no rules would lead to it."""
ASKED, WRITING, READING = "asked", "cut in a write", "cut in a read"
LEFT_OPEN = frozenset((ASKED, WRITING, READING))


class Weather(msgspec.Struct):
    town: str
    degrees: int


class World:
    """What the tools did, by key."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def tools(self) -> list[Any]:
        @tool(effect="read")
        def look(number: int, where: str = "here") -> str:
            """Look at something."""
            return f"{number} {where}: " + "much to see " * 60

        @tool(effect="write", resource="{to}")
        async def send(context: RunContext[Any], to: str, text: str = "") -> str:
            """Send somebody a letter."""
            await asyncio.sleep(0)
            self.done.append(context.idempotency_key)
            return f"sent to {to}"

        return [look, send]


def judge(request: GateRequest) -> Verdict:
    match request.tool.name, request.arguments.get("to"):
        case "send", "ann":
            return Ask("May I write to Ann?", "letters")
        case "send", "bob":
            return Modify({"to": "bob", "text": "Hello, Bob."}, "politeness")
        case "send", "eve":
            return Deny("Never write to Eve.", "letters")
        case _:
            return Allow("the rest")


def agent_of(
    journal: Journal, script: Sequence[ScriptedReply], world: World, **settings: Any
) -> Agent[Any]:
    """The agent that most of the sessions were made by."""
    given: dict[str, Any] = {
        "instructions": "You write letters.",
        "tools": world.tools(),
        "gate": FixedGate(judge),
        "retries": QUICK,
        **settings,
    }
    model = given.pop("model", None) or ScriptedModel(script, info=PRICED, truthful=True)
    return Agent(model, journal=journal, **given)


def looks(count: int) -> list[ScriptedReply]:
    return [call("look", {"number": at}) for at in range(count)]


async def _mended(journal: Journal) -> None:
    """Calls that were repaired, that fit nothing, that were changed and denied; two runs."""
    script: list[ScriptedReply] = [
        [think("Let me see.", signature="sig"), say("I look."), call("look", '{"number": "1",}')],
        [call("look", '{"number": "one"}'), call("luk", {"number": 1})],
        [call("send", {"to": "bob"}), call("send", {"to": "eve"}), call("look", {"number": 2})],
        [say("Done."), usage(input=120, output=7, cache_read=50)],
        "And again.",
    ]
    agent = agent_of(journal, script, World())
    await agent.run("Write to Bob.", session="mended", caller="ann", context={"tenant": "north"})
    await agent.run("Once more.", session="mended", pinned=True)


async def _retried(journal: Journal) -> None:
    """A model that is busy, breaks off and is given up for another one."""
    busy = [fail("rate_limit", retry_after_s=0.001), fail("server"), drop()]
    first = ScriptedModel([*busy, fail("server")], info=PRICED)
    second = ScriptedModel(["I am here."], name="scripted:second")
    agent = agent_of(journal, (), World(), model=first, fallbacks=[second])
    await agent.run("Hello?", session="retried")


async def _typed(journal: Journal) -> None:
    """A reply that does not fit the output type, and one that does."""
    script: list[ScriptedReply] = ["It is warm.", '{"town": "Oslo", "degrees": 21}']
    agent = agent_of(journal, script, World(), output_type=Weather)
    await agent.run("How warm is it?", session="typed")


async def _shortened(journal: Journal) -> None:
    """Masked, summed up and cut off at the beginning."""
    for how in ("mask", "summary", "window"):
        said: list[ScriptedReply] = [*looks(9), "Seen."]
        writer = ScriptedModel(["Goals: to look.\nDone: looked."] * 4, name="scripted:writer")
        agent = agent_of(
            journal,
            said,
            World(),
            summary_model=writer,
            compaction=Compaction(strategies=(how,), window=2_500),
            model=ScriptedModel(said, info=PRICED),
        )
        await agent.run("Look at all of it.", session=f"shortened by {how}")


async def _recalled(journal: Journal) -> None:
    """What is known is shown beside the prompt of each run."""

    async def known(prompt: str) -> KnowledgeRecalled:
        return KnowledgeRecalled("Ann is a dentist." if "Ann" in prompt else "", ("private",))

    agent = agent_of(journal, ["A dentist.", "I do not know."], World(), knowledge=known)
    await agent.run("Who is Ann?", session="recalled")
    await agent.run("Who is Bob?", session="recalled")


async def _withheld(journal: Journal) -> None:
    """Replies that the gate denied: one is said otherwise, one is given up."""

    def no_codes(text: str) -> Allow | Deny:
        return Deny("no codes", "codes") if "code" in text else Allow("fine")

    gate = FixedGate(judge, replies=no_codes)
    agent = agent_of(journal, ["The code is 7.", "I may not say."], World(), gate=gate)
    await agent.run("What is it?", session="withheld")
    agent = agent_of(journal, ["The code is 7."] * 4, World(), gate=gate)
    with suppress(RunFailed):
        await agent.run("What is it?", session="denied")


async def _ended_early(journal: Journal) -> None:
    """Cancelled, out of steps, out of money, out of tokens, going in circles."""
    model = ScriptedModel([[say("I begin"), stall()]], info=PRICED)
    agent = agent_of(journal, (), World(), model=model)

    def cancel(event: Event) -> None:
        if type(event).__name__ == "TextDelta":
            agent.cancel("cancelled", "that is enough")

    await agent.run("Begin.", session="cancelled", on_event=cancel)
    for name, limits, rules in (
        ("out of steps", Limits(steps=2), LoopPolicy()),
        ("landed", Limits(steps=2), LoopPolicy(on_limit="answer")),
        ("out of money", Limits(usd=Decimal("0.009")), LoopPolicy()),
        ("out of tokens", Limits(tokens=1_600), LoopPolicy()),
    ):
        script = [*looks(2), "That is all." if name == "landed" else call("look", {"number": 9})]
        agent = agent_of(journal, [*script, "Done."], World(), limits=limits, rules=rules)
        with suppress(RunFailed):
            await agent.run("Look.", session=name)
    again: list[ScriptedReply] = [call("look", {"number": 1})] * 9
    with suppress(RunFailed):
        await agent_of(journal, again, World()).run("Look.", session="stuck")


async def _left_open(journal: Journal) -> None:
    script: list[ScriptedReply] = [call("send", {"to": "ann", "text": "Hi."}), "Sent."]
    await agent_of(journal, script, World()).run("Write to Ann.", session=ASKED)
    # The fourth append is the start of the call, and the fifth would be its end.
    cuts: tuple[tuple[str, ScriptedReply, int, When], ...] = (
        (WRITING, call("send", {"to": "cat", "text": "Hi."}), 5, "before"),
        (READING, call("look", {"number": 1}), 4, "after"),
    )
    for name, reply, at, when in cuts:
        agent = agent_of(PowerCutJournal(journal, at, when), [reply], World())
        with suppress(PowerCut, RunFailed):
            await agent.run("Go on.", session=name)
        with suppress(PowerCut, RunFailed):
            await agent.aclose()


async def _everything(journal: Journal) -> None:
    """Hydration, a shared budget, a helper, a retry, a summary, a question, steering; and a cut."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Journal]:
        yield journal

    await play_story(opened, (30, "after"))


async def _samples(journal: Journal) -> None:
    await append_facts(journal, SAMPLES, facts_of_every_kind())


MAKERS: tuple[Callable[[Journal], Awaitable[None]], ...] = (
    _samples,
    _everything,
    _mended,
    _retried,
    _typed,
    _shortened,
    _recalled,
    _withheld,
    _ended_early,
    _left_open,
)


async def make(journal: Journal) -> None:
    """Every session, in an empty journal."""
    for maker in MAKERS:
        await maker(journal)
