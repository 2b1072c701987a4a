"""Parts, messages, results, usage and charges."""

from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.messages import (
    AssistantMessage,
    CallOutcome,
    Charge,
    FilePart,
    ImagePart,
    Ledger,
    Message,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    ToolResults,
    ToolSpec,
    Usage,
    UserMessage,
)

CALL = ToolCall("a", "look", '{"x": 1}', "wire", "signed")
MESSAGES: list[Message] = [
    UserMessage(
        (
            TextPart("Hi"),
            ImagePart("image/png", b"\x00\xff"),
            FilePart("text/plain", "a.txt", url="file:a"),
        )
    ),
    UserMessage((TextPart("note"),), note=True),
    AssistantMessage((ThinkingPart("hm", "signed"), TextPart("Look:"), CALL), "m"),
    ToolResults(
        (CallOutcome(CALL, ToolResult("value", (TextPart("done"), ImagePart("image/png", b"x")))),)
    ),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_survives_the_journal(message: Message) -> None:
    """J1: what is read back is what was written."""
    assert msgspec.json.decode(msgspec.json.encode(message), type=Message) == message


@pytest.mark.parametrize(
    ("part", "tag"),
    [
        (TextPart("a"), "text"),
        (ThinkingPart("a"), "thinking"),
        (ImagePart("image/png"), "image"),
        (FilePart("text/plain", "a"), "file"),
        (ToolCall("a", "look"), "call"),
    ],
)
def test_a_part_says_what_it_is(
    part: TextPart | ThinkingPart | ImagePart | FilePart | ToolCall, tag: str
) -> None:
    assert msgspec.to_builtins(part)["type"] == tag


def test_a_message_never_changes() -> None:
    with pytest.raises(AttributeError):
        MESSAGES[0].parts = ()  # pyright: ignore[reportAttributeAccessIssue]


def test_the_text_of_a_message_is_its_text_only() -> None:
    texts = [message.text for message in MESSAGES if not isinstance(message, ToolResults)]
    assert texts == ["Hi", "note", "Look:"]
    result = MESSAGES[3]
    assert isinstance(result, ToolResults)
    assert result.items[0].result.text == "done"


def test_the_calls_of_a_reply_are_in_order() -> None:
    """L9."""
    other = ToolCall("b", "look")
    assert AssistantMessage((other, TextPart("and"), CALL)).calls == (other, CALL)
    assert AssistantMessage((TextPart("none"),)).calls == ()


def test_a_result_in_words() -> None:
    assert ToolResult.from_text("error", "it broke") == ToolResult("error", (TextPart("it broke"),))


def test_an_undeclared_tool_is_a_write() -> None:
    """T2."""
    assert ToolSpec("send", "", {}).effect == "write"


# ── usage ────────────────────────────────────────────────────────────────────


def test_usage_adds_up() -> None:
    one, other = Usage(1, 2, 3, 4, 5), Usage(10, 20, 30, 40, 50)
    assert one + other == Usage(11, 22, 33, 44, 55)
    assert (one + other).total == 33


def test_a_sum_with_an_estimate_is_an_estimate() -> None:
    """S12: each figure marked reported or estimated."""
    assert (Usage(1) + Usage(1, estimated=True)).estimated
    assert (Usage(1, estimated=True) + Usage(1)).estimated
    assert not (Usage(1) + Usage(1)).estimated


# ── the ledger ───────────────────────────────────────────────────────────────


def priced(model: str, usd: str | None, tokens: int = 1) -> Charge:
    return Charge(model, usage=Usage(tokens, 0), usd=None if usd is None else Decimal(usd))


def ledger(*charges: Charge) -> Ledger:
    total = Ledger()
    for charge in charges:
        total = total.add(charge)
    return total


def test_an_empty_ledger_knows_nothing() -> None:
    """S12: None, not zero."""
    assert (ledger().usage, ledger().usd) == (None, None)


def test_a_charge_without_usage_is_no_usage() -> None:
    """S12."""
    empty = ledger(Charge("m"))
    assert (empty.usage, empty.usd) == (None, None)


def test_charges_are_summed_per_model_and_purpose() -> None:
    """S12: per attempt and purpose."""
    total = ledger(
        priced("a", "1"),
        priced("b", "10"),
        Charge("a", "compaction", Usage(5), Decimal(100)),
        priced("a", "2"),
    )
    assert total.charges == (
        priced("a", "3", 2),
        priced("b", "10"),
        Charge("a", "compaction", Usage(5), Decimal(100)),
    )
    assert (total.usage, total.usd) == (Usage(8), Decimal(113))


@pytest.mark.parametrize("order", [1, -1], ids=["known first", "unknown first"])
def test_no_usage_beside_some_usage_is_that_usage(order: int) -> None:
    """S12: an attempt that said nothing makes the others no less known."""
    total = ledger(*[priced("a", "1"), Charge("a")][::order])
    assert (total.usage, total.usd) == (Usage(1), Decimal(1))


@pytest.mark.parametrize("model", ["a", "b"], ids=["same model", "other model"])
def test_one_unknown_price_makes_the_sum_unknown(model: str) -> None:
    """P6: an unknown price is a visible unknown."""
    total = ledger(priced("a", "1"), priced(model, None), priced("a", "1"))
    assert total.usage == Usage(3)
    assert total.usd is None


def test_an_old_ledger_stays_as_it_was() -> None:
    before = ledger(priced("a", "1"))
    before.add(priced("a", "1"))
    assert before.usd == Decimal(1)


@given(st.lists(st.decimals(0, 1, places=9), min_size=1, max_size=30))
def test_money_is_summed_exactly(costs: list[Decimal]) -> None:
    """B4: money is exact decimal."""
    total = ledger(*(Charge("a", usage=Usage(1), usd=usd) for usd in costs))
    assert total.usd == sum(costs, Decimal(0))
