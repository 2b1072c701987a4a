"""The conformance suite for journals that list and delete their sessions."""

from collections.abc import Iterable, Mapping
from decimal import Decimal

from msgspec.structs import replace

from windlass.core.errors import ConfigError, SessionBusy
from windlass.core.events import Fact, NoteGiven, RunEnded, RunStarted
from windlass.core.fold.run import fold
from windlass.core.messages import TextPart
from windlass.core.session_summary import (
    TAGS_KEY,
    UNFINISHED_STATES,
    SessionSummary,
    row_of,
)
from windlass.journals.codec import first_hash
from windlass.ports import Journal
from windlass.testing.journals import (
    SESSION,
    JournalSuite,
    append_facts,
    error_of,
    on_a_journal,
    on_two_journals,
)
from windlass.testing.samples import facts_of_every_kind, note_facts


def run_facts(
    *,
    agent: str = "",
    caller: str = "",
    parent: str = "",
    prompt: str = "Go.",
    tags: Mapping[str, str] | None = None,
    ended: bool = True,
    at: float = 1e9,
) -> list[Fact]:
    """Return a session with one run, whose last activity is at a time."""
    first = facts_of_every_kind()[0]
    assert isinstance(first, RunStarted)
    words = (TextPart(prompt),)
    started = replace(
        first,
        prompt=words,
        agent=agent,
        caller=caller,
        parent=parent,
        context={TAGS_KEY: dict(tags or {})},
        seq=1,
        at=at,
    )
    return [started, RunEnded("completed", seq=2, at=at)] if ended else [started]


def is_failure(fact: Fact) -> bool:
    """Whether a run failed with this fact."""
    return isinstance(fact, RunEnded) and fact.outcome == "failed"


def names_of(found: Iterable[SessionSummary]) -> list[str]:
    """Return the names of sessions, in their order."""
    return [summary.session for summary in found]


class SessionCatalogConformance(JournalSuite):
    """Sessions are found and deleted, but not while they are driven."""

    @on_a_journal
    async def test_sessions_are_found(self, journal: Journal) -> None:
        facts = facts_of_every_kind()
        failure = next(fact for fact in facts if is_failure(fact))
        await append_facts(journal, "ended", facts)
        await append_facts(journal, "failed", facts[: failure.seq])
        await append_facts(journal, "open", facts[:6])
        await append_facts(journal, "waiting", facts[:10])
        states = {one.session: one.state for one in await journal.sessions()}
        assert states.pop("ended") == "completed"
        assert states == {name: name for name in ("failed", "open", "waiting")}
        order = ["ended", "failed", "waiting", "open"]
        assert [one.session for one in await journal.sessions()] == order
        assert [one.session for one in await journal.sessions(limit=1)] == ["ended"]
        assert [one.session for one in await journal.sessions("WAIT")] == ["waiting"]
        unfinished = await journal.sessions(state=UNFINISHED_STATES)
        assert [one.session for one in unfinished] == ["waiting", "open"]

    @on_two_journals
    async def test_abandoned_is_what_nobody_drives_or_is_asked_about(
        self, one: Journal, two: Journal
    ) -> None:
        facts = facts_of_every_kind()
        await append_facts(one, "ended", facts)
        await append_facts(one, "waiting", facts[:10])
        await append_facts(one, "driven", facts[:6])
        await append_facts(one, "left", facts[:5])
        lease = await one.lease("driven")
        for journal in (one, two):
            assert [each.session for each in await journal.list_abandoned()] == ["left"]
        lease.release()
        for journal in (one, two):
            assert [each.session for each in await journal.list_abandoned()] == ["driven", "left"]

    @on_two_journals
    async def test_a_session_that_is_driven_cannot_be_deleted(
        self, one: Journal, two: Journal
    ) -> None:
        await append_facts(one, SESSION, note_facts(1, 3))
        lease = await one.lease(SESSION)
        for journal in (one, two):
            assert isinstance(await error_of(journal.delete(SESSION)), SessionBusy)
        assert list(await two.read(SESSION)) == note_facts(1, 3)
        lease.release()
        assert await two.delete(SESSION)
        assert not await one.delete(SESSION)
        assert not await one.is_leased(SESSION)
        assert list(await one.read(SESSION)) == []

    @on_a_journal
    async def test_a_summary_says_what_the_facts_add_up_to(self, journal: Journal) -> None:
        """Also after each append, and not only after the first."""
        facts = facts_of_every_kind()
        for at in range(0, len(facts), 7):
            await append_facts(journal, SESSION, facts[at : at + 7])
            (summary,) = await journal.sessions()
            made = row_of(fold(SESSION, facts[: at + 7]))
            assert summary == replace(made, changed=summary.changed)
        (found,) = await journal.sessions()
        assert (found.agent, found.caller, found.parent) == ("porter", "ann", "above")
        assert found.tokens > 0
        assert found.usd is None or found.usd > Decimal(0)

    @on_a_journal
    async def test_a_list_is_sorted_by_the_last_change_of_state(self, journal: Journal) -> None:
        """What is only counted moves no session, and is shown at once."""
        await append_facts(journal, "a", run_facts(at=1.0, ended=False))
        await append_facts(journal, "b", run_facts(at=2.0, ended=False))
        await append_facts(journal, "a", [NoteGiven("note", "same_call", seq=2, at=5.0)])
        listed = await journal.sessions()
        assert names_of(listed) == ["b", "a"]
        assert [(one.changed, one.updated, one.facts) for one in listed] == [
            (2.0, 2.0, 1),
            (1.0, 5.0, 2),
        ]
        await append_facts(journal, "a", [RunEnded("completed", seq=3, at=6.0)])
        listed = await journal.sessions()
        assert names_of(listed) == ["a", "b"]
        assert listed[0].changed == 6.0  # noqa: PLR2004 - the time of the end

    @on_a_journal
    async def test_filters_are_combined(self, journal: Journal) -> None:
        """By state, agent, caller, parent, time and text."""
        await append_facts(journal, "a", run_facts(agent="clerk", caller="ann", at=100.0))
        await append_facts(
            journal, "b", run_facts(agent="clerk", caller="bob", at=200.0, ended=False)
        )
        await append_facts(
            journal, "c", run_facts(agent="porter", caller="ann", at=300.0, prompt="Carry")
        )
        await append_facts(journal, "a/c1_0", run_facts(agent="porter", parent="a/c1_0", at=400.0))
        assert names_of(await journal.sessions(agent="clerk")) == ["b", "a"]
        assert names_of(await journal.sessions(caller="ann")) == ["c", "a"]
        assert names_of(await journal.sessions(agent="clerk", caller="ann")) == ["a"]
        assert names_of(await journal.sessions(parent="a")) == ["a/c1_0"]
        assert names_of(await journal.sessions(parent="")) == ["c", "b", "a"]
        assert names_of(await journal.sessions(state="open")) == ["b"]
        assert names_of(await journal.sessions(state=("open", "failed"))) == ["b"]
        assert names_of(await journal.sessions(state="completed", agent="clerk")) == ["a"]
        assert names_of(await journal.sessions(since=200.0, until=400.0)) == ["c", "b"]
        assert names_of(await journal.sessions("cARRY", since=200.0)) == ["c"]
        assert names_of(await journal.sessions("carry", until=300.0)) == []
        assert names_of(await journal.sessions(agent="nobody")) == []

    @on_a_journal
    async def test_sessions_are_found_by_their_tags(self, journal: Journal) -> None:
        """Each tag counts as a whole, whatever characters are in its value."""
        given = {
            "a": {"team": "billing", "env": "test"},
            "b": {"team": "billing 2", "x.env": "test"},
            "c": {"team": "100%_'\"=🦦"},
            "d": {},
        }
        for at, (name, tags) in enumerate(given.items()):
            await append_facts(journal, name, run_facts(tags=tags, at=400.0 - at))
        assert {one.session: dict(one.tags) for one in await journal.sessions()} == given
        for name, tags in given.items():
            if tags:
                assert names_of(await journal.sessions(tags=tags)) == [name]
        assert names_of(await journal.sessions(tags={"env": "test"})) == ["a"]
        assert names_of(await journal.sessions(tags={"team": "billing"})) == ["a"]
        assert names_of(await journal.sessions(tags={"team": "bill"})) == []
        assert names_of(await journal.sessions(tags={"env": "test", "team": "x"})) == []

    @on_a_journal
    async def test_pages_have_one_order(self, journal: Journal) -> None:
        """The last change first, then by name; all sessions once, whatever the size of a page."""
        for number in range(7):
            await append_facts(
                journal, f"s{number}", run_facts(at=float(number // 3), agent="clerk")
            )
        order = ["s6", "s3", "s4", "s5", "s0", "s1", "s2"]
        for limit in (1, 2, 3, 7, 50):
            for agent in (None, "clerk"):
                found = list[str]()
                cursor = None
                while True:
                    page = await journal.sessions(agent=agent, limit=limit, cursor=cursor)
                    assert len(page) <= limit
                    found += names_of(page)
                    cursor = page.cursor
                    if cursor is None:
                        break
                assert found == order
        assert isinstance(await error_of(journal.sessions(cursor="no cursor")), ConfigError)

    @on_a_journal
    async def test_a_session_that_changes_is_on_one_page_at_most(self, journal: Journal) -> None:
        """Its last change only grows, so it moves to the front, even if a clock is set back."""
        for number in range(4):
            await append_facts(journal, f"s{number}", run_facts(at=float(number)))
        first = await journal.sessions(limit=2)
        assert names_of(first) == ["s3", "s2"]
        again = replace(run_facts(ended=False)[0], run=2, earlier=())
        await append_facts(journal, "s3", [replace(again, seq=3, at=0.5)])
        await append_facts(journal, "s0", [replace(again, seq=3, at=9.0)])
        second = await journal.sessions(limit=2, cursor=first.cursor)
        assert names_of(second) == ["s1"]
        assert second.cursor is None
        assert names_of(await journal.sessions()) == ["s0", "s3", "s2", "s1"]

    @on_two_journals
    async def test_a_list_of_what_is_abandoned_is_bounded(self, one: Journal, two: Journal) -> None:
        """The driven ones do not count against the limit."""
        for number in range(6):
            await append_facts(one, f"s{number}", run_facts(at=10.0 + number, ended=False))
        await append_facts(one, "old", run_facts(at=1.0, agent="clerk", ended=False))
        await append_facts(one, "s0/c", run_facts(at=2.0, parent="s0/c", ended=False))
        leases = [await one.lease(f"s{number}") for number in (5, 4)]
        for journal in (one, two):
            assert names_of(await journal.list_abandoned(limit=2)) == ["s3", "s2"]
            every = ["s3", "s2", "s1", "s0", "s0/c", "old"]
            assert names_of(await journal.list_abandoned(limit=100)) == every
            # Those of other agents do not count against the limit either.
            assert names_of(await journal.list_abandoned(agent="", limit=1)) == ["s3"]
            assert names_of(await journal.list_abandoned(agent="clerk", limit=1)) == ["old"]
            assert names_of(await journal.list_abandoned(parent="", limit=1)) == ["s3"]
            assert names_of(await journal.list_abandoned(parent="s0", limit=1)) == ["s0/c"]
        for lease in leases:
            lease.release()

    @on_two_journals
    async def test_a_session_is_deleted_with_those_that_work_for_it(
        self, one: Journal, two: Journal
    ) -> None:
        """The whole tree or nothing, and nothing that only has a similar name."""
        await append_facts(one, "a", run_facts())
        await append_facts(one, "a/c1_0", run_facts(parent="a/c1_0"))
        await append_facts(one, "a/c1_0/c1_0.2", run_facts(parent="a/c1_0/c1_0"))
        await append_facts(one, "a/own", run_facts())
        await append_facts(one, "ab", run_facts())
        await append_facts(one, "ab/c1_0", run_facts(parent="ab/c1_0"))
        lease = await two.lease("a/c1_0/c1_0.2")
        assert isinstance(await error_of(one.delete("a")), SessionBusy)
        assert "a" in names_of(await two.sessions())
        lease.release()
        assert await one.delete("a")
        assert sorted(names_of(await two.sessions())) == ["a/own", "ab", "ab/c1_0"]
        assert not await two.is_leased("a/c1_0")
        assert not await one.delete("a")

    @on_two_journals
    async def test_a_deleted_session_leaves_a_tombstone(self, one: Journal, two: Journal) -> None:
        """A deletion is told from a loss, and the name may be used again."""
        for name in ("a", "a/c1_0", "b"):
            await append_facts(one, name, run_facts(parent="a/c1_0" if "/" in name else ""))
        first = first_hash("a", run_facts()[0])
        assert await two.find_tombstone("a") is None
        assert await one.delete("a", erase=True)
        assert await one.delete("b")
        for name, erased in (("a", True), ("a/c1_0", True), ("b", False)):
            tombstone = await two.find_tombstone(name)
            assert tombstone is not None
            assert tombstone.erased is erased
        assert await two.find_tombstone("other", first) == await two.find_tombstone("a")
        assert await two.find_tombstone("other") is None
        await append_facts(two, "a", run_facts(at=99.0))
        assert await one.verify("a") == []

    @on_two_journals
    async def test_old_sessions_are_pruned_with_those_that_work_for_them(
        self, one: Journal, two: Journal
    ) -> None:
        """What waits or works keeps what was done for it, however long ago that was."""
        await append_facts(one, "old", run_facts(at=1.0))
        await append_facts(one, "old/c1_0", run_facts(parent="old/c1_0", at=1.0, ended=False))
        await append_facts(one, "open", run_facts(at=1.0, ended=False))
        await append_facts(one, "open/c1_0", run_facts(parent="open/c1_0", at=1.0))
        await append_facts(one, "orphan/c1_0", run_facts(parent="orphan/c1_0", at=1.0))
        await append_facts(one, "driven", run_facts(at=1.0))
        await append_facts(one, "driven/c1_0", run_facts(parent="driven/c1_0", at=1.0))
        await append_facts(one, "kept", run_facts(at=2.0))
        await append_facts(one, "new", run_facts(at=9.0))
        lease = await two.lease("driven/c1_0")
        pruned = ["old", "old/c1_0", "orphan/c1_0"]
        assert await one.prune(5.0, keep=2) == len(pruned)
        left = ["driven", "driven/c1_0", "kept", "new", "open", "open/c1_0"]
        assert sorted(names_of(await two.sessions())) == left
        lease.release()
        assert await two.prune(5.0) == len(["driven", "driven/c1_0", "kept"])
        assert sorted(names_of(await one.sessions())) == ["new", "open", "open/c1_0"]
