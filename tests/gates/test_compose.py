"""Several gates as one: the strictest wins, and each judges what would run."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.errors import ConfigError
from windlass.core.messages import ToolSpec
from windlass.core.verdicts import Allow, Ask, Deny, Modify, Verdict
from windlass.gates.combined import all_of, combine_with_parent
from windlass.gates.presets import allow_all, read_only
from windlass.gates.presets import ask as ask_preset
from windlass.gates.rules import Rule, RuleGate
from windlass.ports import Gate, GateRequest
from windlass.testing import BrokenGate, FixedGate, GateConformance

TOOL = ToolSpec("send", "", {"type": "object", "properties": {"to": {"type": "string"}}})
CALL = GateRequest("s", "c", TOOL, {"to": "ann"})
ORDER = {Allow: 0, Modify: 1, Ask: 2, Deny: 3}


def redact(request: GateRequest) -> Verdict:
    """Takes a secret out, and has nothing to say of what has none."""
    if request.arguments.get("to") == "ann":
        return Modify({"to": "a."}, "Names are shortened.", "short")
    return Allow("short")


class TestAllOf(GateConformance):
    @pytest.fixture(
        params=[
            lambda: all_of(read_only(), ask_preset()),
            lambda: all_of(FixedGate(Deny("no")), BrokenGate()),
            lambda: all_of(FixedGate(Modify({}, "safer")), allow_all()),
            lambda: all_of(FixedGate(Ask("may I?")), RuleGate([], reply=["*x*"], default="allow")),
        ],
        ids=["presets", "broken", "modify", "replies"],
    )
    def gate(self, request: pytest.FixtureRequest) -> Gate:
        return request.param()


@pytest.mark.contract("G4")
async def test_the_strictest_wins_in_any_order() -> None:
    verdicts: list[Verdict] = [Allow("a"), Ask("may I?", "q"), Deny("no", "d")]
    for several in itertools.permutations(verdicts):
        for count in (2, 3):
            found = await all_of(*map(FixedGate, several[:count])).judge(CALL)
            wanted = max(several[:count], key=lambda verdict: ORDER[type(verdict)])
            assert (type(found), wanted.rule in found.rule) == (type(wanted), True)


@pytest.mark.contract("G2")
async def test_a_verdict_without_a_rule_names_its_gate() -> None:
    assert await all_of(FixedGate(Deny("no"), name="strict"), allow_all()).judge(CALL) == Deny(
        "no", "strict"
    )
    allowed = await all_of(FixedGate(Allow(), name="a"), FixedGate(Allow("r"), name="b")).judge(
        CALL
    )
    assert allowed == Allow("a + r")


async def test_all_judge_the_arguments_that_would_run() -> None:
    seen = FixedGate(Allow("seen"))
    verdict = await all_of(seen, FixedGate(redact)).judge(CALL)
    assert verdict == Modify({"to": "a."}, "Names are shortened.", "short")
    assert [request.arguments for request in seen.requests] == [{"to": "ann"}, {"to": "a."}]


async def test_what_one_gate_makes_of_a_call_another_may_deny() -> None:
    strict = RuleGate([Rule("deny", "send(to=a.)", "Too short.")], default="allow")
    assert isinstance(await strict.judge(CALL), Allow)
    verdict = await all_of(strict, FixedGate(redact)).judge(CALL)
    assert verdict == Deny("Too short.", "rules: deny send(to=a.)")


@pytest.mark.contract("T4")
async def test_a_change_is_not_lost_to_a_question() -> None:
    """What a person is asked about is what would run."""
    for gates in itertools.permutations([FixedGate(redact), FixedGate(Ask("may I?", "q", 9.0))]):
        verdict = await all_of(*gates).judge(CALL)
        assert verdict == Ask("may I?\nNames are shortened.", "short + q", 9.0, {"to": "a."})


@pytest.mark.contract("T4")
async def test_a_question_may_bring_its_own_arguments_and_all_judge_them() -> None:
    def once(request: GateRequest) -> Verdict:
        if request.arguments["to"] == "ann":
            return Ask("To bob instead?", "q", arguments={"to": "bob"})
        return Allow("q")

    seen = FixedGate(Allow("seen"))
    verdict = await all_of(FixedGate(once), seen).judge(CALL)
    assert verdict == Ask("To bob instead?", "q", arguments={"to": "bob"})
    assert [request.arguments for request in seen.requests] == [{"to": "ann"}, {"to": "bob"}]
    strict = RuleGate([Rule("deny", "send(to=bob)")], default="allow")
    assert isinstance(await all_of(FixedGate(once), strict).judge(CALL), Deny)


async def test_a_question_about_the_same_arguments_changes_nothing() -> None:
    same = FixedGate(Ask("may I?", "q", arguments={"to": "ann"}))
    assert await all_of(same, FixedGate(Allow("a"))).judge(CALL) == Ask("may I?", "q")


async def test_a_question_that_a_change_answers_is_not_put() -> None:
    def worried(request: GateRequest) -> Verdict:
        return Ask("A name?") if request.arguments["to"] == "ann" else Allow("calm")

    verdict = await all_of(FixedGate(worried), FixedGate(redact)).judge(CALL)
    assert verdict == Modify({"to": "a."}, "Names are shortened.", "short")


async def test_gates_that_do_not_agree_have_denied() -> None:
    def back(request: GateRequest) -> Verdict:
        return (
            Modify({"to": "ann"}, "Names are long.") if request.arguments["to"] == "a." else Allow()
        )

    verdict = await all_of(FixedGate(redact), FixedGate(back, name="back")).judge(CALL)
    assert isinstance(verdict, Deny)
    assert "do not agree" in verdict.reason


async def test_questions_are_put_together_and_the_first_to_expire_counts() -> None:
    gates = (
        FixedGate(Ask("A?", "a", 20.0)),
        FixedGate(Ask("B?", "b", 10.0)),
        FixedGate(Ask("A?", "a")),
    )
    assert await all_of(*gates).judge(CALL) == Ask("A?\nB?", "a + b", 10.0)


@pytest.mark.contract("G1")
async def test_a_gate_that_breaks_has_denied() -> None:
    gate = all_of(allow_all(), BrokenGate(name="broken"))
    told = "The gate broken failed: RuntimeError."
    assert await gate.judge(CALL) == Deny(told, "gate-failure")
    assert await gate.judge_reply("s", "hi") == Deny(told, "gate-failure")


async def test_a_gate_that_says_nothing_has_denied() -> None:
    silent = FixedGate(lambda _: None)  # pyright: ignore[reportArgumentType]
    assert isinstance(await all_of(allow_all(), silent).judge(CALL), Deny)


@pytest.mark.contract("G1")
async def test_replies_are_judged_by_those_that_judge_them() -> None:
    quiet, polite = allow_all(), FixedGate(replies=Deny("rude"), name="polite")
    assert not all_of(quiet, read_only()).judges_replies
    gate = all_of(quiet, polite)
    assert gate.judges_replies
    assert await gate.judge_reply("s", "you") == Deny("rude", "polite")
    kind = all_of(FixedGate(replies=Allow("x")), FixedGate(replies=Allow("y")))
    assert await kind.judge_reply("s", "hi") == Allow("x + y")


def test_gates_are_flat_and_named_once() -> None:
    a, b, c = FixedGate(name="a"), FixedGate(name="b"), FixedGate(name="c")
    assert all_of(all_of(a, b), c, a).name == "all_of(a, b, c)"
    assert all_of(a, a) is a
    with pytest.raises(ConfigError, match="allow_all"):
        all_of()


VERDICTS = st.sampled_from(
    [
        Allow("a"),
        Modify({"to": "x"}, "m"),
        Ask("?"),
        Ask("?", arguments={"to": "x"}),
        Ask("?", arguments={"to": "y"}),
        Deny("no"),
    ]
)


@pytest.mark.contract("G9")
@given(VERDICTS, VERDICTS)
async def test_a_child_is_never_less_strict_than_its_parent(
    parent: Verdict, child: Verdict
) -> None:
    gate = combine_with_parent(FixedGate(parent), FixedGate(child))
    assert gate is not None
    verdict = await gate.judge(CALL)
    assert ORDER[type(verdict)] >= max(ORDER[type(parent)], ORDER[type(child)])


@pytest.mark.contract("G9")
async def test_a_child_cannot_change_its_call_past_its_parent() -> None:
    parent = RuleGate([Rule("deny", "send(to=eve)")], default="allow")
    child = FixedGate(Modify({"to": "eve"}, "To eve."))
    gate = combine_with_parent(parent, child)
    assert gate is not None
    assert isinstance(await gate.judge(CALL), Deny)


@pytest.mark.contract("G9")
def test_a_child_without_a_gate_has_its_parents() -> None:
    parent = read_only()
    assert combine_with_parent(parent, None) is parent
    assert combine_with_parent(None, parent) is parent
    assert combine_with_parent(parent, parent) is parent
    assert combine_with_parent(None, None) is None
