"""Gates for tests: one with a fixed verdict, one that raises, and the conformance suite."""

import asyncio
from collections.abc import Callable
from copy import deepcopy

from windlass.core.messages import ToolSpec
from windlass.core.verdicts import Allow, Ask, Deny, Modify, Verdict
from windlass.ports import Gate, GateRequest


class FixedGate:
    """Gives one verdict, or the verdict of a function of the request. Keeps what it was asked."""

    def __init__(
        self,
        verdict: Verdict | Callable[[GateRequest], Verdict] | None = None,
        *,
        replies: Allow | Deny | Callable[[str], Allow | Deny] | None = None,
        name: str = "fixed",
        delay_s: float = 0.0,
    ) -> None:
        """Make a gate that waits `delay_s` seconds before each verdict.

        Without a verdict it allows every call. Without `replies` it does not judge replies.
        """
        self.name = name
        self.requests: list[GateRequest] = []
        """The requests that it judged, in order."""
        self.texts: list[str] = []
        """The final replies that it judged, in order."""
        self._verdict = verdict or Allow("fixed")
        self._replies = replies
        self._delay_s = delay_s

    @property
    def judges_replies(self) -> bool:
        return self._replies is not None

    async def judge(self, request: GateRequest) -> Verdict:
        """Note the request, and return the fixed verdict."""
        self.requests.append(request)
        # Gives way to other tasks even without a delay, as a real gate does.
        await asyncio.sleep(self._delay_s)
        return self._verdict(request) if callable(self._verdict) else self._verdict

    async def judge_reply(self, session: str, text: str) -> Allow | Deny:  # noqa: ARG002
        """Note the text, and return the fixed verdict."""
        self.texts.append(text)
        await asyncio.sleep(self._delay_s)
        if self._replies is None:
            return Allow("fixed")
        return self._replies(text) if callable(self._replies) else self._replies


class BrokenGate:
    """Raises whenever it is asked. The runtime treats that as a denial."""

    def __init__(self, error: Exception | None = None, *, name: str = "broken") -> None:
        self.name = name
        self.judges_replies = True
        self.times_asked = 0
        self._error = error or RuntimeError("the policy cannot be read")

    async def judge(self, request: GateRequest) -> Verdict:  # noqa: ARG002
        """Raise the error."""
        return await self._raise_error()

    async def judge_reply(self, session: str, text: str) -> Allow | Deny:  # noqa: ARG002
        """Raise the error."""
        return await self._raise_error()

    async def _raise_error(self) -> Allow:
        self.times_asked += 1
        await asyncio.sleep(0)
        raise self._error


class GateConformance:
    """What every gate must do. A subclass defines the fixture `gate`, and may replace REQUESTS."""

    REQUESTS: tuple[GateRequest, ...] = (
        GateRequest(
            "s", "c1", ToolSpec("read", "Reads.", {"type": "object"}, "read"), {"path": "a"}
        ),
        GateRequest("s", "c2", ToolSpec("send", "Sends.", {"type": "object"}), {"to": ["ann"]}),
        GateRequest("s", "c3", ToolSpec("odd-name_9", "", {"type": "object"}), {}),
    )

    def test_its_name_tells_it_from_others_and_does_not_change(self, gate: Gate) -> None:
        assert gate.name
        assert gate.name == gate.name, "the name of a gate must not change"

    async def test_a_verdict_is_one_of_four(self, gate: Gate) -> None:
        for request in self.REQUESTS:
            verdict = await gate.judge(request)
            assert isinstance(verdict, Allow | Deny | Modify | Ask), verdict
            if isinstance(verdict, Deny):
                assert verdict.reason, "a denial needs a reason: the model reads it"
            if isinstance(verdict, Ask):
                assert verdict.question, "a person cannot answer an empty question"

    async def test_the_same_request_gets_the_same_verdict(self, gate: Gate) -> None:
        for request in self.REQUESTS:
            first = await gate.judge(request)
            second = await gate.judge(request)
            assert type(first) is type(second)

    async def test_it_leaves_the_request_as_it_is(self, gate: Gate) -> None:
        for request in self.REQUESTS:
            before = deepcopy(request.arguments)
            await gate.judge(request)
            assert request.arguments == before

    async def test_calls_can_be_judged_at_the_same_time(self, gate: Gate) -> None:
        alone = [await gate.judge(request) for request in self.REQUESTS]
        together = await asyncio.gather(*(gate.judge(request) for request in self.REQUESTS))
        assert [type(verdict) for verdict in together] == [type(verdict) for verdict in alone]

    async def test_it_can_be_cancelled(self, gate: Gate) -> None:
        judging = asyncio.create_task(gate.judge(self.REQUESTS[0]))
        await asyncio.sleep(0)
        judging.cancel()
        done, _ = await asyncio.wait([judging], timeout=1)
        assert done, "the gate did not stop"

    async def test_a_reply_is_allowed_or_denied(self, gate: Gate) -> None:
        verdict = await gate.judge_reply("s", "All is well.")
        assert isinstance(verdict, Allow | Deny), verdict
        assert gate.judges_replies or isinstance(verdict, Allow), (
            "judges_replies is False, but it denied a reply"
        )
