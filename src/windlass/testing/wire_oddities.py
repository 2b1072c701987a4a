"""Replies that look broken and are whole, as one table: a test runs over the rows."""

from dataclasses import dataclass

from windlass.testing.chat_wire import (
    DONE,
    called,
    chat,
    chunk,
    finish,
    fragment,
    say,
    thought,
    usage,
    words,
)
from windlass.testing.wire import Answer, answer, crlf, pieces, reset, then, wait
from windlass.testing.wire_faults import PING

BIG = "x" * 5_000_000
MANY = 100_000
ODD_TEXT = 'Zażółć gęślą jaźń, 你好 👋🏽\n\n"data: no" \r\n: no'
"""What a parser could stumble over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Oddity:
    """An answer that is whole in spite of its looks."""

    name: str
    answer: Answer
    text: str = ""
    thinking: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    """Names and arguments, in order."""
    usage: bool = True
    """Whether it was reported."""


_TWO = (("read", '{"a":1}'), ("list", '{"b":2}'))

ODDITIES: tuple[Oddity, ...] = (
    Oddity(name="plain", answer=say("Hello"), text="Hello"),
    Oddity(name="byte_by_byte", answer=pieces(say(ODD_TEXT)), text=ODD_TEXT),
    Oddity(name="crlf", answer=crlf(say(ODD_TEXT)), text=ODD_TEXT),
    Oddity(name="crlf_byte_by_byte", answer=pieces(crlf(say(ODD_TEXT))), text=ODD_TEXT),
    Oddity(
        name="slow_drip",
        answer=answer(
            *(part for letter in "Hello" for part in (wait(60), words(letter))), finish(), DONE
        ),
        text="Hello",
        usage=False,
    ),
    Oddity(name="big_delta", answer=chat(words(BIG)), text=BIG),
    Oddity(name="big_delta_in_pieces", answer=pieces(chat(words(BIG)), 16_384), text=BIG),
    Oddity(name="many_deltas", answer=pieces(chat(words("x") * MANY), 65_536), text="x" * MANY),
    Oddity(name="no_usage", answer=answer(words("Hi"), finish(), DONE), text="Hi", usage=False),
    Oddity(name="no_done", answer=answer(words("Hi"), finish()), text="Hi", usage=False),
    Oddity(
        name="reset_after_finish",
        answer=answer(words("Hi"), finish(), reset()),
        text="Hi",
        usage=False,
    ),
    Oddity(name="reset_after_done", answer=then(say("Hi"), reset()), text="Hi"),
    Oddity(
        name="finish_repeated",
        answer=answer(chunk({"content": "H"}, "stop"), chunk({"content": "i"}, "stop"), DONE),
        text="Hi",
        usage=False,
    ),
    Oddity(
        name="pings",
        answer=answer(PING, words("Hi"), PING, finish(), usage(), PING, DONE),
        text="Hi",
    ),
    Oddity(name="thinking", answer=chat(thought("hm"), words("Hi")), text="Hi", thinking="hm"),
    Oddity(
        name="thinking_elsewhere",
        answer=chat(thought("hm", "reasoning"), words("Hi")),
        text="Hi",
        thinking="hm",
    ),
    Oddity(
        name="two_calls",
        answer=chat(called("read", '{"a"', ":1}"), called("list", '{"b":2}', id="call_2", index=1)),
        calls=_TWO,
    ),
    Oddity(
        name="duplicate_ids",
        answer=chat(called("read", '{"a":1}'), called("list", '{"b":2}', index=1)),
        calls=_TWO,
    ),
    Oddity(
        name="missing_ids",
        answer=chat(
            called("read", '{"a":1}', id=None), called("list", '{"b":2}', id=None, index=1)
        ),
        calls=_TWO,
    ),
    Oddity(
        name="index_gap",
        answer=chat(called("read", '{"a":1}', index=2), called("list", '{"b":2}', id="c", index=7)),
        calls=_TWO,
    ),
    Oddity(
        name="index_reused",
        answer=chat(
            (fragment('{"a":1}', id="c1", name="read"), fragment('{"b":2}', id="c2", name="list"))
        ),
        calls=_TWO,
    ),
    Oddity(
        name="interleaved",
        answer=chat(
            (
                fragment('{"a"', index=0, id="c1", name="read"),
                fragment('{"b"', index=1, id="c2", name="list"),
                fragment(":1}", index=0),
                fragment(":2}", index=1),
            )
        ),
        calls=_TWO,
    ),
)
