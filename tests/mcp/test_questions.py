"""Servers that ask a person or a model while a call runs, in both eras and over both transports."""

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mcp_peers import fetch_or_skip, open_servers, serve_port, wait_until
from mcp_servers import node_server
from windlass import Agent, Deny, Hydration, Modify, Question, RunResult, ToolResults
from windlass.core.fold.run import fold
from windlass.core.messages import UserMessage
from windlass.gates.presets import allow_all
from windlass.journals.memory import MemoryJournal
from windlass.testing import ScriptedModel, ScriptedReply, call
from windlass.tools.mcp.extras import resource_references
from windlass.tools.mcp.servers import McpServers

ASKING = Path(__file__).with_name("asking_server.py")


def asking(**more: Any) -> Mapping[str, Any]:
    return {"command": sys.executable, "args": [str(ASKING)], **more}


async def run(
    servers: McpServers, *script: ScriptedReply, **options: Any
) -> tuple[RunResult[Any], list[str]]:
    """Return the result of a run, and what its calls returned."""
    agent = Agent(ScriptedModel([*script, "Done."]), tools=await servers.tools(), **options)
    result = await agent.run("Go.", session="s")
    await agent.aclose()
    assert result.completed, result.reason
    steps = [one for one in result.messages if isinstance(one, ToolResults)]
    return result, [item.result.text for step in steps for item in step.items]


class Person:
    """Allows every call, and answers what servers ask in the middle of one."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.asked: list[Question] = []

    async def __call__(self, question: Question) -> Any:
        if not question.is_live:
            return True
        self.asked.append(question)
        return self.answer


@pytest.mark.contract("T15")
async def test_a_person_fills_in_a_form() -> None:
    """What they leave out has its default, the words are the server's, and others say no."""
    answers = [
        (Modify({"city": "Oslo"}, "so"), "accept: city='Oslo' nights=2 seat='aisle'", "answered"),
        (Modify({"city": "Oslo", "nights": 90}, "so"), "cancel: None", "the answer does not fit"),
        (Modify({"city": "Oslo", "age": 9}, "so"), "cancel: None", "has no field 'age'"),
        (True, "cancel: None", "the answer does not fit"),
        (Deny("no"), "decline: None", "declined"),
        (None, "cancel: None", "nobody answered"),
    ]
    async with open_servers(trips=asking()) as servers:
        for answer, told, note in answers:
            person = Person(answer)
            _, (text,) = await run(servers, call("trips__book"), approver=person)
            assert text.startswith(told), answer
            assert note in text, answer
            (question,) = person.asked
            assert "MCP server 'trips' asks during trips__book: Where to" in question.question
            assert question.arguments == {"nights": 2, "seat": "aisle"}
            assert question.form is not None
            assert list(question.form["properties"]) == ["city", "nights", "seat"]
        _, (text,) = await run(servers, call("trips__book"))
        assert text.startswith("cancel: None")
        _, (text,) = await run(servers, call("trips__sign_in"), approver=(person := Person(True)))
        assert "asks for a secret" in text
        assert person.asked == []


@pytest.mark.contract("T15")
async def test_a_question_ends_with_its_call() -> None:
    """T8: the time-out of the call holds for a person too, who is no longer asked after it."""
    ended = asyncio.Event()

    async def never(question: Question) -> Any:
        if not question.is_live:
            return True
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with open_servers(trips=asking(tools={"book": {"timeout": 1}})) as servers:
        _, (text,) = await run(servers, call("trips__book"), approver=never)
    assert "timed out after 1 s" in text
    assert ended.is_set()


@pytest.mark.contract("T15")
async def test_a_server_has_a_model_write() -> None:
    """Only if the gate or the person allows it; the run pays."""
    journal = MemoryJournal()
    write = call("trips__write", {"topic": "cranes"})
    async with open_servers(trips=asking(sampling=True)) as servers:
        person = Person(Deny("not for this"))
        _, (text,) = await run(servers, write, approver=person)
        assert "not for this" in text
        (question,) = person.asked
        assert question.arguments == {
            "server": "trips",
            "prompt": "Write about cranes.",
            "instructions": "Be brief.",
            "max_tokens": 100,
        }
        assert "MCP server 'trips' asks for it" in question.question
        _, (text,) = await run(servers, write)
        assert "nobody could be asked" in text
        result, (text,) = await run(servers, write, "They lift.", gate=allow_all(), journal=journal)
    assert text.startswith("scripted:model wrote: They lift.")
    nested = fold("s/c1_0.model1", await journal.read("s/c1_0.model1"))
    assert [charge.purpose for charge in result.ledger.charges] == ["main", "subagent"]
    assert nested.ledger.usage == result.ledger.charges[1].usage


@pytest.mark.contract("T15")
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_an_older_server_asks_in_the_middle_of_a_call(port: int, transport: str) -> None:
    node, program = fetch_or_skip(node_server, "server-everything")
    if transport == "stdio":
        settings = {"command": node, "args": [program, "stdio"], "sampling": True}
        await check_older(settings)
        return
    with serve_port(node, program, "streamableHttp", port=port, PORT=str(port)):
        settings = {"type": "http", "url": f"http://127.0.0.1:{port}/mcp", "sampling": True}
        await check_older(settings)


async def check_older(settings: Mapping[str, Any]) -> None:
    person = Person(Modify({"name": "Ada"}, "so"))
    async with open_servers(every=settings) as servers:
        form = call("every__trigger-elicitation-request")
        _, (text,) = await run(servers, form, approver=person)
        assert "Name: Ada" in text
        assert '"untitledMultipleSelectEnum": [\n      "Guitar"' in text
        person = Person(True)
        address = call("every__trigger-url-elicitation", {"url": "https://example.com/x"})
        _, (text,) = await run(servers, address, approver=person)
        assert "User completed" in text
        (question,) = person.asked
        assert question.form is None
        assert question.arguments["host"] == "example.com"
        assert "does not open it" in question.question
        ask_model = call("every__trigger-sampling-request", {"prompt": "cranes", "maxTokens": 9})
        _, (text,) = await run(servers, ask_model, "They lift.", approver=person)
        assert "They lift." in text


@pytest.mark.contract("T15")
async def test_questions_of_two_people_are_kept_apart(port: int) -> None:
    """Over HTTP it is known which call asks, and so which person is to be asked."""
    node, program = fetch_or_skip(node_server, "server-everything")
    with serve_port(node, program, "streamableHttp", port=port, PORT=str(port)):
        settings = {"type": "http", "url": f"http://127.0.0.1:{port}/mcp"}
        async with open_servers(every=settings) as servers:
            tools = await servers.tools()
            agents = [
                Agent(
                    ScriptedModel([call("every__trigger-elicitation-request"), "Done."]),
                    tools=tools,
                    approver=Person(Modify({"name": name}, "so")),
                )
                for name in ("Ada", "Grace")
            ]
            results = await asyncio.gather(*(agent.run("Go.") for agent in agents))
    for name, result in zip(("Ada", "Grace"), results, strict=True):
        assert f"Name: {name}" in str(result.messages)


@pytest.mark.contract("T15")
async def test_a_changed_list_is_announced_and_counts_from_the_next_list_on() -> None:
    async with open_servers(trips=asking()) as servers:
        tools = await servers.tools()
        await asyncio.sleep(0.2)
        assert not servers.has_changed
        _, (text,) = await run(servers, call("trips__grow"), gate=allow_all())
        assert text == "grown"
        await wait_until(lambda: servers.has_changed)
        assert "trips__grown" not in [tool.name for tool in tools]
        assert "trips__grown" in [tool.name for tool in await servers.tools()]
        assert not servers.has_changed


@pytest.mark.contract("T15")
async def test_an_older_server_is_told_the_folders_to_work_in(tmp_path: Path) -> None:
    """T15: only what the settings name, and nothing without them."""
    node, program = fetch_or_skip(node_server, "server-everything")
    settings: dict[str, Any] = {"command": node, "args": [program, "stdio"]}
    async with open_servers(every={**settings, "roots": [str(tmp_path / "my work")]}) as servers:
        _, (text,) = await run(servers, call("every__get-roots-list"), gate=allow_all())
    assert (tmp_path / "my work").as_uri() in text
    async with open_servers(every=settings) as servers:
        assert "every__get-roots-list" not in [tool.name for tool in await servers.tools()]


@pytest.mark.contract("X4")
async def test_a_prompt_names_a_resource_of_a_server() -> None:
    """X4: it is read before the first step, by a call that the gate judges; its text is foreign."""
    node, program = fetch_or_skip(node_server, "server-everything")
    settings = {"command": node, "args": [program, "stdio"]}
    async with open_servers(every=settings) as servers:
        tools = await servers.tools()
        references = resource_references(tools)
        model = ScriptedModel(["Done."])
        agent = Agent(
            model,
            tools=tools,
            hydration=Hydration(references=references),
            gate=allow_all(),
        )
        await agent.run("Sum up @every:demo://resource/dynamic/text/1, and no@every:x.")
        await agent.aclose()
    (block,) = model.prompts[0].messages[1:]
    shown = block.text if isinstance(block, UserMessage) else ""
    assert "demo://resource/dynamic/text/1" in shown
    assert "Resource 1" in shown
    assert [reference.tool for reference in references] == ["every__read_resource"]
    assert "untrusted" in next(t for t in tools if t.name == "every__read_resource").spec.labels
