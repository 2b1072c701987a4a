"""The ports to what decides about calls: the gate, and the person that it asks."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import msgspec

from windlass.core.messages import Label, ToolSpec
from windlass.core.question import Question
from windlass.core.verdicts import Allow, Deny, Grant, PersonAnswer, Verdict


class GateRequest(msgspec.Struct, frozen=True):
    """A call that a gate must judge."""

    session: str
    call_id: str
    tool: ToolSpec
    arguments: Mapping[str, Any]
    labels: frozenset[Label] = frozenset()
    """What the session may hold because of earlier calls: untrusted text, private data."""
    sources: Mapping[Label, str] = {}
    """Which call first brought each label, in words."""
    grants: tuple[Grant, ...] = ()
    """What a person has allowed for the rest of this session."""
    agent: str = ""
    caller: str = ""
    """On whose behalf the agent runs."""
    context: Mapping[str, Any] = {}
    """What the program that runs the agent says; no model and no tool can write it."""
    folder: str = ""
    """The folder that the tools work in, if it is not the one that the agent was built with."""


class Gate(Protocol):
    """Decides which calls may run. A gate that raises has denied."""

    @property
    def name(self) -> str:
        """Identifies the policy: a resumed run is checked against it."""
        ...

    @property
    def judges_replies(self) -> bool:
        """Whether final replies are withheld until `judge_reply` has allowed them."""
        ...

    async def judge(self, request: GateRequest) -> Verdict:
        """Decide about a call. An exception counts as a denial."""
        ...

    async def judge_reply(self, session: str, text: str) -> Allow | Deny:
        """Decide whether a final reply may be shown; asked if `judges_replies` is set."""
        ...


ApproverReply = PersonAnswer | bool | None
"""What a person said to a question: a verdict, yes or no. None: nothing, and the run waits."""

Approver = Callable[[Question], Awaitable[ApproverReply] | ApproverReply]
"""Asks a person, who may take their time. None means no answer yet: the run waits durably.

True allows the call and False denies it. A function that is not async runs in a thread,
one question at a time.
"""
