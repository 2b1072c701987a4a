"""The picture of a terminal: it shows what a command really printed, in its order."""

import sys
import xml.etree.ElementTree as ET

import pytest

import terminal_recording as recording
from terminal_recording import Piece, Recorder, draw, join_pieces

SVG = "{http://www.w3.org/2000/svg}"


def feed(*printed: tuple[float, str]) -> list[Piece]:
    recorder = Recorder()
    for at_s, text in printed:
        recorder.feed(at_s, text)
    return recorder.pieces


def test_styles_and_lines_have_their_places() -> None:
    pieces = feed((0.5, "\x1b[2m│ \x1b[0m\x1b[1;31mkill -9\x1b[0m\r\n"), (1.0, "gone\r\n"))
    assert pieces == [
        Piece(0.5, 0, 0, "│ ", ("2",)),
        Piece(0.5, 0, 2, "kill -9", ("1", "31")),
        Piece(1.0, 1, 0, "gone", ()),
    ]


def test_a_long_line_is_wrapped() -> None:
    pieces = feed((0.0, "x" * (recording.COLUMNS + 3)))
    assert [(piece.row, len(piece.text)) for piece in pieces] == [(0, recording.COLUMNS), (1, 3)]


def test_words_that_come_together_are_one_text() -> None:
    pieces = feed((0.0, "\x1b[2mto\x1b[0m\x1b[2m the\x1b[0m"), (0.05, "\x1b[2m card\x1b[0m"))
    assert [piece.text for piece in join_pieces(pieces)] == ["to the card"]


@pytest.mark.parametrize("text", ["\x1b[2K", "\x1b[3A", "half\rwhole"])
def test_output_that_moves_the_cursor_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="moves the cursor"):
        feed((0.0, text))


def test_a_text_appears_when_it_was_printed_and_the_lines_scroll() -> None:
    lines = [(float(number), f"line <{number}>\r\n") for number in range(recording.ROWS + 2)]
    root = ET.fromstring(draw(feed(*lines), "$ windlass demo"))
    shown = {
        text.text: step.get("begin")
        for group in root.iter(f"{SVG}g")
        for step in group.findall(f"{SVG}set")
        for text in group.findall(f"{SVG}text")
    }
    assert shown["line <3>"] == "r.begin+3.0s"
    scroll = next(root.iter(f"{SVG}animateTransform"))
    assert (scroll.get("values") or "").split(";") == ["0 0", "0 -19", "0 -38"]
    # Nothing in it runs or fetches anything.
    assert {element.tag for element in root.iter()}.isdisjoint({f"{SVG}script", f"{SVG}image"})


@pytest.mark.slow
def test_a_command_is_recorded_in_a_real_terminal() -> None:
    code = "import sys; print('a terminal' if sys.stdout.isatty() else 'none', '→')"
    recorder = recording.record([sys.executable, "-c", code])
    shown = ""
    for piece in recorder.pieces:
        # The terminal may hand on a line in parts, and a part that is only a space is not kept.
        shown = shown.ljust(piece.column) + piece.text
    assert shown == "a terminal →"


@pytest.mark.slow
def test_a_command_that_fails_is_no_picture() -> None:
    with pytest.raises(SystemExit, match="ended with 3"):
        recording.record([sys.executable, "-c", "raise SystemExit(3)"])
