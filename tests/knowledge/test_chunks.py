"""Texts cut into pieces, queries cut into words."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.knowledge.chunks import (
    CHUNK_CHARS,
    OVERLAP_CHARS,
    TITLE_CHARS_MAX,
    TextChunk,
    first_heading,
    split_text,
)
from windlass.knowledge.ranking import find_nearest, merge_rankings, pack_vector
from windlass.knowledge.search_query import (
    WORDS_MAX,
    fts5_query,
    query_words,
    space_words,
    tsquery_text,
)

PAGE = """# Crane

The crane stands here.

## Hoist

It lifts.

```sh
# not a heading
```

### Rope

## Jib
"""


def test_a_short_text_is_one_piece() -> None:
    assert split_text("  One.  ", "Title", "text") == [TextChunk("Title", "One.")]
    assert split_text(" \n ", "Title", "text") == []


def test_markdown_is_cut_at_its_headings() -> None:
    cut = split_text(PAGE, "Crane", "markdown")
    assert [(chunk.title, chunk.text.split("\n")[0]) for chunk in cut] == [
        ("Crane", "# Crane"),
        ("Crane › Hoist", "## Hoist"),  # noqa: RUF001
        ("Crane › Hoist › Rope", "### Rope"),  # noqa: RUF001
        ("Crane › Jib", "## Jib"),  # noqa: RUF001
    ]
    assert "# not a heading" in cut[1].text


def test_a_heading_above_others_is_not_a_piece_by_itself() -> None:
    cut = split_text("# A\n\n## B\n\ntext", "", "markdown")
    assert cut == [TextChunk("A › B", "## B\n\ntext")]  # noqa: RUF001


def test_the_first_heading_is_the_title() -> None:
    assert first_heading("words\n\n## Second #\n") == "Second"
    assert first_heading("words") == ""


@pytest.mark.timeout(10)
def test_one_long_heading_is_read_once() -> None:
    (chunk, *_) = split_text("# a" + " " * 100_000 + "b" + "# " * 1_000, "", "markdown")
    assert len(chunk.title) <= TITLE_CHARS_MAX


def test_neighbours_overlap() -> None:
    words = " ".join(f"word{at}" for at in range(1_000))
    first, second, *_ = split_text(words, "", "text")
    shared = second.text[: OVERLAP_CHARS // 2]
    assert shared in first.text
    assert not second.text.startswith("ord")


def test_a_piece_ends_between_paragraphs_if_it_can() -> None:
    text = "\n\n".join(["A sentence of some length."] * 200)
    assert all(chunk.text.endswith(".") for chunk in split_text(text, "", "text"))


@given(st.text(alphabet="ab #\n`.", max_size=6_000), st.sampled_from(["text", "markdown"]))
def test_every_word_is_in_a_piece_and_no_piece_is_too_long(text: str, form: str) -> None:
    """The law of the module."""
    cut = split_text(text, "", "markdown" if form == "markdown" else "text")
    assert all(0 < len(chunk.text) <= CHUNK_CHARS for chunk in cut)
    if len(text) <= CHUNK_CHARS:
        said = " ".join(f"{chunk.title} {chunk.text}" for chunk in cut)
        assert set(re.findall(r"[ab]+", text)) <= set(re.findall(r"[ab]+", said))


@given(st.integers(1, 9_000))
def test_a_word_without_end_is_cut_too(length: int) -> None:
    cut = split_text("x" * length, "", "text")
    assert max(len(chunk.text) for chunk in cut) <= CHUNK_CHARS
    assert sum(len(chunk.text) for chunk in cut) >= length


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("What is the Crane?", ["crane"]),
        ("what is it", ["what", "is", "it"]),
        ('NEAR("a b", 3) OR c*', ["near", "b", "3", "c"]),
        ("snake_case and dotted.name", ["snake", "case", "dotted", "name"]),
        ("हिन्दी Ölwechsel", ["हिन्दी", "ölwechsel"]),
        ("?!", []),
    ],
)
def test_a_query_is_its_telling_words(query: str, words: list[str]) -> None:
    assert query_words(query) == words


def test_words_are_quoted_and_long_ones_may_begin_a_word() -> None:
    assert fts5_query(["oil", "crane"]) == '"oil" OR "crane" OR "crane"*'
    assert tsquery_text(["oil", "crane"]) == "'oil' | 'crane':*"
    assert space_words("a.b (c)\n") == "a b c"


@given(st.text())
def test_no_quote_is_left_in_a_word(query: str) -> None:
    assert not re.search(r"""["'\\:*()&|!<\0]""", "".join(query_words(query)))
    assert len(query_words(query)) <= WORDS_MAX


def test_two_rankings_become_one() -> None:
    """High in both beats first in one."""
    words = [(1, 9.0), (2, 8.0), (3, 7.0)]
    assert merge_rankings(words, None) == words
    assert [number for number, _ in merge_rankings(words, [4, 2])] == [2, 4, 1, 3]


def test_the_nearest_vectors_come_first() -> None:
    rows = [
        (1, pack_vector([1, 0])),
        (2, pack_vector([1, 1])),
        (3, pack_vector([-1, 0])),
        (4, pack_vector([1, 0, 0])),
    ]
    assert find_nearest(pack_vector([5, 0.1]), rows, 9) == [1, 2]
    assert find_nearest(pack_vector([5, 0.1]), rows, 1) == [1]


@pytest.mark.parametrize("vector", [[], [0.0, 0.0], [float("nan")], [float("inf")]])
def test_a_vector_without_a_direction_is_refused(vector: list[float]) -> None:
    with pytest.raises(ValueError, match="vector"):
        pack_vector(vector)
