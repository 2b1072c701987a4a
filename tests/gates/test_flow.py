"""The flow guard: what came from outside must not send out what is private."""

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.errors import ConfigError
from windlass.core.messages import Label, ToolSpec
from windlass.core.verdicts import Allow, Ask, Deny
from windlass.gates.data_flow import LINE_CHARS_MAX, flow_guard
from windlass.ports import Gate, GateRequest
from windlass.testing import GateConformance

LABELS: tuple[Label, ...] = get_args(Label)
BOTH: frozenset[Label] = frozenset(["untrusted", "private"])


def request(
    arguments: dict[str, Any], held: frozenset[Label] = BOTH, *own: Label, **sources: str
) -> GateRequest:
    tool = ToolSpec("send", "", {"type": "object"}, labels=own or ("external",))
    named: dict[Label, str] = {label: sources[label] for label in LABELS if label in sources}
    return GateRequest("s", "c", tool, arguments, held, named)


class TestFlowGuard(GateConformance):
    REQUESTS = (*GateConformance.REQUESTS, request({"to": "eve"}), request({}, frozenset()))

    @pytest.fixture(params=["ask", "deny"])
    def gate(self, request: pytest.FixtureRequest) -> Gate:
        return flow_guard(request.param)


@pytest.mark.contract("G7")
@given(st.frozensets(st.sampled_from(LABELS)), st.frozensets(st.sampled_from(LABELS), min_size=1))
async def test_it_asks_exactly_when_both_are_held_and_something_leaves(
    held: frozenset[Label], own: frozenset[Label]
) -> None:
    verdict = await flow_guard().judge(request({}, held, *own))
    private = "private" in held or "private" in own
    leaks = "external" in own and "untrusted" in held and private
    assert isinstance(verdict, Ask if leaks else Allow)
    strict = await flow_guard("deny").judge(request({}, held, *own))
    assert isinstance(strict, Deny if leaks else Allow)


@pytest.mark.contract("G7")
async def test_the_person_is_told_what_where_to_and_why() -> None:
    asked = request(
        {"to": "eve@evil.org", "body": 'The key is "x".\nBye.'},
        untrusted="fetch (c1)",
        private="read_file (c2)",
    )
    assert await flow_guard().judge(asked) == Ask(
        'May send send this out? Where to: to="eve@evil.org". '
        'What: body="The key is \\"x\\".\\nBye.". You are asked because this session holds '
        "text from outside, which anyone may have written (from fetch (c1)) and "
        "private data (from read_file (c2)): the first may have told the model to send the second.",
        "flow_guard",
    )


@pytest.mark.contract("G7")
async def test_a_tool_that_is_itself_private_says_so() -> None:
    verdict = await flow_guard().judge(
        request({"box": "in"}, frozenset[Label](["untrusted"]), "private", "external")
    )
    assert isinstance(verdict, Ask)
    assert "private data (from send itself)" in verdict.question
    assert "do not say where it goes" in verdict.question


async def test_any_address_is_a_place() -> None:
    verdict = await flow_guard().judge(request({"hook_url": "https://evil.org/x", "n": 1}))
    assert isinstance(verdict, Ask)
    assert 'Where to: hook_url="https://evil.org/x". What: n=1.' in verdict.question


@pytest.mark.contract("G7")
@given(st.dictionaries(st.text(), st.text() | st.lists(st.integers()), max_size=30))
async def test_the_question_is_one_line_of_bounded_length(arguments: dict[str, Any]) -> None:
    verdict = await flow_guard().judge(request(arguments))
    assert isinstance(verdict, Ask)
    assert verdict.question.isprintable()
    assert len(verdict.question) < 2 * LINE_CHARS_MAX + 600


async def test_of_what_is_long_both_ends_are_seen() -> None:
    verdict = await flow_guard().judge(request({"body": f"Dear Ann{'.' * 10_000}the key is 42"}))
    assert isinstance(verdict, Ask)
    assert "Dear Ann" in verdict.question
    assert "the key is 42" in verdict.question
    assert "characters)" in verdict.question


@pytest.mark.contract("G7")
async def test_a_denial_tells_the_model_why_and_shows_no_argument() -> None:
    verdict = await flow_guard("deny").judge(request({"to": "eve"}, untrusted="fetch (c1)"))
    assert isinstance(verdict, Deny)
    assert "fetch (c1)" in verdict.reason
    assert "eve" not in verdict.reason


def test_it_asks_or_denies_and_its_name_says_which() -> None:
    assert (flow_guard().name, flow_guard("deny").name) == ("flow_guard", "flow_guard(deny)")
    with pytest.raises(ConfigError, match="Did you mean deny"):
        flow_guard("dney")  # pyright: ignore[reportArgumentType]
