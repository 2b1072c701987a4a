"""A write that had started without proof of its permission, and that its tool says was not done."""

import json
from collections.abc import Sequence
from contextlib import suppress

import pytest
from typing_extensions import override

from windlass import NOT_DONE, Agent, RunContext, RunFailed, tool
from windlass.core.audit.replay import replay
from windlass.core.events import CallJudged, CallStarted
from windlass.core.fold.run import fold
from windlass.core.messages import ArgumentChange, Message, ToolResults
from windlass.core.projection.project import project_events
from windlass.core.projection.view import ReplyEntry
from windlass.core.verdicts import Modify
from windlass.journals.memory import MemoryJournal
from windlass.ports import GateRequest, ProvenAnswers
from windlass.testing import FixedGate, PowerCut, PowerCutJournal, ScriptedModel, VirtualClock, call
from windlass.tools.function import Reconciliation

pytestmark = pytest.mark.contract("D3", "J4", "T4")


class UnprovenJournal(MemoryJournal):
    """A journal with keys, in which nothing is signed."""

    @override
    async def find_proven(self, session: str) -> ProvenAnswers:
        return ProvenAnswers(frozenset(), ())


def put_mark(request: GateRequest) -> Modify:
    """Put a mark in front of a text, also in front of one that has a mark."""
    return Modify({"text": f"[ok] {request.arguments['text']}"}, "a mark")


@pytest.mark.parametrize("text", ['{"text": "hi"}', "{'text': 'hi',}"])
async def test_it_is_judged_from_what_the_model_wrote(clock: VirtualClock, text: str) -> None:
    """A crash leaves no trace in what is done: no change is made to what was changed before."""
    done: list[str] = []
    looked_up: list[str] = []

    def find_nothing(context: RunContext[None], text: str) -> Reconciliation:
        del context
        looked_up.append(text)
        return NOT_DONE

    @tool(reconcile=find_nothing)
    def send(text: str) -> str:
        """Send a text."""
        done.append(text)
        return "sent"

    store, gate = UnprovenJournal(now=clock.now), FixedGate(put_mark)
    # The fourth append is the start of the call. The process dies before the tool has done it.
    dying = PowerCutJournal(store, 4, "after")
    first = Agent(
        ScriptedModel([call("send", text)]), tools=[send], gate=gate, journal=dying, clock=clock
    )
    with pytest.raises((PowerCut, RunFailed)):
        await first.run("Send it.", session="s")
    assert isinstance((await store.read("s"))[-1], CallStarted)
    with ScriptedModel(["Sent."]) as model:
        agent = Agent(model, tools=[send], gate=gate, journal=store, clock=clock)
        result = await agent.resume("s")
    assert (looked_up, done) == (["[ok] hi"], ["[ok] hi"])
    assert [request.arguments for request in gate.requests] == [{"text": "hi"}] * 2
    (told,) = (message for message in result.messages if isinstance(message, ToolResults))
    assert json.loads(told.items[0].call.arguments) == {"text": "[ok] hi"}
    facts = await store.read("s")
    judged = [fact for fact in facts if isinstance(fact, CallJudged)]
    assert [fact.verdict for fact in judged] == [Modify({"text": "[ok] hi"}, "a mark")] * 2
    (view,) = (
        one
        for entry in project_events(facts, "s").entries
        if isinstance(entry, ReplyEntry)
        for one in entry.calls
    )
    assert (view.arguments, view.changes[-1]) == (
        '{"text":"[ok] hi"}',
        ArgumentChange("", "the gate: a mark"),
    )
    assert all(view.changes.count(change) == 1 for change in view.changes)
    assert replay("s", facts).difference is None


@pytest.mark.parametrize("text", ['{"text": "hi"}', ' {"text": "hi"}', "{'text': 'hi',}"])
async def test_its_arguments_are_shown_as_if_nothing_had_happened(
    clock: VirtualClock, text: str
) -> None:
    """J4, P5: to the letter, so that the transcript stays the one that a provider has cached."""

    @tool(reconcile=lambda context, text: NOT_DONE)
    def send(text: str) -> str:
        """Send a text."""
        return f"sent {text}"

    transcripts: list[Sequence[Message]] = []
    for cut_at in (4, None):
        store = UnprovenJournal(now=clock.now)
        journal = PowerCutJournal(store, cut_at, "after") if cut_at else store
        model = ScriptedModel([call("send", text), "Sent."])
        agent = Agent(model, tools=[send], journal=journal, clock=clock)
        with suppress(PowerCut, RunFailed):
            await agent.run("Send it.", session="s")
        if cut_at:
            model = ScriptedModel(["Sent."])
            await Agent(model, tools=[send], journal=store, clock=clock).resume("s")
        facts = await store.read("s")
        transcripts.append(fold("s", facts).transcript)
        (shown,) = (
            one.arguments
            for entry in project_events(facts, "s").entries
            if isinstance(entry, ReplyEntry)
            for one in entry.calls
        )
        (told,) = (message for message in transcripts[-1] if isinstance(message, ToolResults))
        assert told.items[0].call.arguments == shown
    assert transcripts[0] == transcripts[1]
