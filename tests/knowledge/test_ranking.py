"""How well each ranking finds the notes of a small set: by words, by meaning, and by both.

The figures are those of `docs/context.md`. The embedder stands for a real one: it knows which words
mean about the same, and nothing about numbers and names.
"""

import tomllib
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from postgres import dsn_of
from windlass.knowledge.embeddings import Embedder
from windlass.knowledge.postgres import PostgresKnowledge
from windlass.knowledge.sqlite import SqliteKnowledge
from windlass.knowledge.store import Knowledge, Note, Scope, Source

SET: Mapping[str, Any] = tomllib.loads(
    (Path(__file__).with_name("ranking_set.toml")).read_text("utf-8")
)
PROJECT = Scope("project", "harbour")
PLACES = 5

pytestmark = [pytest.mark.realtime, pytest.mark.slow, pytest.mark.contract("K1")]


class Concepts:
    """An embedder with one dimension for each group of words, and a little of everything else."""

    name = "concepts"

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [self._embed(text.casefold()) for text in texts]

    def _embed(self, text: str) -> list[float]:
        groups: Sequence[Sequence[str]] = SET["concepts"]
        found = [float(sum(word in text for word in words)) for words in groups]
        return [*found, 0.3]


async def measure(store: Knowledge) -> dict[str, float]:
    """The mean reciprocal rank of the answers, for each kind of question and for all."""
    notes: Mapping[str, str] = SET["notes"]
    await store.remember(*(Note(text, PROJECT, Source(name)) for name, text in notes.items()))
    ranks: dict[str, list[float]] = {}
    for question in SET["questions"]:
        found = await store.recall(question["text"], [PROJECT], limit=PLACES)
        names = [note.sources[0].place for note in found]
        answer = question["answer"]
        rank = 1 / (names.index(answer) + 1) if answer in names else 0.0
        for kind in (question["kind"], "all"):
            ranks.setdefault(kind, []).append(rank)
    return {kind: round(sum(values) / len(values), 2) for kind, values in ranks.items()}


@pytest.fixture(params=["sqlite", "postgres"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Sequence[Path | str]:
    """Where the two stores of a test are."""
    if request.param == "sqlite":
        return tmp_path / "words.db", tmp_path / "both.db"
    return dsn_of(tmp_path / "words"), dsn_of(tmp_path / "both")


async def open_store(
    stack: AsyncExitStack, place: Path | str, embedder: Embedder | None
) -> Knowledge:
    if isinstance(place, Path):
        return stack.enter_context(SqliteKnowledge(place, embedder=embedder))
    return await stack.enter_async_context(PostgresKnowledge(place, embedder=embedder))


async def test_both_rankings_together_find_more_than_words(places: Sequence[Path | str]) -> None:
    """K1: words, stems and pairs of characters find alone; what they miss, meaning adds."""
    figures: list[dict[str, float]] = []
    for place, embedder in zip(places, (None, Concepts()), strict=True):
        async with AsyncExitStack() as stack:
            figures.append(await measure(await open_store(stack, place, embedder)))
    words, both = figures
    assert min(words["words"], words["stems"], words["pairs"]) >= 0.9
    assert both["meaning"] > words["meaning"] + 0.3
    assert both["all"] > words["all"]
