"""Server-sent events: however the bytes are split, the events are the same (S10)."""

import sys
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.errors import ModelError
from windlass.models.http.sse import EVENT_BYTES_MAX, SseEvent, SseParser


def parsed(*chunks: bytes) -> list[SseEvent]:
    parser = SseParser()
    return [event for chunk in chunks for event in parser.feed(chunk)]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\n", [("", b"a")]),
        (b"data:a\n\n", [("", b"a")]),
        (b"data:  a\n\n", [("", b" a")]),
        (b"data: a\r\n\r\n", [("", b"a")]),
        (b"data: a\r\r", [("", b"a")]),
        (b"data: a\ndata: b\n\n", [("", b"a\nb")]),
        (b"data: a\ndata\ndata: b\n\n", [("", b"a\n\nb")]),
        (b"event: ping\ndata: {}\n\ndata: x\n\n", [("ping", b"{}"), ("", b"x")]),
        (b"data: x\nevent:late\n\n", [("late", b"x")]),
        (b": comment\n\n:\n\ndata: x\n\n", [("", b"x")]),
        (b"data: x\n: between\ndata: y\n\n", [("", b"x\ny")]),
        (b"\xef\xbb\xbfdata: x\n\n", [("", b"x")]),
        (b"id: 7\nretry: 9\ndata: x\nnonsense\n\n", [("", b"x")]),
        (b"event: empty\n\ndata: x\n\n", [("", b"x")]),
        (b"data:\n\ndata: x\n\n", [("", b"x")]),
        (b"data: a: b\n\n", [("", b"a: b")]),
        ("data: zażółć \u2028 \x0b \x85\n\n".encode(), [("", "zażółć \u2028 \x0b \x85".encode())]),
        (b"data: \xff\xfe\n\n", [("", b"\xff\xfe")]),
        (b"data: x\n", []),
        (b"data: x", []),
        (b"", []),
        (b"\n\n\n", []),
    ],
)
def test_a_stream_gives_its_events(stream: bytes, events: list[SseEvent]) -> None:
    assert parsed(stream) == events
    assert parsed(*(stream[at : at + 1] for at in range(len(stream)))) == events


def test_an_event_comes_with_the_byte_that_completes_it() -> None:
    """E2: also where CR alone ends a line, and a LF might still follow."""
    for ending in (b"\n", b"\r", b"\r\n"):
        parser = SseParser()
        assert parser.feed(b"data: x" + ending) == []
        assert parser.feed(ending[:1]) == [("", b"x")]
        assert parser.feed(ending[1:]) == []


@pytest.mark.contract("S10")
@pytest.mark.parametrize(
    "piece", [b"x" * 2**16, b"data: x\n" * 2**13, b"data: " + b"x" * 2**16 + b"\n"]
)
def test_an_event_that_never_ends_is_refused(piece: bytes) -> None:
    """S10: by a line without an end, or by lines without a blank one."""
    pieces = [piece] * (EVENT_BYTES_MAX // len(piece) + 2)
    with pytest.raises(ModelError, match="more than 16 MiB"):
        parsed(*pieces)


@pytest.mark.contract("S10")
def test_events_that_end_are_not_counted_together() -> None:
    piece = b": keep-alive\n\ndata: " + b"x" * 2**16 + b"\n\nda"
    parser = SseParser()
    for _ in range(2 * EVENT_BYTES_MAX // len(piece)):
        assert len(parser.feed(piece)) == 1
        piece = b"ta: " + b"x" * 2**16 + b"\n\nda"


def test_the_end_of_the_stream_completes_whole_lines_only() -> None:
    for stream, events in ((b"data: x\n", [("", b"x")]), (b"data: x", []), (b"data: x\n\n", [])):
        parser = SseParser()
        parser.feed(stream)
        assert parser.finish() == events


lines = st.lists(
    st.sampled_from(
        ["data: a", "data:", "data: é👋", ": c", "event: e", "", "id: 1", "data: b\u2028"]
    )
    | st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=8),
    max_size=20,
)


@given(lines=lines, ending=st.sampled_from(["\n", "\r\n", "\r"]), data=st.data())
def test_any_split_gives_the_same_events(
    lines: list[str], ending: str, data: st.DataObject
) -> None:
    """S10: any split of bytes, also inside UTF-8 characters and inside CRLF."""
    stream = "".join(line + ending for line in lines).encode()
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=12).map(sorted))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert parsed(*chunks) == parsed(stream) == list(expected(lines))


def expected(lines: Iterable[str]) -> Iterable[SseEvent]:
    """The algorithm of the standard, word for word."""
    name, data = "", [""][:0]
    for number, line in enumerate(lines):
        text = line.removeprefix("\ufeff") if number == 0 else line
        field, _, value = text.partition(":")
        value = value.removeprefix(" ")
        if not text:
            if "\n".join(data):
                yield name, "\n".join(data).encode()
            name, data = "", []
        elif field == "data":
            data.append(value)
        elif field == "event":
            name = value


def steps(act: Callable[[], object]) -> int:
    """Lines of Python that run: a cost that does not depend on the machine."""
    count = 0

    def trace(_frame: object, event: str, _arg: object) -> object:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        act()
    finally:
        sys.settrace(before)
    return count


def fed(stream: bytes, size: int) -> Callable[[], object]:
    return lambda: parsed(*(stream[at : at + size] for at in range(0, len(stream), size)))


def test_a_large_event_in_small_chunks_is_joined_once() -> None:
    """S10: 5 MB in chunks of 1 KiB; what is waiting is never copied again."""
    data = b"x" * 5_000_000
    assert parsed(*_chunks(b"data: " + data + b"\n\n", 1024)) == [("", data)]
    parser = SseParser()
    for chunk in _chunks(data, 1024):
        parser.feed(chunk)
    assert len(parser._partial_line) == -(-len(data) // 1024)


def test_many_tiny_events_cost_as_much_as_they_are_many() -> None:
    """S10: 100,000 tiny events."""
    stream = b"data: x\n\n" * 100_000
    assert len(parsed(*_chunks(stream, 4096))) == 100_000
    few, many = (steps(fed(b"data: x\n\n" * count, 64)) for count in (500, 5_000))
    assert many <= 10.5 * few


def _chunks(stream: bytes, size: int) -> list[bytes]:
    return [stream[at : at + size] for at in range(0, len(stream), size)]
