"""A table of replies that look broken and are whole. Parametrize a test over the rows."""

from dataclasses import dataclass

from proof.wire_faults import PING
from windlass.testing.chat_wire import (
    DONE,
    call_chunk,
    call_chunks,
    chat_answer,
    chat_chunk,
    finish_chunk,
    text_answer,
    text_chunk,
    thinking_chunk,
    usage_chunk,
)
from windlass.testing.wire import (
    WireAnswer,
    append_acts,
    refuse_with,
    reset,
    split_pieces,
    stream_answer,
    wait,
    with_crlf,
)

BIG = "x" * 5_000_000
MANY = 100_000
ODD_TEXT = 'Zażółć gęślą jaźń, 你好 👋🏽\n\n"data: no" \r\n: no'
"""Text with sequences that could confuse a parser of server-sent events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WireOddity:
    """An unusual answer that is valid, and the reply that it contains."""

    name: str
    answer: WireAnswer
    text: str = ""
    thinking: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    """The names and arguments of its calls, in order."""
    usage: bool = True
    """Whether the answer reports usage."""


_TWO = (("read", '{"a":1}'), ("list", '{"b":2}'))

ODDITIES: tuple[WireOddity, ...] = (
    WireOddity(name="plain", answer=text_answer("Hello"), text="Hello"),
    WireOddity(name="byte_by_byte", answer=split_pieces(text_answer(ODD_TEXT)), text=ODD_TEXT),
    WireOddity(name="crlf", answer=with_crlf(text_answer(ODD_TEXT)), text=ODD_TEXT),
    WireOddity(
        name="crlf_byte_by_byte",
        answer=split_pieces(with_crlf(text_answer(ODD_TEXT))),
        text=ODD_TEXT,
    ),
    WireOddity(
        name="slow_drip",
        answer=stream_answer(
            *(part for letter in "Hello" for part in (wait(60), text_chunk(letter))),
            finish_chunk(),
            DONE,
        ),
        text="Hello",
        usage=False,
    ),
    WireOddity(name="big_delta", answer=chat_answer(text_chunk(BIG)), text=BIG),
    WireOddity(
        name="big_delta_in_pieces",
        answer=split_pieces(chat_answer(text_chunk(BIG)), 16_384),
        text=BIG,
    ),
    WireOddity(
        name="many_deltas",
        answer=split_pieces(chat_answer(text_chunk("x") * MANY), 65_536),
        text="x" * MANY,
    ),
    WireOddity(
        name="no_usage",
        answer=stream_answer(text_chunk("Hi"), finish_chunk(), DONE),
        text="Hi",
        usage=False,
    ),
    WireOddity(
        name="no_done",
        answer=stream_answer(text_chunk("Hi"), finish_chunk()),
        text="Hi",
        usage=False,
    ),
    WireOddity(
        name="done_without_finish",
        answer=stream_answer(text_chunk("Hi"), usage_chunk(), DONE),
        text="Hi",
    ),
    WireOddity(
        name="character_in_two_deltas",
        answer=stream_answer(
            # What JavaScript writes for the two halves of an emoji.
            text_chunk("Go @").replace(b"@", b"\\ud83d"),
            text_chunk("@.").replace(b"@", b"\\ude80"),
            finish_chunk(),
            usage_chunk(),
            DONE,
        ),
        text="Go \N{ROCKET}.",
    ),
    WireOddity(
        name="whole_reply",
        answer=refuse_with(
            200,
            {
                "choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 7, "completion_tokens": 2},
            },
        ),
        text="Hi",
    ),
    WireOddity(
        name="reset_after_finish",
        answer=stream_answer(text_chunk("Hi"), finish_chunk(), reset()),
        text="Hi",
        usage=False,
    ),
    WireOddity(name="reset_after_done", answer=append_acts(text_answer("Hi"), reset()), text="Hi"),
    WireOddity(
        name="finish_repeated",
        answer=stream_answer(
            chat_chunk({"content": "H"}, "stop"), chat_chunk({"content": "i"}, "stop"), DONE
        ),
        text="Hi",
        usage=False,
    ),
    WireOddity(
        name="pings",
        answer=stream_answer(
            PING, text_chunk("Hi"), PING, finish_chunk(), usage_chunk(), PING, DONE
        ),
        text="Hi",
    ),
    WireOddity(
        name="thinking",
        answer=chat_answer(thinking_chunk("hm"), text_chunk("Hi")),
        text="Hi",
        thinking="hm",
    ),
    WireOddity(
        name="thinking_elsewhere",
        answer=chat_answer(thinking_chunk("hm", "reasoning"), text_chunk("Hi")),
        text="Hi",
        thinking="hm",
    ),
    WireOddity(
        name="two_calls",
        answer=chat_answer(
            call_chunks("read", '{"a"', ":1}"), call_chunks("list", '{"b":2}', id="call_2", index=1)
        ),
        calls=_TWO,
    ),
    WireOddity(
        name="duplicate_ids",
        answer=chat_answer(call_chunks("read", '{"a":1}'), call_chunks("list", '{"b":2}', index=1)),
        calls=_TWO,
    ),
    WireOddity(
        name="missing_ids",
        answer=chat_answer(
            call_chunks("read", '{"a":1}', id=None),
            call_chunks("list", '{"b":2}', id=None, index=1),
        ),
        calls=_TWO,
    ),
    WireOddity(
        name="index_gap",
        answer=chat_answer(
            call_chunks("read", '{"a":1}', index=2), call_chunks("list", '{"b":2}', id="c", index=7)
        ),
        calls=_TWO,
    ),
    WireOddity(
        name="index_reused",
        answer=chat_answer(
            (
                call_chunk('{"a":1}', id="c1", name="read"),
                call_chunk('{"b":2}', id="c2", name="list"),
            )
        ),
        calls=_TWO,
    ),
    WireOddity(
        name="interleaved",
        answer=chat_answer(
            (
                call_chunk('{"a"', index=0, id="c1", name="read"),
                call_chunk('{"b"', index=1, id="c2", name="list"),
                call_chunk(":1}", index=0),
                call_chunk(":2}", index=1),
            )
        ),
        calls=_TWO,
    ),
)
