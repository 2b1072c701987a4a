"""Questions in the editor: each answer is bound to what was shown, and the first one counts."""

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("acp", reason="needs the extra `acp`")

from acp import RequestError
from acp.schema import (
    AllowedOutcome,
    DeniedOutcome,
    PermissionOption,
    RequestPermissionResponse,
    ToolCallUpdate,
)
from msgspec.structs import replace

from windlass import Agent, answer, tool
from windlass.core.events import CallAnswered
from windlass.core.projection.project import project_events
from windlass.core.question import Question
from windlass.core.verdicts import Allow, CallPreview, Deny
from windlass.gates.presets import ask
from windlass.journals.memory import MemoryJournal
from windlass.server.acp.permissions import PermissionRequests, make_options
from windlass.testing import ScriptedModel, call

pytestmark = pytest.mark.contract("A6")


@tool
def send(to: str) -> str:
    """Send a letter."""
    return f"sent to {to}"


class FakeEditor:
    """Answers as a test says."""

    def __init__(self, option: str | None = None) -> None:
        self.option = option
        self.shown: list[ToolCallUpdate] = []
        self.withdrawn: list[str] = []
        self.error: RequestError | None = None

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption]
    ) -> RequestPermissionResponse:
        self.shown.append(tool_call)
        if self.error is not None:
            raise self.error
        if self.option is None:
            await asyncio.Event().wait()
        outcome = AllowedOutcome(outcome="selected", option_id=self.option or "")
        if self.option == "cancelled":
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=outcome)

    async def withdraw_question(self, session: str, tool_call: str) -> None:
        self.withdrawn.append(tool_call)


class Scene:
    """A run that waits for an answer, and an editor that is asked."""

    def __init__(self, option: str | None = None) -> None:
        self.journal = MemoryJournal()
        self.editor = FakeEditor(option)
        self.postponed = 0
        self.requests = PermissionRequests(
            self.editor,
            self.journal,
            "s",
            Path("project"),
            by="ann",
            read_text=lambda _: None,
            preview=self._preview,
            on_postponed=self._postpone,
        )

    async def _preview(self, question: Question) -> CallPreview | None:
        return CallPreview(f"A letter goes to {question.arguments['to']}.", "+Dear Bob")

    def _postpone(self) -> None:
        self.postponed += 1

    async def begin(self) -> tuple[Question, ...]:
        script = [call("send", {"to": "bob"}), "Sent."]
        self.agent = Agent(ScriptedModel(script), tools=[send], gate=ask(), journal=self.journal)
        await self.agent.run("Write to Bob.", session="s")
        return await self.questions()

    async def questions(self) -> tuple[Question, ...]:
        return project_events(await self.journal.read("s"), "s").questions

    async def follow(self) -> None:
        self.requests.follow(await self.questions())
        await asyncio.sleep(1)

    async def answers(self) -> list[CallAnswered]:
        """Take what was answered, as a driver does."""
        await self.agent.drive("s")
        return [fact for fact in await self.journal.read("s") if isinstance(fact, CallAnswered)]


@pytest.mark.parametrize(
    ("option", "verdict", "grants"),
    [
        ("allow_once", Allow, None),
        ("allow_always", Allow, ""),
        ("allow_tool", Allow, "send"),
        ("reject_once", Deny, None),
        ("forged", Deny, None),
    ],
)
async def test_what_the_person_chose_is_recorded(
    option: str, verdict: type, grants: str | None
) -> None:
    scene = Scene(option)
    (question,) = await scene.begin()
    await scene.follow()
    (fact,) = await scene.answers()
    assert isinstance(fact.verdict, verdict)
    assert fact.by == "ann"
    assert fact.digest == question.digest
    assert (None if fact.grant is None else fact.grant.pattern) == grants
    await scene.requests.close()
    await scene.agent.aclose(cancel=True)


async def test_an_answer_for_other_arguments_runs_nothing() -> None:
    """What was shown is not what would run: the answer does not fit, and the question stays."""
    scene = Scene("allow_once")
    (question,) = await scene.begin()
    scene.requests.follow([replace(question, digest="0" * 32)])
    await asyncio.sleep(1)
    assert [type(fact.verdict) for fact in await scene.answers()] == []
    assert scene.postponed == 1
    await scene.requests.close()


async def test_a_question_that_was_answered_elsewhere_is_taken_back() -> None:
    scene = Scene()
    await scene.begin()
    await scene.follow()
    await answer(scene.journal, "s", "c1_0", Deny("no", "person"), by="bob")
    assert [fact.by for fact in await scene.answers()] == ["bob"]
    await scene.follow()
    assert scene.editor.withdrawn == ["c1_0"]


@pytest.mark.parametrize("kind", ["cancelled", "error"])
async def test_no_answer_leaves_the_question_open(kind: str) -> None:
    scene = Scene("cancelled")
    if kind == "error":
        scene.editor.error = RequestError(-32601, "no such method")
    await scene.begin()
    await scene.follow()
    assert scene.postponed == 1
    assert await scene.answers() == []
    await scene.requests.close()
    # Asked again in the next turn.
    scene.editor.error = None
    scene.editor.option = "allow_once"
    await scene.follow()
    assert len(await scene.answers()) == 1


async def test_a_call_that_a_crash_left_open_has_no_always() -> None:
    scene = Scene()
    (question,) = await scene.begin()
    kinds = [option.kind for option in make_options(replace(question, rule="interrupted"))]
    assert kinds == ["allow_once", "reject_once"]


async def test_an_editor_shows_what_the_call_of_any_tool_would_change() -> None:
    scene = Scene()
    await scene.begin()
    await scene.follow()
    [shown] = scene.editor.shown
    assert "A letter goes to bob.\\n+Dear Bob" in str(shown.content)
    await scene.requests.close()
    await scene.agent.aclose()
