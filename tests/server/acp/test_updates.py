"""What an editor is sent: all that is new, nothing twice, whenever it came."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("acp", reason="needs the extra `acp`")

from acp.schema import AgentPlanUpdate
from msgspec.structs import replace

from windlass import Agent, LoopPolicy, tool
from windlass.core.events import Event
from windlass.core.messages import TextPart
from windlass.core.projection.changes import forget_streamed_text
from windlass.core.projection.project import apply_event, project_events
from windlass.core.projection.view import Projection
from windlass.core.verdicts import Allow, Deny, Verdict
from windlass.journals.memory import MemoryJournal
from windlass.ports import GateRequest
from windlass.server.acp.updates import BROKEN_OFF, Update, UpdateEncoder
from windlass.testing import ScriptedModel, call, drop, say, think
from windlass.tools.todo import todo_tool

pytestmark = pytest.mark.contract("A6")
FOLDER = Path("project")
RESTART = LoopPolicy(on_partial="restart")


@tool(effect="read")
def look(path: str) -> str:
    """Look at something."""
    return f"{path} is there"


SCRIPT = [
    [think("Let me think."), say("I look "), say("around."), call("look", {"path": "a"})],
    [say("And "), call("look", {"path": "b"}), call("look", {"path": "c"})],
    "All is well.",
]


async def record(*script: Any, **options: Any) -> tuple[list[Event], MemoryJournal]:
    """Play a run; all of its events, and its journal."""
    events: list[Event] = []
    journal = MemoryJournal()
    agent = Agent(ScriptedModel(script), tools=[look, todo_tool()], journal=journal, **options)
    await agent.run("Have a look.", session="s", on_event=events.append)
    return events, journal


def send(encoder: UpdateEncoder, views: Iterable[Projection]) -> list[Update]:
    return [update for view in views for update in encoder.encode(view)]


def views_of(events: Iterable[Event]) -> Iterable[Projection]:
    view = Projection("s")
    for event in events:
        view = apply_event(view, event)
        yield view


def text_of(updates: list[Update], kind: str = "agent_message_chunk") -> str:
    return "".join(
        getattr(update.content, "text", "") for update in updates if update.session_update == kind
    )


def states_of(updates: list[Update]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for update in updates:
        if update.session_update in ("tool_call", "tool_call_update"):
            states = found.setdefault(getattr(update, "tool_call_id", ""), [])
            states += filter(None, [getattr(update, "status", None)])
    return found


async def test_who_watches_from_the_beginning_is_sent_each_thing_once() -> None:
    events, _ = await record(*SCRIPT)
    updates = send(UpdateEncoder(FOLDER), views_of(events))
    assert text_of(updates) == "I look around.And All is well."
    assert text_of(updates, "agent_thought_chunk") == "Let me think."
    assert text_of(updates, "user_message_chunk") == "Have a look."
    assert [*states_of(updates).values()] == [["pending", "in_progress", "completed"]] * 3


async def test_who_loads_the_session_is_sent_the_same() -> None:
    events, journal = await record(*SCRIPT)
    live = send(UpdateEncoder(FOLDER), views_of(events))
    loaded = send(UpdateEncoder(FOLDER), [project_events(await journal.read("s"), "s")])
    for kind in ("agent_message_chunk", "agent_thought_chunk", "user_message_chunk"):
        assert text_of(loaded, kind) == text_of(live, kind)
    assert [*states_of(loaded).values()] == [["completed"]] * 3


async def test_who_comes_back_at_any_event_is_sent_nothing_twice() -> None:
    """The facts so far, then the text so far, all of it."""
    events, _ = await record(*SCRIPT)
    for cut in range(1, len(events)):
        encoder = UpdateEncoder(FOLDER)
        view = Projection("s")
        updates: list[Update] = []
        for number, event in enumerate(events):
            if number == cut:
                text = view.reply.text if view.reply else ""
                view = forget_streamed_text(view)
                if text and view.reply is not None:
                    view = replace(view, reply=view.reply.add_text("text", text))
            view = apply_event(view, event)
            updates += encoder.encode(view)
        assert text_of(updates) == "I look around.And All is well.", cut


async def test_a_prompt_of_the_editor_itself_is_not_sent_back() -> None:
    events, _ = await record(*SCRIPT)
    encoder = UpdateEncoder(FOLDER)
    encoder.expect_prompt((TextPart("Have a look."),))
    updates = send(encoder, views_of(events))
    assert text_of(updates, "user_message_chunk") == ""


async def test_a_reply_that_broke_off_is_followed_by_a_note() -> None:
    events, _ = await record([say("Once upon"), drop()], "Twice.", rules=RESTART)
    updates = send(UpdateEncoder(FOLDER), views_of(events))
    assert text_of(updates) == f"Once upon{BROKEN_OFF}Twice."


class StrictGate:
    """Lets no reply through that holds a certain word."""

    name = "strict"
    judges_replies = True

    async def judge(self, request: GateRequest) -> Verdict:
        return Allow()

    async def judge_reply(self, session: str, text: str) -> Allow | Deny:
        return Deny("not that word") if "secret" in text else Allow()


async def test_a_reply_that_was_denied_is_never_sent() -> None:
    events, _ = await record("The secret is out.", "It is safe.", gate=StrictGate())
    updates = send(UpdateEncoder(FOLDER), views_of(events))
    assert text_of(updates) == "It is safe."


async def test_the_list_of_things_to_do_is_the_plan() -> None:
    items = [{"text": "Look", "status": "done"}, {"text": "Leap", "status": "doing"}]
    events, _ = await record(call("todo", {"items": items}), "Well.")
    updates = send(UpdateEncoder(FOLDER), views_of(events))
    plans = [update for update in updates if isinstance(update, AgentPlanUpdate)]
    assert [[entry.status for entry in plan.entries] for plan in plans] == [
        ["completed", "in_progress"]
    ]
    assert states_of(updates) == {}


async def test_the_end_of_a_run_that_did_not_complete_is_told() -> None:
    events, _ = await record(*[call("look", {"path": str(n)}) for n in range(25)])
    updates = send(UpdateEncoder(FOLDER), views_of(events))
    assert "The run ended (max steps)" in text_of(updates)
