"""Redaction: what matches does not leave, and is told nowhere."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.errors import ConfigError
from windlass.core.messages import ToolSpec
from windlass.core.verdicts import Allow, Deny, Modify
from windlass.gates.combined import all_of
from windlass.gates.presets import allow_all
from windlass.gates.redaction import redact
from windlass.ports import Gate, GateRequest
from windlass.testing import GateConformance

KEY = r"sk-[a-z0-9]{4,}"
SEND = ToolSpec(
    "send",
    "",
    {"type": "object", "properties": {"to": {"type": "string"}, "body": {}}},
    labels=("external",),
)


def request(tool: ToolSpec = SEND, **arguments: object) -> GateRequest:
    return GateRequest("s", "c", tool, arguments)


def shout(text: str) -> str:
    return text.replace("quiet", "QUIET")


class TestRedact(GateConformance):
    @pytest.fixture(params=[KEY, "ann", shout])
    def gate(self, request: pytest.FixtureRequest) -> Gate:
        return redact(request.param)


async def test_matches_are_replaced_at_any_depth() -> None:
    body = {"text": "the key is sk-abcd1 or sk-abcd2", "more": ["sk-abcd3", 4, None, {"x": "y"}]}
    verdict = await redact(KEY).judge(request(to="ann", body=body))
    assert verdict == Modify(
        {
            "to": "ann",
            "body": {
                "text": "the key is [redacted] or [redacted]",
                "more": ["[redacted]", 4, None, {"x": "y"}],
            },
        },
        "Redacted in body.",
        "redact",
    )
    assert await redact(KEY).judge(request(to="ann", body="none")) == Allow("redact")


TEXTS = st.text() | st.from_regex(KEY)
VALUES = st.recursive(
    TEXTS, lambda one: st.lists(one) | st.dictionaries(st.text(), one), max_leaves=5
)


@given(st.dictionaries(TEXTS, VALUES, max_size=4))
async def test_nothing_that_matches_is_left_or_told(arguments: dict[str, Any]) -> None:
    verdict = await redact(KEY).judge(request(**arguments))
    if isinstance(verdict, Modify):
        assert not re.search(KEY, repr(verdict))
        again = GateRequest("s", "c", SEND, verdict.arguments)
        assert isinstance(await redact(KEY).judge(again), Allow)
    elif isinstance(verdict, Deny):
        assert not re.search(KEY, repr(verdict))
    else:
        assert not re.search(KEY, repr(arguments))


async def test_a_name_that_matches_denies() -> None:
    calls = [
        request(body={"sk-abcd": 1}),
        request(body=[{"sk-abcd": 1}]),
        GateRequest("s", "c", SEND, {"sk-abcd": 1}),
    ]
    for asked in calls:
        verdict = await redact(KEY).judge(asked)
        assert isinstance(verdict, Deny)
        assert "sk-" not in verdict.reason
    named = await redact("^body$").judge(request(body="x"))
    assert isinstance(named, Allow)


async def test_only_the_tools_that_are_named() -> None:
    look = ToolSpec("look", "", {"type": "object"}, "read")
    for tools in ("send", "@external", ["x", "se*"], "send(to=ann)"):
        gate = redact(KEY, tools=tools)
        assert isinstance(await gate.judge(request(to="ann", body="sk-abcd")), Modify)
        assert isinstance(await gate.judge(request(look, q="sk-abcd")), Allow)


async def test_a_function_may_say_what_becomes_of_a_text() -> None:
    verdict = await redact(shout, name="loud").judge(request(to="quiet", extra="quiet"))
    assert verdict == Modify(
        {"to": "QUIET", "extra": "QUIET"}, "Redacted in to, an argument.", "loud"
    )


async def test_the_replacement_is_taken_as_it_is() -> None:
    verdict = await redact(KEY, replacement=r"\g<0>").judge(request(to="sk-abcd"))
    assert isinstance(verdict, Modify)
    assert verdict.arguments == {"to": r"\g<0>"}


async def test_others_judge_what_is_left() -> None:
    verdict = await all_of(allow_all(), redact(KEY)).judge(request(to="sk-abcd"))
    assert verdict == Modify({"to": "[redacted]"}, "Redacted in to.", "redact")


@pytest.mark.parametrize(
    ("what", "told"),
    [("(", "not a regular expression"), ("x*", "empty"), ("redacted", "its own replacement")],
)
def test_what_cannot_be_meant_is_refused(what: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        redact(what)
    with pytest.raises(ConfigError, match="not a pattern"):
        redact(KEY, tools="send(")


def test_the_name_tells_redactions_apart() -> None:
    gates = [
        redact(KEY),
        redact("x"),
        redact(re.compile("x", re.IGNORECASE)),
        redact(shout),
        redact(KEY, tools="send"),
        redact(KEY, replacement="-"),
        redact(KEY, name="keys"),
    ]
    assert len({gate.name for gate in gates}) == len(gates)
    assert redact(KEY).name == redact(re.compile(KEY)).name
