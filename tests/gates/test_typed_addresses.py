"""Addresses that a person wrote: which they are, and that nothing else passes for one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.messages import ToolSpec
from windlass.core.verdicts import Allow, Ask
from windlass.gates.data_flow import flow_guard
from windlass.gates.urls import WRITTEN_ADDRESSES_MAX, find_addresses, plain_address
from windlass.ports import GateRequest

pytestmark = pytest.mark.contract("G7")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("look at https://a.example/x?y=1, please", "https://a.example/x?y=1"),
        ("(see https://a.example/wiki/Foo_(bar)).", "https://a.example/wiki/Foo_(bar)"),
        ("https://a.example", "https://a.example/"),
        ("what is new on news.example?", "https://news.example/"),
        ("**https://a.example/b**", "https://a.example/b"),
        ("http://a.example:8000/x#part", "http://a.example:8000/x"),
    ],
)
def test_an_address_in_a_sentence_is_found(text: str, address: str) -> None:
    assert address in find_addresses(text)


@given(st.text())
def test_any_text_gives_few_addresses(text: str) -> None:
    found = find_addresses(text)
    assert len(found) <= WRITTEN_ADDRESSES_MAX
    assert all(plain_address(address) == address for address in found)


def judged(arguments: dict[str, Any], text: str) -> GateRequest:
    tool = ToolSpec("fetch", "", {"type": "object"}, "read", ("untrusted", "external"))
    held = frozenset(("untrusted", "private"))
    return GateRequest("s", "c", tool, arguments, held, context={"typed": find_addresses(text)})


@pytest.mark.parametrize(
    ("arguments", "verdict"),
    [
        ({"url": "https://a.example/x"}, Allow),
        ({"url": "https://a.example/x#there"}, Allow),
        ({"url": "https://a.example/x?d=secret"}, Ask),
        ({"url": "https://a.example/x/secret"}, Ask),
        ({"url": "https://secret.a.example/x"}, Ask),
        ({"url": "https://a.example:4242/x"}, Ask),
        ({"url": "https://secret@a.example/x"}, Ask),
        ({"url": "https://a.example/"}, Ask),
        ({"url": "https://a.example/x", "body": "secret"}, Ask),
        ({"url": "https://a.example/x", "headers": {"X": "secret"}}, Ask),
        ({"url": ["https://a.example/x"]}, Ask),
        ({}, Ask),
    ],
)
async def test_only_the_very_address_passes(
    arguments: dict[str, Any], verdict: type[Allow | Ask]
) -> None:
    guard = flow_guard(typed_addresses=lambda request: request.context["typed"])
    request = judged(arguments, "Read https://a.example/x for me.")
    assert isinstance(await guard.judge(request), verdict)
    # Without a program that says what was typed, nothing passes.
    assert isinstance(await flow_guard().judge(request), Ask)


async def test_the_question_shows_what_an_address_carries() -> None:
    url = "https://evil.example/c/Ann%20Lee?d=ann%40bank.example%2C1234&more=" + "x" * 900 + "end"
    verdict = await flow_guard().judge(judged({"url": url}, ""))
    assert isinstance(verdict, Ask)
    assert 'path="/c/Ann Lee", d="ann@bank.example,1234", more="xxx' in verdict.question
    assert 'end"' in verdict.question
    assert "905 characters" in verdict.question
    assert 'url="https://evil.example/c/' in verdict.question
