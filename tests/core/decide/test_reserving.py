"""Reserve before the request, settle after it."""

from decimal import Context, Decimal, localcontext
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from facts import MODEL, PRICE, Story, make_call, make_charge, make_setup
from windlass.core.decide.reserving import (
    CHARS_PER_TOKEN,
    MILLION,
    TOOLS_OVERHEAD,
    covers_amount,
    equal_share,
    estimate_tokens,
    input_tokens_max,
    remaining_amount,
    reserve_within,
    settle_attempt,
    tightest_amount,
    usage_cost,
)
from windlass.core.events import ContextCompacted, NoteGiven, Reservation, RunStarted
from windlass.core.limits import Amount, Limits
from windlass.core.messages import (
    Charge,
    FilePart,
    ImagePart,
    Ledger,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResults,
    ToolSpec,
    Usage,
)
from windlass.core.moves import RequestReply
from windlass.core.setup import ModelInfo, Price
from windlass.core.state import PromptMeasure, State
from windlass.core.transcript import MEDIA_TOKENS
from windlass.core.view import Prompt
from windlass.models.openai.chat import OpenAIChat
from windlass.models.options import ModelOptions
from windlass.models.vendors import ChatQuirks

INFO = ModelInfo(MODEL, PRICE, output_max=1_000)
FREE = ModelInfo(MODEL, Price(Decimal(0), Decimal(0)), output_max=1_000)
UNPRICED = ModelInfo(MODEL, output_max=1_000)
EMPTY = Ledger()


# ── reserve ──────────────────────────────────────────────────────────────────


def test_without_a_limit_the_whole_output_is_reserved() -> None:
    reserved = reserve_within(INFO, 2_000, remaining_amount(Limits(), EMPTY))
    assert reserved == Reservation(2_000, 1_000, Decimal("0.021"))


def test_without_a_price_money_is_unknown() -> None:
    """P6: an unknown price is a visible unknown, and not zero."""
    assert reserve_within(
        UNPRICED, 2_000, remaining_amount(Limits(usd=Decimal(1)), EMPTY)
    ) == Reservation(2_000, 1_000)


def test_the_output_is_lowered_to_the_tokens_that_are_left() -> None:
    """B2."""
    reserved = reserve_within(
        INFO, 2_000, remaining_amount(Limits(tokens=2_700), Ledger((make_charge(100, 100),)))
    )
    assert reserved is not None
    assert reserved.output == 500


def test_the_output_is_lowered_to_the_money_that_is_left() -> None:
    """B2: prompt estimate plus output cap at known prices must fit."""
    spent = Ledger((make_charge(1, 1, "0.001"),))
    reserved = reserve_within(INFO, 2_000, remaining_amount(Limits(usd=Decimal("0.010")), spent))
    assert reserved == Reservation(2_000, 200, Decimal("0.009"))


@pytest.mark.parametrize("limits", [Limits(tokens=2_000), Limits(usd=Decimal("0.006"))])
def test_a_request_with_no_room_for_a_reply_is_not_made(limits: Limits) -> None:
    """B2: a call that cannot fit is not made."""
    assert reserve_within(INFO, 2_000, remaining_amount(limits, EMPTY)) is None


@pytest.mark.parametrize(
    "limits", [Limits(tokens=2_001), Limits(usd=Decimal("0.006015"))], ids=["tokens", "usd"]
)
def test_a_request_with_room_for_one_token_is_made(limits: Limits) -> None:
    reserved = reserve_within(INFO, 2_000, remaining_amount(limits, EMPTY))
    assert reserved is not None
    assert reserved.output == 1


def test_money_for_half_a_token_is_money_for_none() -> None:
    assert (
        reserve_within(INFO, 2_000, remaining_amount(Limits(usd=Decimal("0.0060149")), EMPTY))
        is None
    )


def test_input_is_reserved_at_its_dearest() -> None:
    """B2: writing to a cache can cost more than plain input."""
    dear = ModelInfo(MODEL, Price(Decimal(3), Decimal(15), cache_write=Decimal(6)), output_max=1)
    reserved = reserve_within(dear, 1_000_000, remaining_amount(Limits(), EMPTY))
    assert reserved is not None
    assert reserved.usd == Decimal("6.000015")


def test_a_free_model_needs_no_money() -> None:
    reserved = reserve_within(FREE, 2_000, remaining_amount(Limits(usd=Decimal("0.01")), EMPTY))
    assert reserved == Reservation(2_000, 1_000, Decimal(0))


def test_a_prompt_that_costs_too_much_is_not_sent_even_if_replies_are_free() -> None:
    """B2: a call that cannot fit is not made."""
    model = ModelInfo(MODEL, Price(Decimal(3), Decimal(0)), output_max=1_000)
    assert (
        reserve_within(model, 1_000_000, remaining_amount(Limits(usd=Decimal("0.01")), EMPTY))
        is None
    )


def test_what_is_known_to_be_spent_counts_beside_an_unknown_price() -> None:
    """B2: money spent never exceeds the limit."""
    spent = Ledger((make_charge(1, 1, "0.99"), make_charge(1, 1, None, model="local:free")))
    reserved = reserve_within(INFO, 2_000, remaining_amount(Limits(usd=Decimal("1.00")), spent))
    assert reserved is not None
    assert reserved.usd is not None
    assert reserved.usd <= Decimal("0.01")


@given(
    tokens=st.integers(0, 10_000),
    output_max=st.integers(1, 10_000),
    prices=st.tuples(*[st.decimals("0.0001", 100, places=4)] * 3),
    limit=st.decimals("0.0001", 5, places=4),
    spent=st.decimals(0, 5, places=6),
    share=st.fractions(0, 1),
)
def test_money_spent_never_exceeds_the_limit(
    *,
    tokens: int,
    output_max: int,
    prices: tuple[Decimal, Decimal, Decimal],
    limit: Decimal,
    spent: Decimal,
    share: Any,
) -> None:
    """B2: whatever part of the reservation is used, and however it was cached."""
    price = Price(prices[0], prices[1], cache_write=prices[2])
    model = ModelInfo(MODEL, price, output_max=output_max)
    ledger = Ledger((Charge(MODEL, usage=Usage(1, 1), usd=spent),))
    reserved = reserve_within(model, tokens, remaining_amount(Limits(usd=limit), ledger))
    if reserved is None:
        return
    used = Usage(tokens, reserved.output, cache_write=int(tokens * share))
    money = usage_cost(price, used)
    assert money is not None
    assert reserved.usd is not None
    assert money <= reserved.usd
    assert reserved.usd + spent <= limit


# ── several limits at once ───────────────────────────────────────────────────


def test_where_several_limits_hold_the_tightest_counts() -> None:
    """B1."""
    amounts = Amount(Decimal(2), None), Amount(Decimal(1), 70), Amount(None, 50)
    assert tightest_amount(*amounts) == Amount(Decimal(1), 50)
    assert tightest_amount(Amount(), Amount()) == Amount()


@pytest.mark.parametrize(
    ("held", "need", "enough"),
    [
        (Amount(), Amount(), True),
        (Amount(), Amount(tokens=1), False),
        (Amount(tokens=5), Amount(tokens=5), True),
        (Amount(tokens=4), Amount(tokens=5), False),
        (Amount(Decimal(1)), Amount(Decimal(1)), True),
        (Amount(Decimal(1), 4), Amount(Decimal(1), 5), False),
        (Amount(Decimal("0.9"), 5), Amount(Decimal(1), 5), False),
        (Amount(Decimal(1), 5), Amount(None, 5), True),
    ],
)
def test_an_amount_covers_another_in_all_that_this_counts(
    held: Amount,
    need: Amount,
    enough: bool,  # noqa: FBT001
) -> None:
    assert covers_amount(held, need) is enough


@given(st.decimals(0, 1_000, places=9, allow_nan=False), st.integers(0, 10**9), st.integers(1, 64))
def test_equal_parts_are_never_more_than_the_whole(usd: Decimal, tokens: int, count: int) -> None:
    """B1: nor do they lose more than a millionth of a dollar or a token each."""
    share = equal_share(Amount(usd, tokens), count)
    assert share.usd is not None
    assert share.tokens is not None
    assert usd - count * Decimal("0.000001") < share.usd * count <= usd
    assert tokens - count < share.tokens * count <= tokens


def test_a_part_of_no_limit_is_no_limit() -> None:
    assert equal_share(Amount(), 3) == Amount()


@given(
    st.integers(1, 5_000),
    st.lists(st.tuples(st.none() | st.integers(-10, 9_000), st.none() | st.integers(-10, 90_000))),
)
def test_a_reservation_fits_into_every_amount(tokens: int, rooms: list[Any]) -> None:
    """B2."""
    amounts = [Amount(usd if usd is None else Decimal(usd) / MILLION, some) for some, usd in rooms]
    reserved = reserve_within(INFO, tokens, *amounts)
    if reserved is None:
        return
    for room in amounts:
        assert room.tokens is None or reserved.input + reserved.output <= room.tokens
        assert room.usd is None or (reserved.usd or 0) <= room.usd


# ── how large a prompt is ────────────────────────────────────────────────────


def bound(fixed: int, size: int, measure: PromptMeasure | None, **more: Any) -> int:
    state = State("s", fixed=fixed, size=size, measure=measure, **more)
    return input_tokens_max(state, MODEL)


def test_a_prompt_that_nobody_measured_counts_a_token_a_byte() -> None:
    assert bound(100, 50, None) == 150


def test_what_was_measured_counts_as_measured() -> None:
    """B4: estimates are calibrated by reported usage."""
    assert bound(100, 70, PromptMeasure(MODEL, 30, 100, 50)) == 50


@pytest.mark.parametrize(("fixed", "tokens"), [(160, 110), (40, 50)], ids=["grown", "shrunk"])
def test_what_was_added_to_the_set_up_since_counts_a_token_a_byte(fixed: int, tokens: int) -> None:
    """B2: an estimate is a bound."""
    assert bound(fixed, 70, PromptMeasure(MODEL, 30, 100, 50)) == tokens


def test_a_measure_of_another_model_does_not_count() -> None:
    """X6: per model."""
    assert bound(100, 70, PromptMeasure("other:model", 30, 100, 50)) == 170


def test_what_a_provider_adds_to_explain_tools_is_reserved() -> None:
    """B2: Anthropic, for example, adds hundreds of tokens to the first prompt with a tool."""
    state = State("s", fixed=100, size=50, offered=make_setup().tools)
    with_tools = input_tokens_max(state, MODEL)
    assert with_tools == 150 + TOOLS_OVERHEAD
    measured = replace(state, measure=PromptMeasure(MODEL, 30, 40, 50))
    assert input_tokens_max(measured, MODEL) == 30 + 60 + TOOLS_OVERHEAD


@pytest.mark.contract("B2")
@given(
    name=st.text("abcxyz_", min_size=1, max_size=40),
    provider_id=st.none() | st.text("0123456789abcdef", max_size=64),
    text=st.text(max_size=20),
    count=st.integers(1, 5),
    chars=st.sampled_from([3, 4]),
)
def test_the_bound_of_a_tiny_step_covers_what_a_provider_counts(
    *, name: str, provider_id: str | None, text: str, count: int, chars: int
) -> None:
    """B2: also what a dialect writes around a call and its result, where that is most of it."""
    story = Story().start_run()
    before = len(chat_bytes(story.expect_move(RequestReply).prompt)) // chars
    calls = [
        ToolCall(f"s1-{at}", name, f'{{"i":{at}}}', provider_id and f"{at}{provider_id}")
        for at in range(count)
    ]
    story.take_reply(*calls, charge=make_charge(before, 5))
    ids = [call.id for call in calls]
    story.allow_calls(*ids).start_calls(*ids).finish_calls(*ids, text=text)
    move = story.expect_move(RequestReply)
    assert len(chat_bytes(move.prompt)) // chars <= move.reserved.input


def chat_bytes(prompt: Prompt) -> bytes:
    """What a server of chat completions gets, and may count."""
    options = ModelOptions()
    return OpenAIChat(ChatQuirks(), "openai").encode_request(prompt, "model", options).body


def test_reported_usage_calibrates_the_next_request() -> None:
    """B4."""
    story = Story().start_run("Hello " * 100)
    before = story.expect_move(RequestReply).reserved.input
    story.take_reply("Look:", make_call("a"), charge=make_charge(40, 5)).allow_calls(
        "a"
    ).start_calls("a").finish_calls("a")
    assert 40 < story.expect_move(RequestReply).reserved.input < before


@pytest.mark.parametrize(
    "charge", [None, Charge(MODEL), Charge(MODEL, usage=Usage(1, 1, estimated=True))]
)
def test_what_was_not_reported_calibrates_nothing(charge: Charge | None) -> None:
    story = Story().start_run().take_reply("Hi.", charge=charge)
    assert story.state.measure is None


def test_an_estimate_starts_at_four_bytes_a_token() -> None:
    """X6."""
    story = Story().start_run("Hello " * 100)
    assert (
        estimate_tokens(story.state, MODEL)
        == (story.state.fixed + story.state.size) / CHARS_PER_TOKEN
    )


def test_an_estimate_is_calibrated_by_reported_usage_per_model() -> None:
    """X6, B4: what was measured counts as measured, what came since at that model's rate."""
    story = Story().start_run("Hello " * 100)
    size = story.state.fixed + story.state.size
    story.take_reply("Look:", make_call("a"), charge=make_charge(size // 2, 5)).allow_calls(
        "a"
    ).start_calls("a")
    story.finish_calls("a", text="x" * 600)
    grown = story.state.fixed + story.state.size - size
    assert estimate_tokens(story.state, MODEL) == pytest.approx(size // 2 + grown / 2, rel=0.01)
    assert estimate_tokens(story.state, "test:other") == (size + grown) / CHARS_PER_TOKEN


def test_an_estimate_stays_calibrated_when_the_view_is_made_anew() -> None:
    """X6: also after a compaction, and in the next run."""
    story = (
        Story()
        .start_run("Hello " * 100)
        .take_reply("Hi.", charge=make_charge(700, 5))
        .end_run("completed")
    )
    story.start_run("More.").do_step(make_call("a")).add(ContextCompacted(2, "[…]"))
    assert story.state.measure is None
    rate = dict(story.state.calibration)[MODEL]
    assert rate != CHARS_PER_TOKEN
    assert estimate_tokens(story.state, MODEL) == (story.state.fixed + story.state.size) / rate


def test_a_token_is_never_shorter_than_a_byte() -> None:
    """X6: a provider that counts what we cannot see does not make every view too long."""
    story = (
        Story()
        .start_run("Hello")
        .take_reply("Hi.", charge=make_charge(10**6, 5))
        .end_run("completed")
    )
    story.start_run("More.").do_step(make_call("a")).add(ContextCompacted(2, "[…]"))
    assert estimate_tokens(story.state, MODEL) == story.state.fixed + story.state.size


def test_longer_instructions_count_although_the_transcript_was_measured() -> None:
    """B2: the set-up of the next run may be larger than the one that was measured."""
    story = Story().start_run().take_reply("Hi.", charge=make_charge(40, 5)).end_run("completed")
    story.start_run(setup=make_setup(instructions="x" * 10_000))
    assert story.expect_move(RequestReply).reserved.input >= 10_000


def bytes_of(prompt: Prompt) -> int:
    """All words of a request, without what a dialect puts around them."""
    words = [prompt.system, *(f"{spec.name}{spec.description}" for spec in prompt.tools)]
    words += [msgspec.json.encode(spec.parameters).decode() for spec in prompt.tools]
    for message in prompt.messages:
        if isinstance(message, ToolResults):
            words += [item.result.text for item in message.items]
            continue
        for piece in message.parts:
            match piece:
                case TextPart(text):
                    words.append(text)
                case ThinkingPart(text, signature):
                    words += [text, signature or ""]
                case ToolCall():
                    words += [piece.name, piece.arguments, piece.signature or ""]
                case _:
                    pass
    return sum(len(word.encode()) for word in words)


ECHO = "Ünïcödé 🚀 " * 200
SHOWN = {
    "prompt": Story().start_run(ECHO),
    "instructions": Story(instructions=ECHO).start_run(),
    "tools": Story(tools=(ToolSpec("look", "a" * 999, {"type": "object"}),)).start_run(),
    "reply": Story()
    .start_run()
    .take_reply(ECHO, ThinkingPart(ECHO, "s" * 999), make_call("a"))
    .end_run()
    .start_run(),
    "results": Story().start_run().do_step(make_call("a", "look", f'{{"a": "{ECHO}"}}'), text=ECHO),
    "note": Story().start_run().add(NoteGiven(ECHO, "same_call")),
}
MISSED = {
    "words of tools": Story(tools=(ToolSpec("look", ECHO, {"description": ECHO}),)).start_run(),
    "output type": Story(output_schema={"description": "x" * 9_999}).start_run(),
    "signature of a call": Story()
    .start_run()
    .do_step(ToolCall("a", "look", "{}", None, "s" * 9_999)),
}


@pytest.mark.parametrize("story", SHOWN.values(), ids=SHOWN.keys())
def test_everything_that_is_shown_is_reserved(story: Story) -> None:
    """B2: a token is at least one byte, so that the estimate is a bound."""
    move = story.expect_move(RequestReply)
    assert move.reserved.input >= bytes_of(move.prompt)


@pytest.mark.parametrize("story", MISSED.values(), ids=MISSED.keys())
def test_nothing_that_is_shown_is_forgotten(story: Story) -> None:
    """B2: as above."""
    move = story.expect_move(RequestReply)
    assert move.reserved.input >= bytes_of(move.prompt)


@pytest.mark.parametrize(
    "media",
    [ImagePart("image/png", b"x"), FilePart("application/pdf", "a.pdf", b"x")],
    ids=["png", "pdf"],
)
def test_a_picture_or_a_file_has_a_size(media: ImagePart | FilePart) -> None:
    story = Story().start_run()
    before = story.state.size
    story.end_run().add(RunStarted(2, (media,)))
    assert story.state.size - before >= MEDIA_TOKENS


# ── settle ───────────────────────────────────────────────────────────────────

RESERVED = Reservation(2_000, 1_000, Decimal("0.021"))


def test_what_was_reported_is_charged() -> None:
    """S12: marked as reported."""
    charge = settle_attempt(INFO, RESERVED, Usage(100, 10), 9_999, whole=True)
    assert charge == Charge(MODEL, usage=Usage(100, 10), usd=Decimal("0.00045"))


def test_a_whole_reply_without_usage_is_estimated() -> None:
    """S12, X6: at 4 characters a token, marked as estimated."""
    charge = settle_attempt(INFO, RESERVED, None, 400, whole=True)
    assert charge.usage == Usage(500, 100, estimated=True)


def test_a_broken_attempt_is_charged_for_what_it_can_have_cost() -> None:
    """B2: so that the limit holds."""
    charge = settle_attempt(INFO, RESERVED, None, 400, whole=False)
    assert charge.usage == Usage(2_000, 400, estimated=True)


def test_a_broken_attempt_keeps_what_was_reported_so_far() -> None:
    """S12: usage is recorded as it arrives."""
    charge = settle_attempt(INFO, RESERVED, Usage(150, 3, cache_read=100), 40, whole=False)
    assert charge.usage == Usage(150, 40, cache_read=100, estimated=True)


def test_a_broken_attempt_never_costs_more_than_was_reserved() -> None:
    charge = settle_attempt(INFO, RESERVED, None, 1_000_000, whole=False)
    assert charge.usage == Usage(2_000, 1_000, estimated=True)


def test_reported_output_counts_even_above_the_reservation() -> None:
    """S12: what the provider says is what is paid."""
    charge = settle_attempt(INFO, RESERVED, Usage(10, 1_500), 0, whole=False)
    assert charge.usage == Usage(10, 1_500, estimated=True)


def test_an_unknown_price_stays_unknown() -> None:
    """P6."""
    assert settle_attempt(UNPRICED, RESERVED, Usage(1, 1), 0, whole=True).usd is None


# ── cost ─────────────────────────────────────────────────────────────────────


def test_cost_is_exact() -> None:
    """B4: money is exact decimal."""
    price = Price(Decimal("0.1"), Decimal("0.2"))
    assert usage_cost(price, Usage(3, 0)) == Decimal("0.0000003")
    assert usage_cost(price, Usage(1, 1)) == Decimal("0.0000003")


def test_cost_is_exact_whatever_precision_the_caller_computes_with() -> None:
    """B4, L1: exact, and the same on every replay."""
    with localcontext(Context(prec=5)):
        money = usage_cost(PRICE, Usage(1_234_567, 7_654_321))
    assert money == Decimal("118.518516")


def test_cached_input_has_its_own_price() -> None:
    price = Price(Decimal(10), Decimal(0), cache_read=Decimal(1), cache_write=Decimal(20))
    used = Usage(1_000_000, 0, cache_read=500_000, cache_write=250_000)
    assert usage_cost(price, used) == Decimal("2.5") + Decimal("0.5") + Decimal(5)


def test_cached_input_falls_back_to_the_price_of_input() -> None:
    price = Price(Decimal(10), Decimal(0))
    assert usage_cost(price, Usage(1_000_000, 0, 500_000, 250_000)) == Decimal(10)


def test_no_price_is_no_cost() -> None:
    assert usage_cost(None, Usage(1, 1)) is None


@pytest.mark.contract("B5")
def test_a_reply_beyond_its_cap_counts_as_what_came() -> None:
    """B5: the cap tells nothing about what a server that ignores it has done."""
    charge = settle_attempt(INFO, RESERVED, None, 1_000_000, whole=False, overlong=True)
    assert charge.usage == Usage(2_000, 250_000, estimated=True)
