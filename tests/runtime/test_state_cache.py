"""The states that are kept: nobody reads a whole session twice, and the journal decides."""

from collections.abc import Sequence

import pytest
from typing_extensions import override

from windlass import Agent, Fact, RunUnfinished, tool
from windlass.core.fold.run import fold
from windlass.core.secrets.mask import Mask
from windlass.journals.memory import MemoryJournal
from windlass.runtime.leases import StateCache
from windlass.testing import ScriptedModel, call
from windlass.testing.journals import start_append

SESSION = "s"


class CountedJournal(MemoryJournal):
    """Notes after which fact each reader begins."""

    def __init__(self) -> None:
        super().__init__()
        self.read_after: list[int] = []

    @override
    async def read(self, session: str, after: int = 0) -> Sequence[Fact]:
        self.read_after.append(after)
        return await super().read(session, after)


@tool(effect="read")
async def look() -> str:
    """Look at something."""
    return "seen"


async def make_open_session(journal: MemoryJournal) -> Sequence[Fact]:
    """Write a session whose run was left open after its first call, and return its facts."""
    whole = MemoryJournal()
    await Agent(ScriptedModel([call("look"), "Done."]), tools=[look], journal=whole).run(
        "Go.", session=SESSION
    )
    facts = list(await whole.read(SESSION))[:5]
    await start_append(journal, SESSION, facts)
    return facts


@pytest.mark.contract("J6")
async def test_a_resume_reads_the_whole_session_once() -> None:
    journal = CountedJournal()
    facts = await make_open_session(journal)
    agent = Agent(ScriptedModel(["Done."]), tools=[look], journal=journal)
    result = await agent.resume(SESSION)
    assert result.completed
    assert journal.read_after.count(0) == 1
    # What was kept is looked at again: the next reader begins with its last fact.
    assert journal.read_after[:2] == [0, len(facts) - 1]


@pytest.mark.contract("L1")
async def test_what_others_have_written_since_is_added() -> None:
    journal = CountedJournal()
    facts = await make_open_session(journal)
    other = CountedJournal()
    await start_append(other, SESSION, facts[:3])
    cache = StateCache(Mask())
    early = await cache.read_state(other, SESSION)
    await start_append(other, SESSION, facts[3:])
    assert await cache.read_state(other, SESSION) == fold(SESSION, facts)
    assert early == fold(SESSION, facts[:3])
    assert other.read_after == [0, 2]


@pytest.mark.contract("L1")
async def test_a_session_that_was_replaced_is_read_from_the_start() -> None:
    journal = CountedJournal()
    await make_open_session(journal)
    cache = StateCache(Mask())
    await cache.read_state(journal, SESSION)
    replaced = CountedJournal()
    others = await make_open_session(replaced)
    assert await cache.read_state(replaced, SESSION) == fold(SESSION, others)
    assert replaced.read_after == [len(others) - 1, 0]


async def test_an_unknown_session_is_not_kept() -> None:
    journal = CountedJournal()
    cache = StateCache(Mask())
    assert (await cache.read_state(journal, SESSION)).seq == 0
    facts = await make_open_session(journal)
    assert await cache.read_state(journal, SESSION) == fold(SESSION, facts)


async def test_nothing_is_read_of_a_session_that_got_its_name_just_now() -> None:
    journal = CountedJournal()
    agent = Agent(ScriptedModel(["One.", "Two."]), journal=journal)
    first = await agent.run("Go.")
    assert journal.read_after == []
    await agent.run("Again.", session=first.session_id)
    assert len(journal.read_after) == 1, "the next run looks at what was kept"


@pytest.mark.contract("L1")
async def test_a_random_name_that_is_taken_after_all_refuses_the_run() -> None:
    """The numbers of the facts decide, also if the session was not read."""
    journal = MemoryJournal()
    facts = await make_open_session(journal)
    agent = Agent(ScriptedModel(["Done."]), tools=[look], journal=journal)
    agent._runs.note_new(SESSION)
    with pytest.raises(RunUnfinished):
        await agent.run("Go.", session=SESSION)
    assert list(await journal.read(SESSION)) == list(facts)
