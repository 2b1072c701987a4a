"""What a tool returned, as a model is shown it."""

import functools
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.messages import FilePart, ImagePart, TextPart, ToolResult
from windlass.testing import run_virtual
from windlass.tools.results import (
    TEXT_BYTES_MAX,
    clip_result,
    encode_compact,
    error_text,
    strip_result,
    to_content,
)

PNG = b"\x89PNG\r\n\x1a\n...."


@dataclass
class Point:
    x: int


class Model(pydantic.BaseModel):
    when: datetime


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        ("as it is\n", (TextPart("as it is\n"),)),
        ("", (TextPart(""),)),
        ('{"a": 1}', (TextPart('{"a": 1}'),)),
        (None, (TextPart("null"),)),
        (True, (TextPart("true"),)),
        ({"a": [1, 2.5]}, (TextPart('{"a":[1,2.5]}'),)),
        ({1: "é"}, (TextPart('{"1":"é"}'),)),
        (Point(1), (TextPart('{"x":1}'),)),
        ([Point(1), Path("a/b")], (TextPart('[{"x":1},"a/b"]'),)),
        (
            Model(when=datetime(2026, 1, 1, tzinfo=UTC)),
            (TextPart('{"when":"2026-01-01T00:00:00Z"}'),),
        ),
        (
            {"m": [Model(when=datetime(2026, 1, 1, tzinfo=UTC))]},
            (TextPart('{"m":[{"when":"2026-01-01T00:00:00Z"}]}'),),
        ),
        (PNG, (ImagePart("image/png", PNG),)),
        (b"%PDF-1.7", (FilePart("application/pdf", "result.pdf", b"%PDF-1.7"),)),
        (b"plain", (TextPart("plain"),)),
        (b"\xff\x00", (TextPart("[2 bytes that are neither text nor a picture]"),)),
        (ImagePart("image/png", PNG), (ImagePart("image/png", PNG),)),
        (
            ("See:", ImagePart("image/png", PNG), 3),
            (TextPart("See:"), ImagePart("image/png", PNG), TextPart("3")),
        ),
        (("a", "b"), (TextPart('["a","b"]'),)),
        ("half \udc80", (TextPart("half \\udc80"),)),
    ],
)
def test_values_become_parts(value: Any, parts: tuple[Any, ...]) -> None:
    """T10: strings verbatim, other values as compact JSON, images as parts."""
    assert to_content(value) == parts


@pytest.mark.parametrize("value", [object(), (n for n in [1]), {"a": lambda: 1}, [["\udc80"]]])
def test_what_has_no_json_form_is_refused(value: Any) -> None:
    """T10."""
    with pytest.raises(TypeError):
        to_content(value)


def test_errors_are_told_by_type_and_bounded_message() -> None:
    """T7."""
    assert error_text(ValueError("no")) == "ValueError: no"
    assert error_text(KeyError()) == "KeyError"
    assert len(error_text(ValueError("x" * 10_000))) < 2_100
    group = ExceptionGroup("unhandled", [ExceptionGroup("again", [ValueError("no")])])
    assert error_text(group) == "ValueError: no"


def clip(*texts: str, bytes_max: int = TEXT_BYTES_MAX) -> tuple[ToolResult, list[str]]:
    kept: list[str] = []

    async def keep(text: str) -> str:
        kept.append(text)
        return "id"

    result = ToolResult("value", tuple(map(TextPart, texts)))
    return run_virtual(functools.partial(lambda _: clip_result(result, keep, bytes_max))), kept


def test_a_text_that_fits_is_left_alone() -> None:
    """T10: to the byte."""
    for text in ("", "x" * TEXT_BYTES_MAX, "é" * (TEXT_BYTES_MAX // 2)):
        result, kept = clip(text)
        assert (result.text, kept) == (text, [])
    assert clip("é" * (TEXT_BYTES_MAX // 2) + "x")[1]


@given(st.text(min_size=300, max_size=3_000), st.integers(600, 2_000))
def test_head_and_tail_are_kept_and_the_size_holds(text: str, bytes_max: int) -> None:
    """T10: whatever the characters."""
    result, kept = clip(text, bytes_max=max(bytes_max, 1_024))
    if not kept:
        assert result.text == text
        return
    assert len(result.text.encode()) <= max(bytes_max, 1_024)
    head, _, rest = result.text.partition("\n[… ")
    assert text.startswith(head)
    assert text.endswith(rest.partition(" …]\n")[2])
    assert kept == [text]
    assert f"offset={len(head)})" in rest


def test_many_texts_share_the_room() -> None:
    """T10: a result of many parts is bounded too."""
    result, kept = clip(*(["x" * 20_000] * 4))
    assert len(kept) == 3
    assert len(result.text) <= TEXT_BYTES_MAX + 2 * 1_024


@pytest.mark.contract("T10")
def test_numbers_that_json_cannot_write_are_told() -> None:
    """T10: null would be taken for a value that is missing."""
    value = {"mean": float("nan"), "max": [float("inf"), float("-inf")], "none": None}
    assert encode_compact(value) == ('{"mean":"NaN","max":["Infinity","-Infinity"],"none":null}')
    assert encode_compact(float("nan")) == '"NaN"'
    assert encode_compact("null") == '"null"'


@pytest.mark.contract("U2")
@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07shown", "shown"),
        ("\x1b]8;;https://a.b\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b[2J\x1b[Hclear", "clear"),
        ("\x9b31mred", "red"),
        ("\x1b(Btext\x1b=", "text"),
        ("a\x1b]unended", "a"),
        ("tab\tand\nline", "tab\tand\nline"),
    ],
)
def test_codes_for_a_terminal_do_not_reach_the_model(text: str, plain: str) -> None:
    assert to_content(text) == (TextPart(plain),)
    result = ToolResult.from_text("error", text)
    assert strip_result(result).text == plain
    assert strip_result(ToolResult.from_text("value", plain)).text == plain
