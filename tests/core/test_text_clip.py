"""Text of others on one line: printable, and cut."""

from windlass.core.text_clip import clip_line, printable_chars, printable_line


def test_a_line_is_cut_and_says_so() -> None:
    assert clip_line("a \n\t b", 3) == "a b"
    assert clip_line("abcd", 3) == "ab…"
    assert clip_line("x" * 1_000_000, 10) == "x" * 9 + "…"


def test_what_is_not_printable_is_a_question_mark() -> None:
    assert printable_line("a\x1b[0m\nb") == "a?[0m b"
    assert printable_chars("a\nb\x07") == "a?b?"
    assert printable_chars("a\nb\x07", keep="\n") == "a\nb?"
