"""Values in a notebook: they show what one needs, and nothing in them becomes part of the page."""

import asyncio
import sys
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt
from typing_extensions import override

from windlass import (
    Agent,
    AssistantMessage,
    ConfigError,
    StepProposed,
    TextDelta,
    TextPart,
    ToolCall,
    UserMessage,
    tool,
)
from windlass.core.messages import BODY_CHARS_MAX, DisplayCard, render_html, render_markdown
from windlass.core.projection.project import project_events
from windlass.core.result import RunFailed
from windlass.gates import ask
from windlass.journals import MemoryJournal
from windlass.notebook import show
from windlass.notebook.live import run_cards
from windlass.testing import ScriptedModel, VirtualClock, call, drop, fail, say
from windlass.testing.samples import facts_of_every_kind

HOSTILE = "<script>alert(1)</script> ![x](https://evil.example/a.png) ``` [y](javascript:1) \"'&"


class TagReader(HTMLParser):
    """The tags of a page, and whether each is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.tags.add(tag)

    @override
    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def html_of(value: object) -> str:
    return value._repr_html_()  # pyright: ignore[reportAttributeAccessIssue]


def markdown_of(value: object) -> str:
    return value._repr_markdown_()  # pyright: ignore[reportAttributeAccessIssue]


@tool
def lift(tonnes: int) -> str:
    """Lift a load."""
    return f"lifted {tonnes} t"


async def test_an_agent_shows_what_it_is_made_of() -> None:
    """U3: and never its key."""
    key = "sk-" + "a1" * 20
    agent = Agent("openai:gpt-5", key=key, name="clerk", tools=[lift], instructions="Be brief.")
    shown = html_of(agent) + markdown_of(agent) + repr(agent)
    assert all(word in shown for word in ("openai:gpt-5", "clerk", "lift", "Be brief."))
    assert key not in shown


async def test_a_result_shows_how_it_ended_and_what_it_cost() -> None:
    """U3."""
    result = await Agent(ScriptedModel([call("lift", {"tonnes": 2}), "Up."]), tools=[lift]).run("x")
    for shown in (html_of(result), markdown_of(result)):
        assert all(word in shown for word in ("completed", "Up.", "tokens", result.session_id))


async def test_a_question_shows_the_whole_call() -> None:
    """U3."""
    agent = Agent(ScriptedModel([call("lift", {"tonnes": 2})]), tools=[lift], gate=ask())
    result = await agent.run("Lift.")
    assert "May lift run?" in html_of(result.questions[0])
    assert "tonnes" in markdown_of(result.questions[0])
    assert "May lift run?" in html_of(result)


@pytest.mark.parametrize(
    "value",
    [
        UserMessage((TextPart(HOSTILE),)),
        AssistantMessage((TextPart(HOSTILE), ToolCall("c1", HOSTILE, HOSTILE)), HOSTILE),
        StepProposed(AssistantMessage((TextPart(HOSTILE),)), stop="end"),
        TextDelta(HOSTILE),
    ],
    ids=["a prompt", "a reply", "a fact", "a delta"],
)
def test_what_others_wrote_stays_text(value: object) -> None:
    """U3: no script, no picture and no link comes out of a message or an event."""
    page = TagReader(html_of(value))
    assert page.open == []
    assert page.tags <= {"div", "b", "small", "pre", "table", "tr", "td"}
    rendered = MarkdownIt("commonmark").render(markdown_of(value))
    assert TagReader(rendered).tags <= {"p", "strong", "pre", "code", "ul", "li"}


def test_each_fact_shows_itself() -> None:
    """U3."""
    for fact in facts_of_every_kind():
        assert type(fact).__name__ in html_of(fact)
        assert type(fact).__name__ in markdown_of(fact)


def test_a_fence_is_longer_than_those_in_the_text() -> None:
    _, body = render_markdown(DisplayCard("reply", body="````\nx\n````"))
    assert body.startswith("`````text\n")


def test_a_long_text_is_cut() -> None:
    assert len(render_html(DisplayCard("x", body="y" * 10 * BODY_CHARS_MAX))) < 2 * BODY_CHARS_MAX


def test_an_error_that_a_person_can_mend_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """U3: also in a notebook, which asks the error itself."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigError) as raised:
        Agent("openai:gpt-5")
    (line,) = raised.value._render_traceback_()
    assert line.startswith('ConfigError: no key for "openai". Set OPENAI_API_KEY')


async def test_outside_of_a_notebook_the_text_is_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = await show(Agent(ScriptedModel(["Hello."])), "Hi.")
    assert (result.text, capsys.readouterr().out) == ("Hello.", "Hello.\n")


@pytest.mark.parametrize(("said", "ended"), [("y", ["lifted 2 t"]), ("n", ["The person said no."])])
async def test_without_buttons_a_line_of_text_answers(
    said: str, ended: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """U3, G6: and the answer is on record, with who gave it."""
    monkeypatch.setattr("builtins.input", lambda _: said)
    script = [call("lift", {"tonnes": 2}), "Done."]
    journal = MemoryJournal()
    agent = Agent(ScriptedModel(script), tools=[lift], gate=ask(), journal=journal)
    result = await show(agent, "Lift.", session="s", buttons=False)
    told = [
        item.result.text for message in result.messages for item in getattr(message, "items", ())
    ]
    assert result.completed
    assert all(words in text for words, text in zip(ended, told, strict=True))
    assert "notebook" in str(await journal.read("s"))


def test_importing_it_brings_no_notebook_along() -> None:
    assert asyncio.iscoroutinefunction(show)
    assert "ipywidgets" not in sys.modules


@pytest.mark.contract("S6")
async def test_a_failure_is_shown_as_tried_again_only_if_an_attempt_follows(
    clock: VirtualClock,
) -> None:
    """S6: the last failure of a run says that it failed, and no more."""
    journal = MemoryJournal()
    script = [[say("Half"), drop()], [fail("auth", "wrong key")]]
    with ScriptedModel(script) as model, pytest.raises(RunFailed):
        await Agent(model, journal=journal, clock=clock).run("Go.", session="s")
    cards = list(run_cards(project_events(await journal.read("s"), "s")))
    titles = [card.title for card in cards if card.title in ("trying again", "failed")]
    assert titles == ["trying again", "failed", "failed"]  # The last one is the end of the run.


@pytest.mark.contract("S6")
async def test_a_printed_reply_that_broke_off_is_marked_as_taken_back(
    clock: VirtualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    """S6: a terminal cannot take text back, so it says that the reply begins again."""
    with ScriptedModel([[say("Half"), drop()], "Whole."]) as model:
        await show(Agent(model, clock=clock), "Go.")
    assert capsys.readouterr().out == "Half\n[the reply broke off, trying again]\nWhole.\n"
