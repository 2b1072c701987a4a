"""What a caller gets wrong is refused when it is said, with a sentence that helps."""

import copy
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from windlass import (
    Agent,
    Allow,
    Budget,
    Compaction,
    ConfigError,
    Hydration,
    ImagePart,
    Limits,
    LoopPolicy,
    ModelOptions,
    NothingToDo,
    Price,
    Question,
    RetryPolicy,
    SessionLimits,
    TextPart,
    Timeouts,
    UserMessage,
    answer,
    tool,
)
from windlass.core.errors import ForOperator
from windlass.environ import read_environment
from windlass.journals import (
    MemoryJournal,
    SqliteJournal,
    export_session,
    fork,
    open_journal,
)
from windlass.testing import ScriptedModel, VirtualClock, call
from windlass.tools import RunContext, Toolbox

UNTYPED: Any = Agent
"""For calls that a type checker refuses: users need not have one."""


@tool
def send(to: str) -> str:
    """Send something."""
    return f"sent to {to}"


def approve_all(question: Question) -> bool:
    return question.tool == "send"


def deny_all(_: Question) -> bool:
    return False


async def approve_later(question: Question) -> bool:
    return approve_all(question)


@pytest.mark.contract("U1")
async def test_resuming_a_session_that_does_not_exist_names_near_ones(tmp_path: Path) -> None:
    """U1: a typo is no session without an open run."""
    with SqliteJournal(tmp_path / "j.db") as journal:
        agent = Agent(ScriptedModel(["Hello."]), journal=journal)
        await agent.run("Hi.", session="invoices-2026")
        with pytest.raises(NothingToDo, match=r"no session 'invoice-2026'.*invoices-2026"):
            await agent.resume("invoice-2026")
        with pytest.raises(NothingToDo, match="no open run"):
            await agent.resume("invoices-2026")
        with pytest.raises(NothingToDo, match="no session"):
            await agent.abandon("invoice-2026")


@pytest.mark.parametrize("session", ["", " ", 7, b"s"], ids=repr)
async def test_the_name_of_a_session_is_a_text(session: Any) -> None:
    agent = Agent(ScriptedModel(["Hello."]))
    with pytest.raises(ConfigError, match="name"):
        await agent.run("Hi.", session=session)
    with pytest.raises(ConfigError, match="name"):
        await agent.resume(session)
    with pytest.raises(ConfigError, match="name"):
        await agent.steer(session, "Hurry.")
    with pytest.raises(ConfigError, match="name"):
        agent.watch(session)
    with pytest.raises(ConfigError, match="name"):
        agent.cancel(session)
    with pytest.raises(ConfigError, match="name"):
        await agent.answer(session, "c1_0", Allow())
    journal = MemoryJournal()
    with pytest.raises(ConfigError, match="name"):
        await answer(journal, session, "c1_0", Allow())
    with pytest.raises(ConfigError, match="name"):
        await fork(journal, session, 1)
    with pytest.raises(ConfigError, match="name"):
        await export_session(journal, session, lambda _: None)


@pytest.mark.contract("U1")
async def test_each_way_to_a_session_that_does_not_exist_names_near_ones() -> None:
    """U1: nothing is silently watched, steered, answered or copied."""
    journal = MemoryJournal()
    agent = Agent(ScriptedModel(["Hello."]), journal=journal)
    await agent.run("Hi.", session="invoices-2026")
    typo = "invoice-2026"
    near = r"no session 'invoice-2026'.*Did you mean invoices-2026\?"

    async def watch() -> None:
        async for _ in agent.watch(typo):
            pass

    ways: list[Callable[[], Awaitable[object]]] = [
        watch,
        lambda: agent.steer(typo, "Hurry."),
        lambda: agent.answer(typo, "c1_0", Allow()),
        lambda: answer(journal, typo, "c1_0", Allow()),
        lambda: fork(journal, typo, 1),
        lambda: export_session(journal, typo, lambda _: None),
    ]
    for way in ways:
        with pytest.raises(ForOperator, match=near):
            await way()
    with pytest.raises(ConfigError, match="name"):
        await fork(journal, "invoices-2026", 1, "")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_an_env_file_is_read_in_the_encodings_that_can_be_told(
    tmp_path: Path, encoding: str
) -> None:
    (tmp_path / ".env").write_text("TRIED_API_KEY=käse\n", encoding)
    assert read_environment(tmp_path)["TRIED_API_KEY"] == "käse"


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16-le"])
def test_an_env_file_that_cannot_be_read_is_refused_and_not_ignored(
    tmp_path: Path, encoding: str
) -> None:
    (tmp_path / ".env").write_text("WINDLASS_TRIED=käse\n", encoding)
    with pytest.raises(ConfigError, match="save it as UTF-8"):
        read_environment(tmp_path)


@pytest.mark.contract("D10")
async def test_a_journal_may_be_named(tmp_path: Path) -> None:
    """D10: by a path or a URL; closing the agent closes it."""
    path = tmp_path / "x.db"
    agent = Agent(ScriptedModel(["Hello."]), journal=str(path))
    await agent.run("Hi.", session="s")
    await agent.aclose()
    with SqliteJournal(path) as journal:
        assert [one.session for one in await journal.sessions()] == ["s"]
    assert isinstance(open_journal("memory:"), MemoryJournal)
    assert not (tmp_path / "memory:").exists()


@pytest.mark.parametrize("name", ["", "mysql://db/x", "no/such/folder/x.db"])
def test_a_name_of_no_journal_explains_itself(name: str) -> None:
    with pytest.raises(ConfigError, match="journal="):
        Agent(ScriptedModel([]), journal=name)


@pytest.mark.parametrize(
    ("option", "right"),
    [
        ("system_prompt", "instructions"),
        ("max_usd", "usd"),
        ("journl", "journal"),
        ("deps_type", "Toolbox"),
        ("message_history", "messages"),
    ],
)
async def test_an_option_that_does_not_exist_is_named_as_it_is_called_here(
    option: str, right: str
) -> None:
    with pytest.raises(ConfigError, match=f"Did you mean .*{right}"):
        UNTYPED(ScriptedModel([]), **{option: "x"})
    with pytest.raises(ConfigError, match=f"no option '{option}'"):
        await UNTYPED(ScriptedModel(["Hello."])).run("Hi.", **{option: "x"})


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("tool", "Write @tool above the function, and Agent(model, tools=[function])"),
        ("system_prompt", "Write Agent(model, instructions=function)"),
        ("run_stream", "Write async with agent.stream(prompt) as events"),
        ("invoke", "Write agent.run_sync(prompt)"),
    ],
)
def test_a_method_of_another_library_says_what_to_write_here(name: str, right: str) -> None:
    """U6."""
    agent: Any = Agent(ScriptedModel([]))
    with pytest.raises(AttributeError) as raised:
        getattr(agent, name)
    assert str(raised.value) == f"'Agent' object has no attribute {name!r}. {right}"


async def test_attributes_of_results_and_streams_elsewhere_say_what_to_write_here() -> None:
    """U6. An attribute that no library has is missing as usual."""
    async with Agent(ScriptedModel(["Hello."])).stream("Hi.") as events:
        stream: Any = events
        with pytest.raises(AttributeError, match=r"Write events\.text\(\)"):
            _ = stream.stream_text
    result: Any = events.result
    with pytest.raises(AttributeError, match=r"has no attribute 'data'\. Write result\.output"):
        _ = result.data
    assert not hasattr(result, "nothing")
    assert copy.copy(result) == result


async def test_a_prompt_may_be_a_list_of_strings_and_parts() -> None:
    """U6."""
    image = ImagePart("image/png", b"png")
    with ScriptedModel(["A crane."]) as model:
        await Agent(model).run(["What is this?", image])
    assert [*model.prompts[0].messages] == [UserMessage((TextPart("What is this?"), image))]


@pytest.mark.parametrize(
    ("settings", "argument", "right"),
    [
        (Limits, "max_usd", "usd"),
        (SessionLimits, "token", "tokens"),
        (Budget, "max_tokens", "tokens"),
        (LoopPolicy, "reads_at_once", "reads_at_once_max"),
        (RetryPolicy, "attempt_max", "attempts_max"),
        (Compaction, "windw", "window"),
        (Hydration, "reference", "references"),
        (Timeouts, "first_bytes_s", "first_byte_s"),
        (ModelOptions, "temprature", "temperature"),
        (Price, "inputs", "input"),
    ],
)
def test_a_setting_that_does_not_exist_is_named_as_it_is_called_here(
    settings: Any, argument: str, right: str
) -> None:
    with pytest.raises(TypeError, match=f"{settings.__name__}.*{argument}.*Did you mean .*{right}"):
        settings(**{argument: 1})


async def test_a_stream_that_is_not_entered_explains_itself() -> None:
    stream: Any = Agent(ScriptedModel([])).stream("Hi.")
    with pytest.raises(TypeError, match="async with"):
        async for _ in stream:
            pass
    with pytest.raises(TypeError, match="async with"):
        await stream


@dataclass
class Shop:
    name: str


@tool(effect="read")
def shop_name(context: RunContext[Shop]) -> str:
    """Return the name of the shop."""
    return context.deps.name


def test_deps_are_checked_before_a_run() -> None:
    for tools in ([shop_name], Toolbox([shop_name], deps="shop")):
        with pytest.raises(ConfigError, match="'shop_name' needs deps of type Shop"):
            Agent(ScriptedModel([]), tools=tools)
    Agent(ScriptedModel([]), tools=Toolbox([shop_name], deps=Shop("Corner")))


@pytest.mark.parametrize(
    ("approver", "result"),
    [
        (approve_all, "sent to me"),
        (approve_later, "sent to me"),
        (deny_all, "the approver said no"),
    ],
)
@pytest.mark.contract("G6")
async def test_an_approver_may_be_plain_and_may_answer_with_a_bool(
    approver: Callable[[Question], bool], result: str
) -> None:
    """G6: it never denies in silence."""
    with ScriptedModel([call("send", {"to": "me"}), "Done."]) as model:
        agent = Agent(model, tools=[send], approver=approver)
        ended = await agent.run("Send it.")
    assert ended.completed
    assert result in str(ended.messages)


async def test_an_approver_that_returns_something_else_is_logged(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    approver: Any = lambda _: "yes"  # noqa: E731
    with ScriptedModel([call("send", {"to": "me"}), "Done."]) as model:
        await Agent(model, tools=[send], approver=approver).run("Send it.")
    assert "the approver returned a str" in caplog.text
