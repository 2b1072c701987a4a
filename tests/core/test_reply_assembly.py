"""Pieces of a stream in, one whole reply out."""

from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.events import (
    CallDelta,
    ReplyEnd,
    ReplyPiece,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)
from windlass.core.messages import (
    AssistantMessage,
    ReplyPart,
    TextPart,
    ThinkingPart,
    ToolCall,
    Usage,
)
from windlass.core.reply_assembly import ReplyAssembly

MODEL = "test:model"


def assembled(*pieces: ReplyPiece) -> ReplyAssembly:
    assembly = ReplyAssembly()
    for piece in pieces:
        assembly.add_piece(piece)
    return assembly


def reply(*pieces: ReplyPiece) -> AssistantMessage:
    return assembled(*pieces).build_reply(MODEL, "c1_")


def calls(*pieces: ReplyPiece) -> list[tuple[str, str]]:
    return [(call.name, call.arguments) for call in reply(*pieces).calls]


def parts(*pieces: ReplyPiece) -> tuple[ReplyPart, ...]:
    return reply(*pieces).parts


# ── text, thinking, end ──────────────────────────────────────────────────────


def test_nothing_is_an_empty_reply() -> None:
    assert reply() == AssistantMessage((), MODEL)


def test_text_is_joined() -> None:
    assert parts(TextDelta("Once "), TextDelta("upon")) == (TextPart("Once upon"),)


def test_order_is_kept() -> None:
    """L9: text, thinking and calls in the order in which the model sent them."""
    assert parts(
        ThinkingDelta("Hm"),
        TextDelta("So: "),
        CallDelta(0, "x", "look", "{}"),
        TextDelta("and "),
        ThinkingDelta("ok"),
        CallDelta(1, "y", "send", "{}"),
        TextDelta("done"),
    ) == (
        ThinkingPart("Hm"),
        TextPart("So: "),
        ToolCall("c1_0", "look", "{}", "x"),
        TextPart("and "),
        ThinkingPart("ok"),
        ToolCall("c1_1", "send", "{}", "y"),
        TextPart("done"),
    )


def test_a_signature_may_come_after_its_thinking() -> None:
    """S11: thinking text and signature are kept verbatim."""
    thought = parts(ThinkingDelta("Let "), ThinkingDelta("me see"), ThinkingDelta("", "signed"))
    assert thought == (ThinkingPart("Let me see", "signed"),)


def test_thinking_that_is_only_a_signature_is_kept() -> None:
    """S11: providers hide the text and want the signature back."""
    assert parts(ThinkingDelta("", "sealed")) == (ThinkingPart("", "sealed"),)


def test_two_signed_thoughts_stay_two() -> None:
    """S11: sent back verbatim; a signature is of its own block and of no other."""
    thoughts = parts(
        ThinkingDelta("first"),
        ThinkingDelta("", "one"),
        ThinkingDelta("second"),
        ThinkingDelta("", "two"),
    )
    assert thoughts == (ThinkingPart("first", "one"), ThinkingPart("second", "two"))


def test_empty_text_is_left_out() -> None:
    """E2, X1: no provider takes an empty block back."""
    assert parts(TextDelta(""), CallDelta(0, "x", "look")) == (ToolCall("c1_0", "look", "", "x"),)
    assert parts(ThinkingDelta(""), TextDelta("Hi")) == (TextPart("Hi"),)


@pytest.mark.parametrize(
    ("pieces", "whole"),
    [
        ((TextDelta("Hi, "), ThinkingDelta(""), TextDelta("Ann")), TextPart("Hi, Ann")),
        (
            (ThinkingDelta("Hm, "), TextDelta(""), ThinkingDelta("so", "signed")),
            ThinkingPart("Hm, so", "signed"),
        ),
    ],
    ids=["text", "thinking"],
)
def test_an_empty_delta_divides_nothing(pieces: Sequence[ReplyPiece], whole: ReplyPart) -> None:
    """E2, S11: empty deltas do not count; a signed thought stays in one piece."""
    assert parts(*pieces) == (whole,)


def test_the_text_so_far_holds_no_thinking() -> None:
    pieces = TextDelta("Once "), ThinkingDelta("hm"), CallDelta(0, "x", "look"), TextDelta("upon")
    assert assembled(*pieces).text == "Once upon"


def test_a_stream_is_whole_only_with_its_end_marker() -> None:
    """S8: a stream without one is never success."""
    assert assembled(TextDelta("Hi")).stop is None
    assert assembled(TextDelta("Hi"), ReplyEnd("length")).stop == "length"


def test_later_usage_replaces_earlier() -> None:
    """S12: usage is kept as it arrives."""
    assert assembled().usage is None
    pieces = UsageDelta(Usage(5)), TextDelta("Hi"), UsageDelta(Usage(5, 2))
    assert assembled(*pieces).usage == Usage(5, 2)


def test_the_size_counts_bytes_of_every_kind() -> None:
    pieces = TextDelta("né"), ThinkingDelta("hm"), CallDelta(0, "x", "look", "{}")
    assert assembled(*pieces).output_bytes == 3 + 2 + 2


def test_two_attempts_never_mix() -> None:
    """S7: buffers belong to an attempt."""
    assembled(CallDelta(0, "x", "look", '{"a":'))
    assert calls(CallDelta(0, "x", "look", "{}")) == [("look", "{}")]


# ── calls ────────────────────────────────────────────────────────────────────


def test_our_ids_are_made_from_the_prefix_and_the_wire_keeps_its_own() -> None:
    """S9: unique in a session, and mapped to the provider's on the wire."""
    found = assembled(CallDelta(0, "x", "look"), CallDelta(1, "y", "look")).build_reply(
        MODEL, "c7_"
    )
    assert [(call.id, call.provider_id) for call in found.calls] == [("c7_0", "x"), ("c7_1", "y")]


def test_fragments_are_joined() -> None:
    assert calls(
        CallDelta(0, "x", "look"), CallDelta(0, arguments='{"a"'), CallDelta(0, arguments=": 1}")
    ) == [("look", '{"a": 1}')]


def test_interleaved_fragments_are_sorted_by_index() -> None:
    """S9."""
    assert calls(
        CallDelta(0, "x", "look"),
        CallDelta(1, "y", "send"),
        CallDelta(0, arguments='{"a":'),
        CallDelta(1, arguments='{"b":'),
        CallDelta(0, arguments=" 1}"),
        CallDelta(1, arguments=" 2}"),
    ) == [("look", '{"a": 1}'), ("send", '{"b": 2}')]


def test_a_gap_in_the_index_is_no_call() -> None:
    """S9."""
    assert calls(CallDelta(1, "x", "look", "{}"), CallDelta(5, "y", "send", "{}")) == [
        ("look", "{}"),
        ("send", "{}"),
    ]


def test_two_indexes_with_one_id_are_two_calls() -> None:
    """S9: duplicate ids."""
    assert calls(
        CallDelta(0, "x", "look"),
        CallDelta(1, "x", "send"),
        CallDelta(0, arguments="{}"),
        CallDelta(1, arguments="[]"),
    ) == [("look", "{}"), ("send", "[]")]


def test_one_index_with_two_ids_is_two_calls() -> None:
    """S9: a server that gives every call the same index."""
    assert calls(
        CallDelta(0, "x", "look", '{"a"'),
        CallDelta(0, arguments=": 1}"),
        CallDelta(0, "y", "send", '{"b"'),
        CallDelta(0, arguments=": 2}"),
    ) == [("look", '{"a": 1}'), ("send", '{"b": 2}')]


def test_without_an_index_the_id_decides() -> None:
    """S9."""
    assert calls(
        CallDelta(id="x", name="look"),
        CallDelta(id="y", name="send"),
        CallDelta(id="x", arguments="{}"),
        CallDelta(id="y", arguments="[]"),
    ) == [("look", "{}"), ("send", "[]")]


def test_without_an_id_the_index_decides() -> None:
    """S9: missing ids."""
    found = reply(CallDelta(0, name="look", arguments="{}"), CallDelta(1, name="send")).calls
    assert [(call.id, call.name, call.provider_id) for call in found] == [
        ("c1_0", "look", None),
        ("c1_1", "send", None),
    ]


def test_an_empty_id_is_no_id() -> None:
    assert calls(CallDelta(0, "", "look"), CallDelta(0, "", arguments="{}")) == [("look", "{}")]


def test_an_id_may_come_late() -> None:
    (call,) = reply(CallDelta(0, name="look"), CallDelta(0, "x", arguments="{}")).calls
    assert (call.provider_id, call.arguments) == ("x", "{}")


def test_with_neither_a_name_after_arguments_opens_the_next_call() -> None:
    """S9: missing ids and indexes."""
    assert calls(
        CallDelta(name="look", arguments='{"a":'),
        CallDelta(arguments=" 1}"),
        CallDelta(name="send", arguments="{}"),
    ) == [("look", '{"a": 1}'), ("send", "{}")]


def test_two_equal_calls_have_two_ids() -> None:
    """S9: our own call ids are unique, also when the model says the same thing twice."""
    found = reply(*[CallDelta(name="look", arguments="{}")] * 2).calls
    assert [call.id for call in found] == ["c1_0", "c1_1"]


def test_with_neither_a_call_without_arguments_is_a_call_as_well() -> None:
    """S9: missing ids and indexes, and tools that need no arguments."""
    assert calls(CallDelta(name="now"), CallDelta(name="look")) == [("now", ""), ("look", "")]


def test_a_name_may_come_in_pieces_or_again_and_again() -> None:
    assert calls(CallDelta(0, "x", "lo"), CallDelta(0, name="ok")) == [("look", "")]
    assert calls(CallDelta(0, "x", "look"), CallDelta(0, "x", "look", "{}")) == [("look", "{}")]


def test_a_signature_of_a_call_is_kept() -> None:
    """S11."""
    (call,) = reply(CallDelta(0, "x", "look"), CallDelta(0, signature="signed")).calls
    assert call.signature == "signed"


Fragments = list[CallDelta]


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[Fragments], list[CallDelta]]:
    """Several calls in fragments, and one way of interleaving them."""
    indexes = draw(st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True))
    with_ids, same_id = draw(st.booleans()), draw(st.booleans())
    apart: list[Fragments] = []
    for index in indexes:
        wire_id = ("same" if same_id else f"id{index}") if with_ids else None
        texts = draw(st.lists(st.text("ab{}", max_size=3), max_size=4))
        head = CallDelta(index, wire_id, draw(st.sampled_from(["look", "send"])))
        again = draw(st.booleans())
        apart.append(
            [head, *(CallDelta(index, wire_id if again else None, None, text) for text in texts)]
        )
    turns = [at for at, fragments in enumerate(apart) for _ in fragments]
    order = draw(st.permutations(turns))
    queues = [iter(fragments) for fragments in apart]
    return apart, [next(queues[at]) for at in order]


def joined(fragments: Iterable[CallDelta]) -> tuple[str, str]:
    fragments = list(fragments)
    return fragments[0].name or "", "".join(fragment.arguments for fragment in fragments)


@given(streams())
def test_any_interleaving_gives_the_same_calls(
    stream: tuple[list[Fragments], list[CallDelta]],
) -> None:
    """S9: fragments of calls with distinct indexes may come in any order."""
    apart, mixed = stream
    first_seen = sorted(apart, key=lambda fragments: mixed.index(fragments[0]))
    found = reply(*mixed).calls
    assert [(call.name, call.arguments) for call in found] == [joined(one) for one in first_seen]
    assert len({call.id for call in found}) == len(apart)


@given(
    st.lists(
        st.builds(TextDelta, st.text(max_size=3))
        | st.builds(ThinkingDelta, st.text(max_size=3), st.none())
    )
)
def test_no_word_is_lost(pieces: list[TextDelta | ThinkingDelta]) -> None:
    """E2: unchanged."""
    found = parts(*pieces)
    texts = [part.text for part in found if isinstance(part, TextPart)]
    thoughts = [part.text for part in found if isinstance(part, ThinkingPart)]
    assert "".join(texts) == "".join(p.text for p in pieces if isinstance(p, TextDelta))
    assert "".join(thoughts) == "".join(p.text for p in pieces if isinstance(p, ThinkingDelta))
