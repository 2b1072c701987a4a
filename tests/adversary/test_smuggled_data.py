"""Private data in an address that looks like the one that the person typed (G7)."""

from typing import Any

import pytest

from windlass.core.messages import ToolSpec
from windlass.core.verdicts import Allow, Ask
from windlass.gates.data_flow import flow_guard
from windlass.gates.urls import find_addresses
from windlass.ports import GateRequest

pytestmark = pytest.mark.contract("G7")
TYPED = "Read https://a.example/x for me."


def judged(arguments: dict[str, Any]) -> GateRequest:
    tool = ToolSpec("fetch", "", {"type": "object"}, "read", ("untrusted", "external"))
    held = frozenset(("untrusted", "private"))
    return GateRequest("s", "c", tool, arguments, held, context={"typed": find_addresses(TYPED)})


@pytest.mark.parametrize(
    "url",
    [
        # Another host, which the person would take for the same one.
        "https://a.example\\@evil.example/x",
        "https://a.example@evil.example/x",
        "https://a.example%2f@evil.example/x",
        "https://a.example.evil.example/x",
        "https://\u0430.example/x",
        "https://a\u3002example.evil.example/x",
        "https://a.example:443@evil.example/x",
        "//evil.example/x",
        # A name that the resolver of an attacker is asked for.
        "https://c2VjcmV0.a.example/x",
        "https://secret-1234.a.example./x",
        # The same host, with something more.
        "https://a.example/x;secret",
        "https://a.example/x/..;/secret",
        "https://a.example/./x/%73ecret",
        "https://a.example/x%3Fsecret",
        "https://a.example/x?",
        "https://a.example/x\tsecret",
        "https://a.example/x\nX-Data: secret",
        "https://a.example/x\x00secret",
        "https://a.example/X",
        "http://a.example/x",
        "ftp://a.example/x",
        "https://user:secret@a.example/x",
    ],
)
async def test_a_look_alike_of_the_typed_address_is_asked_about(url: str) -> None:
    guard = flow_guard(typed_addresses=lambda request: request.context["typed"])
    assert isinstance(await guard.judge(judged({"url": "https://a.example/x"})), Allow)
    assert isinstance(await guard.judge(judged({"url": url})), Ask)


@pytest.mark.parametrize(
    "more",
    [
        {"method": "POST"},
        {"params": {"d": "secret"}},
        {"cookies": "d=secret"},
        {"timeout": 1234},
        {"Url": "https://evil.example/secret"},
        {"": "secret"},
    ],
)
async def test_whatever_else_goes_along_is_asked_about(more: dict[str, Any]) -> None:
    guard = flow_guard(typed_addresses=lambda request: request.context["typed"])
    verdict = await guard.judge(judged({"url": "https://a.example/x", **more}))
    assert isinstance(verdict, Ask)
