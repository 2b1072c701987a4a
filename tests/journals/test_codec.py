"""Facts to bytes and back, for ever."""

import base64
import json
import typing
from pathlib import Path
from typing import Any

import pytest

from windlass.core.errors import JournalFailed
from windlass.core.events import (
    VOCABULARY_VERSION,
    CallFinished,
    CallJudged,
    CallStarted,
    EntryKept,
    Fact,
    RunStarted,
)
from windlass.core.fold.run import fold
from windlass.core.messages import ImagePart, TextPart, ToolResult
from windlass.core.verdicts import Modify
from windlass.journals.codec import (
    LARGE_TEXT_CHARS,
    UPCASTS,
    UnreadableRecord,
    blob_name,
    chain_hash,
    chain_root,
    decode_fact,
    encode_fact,
)
from windlass.testing.samples import facts_of_every_kind, note_facts

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.jsonl"))
PICTURE = b"\x89PNG" * 1000


def fetch_nothing(name: str) -> bytes:
    raise UnreadableRecord(name)


ENTRY = EntryKept('{"kept": "beside"}', seq=1, at=1.0)
"""No session has an entry, so it is not among the facts of one."""


def fact_types() -> set[type[Any]]:
    return set(typing.get_args(Fact))


def test_the_sample_has_every_kind_of_fact() -> None:
    assert {type(fact) for fact in facts_of_every_kind()} == fact_types() - {EntryKept}


@pytest.mark.parametrize(
    "fact", [*facts_of_every_kind(), ENTRY], ids=lambda fact: f"{fact.seq} {type(fact).__name__}"
)
def test_a_fact_comes_back_equal(fact: Fact) -> None:
    record = encode_fact(fact)
    assert decode_fact(record.body, dict(record.blobs).__getitem__) == fact


def test_a_record_tells_its_version_first() -> None:
    """J11: a reader must know the version before it can trust the rest."""
    for fact in facts_of_every_kind():
        assert encode_fact(fact).body.startswith(b'{"v":%d,' % VOCABULARY_VERSION)


def test_no_field_of_a_fact_is_taken_for_the_envelope() -> None:
    for kind in fact_types():
        assert not {"v", "blobs"} & set(kind.__struct_fields__)


def test_attachments_and_long_texts_leave_the_record() -> None:
    """J10: by hash, so that they are stored once."""
    content = (
        TextPart("short"),
        ImagePart("image/png", PICTURE),
        TextPart("x" * (LARGE_TEXT_CHARS + 1)),
        TextPart("ø" * LARGE_TEXT_CHARS),
    )
    fact = CallFinished("a", ToolResult("value", content), seq=1)
    record = encode_fact(fact)
    assert [name for name, _ in record.blobs] == [
        blob_name(PICTURE),
        blob_name(b"x" * (LARGE_TEXT_CHARS + 1)),
    ]
    assert len(record.body) < 2 * LARGE_TEXT_CHARS + 500
    assert decode_fact(record.body, dict(record.blobs).__getitem__) == fact


def test_an_empty_attachment_is_not_a_missing_one() -> None:
    for data in (b"", None):
        fact = RunStarted(1, (ImagePart("image/png", data),), seq=1)
        record = encode_fact(fact)
        assert decode_fact(record.body, dict(record.blobs).__getitem__) == fact


def test_a_missing_attachment_is_damage() -> None:
    record = encode_fact(RunStarted(1, (ImagePart("image/png", PICTURE),), seq=1))
    with pytest.raises(UnreadableRecord):
        decode_fact(record.body, fetch_nothing)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"v":1}',
        b'{"v":1,"type":"NoteGiven"}',
        b'{"v":1,"type":"Nothing","seq":1}',
        b'{"v":1,"type":"TextDelta","text":"not a fact"}',
        b'{"v":1,"type":"NoteGiven","text":"\xff","why":"same_call","seq":1}',
        b'{"v":1,"blobs":[[0,"x"]],"type":"NoteGiven","text":"","why":"same_call","seq":1}',
        b'{"v":0,"type":"NoteGiven","text":"","why":"same_call","seq":1}',
        b'{"type":"NoteGiven","text":"","why":"same_call","seq":1}',
    ],
)
def test_damage_is_told(body: bytes) -> None:
    with pytest.raises(UnreadableRecord):
        decode_fact(body, lambda name: b"")


def test_a_newer_record_is_refused() -> None:
    """J11: somebody must upgrade; it is not damage."""
    with pytest.raises(JournalFailed, match="upgrade"):
        decode_fact(b'{"v":99,"type":"Unheard","seq":1}', fetch_nothing)


def test_an_old_record_is_brought_up() -> None:
    """J11: each version has a step to the next, on plain data."""

    def rename(record: dict[str, Any]) -> dict[str, Any]:
        return {**record, "v": 0, "type": "CallStarted", "key": record.pop("token")}

    def number(record: dict[str, Any]) -> dict[str, Any]:
        return {**record, "v": 1, "call_id": f"call-{record['call_id']}"}

    body = b'{"v":-1,"type":"CallBegan","call_id":"7","token":"k","seq":3}'
    fact = decode_fact(body, fetch_nothing, {-1: rename, 0: number})
    assert fact == CallStarted("call-7", "k", seq=3)


def test_every_old_version_has_its_upcast() -> None:
    assert set(UPCASTS) == set(range(1, VOCABULARY_VERSION))


@pytest.mark.parametrize("broken", ["\ud800", {1, "mixed"}, object()])
def test_what_no_json_can_hold_is_refused_with_its_name(broken: object) -> None:
    fact = CallJudged("a", Modify({"x": broken}, "because"), seq=4)
    if isinstance(broken, set):
        encode_fact(fact)
        return
    with pytest.raises(JournalFailed, match="CallJudged"):
        encode_fact(fact)


def test_a_small_fact_is_a_small_record() -> None:
    """J6: no record repeats what others hold."""
    first, last = (
        encode_fact(fact).body for fact in (note_facts(1, 1)[0], note_facts(100_000, 100_000)[0])
    )
    assert len(last) - len(first) <= 16


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_an_old_journal_folds(path: Path) -> None:
    """J11: a journal of any version is read for ever."""
    lines = path.read_bytes().splitlines()
    trees = [json.loads(line) for line in lines]
    blobs = {tree["blob"]: base64.b64decode(tree["data"]) for tree in trees if "blob" in tree}
    assert [blob_name(data) for data in blobs.values()] == list(blobs)
    records = [line for line, tree in zip(lines, trees, strict=True) if "v" in tree]
    head = chain_root("corpus").hash
    for record in records:
        head = chain_hash(head, record)
    assert head.hex() == trees[-1]["head"]
    facts = [decode_fact(record, blobs.__getitem__) for record in records]
    state = fold("corpus", facts)
    assert state.seq == len(facts)
    assert not state.is_active


def test_the_first_version_is_in_the_corpus_whole() -> None:
    lines = CORPUS[0].read_text("utf-8").splitlines()
    found = {json.loads(line).get("type") for line in lines} - {None}
    assert CORPUS[0].stem == "v1"
    assert found == {kind.__struct_config__.tag for kind in fact_types() - {EntryKept}}
