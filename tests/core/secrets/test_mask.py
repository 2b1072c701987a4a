"""Masks: what is found in a text, what is left alone, and what a stream holds back (G8)."""

import base64
import json
import random
import string
import uuid
from hashlib import sha256
from typing import Any, get_args
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect as types
from msgspec.structs import replace

from windlass.core.errors import Fault
from windlass.core.events import (
    AttemptFailed,
    AttemptStarted,
    CallAnswered,
    CallDelta,
    CallFinished,
    CallJudged,
    CallLate,
    CallProgress,
    CallStarted,
    ContextCompacted,
    Fact,
    KnowledgeRecalled,
    LookupsPlanned,
    NoteGiven,
    ReplyEnd,
    ReplyJudged,
    Reservation,
    RunEnded,
    RunResumed,
    RunStarted,
    SteeringGiven,
    StepProposed,
    TextDelta,
    ThinkingDelta,
)
from windlass.core.messages import (
    AssistantMessage,
    FilePart,
    ImagePart,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from windlass.core.secrets import key_shapes
from windlass.core.secrets.mask import Mask, Secret, live_secret_values
from windlass.core.secrets.mask_pieces import HELD_CHARS_MAX, PieceMask, TextStreamMask, ValueHeads
from windlass.core.setup import ModelInfo, Setup
from windlass.core.verdicts import Allow, Ask, Deny, InvalidCall, Modify, OutputMismatch

pytestmark = pytest.mark.contract("G8")


def drawn(seed: int, size: int, letters: str = string.ascii_letters + string.digits) -> str:
    """Random characters, the same ones each time."""
    return "".join(random.Random(seed).choices(letters, k=size))


URLSAFE = string.ascii_letters + string.digits + "-_"
HEX = "0123456789abcdef"
LINES = "\n".join(drawn(line, 64) for line in range(12))
PEM = f"-----BEGIN RSA PRIVATE KEY-----\n{LINES}\n-----END RSA PRIVATE KEY-----"
# Each is put together here, so that no scanner takes this file for a leak.
KEYS = [
    ("sk-", drawn(1, 48)),
    ("sk-", "proj-" + drawn(2, 120, URLSAFE)),
    ("sk-", "ant-api03-" + drawn(3, 93, URLSAFE)),
    ("sk-", "or-v1-" + drawn(4, 64, HEX)),
    ("AIza", "Sy" + drawn(5, 33, URLSAFE)),
    ("AKIA", drawn(6, 16, string.ascii_uppercase + "234567")),
    ("ghp_", drawn(7, 36)),
    ("gho_", drawn(8, 36)),
    ("github_pat_", "11ABCDEFG0" + drawn(9, 72)),
    ("glpat-", drawn(10, 20)),
    ("xoxb-", "123456789012-123456789012-" + drawn(11, 24)),
    ("hf_", drawn(12, 34, string.ascii_letters)),
    ("gsk_", drawn(13, 52)),
    ("npm_", drawn(14, 36)),
    ("pypi-", "AgEIcHlwaS5vcmc" + drawn(15, 140, URLSAFE)),
    ("sk_live_", drawn(16, 24)),
    ("Bearer ", drawn(17, 40)),
    ("Basic ", base64.b64encode(b"someone:open-sesame-123").decode()),
    ("eyJ", "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0." + drawn(18, 43, URLSAFE)),
    ("PRIVATE KEY-----", f"\n{LINES}\n"),
    ("postgres://app:", drawn(19, 20)),
]
AROUND = [("", ""), ("key=", "\n"), ('{"k": "', '"}'), ("(see ", ")."), ("x=`", "` and on")]


@pytest.mark.parametrize(("before", "after"), AROUND)
@pytest.mark.parametrize(("public", "body"), KEYS, ids=[public for public, _ in KEYS])
def test_a_key_is_masked_and_its_kind_told(public: str, body: str, before: str, after: str) -> None:
    """Whatever stands around it; what is in front stays, and says what it was."""
    after = "@db.example.com/x" + after if public.endswith(":") else after
    after = "-----END PRIVATE KEY-----" + after if public.endswith("-----") else after
    masked = Mask().mask_text(f"{before}{public}{body}{after}")
    assert masked == f"{before}{public}[secret]{after}"
    assert Mask().mask_text(masked) is masked


def test_a_private_key_is_masked_with_escaped_lines_too() -> None:
    for escaped in (json.dumps(PEM), json.dumps(json.dumps(PEM)), PEM.replace("\n", "\r\n    ")):
        masked = Mask().mask_text(escaped)
        assert drawn(0, 64) not in masked
        assert drawn(11, 64) not in masked
    assert json.loads(Mask().mask_text(json.dumps({"pem": PEM})))["pem"].startswith("-----BEGIN")


ORDINARY = [
    "The task-management tool asks for a disk-based cache-invalidation-strategy-2.",
    '<div class="sk-estimator-id-12-checkbox sk-toggleable__content sk-hidden--visually">',
    ".sk-folding-cube-animation-delay-long { transform: rotateZ(45deg) }",
    "See https://example.com:8080/a/b?x=1@2 and http://localhost:11434/v1 or ssh://git@host/x.git",
    "postgres://user:password@localhost/db and https://USER:PASSWORD@host and redis://:${PW}@h",
    "mailto:someone@example.com, http://[::1]:80/, ws://a:1/b@c",
    "Bearer tokens are sent in a header; the bearer of this letter is Basic English proficient.",
    "Authorization: Bearer <token>, Authorization: Bearer $TOKEN, Authorization: Bearer ...",
    "if line == '-----BEGIN PRIVATE KEY-----': raise ValueError('no private keys in here')",
    "-----BEGIN PRIVATE KEY-----\n\nThen paste the key, and close it with a line that says END.",
    "hf_model_name_or_path = hf_hub_download(repo_id='org/name', filename='model.safetensors')",
    "npm_config_registry, npm_package_version, npm_lifecycle_event and gsk_renderer_new",
    "eyJ is how a JWT begins; eyJhbGciOiJIUzI1NiJ9 alone is only its head.",
    "AKIA is a prefix. AKIAIOSFODNN7EXAMPLES is too long, and ASIAN markets opened higher.",
    "sha256:" + sha256(b"x").hexdigest(),
    "commit " + sha256(b"y").hexdigest()[:40],
    " ".join(str(uuid.UUID(int=random.Random(one).getrandbits(128))) for one in range(20)),
    "data:image/png;base64," + base64.b64encode(random.Random(1).randbytes(20_000)).decode(),
    base64.urlsafe_b64encode(random.Random(2).randbytes(2_000)).decode(),
    "def risk_score(task): return pypi_name.replace('_', '-') + f'sk-{task.id}'",
    "pip install pypi-attestations==0.0.12 xapp-client xox-parser ghp-import glpat-helper",
    "The wearer is clearer than the bearer of bad news 2024-01-01T00:00:00Z.",
    "ü ß 漢字 é sk- hf_ ://",
]


@pytest.mark.parametrize("text", ORDINARY, ids=range(len(ORDINARY)))
def test_ordinary_text_is_left_as_it_is(text: str) -> None:
    mask = Mask({"CRM": drawn(20, 30)})
    assert mask.mask_text(text) is text
    stream = TextStreamMask(mask, ValueHeads(mask))
    pieces = [stream.feed(text[at : at + 3]) for at in range(0, len(text), 3)]
    assert "".join([*pieces, stream.end()]) == text


@given(st.text())
def test_text_without_any_beginning_is_left_as_it_is(text: str) -> None:
    if key_shapes.has_no_key(text):
        assert Mask().mask_text(text) is text


VALUE = 'pa"ss\\wo/rd+é 1234'
FORMS = [
    VALUE,
    json.dumps(VALUE)[1:-1],
    json.dumps(VALUE, ensure_ascii=False)[1:-1],
    quote(VALUE, safe=""),
    quote(VALUE),
    base64.b64encode(VALUE.encode()).decode(),
    base64.urlsafe_b64encode(VALUE.encode()).decode(),
]


@pytest.mark.parametrize("form", FORMS)
def test_a_known_value_is_masked_in_each_form_and_named(form: str) -> None:
    masked = Mask({"CRM": VALUE}, key_like=False).mask_text(f"a {form} b {form}")
    assert form not in masked
    assert masked.startswith("a [secret: CRM]")
    assert masked.count("[secret: CRM]") == 2


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_a_known_value_is_found_inside_other_data_in_base64(before: bytes, after: bytes) -> None:
    """What is left of it beside the mark is at most what its neighbours share with it."""
    value = "correct-horse-battery"
    mask = Mask({"PW": value}, key_like=False)
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        masked = mask.mask_text(encode(before + value.encode() + after).decode())
        assert "[secret: PW]" in masked


def test_names_are_tame_and_values_that_are_words_are_not_masked() -> None:
    mask = Mask({'a"b\n]': "hunter2222", "short": "abc", "": "nameless-1"})
    assert mask.mask_text("abc hunter2222 nameless-1") == "abc [secret: a-b] [secret]"
    assert "hunter2222" not in repr(mask)


def test_what_overlaps_is_masked_as_one() -> None:
    key = "sk-" + drawn(1, 48)
    assert Mask({"A": key}).mask_text(f"<{key}>") == "<[secret: A]>"
    assert Mask({"A": "abcdef", "B": "defghi"}).mask_text("abcdefghi.") == "[secret: A]."
    assert Mask(["secret"]).mask_text(Mask(["secret"]).mask_text("my secret")).count("secret") <= 3


def test_a_mask_that_masks_nothing() -> None:
    mask = Mask(key_like=False)
    fact = CallFinished("c", ToolResult.from_text("value", PEM))
    assert mask.mask_text(PEM) is PEM
    assert mask.mask_fact(fact) is fact


# ── facts ────────────────────────────────────────────────────────────────────

CANARY = "canary-7f3a9c1e5b"
SETUP = Setup(
    model=ModelInfo("a:b"),
    instructions=f"Use {CANARY}.",
    tools=(ToolSpec("t", f"With {CANARY}", {"properties": {"k": {"default": CANARY}}}),),
    output_schema={"description": CANARY},
)
FAULT = Fault("auth", f"bad key {CANARY}")
CALL = ToolCall("c1_0", "send", json.dumps({"to": [CANARY]}))
RESULT = ToolResult(
    "value",
    (
        TextPart(CANARY),
        ImagePart("image/png", url=f"https://x/?k={CANARY}"),
        FilePart("text/plain", "notes", CANARY.encode()),
        FilePart("Application/JSON; charset=utf-8", "data", CANARY.encode()),
        FilePart("application/json", "more", url=f"https://x/?k={CANARY}"),
    ),
)
FACTS: list[Fact] = [
    RunStarted(1, (TextPart(CANARY),), SETUP, CANARY, {"a": [{"b": CANARY, CANARY: 1}]}),
    RunResumed((CANARY,), SETUP, (f"curl -H {CANARY}",)),
    AttemptFailed(FAULT, partial=CANARY),
    StepProposed(
        AssistantMessage((TextPart(CANARY), ThinkingPart(CANARY, "signed"), CALL)), "calls"
    ),
    # A secret in one text of a fact only: all of them are looked at.
    StepProposed(AssistantMessage((TextPart("Hi."), TextPart(CANARY))), "end"),
    StepProposed(AssistantMessage((TextPart("Hi."), ThinkingPart(CANARY))), "end"),
    StepProposed(AssistantMessage((TextPart("Hi."), CALL)), "calls"),
    CallJudged("c", Allow(CANARY)),
    CallJudged("c", Allow("a rule"), resource=CANARY),
    CallStarted("c", "key", "t", snapshot=CANARY),
    CallFinished("c", ToolResult.from_text("value", CANARY)),
    CallFinished("c", ToolResult("value", (TextPart("Hi."), TextPart(CANARY)))),
    CallJudged("c", Modify({"a": {"b": CANARY}}, CANARY), {"a": CANARY}, resource=CANARY),
    CallJudged("c", Ask(CANARY, arguments={"a": CANARY})),
    CallJudged("c", InvalidCall("invalid_arguments", CANARY)),
    CallAnswered("c", Deny(CANARY), "digest", CANARY),
    CallFinished("c", RESULT),
    CallLate("c", RESULT),
    ReplyJudged(OutputMismatch(CANARY)),
    ReplyJudged(Deny(CANARY)),
    ReplyJudged(Allow(CANARY)),
    NoteGiven(CANARY, "same_call"),
    ContextCompacted(1, CANARY),
    SteeringGiven((TextPart(CANARY),), CANARY),
    LookupsPlanned((CALL,)),
    KnowledgeRecalled(CANARY),
    RunEnded("failed", CANARY, FAULT, CANARY),
]


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: type(fact).__name__)
def test_no_fact_keeps_a_secret_and_each_keeps_its_shape(fact: Fact) -> None:
    mask = Mask({"C": CANARY})
    masked = mask.mask_fact(fact)
    assert CANARY not in repr(masked)
    assert "[secret: C]" in repr(masked)
    assert type(masked) is type(fact)
    assert mask.mask_fact(masked) is masked


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: type(fact).__name__)
def test_a_fact_without_secrets_is_the_same_object(fact: Fact) -> None:
    assert Mask({"OTHER": "another-value"}).mask_fact(fact) is fact


def test_a_secret_in_the_name_of_a_call_alone_is_masked() -> None:
    """G8: a model may make up a name from what it read."""
    made_up = ToolCall("c1_0", CANARY, "{}")
    fact = StepProposed(AssistantMessage((TextPart("Hi."), made_up)), "calls")
    masked = Mask({"C": CANARY}).mask_fact(fact, lambda _: None)
    assert CANARY not in repr(masked)


def test_facts_without_text_cost_no_look() -> None:
    fact = AttemptStarted(1, 1, "a:b", Reservation(1, 1))
    assert Mask().mask_fact(fact) is fact


def test_arguments_stay_json_and_a_signature_does_not_vouch_for_what_was_changed() -> None:
    fact = Mask({"C": CANARY}).mask_fact(FACTS[3])
    assert isinstance(fact, StepProposed)
    assert json.loads(fact.reply.calls[0].arguments) == {"to": ["[secret: C]"]}
    assert fact.reply.parts[1] == ThinkingPart("[secret: C]")


# ── streams ──────────────────────────────────────────────────────────────────


def streamed(mask: Mask, pieces: list[str]) -> str:
    stream = TextStreamMask(mask, ValueHeads(mask))
    return "".join([*(stream.feed(piece) for piece in pieces), stream.end()])


def cut(text: str, rolls: random.Random, size: int) -> list[str]:
    pieces: list[str] = []
    while text:
        at = rolls.randint(1, size)
        pieces.append(text[:at])
        text = text[at:]
    return pieces


@pytest.mark.parametrize("size", [1, 2, 3, 7, 40])
@pytest.mark.parametrize(("public", "body"), KEYS, ids=[public for public, _ in KEYS])
def test_a_key_in_pieces_is_masked_as_if_it_were_whole(public: str, body: str, size: int) -> None:
    end = "@host" if public.endswith(":") else ""
    text = f"The key is {public}{body}{end}, and that is all."
    for seed in range(20):
        assert streamed(Mask(), cut(text, random.Random(seed), size)) == Mask().mask_text(text)


LONG = "haT-" + drawn(21, 60, "haTö-x")


@given(st.data())
def test_no_cut_lets_a_known_value_through(data: st.DataObject) -> None:
    """At most its first characters, which nobody could tell from any other word's."""
    value = data.draw(st.sampled_from(["hunter2222", "Tr0ub4dor&3", "aaaaaaab", "öäü-öäü-ß", LONG]))
    around = st.text(alphabet="ahT öx.-", max_size=12)
    text = data.draw(around) + value + data.draw(around) + value + data.draw(around)
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=len(text)))
    pieces, at = list[str](), 0
    for size in sizes:
        pieces.append(text[at : at + size])
        at += size
    shown = streamed(Mask([value], key_like=False), pieces)
    assert value not in shown
    assert value[4:] not in shown


@given(st.lists(st.text(alphabet="sk-_:/eyJ.@hf ABearc1", max_size=6), max_size=30))
def test_a_stream_says_what_the_whole_text_says(pieces: list[str]) -> None:
    assert streamed(Mask(), pieces) == Mask().mask_text("".join(pieces))


def test_an_ordinary_piece_is_passed_on_at_once_and_unchanged() -> None:
    """E2: it is the very same object."""
    mask = Mask({"A": "hunter2222", "B": "zq-another-one"})
    pieces = PieceMask(mask)
    for word in ["The", " tool", " read", " a", " h", " file", ".", " th", "en", "\n", "1"]:
        piece = TextDelta(word)
        assert [told is piece for told in pieces.mask_piece(piece)] == [True]


def test_what_is_held_back_comes_as_soon_as_it_is_harmless() -> None:
    mask = Mask({"A": "hunter2222"})
    stream = TextStreamMask(mask, ValueHeads(mask))
    assert [stream.feed(piece) for piece in ["go ", "hunt", "er", "-gatherer", "!"]] == [
        "go ",
        "",
        "",
        "hunter-gatherer",
        "!",
    ]


def test_nothing_is_held_back_for_ever() -> None:
    stream = TextStreamMask(Mask(), ValueHeads(Mask()))
    sent = "sk-" + "a" * (2 * HELD_CHARS_MAX)
    shown = sum(len(stream.feed(sent[at : at + 64])) for at in range(0, len(sent), 64))
    assert shown > HELD_CHARS_MAX


def test_each_block_of_a_reply_is_a_text_of_its_own() -> None:
    mask = Mask({"A": "hunter2222"})
    pieces = PieceMask(mask)
    sent: list[Any] = [
        ThinkingDelta("It is hunt"),
        ThinkingDelta("er2222"),
        ThinkingDelta("", "signed"),
        TextDelta("Is it hunt"),
        CallDelta(0, "x", "send", '{"to": "hunt'),
        CallDelta(1, "y", "send", '{"to": "hun'),
        CallDelta(0, arguments='er2222"}'),
        CallDelta(1, arguments="ter2222"),
        ReplyEnd("calls"),
    ]
    told = [one for piece in sent for one in pieces.mask_piece(piece)]
    assert "hunter2222" not in repr(told)
    text = "".join(one.text for one in told if isinstance(one, TextDelta))
    thinking = "".join(one.text for one in told if isinstance(one, ThinkingDelta))
    calls = ["", ""]
    for one in told:
        if isinstance(one, CallDelta) and one.index is not None:
            calls[one.index] += one.arguments
    assert (text, thinking) == ("Is it hunt", "It is [secret: A]")
    assert calls == ['{"to": "[secret: A]"}', '{"to": "[secret: A]']


def test_progress_is_one_text_for_each_call() -> None:
    pieces = PieceMask(Mask({"A": "hunter2222"}))
    told = [
        pieces.mask_progress(CallProgress("a", "on hunt")),
        pieces.mask_progress(CallProgress("b", "er2222")),
        pieces.mask_progress(CallProgress("a", "er2222 on hun")),
    ]
    assert [one.text if one else None for one in told] == ["on ", "er2222", "[secret: A] on "]
    rest = pieces.end_progress("a")
    assert rest is not None
    assert rest.text == "hun"
    assert pieces.end_progress("a") is None


SHAPES = [
    "-sk-",
    "sk-a1",
    "eyJ.eyJ",
    "eyJaaaaaaaa.",
    "://",
    "://a:b",
    "://a:",
    "PRIVATE KEY-----",
    "PRIVATE KEY-----\nA",
    "\\",
    "\n ",
    "Bearer a",
    " ghp_",
    "xoxb-",
    "a",
    "aaaaaaaaab",
]
STARTS = ["sk-", "PRIVATE KEY-----", "://u:"]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "start",
    ["", *(pytest.param(one, marks=pytest.mark.slow) for one in STARTS)],
)
def test_no_text_costs_more_than_its_length(start: str, shape: str) -> None:
    """Many characters of what could make a search go back; a quadratic one would not end."""
    mask = Mask(["aaaaaaaaaaaaaaab"])
    text = start + shape * (200_000 // len(shape))
    mask.mask_text(text)
    stream = TextStreamMask(mask, ValueHeads(mask))
    for at in range(0, 40_000, 50):
        stream.feed(text[at : at + 50])


# ── secrets ──────────────────────────────────────────────────────────────────


def test_secrets_are_known_while_somebody_holds_them() -> None:
    one, two = Secret("held-by-two-1"), Secret("held-by-two-1")
    mask = Mask(["held-by-a-mask"])
    assert {"held-by-two-1", "held-by-a-mask"} <= live_secret_values()
    del one
    assert "held-by-two-1" in live_secret_values()
    del two, mask
    assert not {"held-by-two-1", "held-by-a-mask"} & live_secret_values()


# ── what each fact masks ─────────────────────────────────────────────────────

MADE_BY_THE_RUNTIME = {
    *("RunStarted.parent", "AttemptStarted.model", "BudgetAllotted.budget"),
    *("BudgetAwaited.budget", "BudgetWaitEnded.budget"),
    *("CallJudged.call_id", "CallAnswered.call_id", "CallStarted.call_id"),
    *("CallFinished.call_id", "CallLate.call_id", "CallStarted.name", "CallFinished.name"),
    *("CallStarted.key", "CallAnswered.digest", "CallAnswered.grant", "CallJudged.changes"),
    "CallJudged.digest",
    # A service verified the person, and an answer with other words would not be signed.
    *("CallAnswered.person", "AnswerCounted.person", "AnswerCounted.call_id"),
    *("AnswerCounted.digest", "AnswerCounted.signature"),
    *("AttemptFailed.charge", "StepProposed.charge", "ContextCompacted.charge"),
    *("CallFinished.charges", "CallJudged.charges", "RunEnded.charge", "RunEnded.charges"),
    "SessionImported.calls",
    "EntryKept.body",
    *("RunStarted.driver", "RunResumed.driver", "RunStarted.folder", "RunResumed.below"),
    "RunResumed.doubted",
    "RunEnded.still_running",
    "RunStarted.key",
    *("RunQueued.key", "RunQueued.digest", "RunQueued.session_id"),
    "RunStarted.trace",
    "CallAnswered.signature",
    "MailRefused.kind",
    "RunReleased.charge",
    "CallWaiting.call_id",
    "CallWaiting.session",
    "AnswerForwarded.call_id",
    "AnswerForwarded.session",
}
"""Fields with text that no model, tool or person writes: ids, names, digests, repairs."""


def can_hold_text(kind: types.Type) -> bool:
    match kind:
        case types.StrType() | types.AnyType() | types.DictType() | types.BytesType():
            return True
        case types.UnionType():
            return any(map(can_hold_text, kind.types))
        case types.CollectionType():
            return can_hold_text(kind.item_type)
        case types.StructType():
            return any(can_hold_text(field.type) for field in kind.fields)
        case _:
            return False


def test_a_field_with_text_is_masked_or_made_by_the_runtime() -> None:
    """G8: a new fact has to say which of its fields are masked."""
    unmasked: set[str] = set()
    for kind in get_args(Fact):
        info = types.type_info(kind)
        assert isinstance(info, types.StructType)
        names = {field.name for field in info.fields}
        assert set(kind.masked_fields) <= names
        unmasked |= {
            f"{kind.__name__}.{field.name}"
            for field in info.fields
            if can_hold_text(field.type) and field.name not in kind.masked_fields
            # The names of fields that a viewer does not see. No journal has any.
            if field.name != "hidden"
        }
    assert unmasked == MADE_BY_THE_RUNTIME


@pytest.mark.contract("G8")
def test_a_setup_is_searched_once_and_a_changed_one_again() -> None:
    """The runs of an agent record the same setup; one that differs is masked like the first."""
    mask = Mask([CANARY])
    first = mask.mask_fact(RunStarted(1, (), SETUP))
    again = mask.mask_fact(first)
    changed = mask.mask_fact(RunStarted(2, (), replace(SETUP, instructions=f"Use {CANARY}.")))
    assert again is first
    assert CANARY not in repr(first)
    assert CANARY not in repr(changed)
