"""The page: words wrap, lines hang, and what an encoding lacks is replaced."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from terminal import ScreenPage
from windlass.cli.screen import Screen, replace_control_chars

LONG = "The quick brown fox jumps over the lazy dog."


def page(width: int = 24) -> tuple[Screen, io.StringIO]:
    file = io.StringIO()
    return Screen(file, width=width), file


def test_a_paragraph_hangs_behind_its_mark_and_the_gutter() -> None:
    screen, file = page()
    screen.gutter = "| "
    screen.write_line(LONG, mark="->", indent=1)
    assert file.getvalue() == "|  -> The quick brown\n|     fox jumps over the\n|     lazy dog.\n"


def test_an_empty_line_has_no_blank_at_its_end() -> None:
    screen, file = page()
    screen.gutter = "| "
    screen.write_line()
    assert file.getvalue() == "|\n"


def test_a_line_that_is_open_is_ended_before_the_next() -> None:
    screen, file = page()
    screen.stream_text("half a wo")
    screen.write_line("Next.")
    assert file.getvalue() == "half a wo\nNext.\n"


def test_a_word_that_is_too_long_stays_whole() -> None:
    screen, file = page()
    screen.write_line("see " + "x" * 30 + " there")
    assert file.getvalue() == "see\n" + "x" * 30 + "\nthere\n"


def test_wide_letters_count_twice() -> None:
    screen, file = page()
    screen.write_line("漢字 " * 6)
    assert file.getvalue() == "漢字 漢字 漢字 漢字 漢字\n漢字\n"


def test_what_an_encoding_lacks_is_replaced() -> None:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, "ascii", newline="\n")
    screen = Screen(file, width=40)
    screen.write_line("naïve", mark=screen.glyphs.call)
    assert raw.getvalue() == b"-> na?ve\n"


WORDS = st.lists(st.text("abc", min_size=1, max_size=12), min_size=1, max_size=30).map(" ".join)


@given(WORDS, st.data())
def test_however_a_text_is_cut_into_tokens_it_looks_the_same(
    text: str, data: st.DataObject
) -> None:
    whole, expected = page()
    whole.write_line(text)
    screen, file = page()
    rest = text
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        screen.stream_text(rest[:size])
        rest = rest[size:]
    screen.end_line()
    assert file.getvalue() == expected.getvalue()
    assert all(len(line) <= 24 for line in file.getvalue().splitlines())
    assert file.getvalue().split() == text.split()


@pytest.mark.contract("U2")
def test_the_footer_stands_below_an_open_line_and_leaves_no_trace() -> None:
    """The status is there at all times, also in the middle of a reply."""

    class TerminalFile(io.StringIO):
        @override
        def isatty(self) -> bool:
            return True

    file = TerminalFile()
    screen = Screen(file, width=24)
    screen.styled = True
    shown = ScreenPage(screen_width := 80)
    fed = 0

    def lines() -> list[str]:
        nonlocal fed
        shown.feed(file.getvalue()[fed:].replace("\n", "\r\n"))
        fed = len(file.getvalue())
        return shown.visible

    screen.stream_text("Once upon ")
    screen.show_footer("writing")
    assert lines() == ["Once upon", "writing"]
    screen.stream_text("a time ")
    screen.show_footer("writing still" + " and on" * screen_width)
    assert lines()[0] == "Once upon a time"
    assert lines()[1].startswith("writing still and on")
    assert len(lines()) == 2
    screen.end_line()
    assert lines() == ["Once upon a time"]
    screen.show_footer("waiting")
    assert lines() == ["Once upon a time", "waiting"]
    screen.clear_footer()
    assert lines() == ["Once upon a time"]


def test_characters_without_width_are_not_shown() -> None:
    """Words can be hidden between them; those that join letters and pictures stay."""
    hidden = "pay\u200bpal\ufeff \u2060now\U000e0041\u00ad"
    assert replace_control_chars(hidden) == "paypal now"
    assert replace_control_chars("👩‍🚀 می‌خواهم") == "👩‍🚀 می‌خواهم"
