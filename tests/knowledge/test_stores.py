"""What every store of knowledge must do, in SQLite and in Postgres alike."""

import asyncio
import itertools
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from postgres import dsn_of
from windlass.core.errors import ConfigError
from windlass.knowledge.embeddings import Embedder
from windlass.knowledge.postgres import PostgresKnowledge
from windlass.knowledge.sqlite import SqliteKnowledge
from windlass.knowledge.store import Knowledge, KnowledgeFailed, Note, Scope, Source, Taint

ANN = Scope("user", "ann")
BOB = Scope("user", "bob")
PROJECT = Scope("project", "crane")
NOW = 1_800_000_000.0

Place = str | Path

pytestmark = [pytest.mark.slow, pytest.mark.realtime, pytest.mark.contract("K1")]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where the store of a test is."""
    return tmp_path / "notes.db" if request.param == "sqlite" else dsn_of(tmp_path)


@asynccontextmanager
async def opened(
    place: Place, *, embedder: Embedder | None = None, now: Callable[[], float] = lambda: NOW
) -> AsyncGenerator[Knowledge]:
    if isinstance(place, Path):
        with SqliteKnowledge(place, embedder=embedder, now=now) as store:
            yield store
    else:
        async with PostgresKnowledge(place, embedder=embedder, now=now) as store:
            yield store


def note(text: str, scope: Scope = PROJECT, source: str = "notes.txt", **rest: Any) -> Note:
    return Note(text, scope, Source(source), **rest)


class Meanings:
    """An embedder that knows two meanings, and can be broken."""

    name = "meanings"

    def __init__(self) -> None:
        self.broken = False
        self.asked: list[str] = []

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.asked += texts
        if self.broken:
            raise OSError("no route")
        boats = ("boat", "ship", "vessel")
        return [
            [1.0, 0.2] if any(word in text.casefold() for word in boats) else [0.1, 1.0]
            for text in texts
        ]


async def test_what_is_kept_is_found_with_its_provenance(place: Place) -> None:
    """K2: provenance, scope and taint."""
    labels: frozenset[Taint] = frozenset(("untrusted",))
    async with opened(place) as store:
        (kept,) = await store.remember(
            Note(
                "The hoist is rated for two tonnes.",
                PROJECT,
                Source(session="s1", call="c7"),
                "Hoist",
                labels,
            )
        )
        (found,) = await store.recall("rated hoist", [PROJECT])
    assert (found.id, found.title, found.scope) == (kept, "Hoist", PROJECT)
    assert found.text == "The hoist is rated for two tonnes."
    assert found.sources == (Source(session="s1", call="c7"),)
    assert (found.labels, found.created, found.expires_at) == (labels, NOW, None)
    assert found.score > 0


async def test_what_is_kept_outlives_the_store(place: Place) -> None:
    async with opened(place) as store:
        await store.remember(note("The anchor is red."))
    async with opened(place) as store:
        assert [found.text for found in await store.recall("anchor", [PROJECT])]


async def test_a_scope_never_shows_in_another(place: Place) -> None:
    """K2: not another user's, not another kind's under the same key, and not without asking."""
    async with opened(place) as store:
        await store.remember(
            note("Ann drinks tea.", ANN),
            note("Bob drinks coffee.", BOB),
            note("A project called ann drinks water.", Scope("project", "ann")),
        )
        texts = {
            scope: [found.text for found in await store.recall("drinks", [scope])]
            for scope in (ANN, BOB, Scope("session", "ann"))
        }
        both = await store.recall("drinks", [ANN, BOB])
        nobody = await store.recall("drinks", [])
    assert texts == {
        ANN: ["Ann drinks tea."],
        BOB: ["Bob drinks coffee."],
        Scope("session", "ann"): [],
    }
    assert {found.scope for found in both} == {ANN, BOB}
    assert nobody == []


async def test_the_same_text_is_stored_once_with_all_its_sources(place: Place) -> None:
    async with opened(place) as store:
        first = await store.remember(note("The door is blue.", source="a.txt"))
        again = await store.remember(note("The door is blue.", source="b.txt"))
        await store.remember(note("The door is blue.", source="b.txt"))
        other = await store.remember(note("The door is blue.", ANN, source="a.txt"))
        (found,) = await store.recall("door", [PROJECT])
    assert first == again != other
    assert found.sources == (Source("a.txt"), Source("b.txt"))


async def test_a_text_goes_with_its_last_source(place: Place) -> None:
    async with opened(place) as store:
        await store.remember(note("The door is blue.", source="a.txt"))
        await store.remember(note("The door is blue.", source="b.txt"))
        await store.remember(note("The door is blue, Ann says.", ANN, source="a.txt"))
        assert await store.forget_places(PROJECT, ["a.txt"]) == 0
        assert len(await store.recall("door", [PROJECT])) == 1
        assert await store.forget_places(PROJECT, ["b.txt", "never.txt"]) == 1
        assert await store.recall("door", [PROJECT]) == []
        assert len(await store.recall("door", [ANN])) == 1


async def test_a_place_renewed_holds_one_note(place: Place) -> None:
    async with opened(place) as store:
        await store.replace_notes(note("The door is blue.", source="a.txt", digest="1"))
        await store.replace_notes(note("The door is green.", source="a.txt", digest="2"))
        await store.replace_notes(note("The door is ours.", ANN, source="a.txt", digest="3"))
        texts = [found.text for found in await store.recall("door", [PROJECT])]
        assert texts == ["The door is green."]
        assert await store.list_places(PROJECT) == {"a.txt": "2"}
        assert await store.list_places(PROJECT, "b") == {}


async def test_what_is_forgotten_is_gone(place: Place) -> None:
    async with opened(place) as store:
        (kept,) = await store.remember(note("The door is blue."))
        await store.remember(note("The window is blue."))
        assert await store.forget(kept)
        assert not await store.forget(kept)
        assert [found.text for found in await store.recall("blue", [PROJECT])] == [
            "The window is blue."
        ]


async def test_what_has_expired_is_not_found_and_then_deleted(place: Place) -> None:
    time = [NOW]
    async with opened(place, now=lambda: time[0]) as store:
        await store.remember(note("The code of the week is seven.", expires_at=NOW + 10))
        await store.remember(note("The code of the house is nine."))
        (week, _) = sorted(
            await store.recall("code", [PROJECT]), key=lambda found: found.expires_at is None
        )
        assert week.expires_at == NOW + 10
        time[0] = NOW + 10
        left = [found.text for found in await store.recall("code", [PROJECT])]
        assert left == ["The code of the house is nine."]
        assert await store.delete_expired() == 1
        assert await store.delete_expired() == 0


async def test_a_source_without_an_end_keeps_a_text_alive(place: Place) -> None:
    async with opened(place) as store:
        await store.remember(note("Seven.", source="a", expires_at=NOW - 1))
        await store.remember(note("Seven.", source="b"))
        assert await store.delete_expired() == 0
        (found,) = await store.recall("seven", [PROJECT])
    assert (found.sources, found.expires_at) == ((Source("b"),), None)


async def test_labels_bound_what_is_found(place: Place) -> None:
    """K2: who may not hold a label is not shown what has it."""
    async with opened(place) as store:
        await store.remember(
            note("A plain fact."),
            note("A strange fact.", labels=frozenset(("untrusted",))),
            note("A private fact.", labels=frozenset(("private",))),
        )
        clear = await store.recall("fact", [PROJECT], taints=())
        strange = await store.recall("fact", [PROJECT], taints=["untrusted"])
        every = await store.recall("fact", [PROJECT])
    assert [found.text for found in clear] == ["A plain fact."]
    assert {found.text for found in strange} == {"A plain fact.", "A strange fact."}
    assert len(every) == 3


async def test_a_label_is_not_washed_off_by_saying_it_again(place: Place) -> None:
    """K2: taint survives a second source, and a second call from the first."""
    async with opened(place) as store:
        await store.remember(note("Pay Eve.", source="mail", labels=frozenset(("untrusted",))))
        await store.remember(note("Pay Eve.", source="mail"))
        await store.remember(note("Pay Eve.", source="memo"))
        (found,) = await store.recall("Eve", [PROJECT])
        assert found.labels == {"untrusted"}
        assert await store.recall("Eve", [PROJECT], taints=()) == []
        # A place that is read anew is what it is now.
        await store.replace_notes(note("Pay Eve.", source="mail"))
        assert len(await store.recall("Eve", [PROJECT], taints=())) == 1


async def test_the_better_answer_comes_first(place: Place) -> None:
    texts = [
        "The crane lifts containers.",
        "A crane is also a bird, and birds nest in spring.",
        "Containers are painted blue.",
        "Winter is cold.",
    ]
    async with opened(place) as store:
        await store.remember(*(note(text, source=text) for text in texts))
        await store.remember(note("It turns.", source="t", title="Containers"))
        found = [one.text for one in await store.recall("which crane lifts containers?", [PROJECT])]
        titled = await store.recall("containers", [PROJECT])
        begun = await store.recall("contain", [PROJECT])
    assert found[0] == "The crane lifts containers."
    assert "Winter is cold." not in found
    assert titled[0].title == "Containers"
    assert len(begun) == 3
    assert [one.score for one in titled] == sorted((one.score for one in titled), reverse=True)


async def test_one_long_document_does_not_fill_an_answer(place: Place) -> None:
    async with opened(place) as store:
        await store.remember(note("The winch turns slowly. " * 1_000, source="long"))
        await store.remember(note("The winch is oiled on Mondays.", source="short"))
        found = await store.recall("winch", [PROJECT], limit=5)
    assert sorted({str(one.sources[0]) for one in found}) == ["long", "short"]
    assert len(found) == 3


async def test_a_limit_is_a_limit(place: Place) -> None:
    async with opened(place) as store:
        await store.remember(*(note(f"Bolt number {at}.", source=str(at)) for at in range(20)))
        assert len(await store.recall("bolt", [PROJECT], limit=4)) == 4
        assert await store.recall("bolt", [PROJECT], limit=0) == []


@pytest.mark.parametrize(
    "text",
    ["", "?!", '"', "\0", "\ud800", "a AND", "NEAR(", "*", "col:x", "x" * 9_000],
    ids=lambda text: ascii(text)[:12],
)
async def test_an_odd_query_is_a_query(place: Place, text: str) -> None:
    async with opened(place) as store:
        await store.remember(note("a AND b OR NOT c"))
        await store.recall(text, [PROJECT])


async def test_odd_texts_are_kept(place: Place) -> None:
    odd = "half \ud800 and zero \0 bytes"
    async with opened(place) as store:
        await store.remember(note(odd, source="odd\0place\ud800", title="\0"))
        (found,) = await store.recall("zero bytes", [PROJECT])
        assert found.text == "half ? and zero \N{REPLACEMENT CHARACTER} bytes"
        assert await store.forget_places(PROJECT, ["odd\0place\ud800"]) == 1
        assert not await store.forget("\ud800")


async def test_meaning_finds_what_words_do_not(place: Place) -> None:
    """K1: vectors are optional, and both rankings become one."""
    async with opened(place, embedder=Meanings()) as store:
        await store.remember(
            note("The vessel sails at noon.", source="1"),
            note("The cake is baked at noon.", source="2"),
            note("A boat shed is for sale.", source="3"),
        )
        found = [one.text for one in await store.recall("boat", [PROJECT], limit=2)]
        elsewhere = await store.recall("boat", [ANN])
    assert found == ["A boat shed is for sale.", "The vessel sails at noon."]
    assert elsewhere == []


async def test_an_embedder_that_fails_is_a_warning(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """K2: words still find, and what was left out is made up for later."""
    embedder = Meanings()
    embedder.broken = True
    async with opened(place, embedder=embedder) as store:
        with caplog.at_level(logging.WARNING):
            await store.remember(note("The vessel sails at noon.", source="1"))
            (found,) = await store.recall("vessel", [PROJECT])
        assert found.text == "The vessel sails at noon."
        assert [record.getMessage() for record in caplog.records] == ["no vectors: no route"] * 2
        embedder.broken = False
        await store.remember(note("The cake is baked.", source="2"))
        (found, _) = await store.recall("ship", [PROJECT])
    assert found.text == "The vessel sails at noon."


async def test_vectors_of_another_model_are_not_compared(place: Place) -> None:
    async with opened(place, embedder=Meanings()) as store:
        await store.remember(note("The vessel sails at noon."))
    other = Meanings()
    other.name = "others"
    async with opened(place, embedder=other) as store:
        assert await store.recall("ship", [PROJECT]) == []
        await store.remember(note("The cake is baked.", source="2"))
        assert len(await store.recall("ship", [PROJECT])) == 2


async def test_many_may_write_at_once(place: Place) -> None:
    async with opened(place) as store, opened(place) as other:
        await asyncio.gather(
            *(
                (store, other)[at % 2].remember(note(f"Rivet {at % 10}.", source=str(at)))
                for at in range(40)
            )
        )
        found = await store.recall("rivet", [PROJECT], limit=40)
    assert len(found) == 10
    assert sum(len(one.sources) for one in found) == 40


@pytest.mark.parametrize(("kind", "key"), [("user", ""), ("user", " "), ("user", "\0"), ("x", "a")])
def test_a_scope_without_an_owner_is_refused(kind: Any, key: str) -> None:
    """K2: two who forgot to say who they are must not share what they know."""
    with pytest.raises(ConfigError):
        Scope(kind, key)


def test_a_note_from_nowhere_is_refused() -> None:
    with pytest.raises(ConfigError):
        Source()


async def test_a_server_that_is_not_there_is_told_without_its_password() -> None:
    store = PostgresKnowledge("postgresql://ann:hunter2@127.0.0.1:1/notes")
    with pytest.raises(KnowledgeFailed) as told:
        await store.recall("anything", [PROJECT])
    assert "127.0.0.1:1" in str(told.value)
    assert "hunter2" not in str(told.value)


@given(
    texts=st.lists(st.tuples(st.text(max_size=40), st.text(max_size=40)), max_size=8),
    query=st.text(),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
async def test_any_text_is_a_note_and_any_text_a_query(
    place: Place, texts: list[tuple[str, str]], query: str
) -> None:
    async with opened(place) as store:
        await store.remember(*(note(text, title=title) for title, text in texts))
        for found in await store.recall(query, [PROJECT], limit=5):
            assert found.scope == PROJECT


@pytest.mark.contract("K1")
@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("起重机的吊臂重两吨。", "吊臂"),
        ("起重机的吊臂重两吨。", "吊臂多重？"),  # noqa: RUF001 - as it is typed
        ("クレーンのブームは二トンです。", "ブームの重さ"),
        ("ﾛｰﾌﾟは時々交換します。", "ロープ"),
        ("크레인을 사용한다", "크레인"),
        ("เครนยกสินค้า", "สินค้า"),
        ("见PDF文件", "pdf"),
        ("吊", "吊"),
        ("吊臂", "臂"),
        ("The hoist weighs two tonnes.", "weighing hoists"),
        ("Invoices are paid.", "an invoice"),
    ],
)
async def test_words_are_found_in_scripts_without_spaces_and_by_their_stems(
    place: Place, text: str, query: str
) -> None:
    """K1: without an embedder."""
    async with opened(place) as store:
        await store.remember(note(text, title="吊"), note("Winter. 冬です。", source="other"))
        assert [one.text for one in await store.recall(query, [PROJECT])] == [text]
        (listed,) = await store.list_notes(
            [PROJECT], note=(await store.recall(query, [PROJECT]))[0].id
        )
        assert await store.forget(listed.id)
        assert await store.recall(query, [PROJECT]) == []


async def test_notes_are_listed_newest_first(place: Place) -> None:
    long = "\n\n".join(f"Paragraph {at} about the crane. {'word ' * 300}" for at in range(5))
    times = itertools.count()
    async with opened(place, now=lambda: NOW + next(times)) as store:
        await store.remember(note(long, source="1"))
        await store.remember(note("Private.", source="2", labels=frozenset(("private",))))
        await store.remember(note("Ann's.", ANN, source="3"))
        (last,) = await store.remember(note("Short.", source="4"))
        texts = [one.text for one in await store.list_notes([PROJECT])]
        assert texts[:2] == ["Short.", "Private."]
        assert texts[2].startswith("Paragraph 0 about the crane. word")
        assert len(await store.list_notes([PROJECT, ANN], limit=2)) == 2
        assert [one.text for one in await store.list_notes([PROJECT], note=last[:8])] == ["Short."]
        assert await store.list_notes([PROJECT], note="%") == []
        assert await store.list_notes([ANN], note=last) == []
        open_notes = await store.list_notes([PROJECT], taints=())
        assert "Private." not in [one.text for one in open_notes]


async def test_a_note_is_corrected(place: Place) -> None:
    """K2: the source is that of the correction, and no label is washed off."""
    async with opened(place) as store:
        (old,) = await store.remember(
            note(
                "It takes two tonnes.",
                title="Hoist",
                labels=frozenset(("untrusted",)),
                expires_at=NOW + 9,
            )
        )
        source = Source(session="s", call="c")
        new = await store.correct(old, "It takes three tonnes.", source, labels=("private",))
        (found,) = await store.list_notes([PROJECT])
        assert (found.id, found.text, found.title) == (new, "It takes three tonnes.", "Hoist")
        assert (found.sources, found.expires_at) == ((source,), NOW + 9)
        assert found.labels == {"untrusted", "private"}
        assert await store.recall("two", [PROJECT]) == []
        assert await store.correct(old, "It takes four.", source) is None
        assert await store.correct(found.id, found.text, source) == found.id
        (same,) = await store.list_notes([PROJECT])
        assert same.id == found.id
        renamed = await store.correct(found.id, found.text, source, title="Winch")
        assert [one.title for one in await store.list_notes([PROJECT])] == ["Winch"]
        assert renamed != found.id
