"""Keys by their public prefix: each kind of the table, in a text and in a stream (G8)."""

import base64
import json
import random
import string
from urllib.parse import quote

import pytest

from windlass.core.events import CallDelta, ContentPiece, ReplyEnd
from windlass.core.secrets import key_shapes, public_shapes
from windlass.core.secrets.mask import Mask
from windlass.core.secrets.mask_pieces import PieceMask, TextStreamMask, ValueHeads
from windlass.core.secrets.public_shapes import PUBLIC_SHAPES, PublicShape

pytestmark = pytest.mark.contract("G8")

ALNUM = string.ascii_letters + string.digits
LETTERS = {
    "hex": "0123456789abcdef",
    "plain": ALNUM,
    "words": ALNUM,
    "dashed": ALNUM + "-_",
    "dotted": ALNUM + ".-",
    "path": ALNUM,
    "base64": ALNUM + "+/",
    "percent": ALNUM,
    "header": ALNUM + "-_",
}
UPPER = string.ascii_uppercase + string.digits


def draw_text(seed: str, size: int, letters: str = ALNUM) -> str:
    return "".join(random.Random(seed).choices(letters, k=size))


# Made-up values, put together here, so that no scanner takes this file for a leak.
FORMED = {
    "Slack webhook": f"{draw_text('a', 8, UPPER)}/B{draw_text('b', 8, UPPER)}/{draw_text('c', 24)}",
    "Slack workflow": f"{draw_text('a', 8, UPPER)}/A012ABCD/123456789/{draw_text('c', 24)}",
    "Slack trigger": f"{draw_text('a', 10, UPPER)}/123456789012/{draw_text('d', 32)}",
    "Discord webhook": f"{draw_text('e', 18, '123456789')}/{draw_text('f', 68)}",
    "Microsoft Teams webhook": f"{draw_text('g', 32, '0123456789abcdef')}/"
    "01234567-89ab-cdef-0123-456789abcdef",
    "Windlass": f"0123456789ab_{draw_text('h', 43)}",
    "Windlass login code": draw_text("i", 43),
}


def make_key(shape: PublicShape) -> str:
    """Return a made-up key of a kind, without its prefix."""
    if shape.form:
        return FORMED[shape.issuer]
    size = min(max(shape.chars_min, 32), shape.chars_max or 1_000)
    return draw_text(shape.issuer, size, LETTERS[shape.alphabet])


def stream_text(mask: Mask, text: str, seed: int) -> str:
    stream = TextStreamMask(mask, ValueHeads(mask))
    rolls = random.Random(seed)
    shown: list[str] = []
    while text:
        at = rolls.randint(1, 9)
        shown.append(stream.feed(text[:at]))
        text = text[at:]
    return "".join([*shown, stream.end()])


def test_the_table_names_its_source_its_date_and_its_licence() -> None:
    told = public_shapes.__doc__ or ""
    for words in ("gitleaks", "009e025a", "2026-11-15", "MIT licence"):
        assert words in told
    prefixes = [shape.prefix for shape in PUBLIC_SHAPES]
    assert len(set(prefixes)) == len(prefixes) >= 80


@pytest.mark.parametrize("shape", PUBLIC_SHAPES, ids=lambda shape: shape.prefix)
def test_each_public_kind_is_masked(shape: PublicShape) -> None:
    """In a text, and in a stream however it is cut; the prefix stays, and tells the kind."""
    before = "zZ8" if shape.is_glued else ""
    key = make_key(shape)
    for start, end in (("", ""), ("the key is ", ", and on"), ('{"k": "', '"}')):
        text = f"{start}{before}{shape.prefix}{key}{end}"
        masked = Mask().mask_text(text)
        assert masked == f"{start}{before}{shape.prefix}[secret]{end}"
        assert Mask().mask_text(masked) is masked
        for seed in range(6):
            assert stream_text(Mask(), text, seed) == masked


@pytest.mark.parametrize("start", key_shapes.SHAPE_GROUPS)
def test_the_quick_look_misses_no_start(start: str) -> None:
    """Also where the text before it was looked at already, and the start came in two pieces."""
    assert not key_shapes.has_no_key(start)
    for around in ("", "some words before it ", "a_b-c "):
        for cut in range(1, len(start) + 1):
            assert not key_shapes.has_no_key(around + start, len(around) + cut - 1)


ORDINARY = [
    "https://github.com/org/services/Tools/blob/3f2a9c0d1e2f3a4b5c6d7e8f901234567890abcd/x.py",
    "POST /api/webhooks/123 and /webhooks/github, see docs/webhooks/README.md",
    "The key-value store is a key-4 feature; pull-request pul-1, ico-file, fio-u-tils and p8e-x.",
    "SKIP TASK SKU-1234 SKELETON; sig=x&sig=example; AccountKey=<your key here>; MESSAGE:AAAA",
    "rubygems_version shpat_example sgp_local ntn_x r8_v1 sbp_ lin_api_key glc_total tfp_name",
    "~/projects ~user sha256~ Q~A hvs. SG.example dp.pt. atlasv1. dt0c01.",
    "a_long_snake_case_name_of_a_function-and-a-dashed-one-too--with-more_and_more",
    "data:AAAA" + base64.b64encode(random.Random(3).randbytes(300)).decode(),
]


@pytest.mark.parametrize("text", ORDINARY, ids=range(len(ORDINARY)))
def test_what_only_resembles_a_public_kind_is_left_as_it_is(text: str) -> None:
    assert Mask().mask_text(text) is text
    assert stream_text(Mask(), text, 1) == text


VALUE = "Zq8/Kestrel+Vault=77<&>'é"


def escaped(value: str, digits: str) -> str:
    return "".join(f"\\u{ord(letter):{digits}}" for letter in value)


def escaped_for_pages(value: str) -> str:
    return "".join(escaped(letter, "04x") if letter in "<>&'" else letter for letter in value)


ENCODED = [
    base64.b32encode(VALUE.encode()).decode().rstrip("="),
    base64.b32encode(VALUE.encode()).decode().rstrip("=").lower(),
    escaped(VALUE, "04x"),
    escaped(VALUE, "04X"),
    escaped_for_pages(VALUE),
    quote(quote(VALUE, safe=""), safe=""),
    quote(quote(VALUE)),
    "".join(f"%{byte:02x}" for byte in VALUE.encode()),
    quote(base64.b64encode(VALUE.encode()).decode().rstrip("="), safe=""),
]


@pytest.mark.parametrize("form", ENCODED)
def test_a_known_value_is_masked_in_more_forms(form: str) -> None:
    mask = Mask({"vault": VALUE}, key_like=False)
    masked = mask.mask_text(f"it is {form} here")
    assert masked.startswith("it is [secret: vault]")
    # What may be left is a last character that also holds bits of what follows.
    assert len(masked) <= len("it is [secret: vault] here") + 3
    for seed in range(8):
        shown = stream_text(mask, f"it is {form} here", seed)
        assert "[secret: vault]" in shown
        assert form[4:-3] not in shown


@pytest.mark.parametrize("before", range(5))
def test_a_known_value_is_found_inside_other_data_in_base32(before: int) -> None:
    for after in range(5):
        data = b"x" * before + VALUE.encode() + b"y" * after
        masked = Mask({"vault": VALUE}).mask_text(base64.b32encode(data).decode())
        assert "[secret: vault]" in masked


def test_a_text_without_escapes_is_left_as_it_is() -> None:
    text = json.dumps({"a": "1 < 2 & 3 > 2", "b": "\u00e9", "c": "50 % off, %20 and \\u0041"})
    assert Mask({"vault": VALUE}).mask_text(text) is text


@pytest.mark.parametrize("cut", [1, 4, 9, 30])
def test_the_name_of_a_call_streams_without_a_secret(cut: int) -> None:
    """The model may make a name up, also in pieces; the rest of the call is passed on."""
    pieces = PieceMask(Mask({"vault": VALUE}))
    given: list[ContentPiece] = [
        CallDelta(0, "p1", VALUE[at : at + cut]) for at in range(0, len(VALUE), cut)
    ]
    given += [CallDelta(0, arguments="{}"), ReplyEnd("calls")]
    shown = [one for piece in given for one in pieces.mask_piece(piece)]
    names = "".join(one.name or "" for one in shown if isinstance(one, CallDelta))
    assert names in {"[secret: vault]", f"{VALUE[0]}[secret: vault]"}
    assert "".join(one.arguments for one in shown if isinstance(one, CallDelta)) == "{}"


def test_the_name_of_a_tool_streams_as_it_is() -> None:
    piece = CallDelta(0, "p1", "send_letter", '{"to": "ann"}')
    assert list(PieceMask(Mask({"vault": VALUE})).mask_piece(piece)) == [piece]


@pytest.mark.parametrize("prefix", ["wl_0123456789ab_", "wb_0123456789ab_", "#login="])
def test_each_secret_of_our_own_is_masked_however_its_dashes_fall(prefix: str) -> None:
    """Its shape alone decides: a code of many short words is a code as well."""
    mask, rolls = Mask(), random.Random(prefix)
    drawn = [base64.urlsafe_b64encode(rolls.randbytes(32)).decode()[:43] for _ in range(500)]
    for secret in (*drawn, "ab-cd_" * 7 + "e"):
        assert secret not in mask.mask_text(f"open http://localhost:8420/{prefix}{secret}.")


@pytest.mark.parametrize(("prefix", "size"), [("sk-", 48), ("tvly-", 32), ("GOCSPX-", 28)])
def test_dashes_in_a_key_hide_it_in_one_case_of_a_hundred_at_most(prefix: str, size: int) -> None:
    mask = Mask()
    keys = [draw_text(f"{prefix} {seed}", size, LETTERS["dashed"]) for seed in range(1_000)]
    assert sum(key in mask.mask_text(f"a key: {prefix}{key} ") for key in keys) <= 10


@pytest.mark.parametrize(
    "text",
    [
        "sk-learn-Pipeline-with-StandardScaler-and-SVC",
        "sk-MyCamelCaseVariableNameOfSomeLength",
        "glrt-release-2024-11-17-final-build-of-the-runner",
        "glft-feature-Branch-12-of-the-Team-B2B",
    ],
)
def test_a_name_behind_a_prefix_is_not_a_key(text: str) -> None:
    assert Mask().mask_text(f"use {text} here") == f"use {text} here"
