"""A result of many megabytes: the event loop goes on, and no secret slips through at a border."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass import Agent, CallFinished, tool
from windlass.core.secrets import key_shapes
from windlass.core.secrets.mask import Mask
from windlass.journals.memory import MemoryJournal
from windlass.testing import ScriptedModel, call
from windlass.tools import results
from windlass.tools.results import encode_compact

pytestmark = pytest.mark.slow

SECRET = "crm-canary-3141-abc"
WORDS = "The quick brown-fox jumps_over the lazy dog. "
TICKS_MIN = 20
"""Far fewer than there are; without windows and a thread there are three, whatever the size."""


def text_result() -> str:
    return f"{WORDS * 200_000} {SECRET} {WORDS}"


def run_result() -> str:
    """One run of characters that may be a key, to its end."""
    return "eyJ" + "QUJDabc0" * 2_000_000 + SECRET


def json_result() -> list[Any]:
    return [{"name": "abc-def", "n": n, "nothing": None} for n in range(150_000)]


@pytest.mark.realtime
@pytest.mark.contract("T3")
@pytest.mark.parametrize("make_value", [text_result, run_result, json_result])
def test_the_event_loop_goes_on_while_a_large_result_is_worked_on(make_value: Any) -> None:
    """T3, T10: counted in turns of another task, between the end of the tool and its record."""
    value = make_value()
    ticks = 0
    ticks_at_return = 0
    ticks_at_record = 0

    @tool(effect="read")
    async def dump() -> object:
        """Return everything."""
        nonlocal ticks_at_return
        ticks_at_return = ticks
        return value

    def on_event(event: object) -> None:
        nonlocal ticks_at_record
        if isinstance(event, CallFinished):
            ticks_at_record = ticks

    async def main() -> None:
        async def count_turns() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1

        counting = asyncio.create_task(count_turns())
        journal = MemoryJournal()
        with ScriptedModel([call("dump"), "Done."]) as model:
            agent = Agent(model, tools=[dump], journal=journal, secrets={"crm": SECRET})
            await agent.run("Go.", session="s", on_event=on_event)
        counting.cancel()
        assert SECRET not in repr(await journal.read("s"))

    asyncio.run(main())
    assert ticks_at_record - ticks_at_return >= TICKS_MIN


# ── a search in windows finds what one search finds ──────────────────────────

WINDOW_CHARS = 300
PREFIXES = sorted(shape.prefix for group in key_shapes.SHAPE_GROUPS.values() for shape in group)
RUNS = ("a1B2", "QUJDabc0", "Zz9-", "x.y.", "ab/c1", "deadbeef01", "=", "user:pa55word@")
PEM_PIECES = (
    "QUJDabc0" * 8,
    "\n",
    "\\n",
    "\\\\\\\\\\n",
    "-",
    "--",
    ": ",
    ":",
    "  ",
    "\\",
    "DEK-Info: ",
)

keys = st.builds(
    lambda before, prefix, run, times, after: before + prefix + run * times + after,
    st.sampled_from(["", " ", "x", '"', "/"]),
    st.sampled_from(PREFIXES),
    st.sampled_from(RUNS),
    st.integers(0, 120),
    st.sampled_from(["", " ", "@host", "-----END", "\n"]),
)
pem_blocks = st.builds(
    lambda pieces: "-----BEGIN PRIVATE KEY-----" + "".join(pieces),
    st.lists(st.sampled_from(PEM_PIECES), max_size=60),
)
fillers = st.builds(
    lambda text, times: text * times,
    st.sampled_from([" ", "The dog. ", "abc-def_", "é", "AKIA"]),
    st.integers(0, 200),
)
values = st.sampled_from([SECRET, "Y3JtLWNhbmFyeS0zMTQxLWFiYw", "crm%2Dcanary%2D3141%2Dabc"])
long_texts = st.lists(st.one_of(keys, pem_blocks, fillers, values), max_size=12).map("".join)


@pytest.mark.slow
@pytest.mark.contract("G8")
@settings(max_examples=400, deadline=None)
@given(text=long_texts)
def test_a_mask_in_windows_is_the_mask_of_the_whole(text: str) -> None:
    """G8: also where a key, a value or a prefix lies across the border of two windows."""
    mask = Mask({"crm": SECRET})
    whole = mask.mask_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_shapes, "WINDOW_CHARS", WINDOW_CHARS)
        assert mask.mask_text(text) == whole


@pytest.mark.contract("G8")
@pytest.mark.parametrize(
    "piece", ["\n  ", "\n\n \t", "--", "-", "DEK: x", "\\n", "\\\\r", "\\" * 5 + "n"]
)
def test_a_private_key_is_one_key_wherever_a_window_ends(piece: str) -> None:
    """G8: its pattern looks at neighbours, which a border must not part."""
    mask = Mask()
    for shift in range(-12, 13):
        head = "PRIVATE KEY-----\n" + "QUJDabc0" * 60
        body = (head[: 16 + WINDOW_CHARS + shift] + piece + "QUJDabc0" * 60) * 2
        whole = mask.mask_text(body)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(key_shapes, "WINDOW_CHARS", WINDOW_CHARS)
            assert mask.mask_text(body) == whole


@pytest.mark.contract("G8")
@pytest.mark.parametrize("secret", [SECRET, "sk-canary0123456789abcdefGHIJ"])
def test_a_secret_is_masked_wherever_it_stands_in_a_long_text(secret: str) -> None:
    mask = Mask({"crm": SECRET})
    filler = "a word, " * (key_shapes.WINDOW_CHARS // 8)
    for shift in range(-len(secret) - 1, 2):
        text = filler[: key_shapes.WINDOW_CHARS + shift] + " " + secret + " " + filler
        assert secret[4:] not in mask.mask_text(text)


json_values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=30),
        st.sampled_from(["null", "x" * 50, "é\n" * 20]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=6), st.dictionaries(st.text(max_size=5), inner, max_size=5),
        st.tuples(inner, inner),
    ),
    max_leaves=40,
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.contract("T10")
@settings(max_examples=300, deadline=None)
@given(value=json_values, weight=st.integers(4, 60), batch=st.integers(1, 3))
def test_json_in_parts_is_the_json_of_the_whole(value: Any, weight: int, batch: int) -> None:
    whole = encode_compact(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results, "LARGE_WEIGHT", weight)
        patch.setattr(results, "_BATCH_ITEMS", batch)
        assert encode_compact(value) == whole
