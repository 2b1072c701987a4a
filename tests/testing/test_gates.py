"""The gates for tests."""

import pytest

from windlass.core.verdicts import Allow, Ask, Deny, Modify, Verdict
from windlass.ports import GateRequest
from windlass.testing import BrokenGate, FixedGate, GateConformance, VirtualClock

REQUEST = GateConformance.REQUESTS[0]


class TestFixedGate(GateConformance):
    @pytest.fixture(
        params=[Allow(), Deny("no"), Ask("may I?"), Modify({}, "safer"), lambda _: Allow()],
        ids=["allow", "deny", "ask", "modify", "function"],
    )
    def gate(self, request: pytest.FixtureRequest) -> FixedGate:
        return FixedGate(request.param)


class TestGateOfReplies(GateConformance):
    @pytest.fixture
    def gate(self) -> FixedGate:
        return FixedGate(Allow(), replies=lambda text: Deny("rude") if "you" in text else Allow())


async def test_a_fixed_gate_says_the_same_and_keeps_what_it_was_asked() -> None:
    gate = FixedGate(Deny("no"))
    assert await gate.judge(REQUEST) == Deny("no")
    assert (gate.name, gate.requests, gate.judges_replies) == ("fixed", [REQUEST], False)


async def test_a_function_judges_each_request() -> None:
    def judge(request: GateRequest) -> Verdict:
        return Allow() if request.tool.effect == "read" else Ask(f"{request.tool.name}?")

    gate = FixedGate(judge, name="mine")
    verdicts = [await gate.judge(request) for request in GateConformance.REQUESTS[:2]]
    assert (gate.name, verdicts) == ("mine", [Allow(), Ask("send?")])


async def test_replies_are_judged_when_asked_for() -> None:
    gate = FixedGate(replies=Deny("no"))
    assert gate.judges_replies
    assert await gate.judge_reply("s", "text") == Deny("no")
    assert gate.texts == ["text"]
    assert await FixedGate().judge_reply("s", "text") == Allow("fixed")


async def test_a_gate_takes_its_time(clock: VirtualClock) -> None:
    await FixedGate(delay_s=5).judge(REQUEST)
    assert clock.elapsed_s == 5.0


async def test_a_broken_gate_raises() -> None:
    gate = BrokenGate()
    with pytest.raises(RuntimeError, match="cannot be read"):
        await gate.judge(REQUEST)
    with pytest.raises(KeyError):
        await BrokenGate(KeyError()).judge_reply("s", "text")
    assert gate.times_asked == 1
