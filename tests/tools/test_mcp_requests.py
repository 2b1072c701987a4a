"""What MCP servers may ask for, without a server: which call asks, and which forms are shown."""

import asyncio
import contextvars
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from windlass.core.errors import ConfigError
from windlass.core.question import Question
from windlass.core.schema import JsonSchema
from windlass.core.verdicts import Allow, Modify
from windlass.ports import CallContext, ModelRequest, WrittenReply
from windlass.tools.function import Tool
from windlass.tools.mcp.config import McpStdio, mcp_settings
from windlass.tools.mcp.extras import _READ_RESOURCE_TOOL, resource_references
from windlass.tools.mcp.forms import FormRefused, complete_values, default_values, read_form
from windlass.tools.mcp.server_requests import QUESTIONS_MAX, ServerRequests
from windlass.tools.run_context import RunContext

needs_sdk = pytest.mark.skipif(find_spec("mcp_types") is None, reason="the extra is not installed")
SETTINGS = McpStdio(name="notes", command="notes")
TEXT = {"type": "string"}


def form(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.contract("T15")
@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "array"}, "must be an object"),
        ({"type": "object"}, "must be an object"),
        (form(inner={"type": "object", "properties": {}}), "'inner' is not text"),
        (form(inner={"type": "array"}), "'inner' is not text"),
        (form(inner={"type": "array", "items": form()}), "'inner' is not text"),
        (form(inner=True), "not described"),
        (form(**{f"f{at}": TEXT for at in range(31)}), "at most 30 fields"),
        (form(**{"x" * 101: TEXT}), "at most 100 characters"),
        (form(password=TEXT), "asks for a secret"),
        (form(api_key=TEXT), "asks for a secret"),
        (form(field={**TEXT, "title": "Your Passphrase"}), "asks for a secret"),
        (form(field={**TEXT, "format": "password"}), "asks for a secret"),
        (form(field={**TEXT, "title": "PIN"}), "asks for a secret"),
        (form(field={"type": "string", "minLength": "x"}), "not a valid schema"),
    ],
)
def test_a_form_that_nobody_may_be_shown(schema: dict[str, Any], reason: str) -> None:
    with pytest.raises(FormRefused, match=reason):
        read_form(schema)


def test_a_form_takes_plain_values_with_their_defaults() -> None:
    """T15: as the protocol of 2025-11-25 has them, with titles and choices of several."""
    named = [{"const": "a", "title": "One"}, {"const": "b", "title": "Two"}]
    shown = read_form(
        {
            **form(
                name=TEXT,
                age={"type": "integer", "minimum": 1, "default": 30},
                score={"type": "number", "default": 9.5},
                agreed={"type": "boolean", "default": False},
                pet={"type": "string", "enum": ["cat"], "enumNames": ["Cats"], "default": "cat"},
                one={"type": "string", "oneOf": named},
                more={"type": "array", "items": {"anyOf": named}, "default": ["a"]},
                shipping_token_count={"type": "integer"},
            ),
            "required": ["name"],
        }
    )
    defaults = {"age": 30, "score": 9.5, "agreed": False, "pet": "cat", "more": ["a"]}
    assert default_values(shown) == defaults
    assert complete_values(shown, {"name": "Ada", "age": 3}) == {
        **defaults,
        "name": "Ada",
        "age": 3,
    }
    for wrong in ({}, {"name": 1}, {"name": "Ada", "age": 0}, {"name": "Ada", "more": ["c"]}):
        with pytest.raises(FormRefused):
            complete_values(shown, wrong)
    assert isinstance(shown, JsonSchema)


class Run:
    """A run that a call belongs to: it records who is asked, and gives its answers."""

    def __init__(self, session: str, answer: Any = None) -> None:
        self.answer = answer
        self.asked: list[Question] = []
        self.requests: list[ModelRequest] = []
        self.context = RunContext(
            deps=None,
            session_id=session,
            call_id="c1",
            tool_name="notes__add",
            call=CallContext(
                session,
                1,
                report=lambda _: None,
                on_late_result=lambda _: None,
                ask_person=self.ask_person,
                ask_model=self.ask_model,
            ),
        )

    async def ask_person(self, question: Question) -> Any:
        self.asked.append(question)
        if self.answer == "never":
            await asyncio.Event().wait()
        return self.answer

    async def ask_model(self, request: ModelRequest) -> WrittenReply:
        self.requests.append(request)
        return WrittenReply("A line.", "some:model")


async def ask_for_name(requests: ServerRequests) -> Any:
    from mcp_types import ElicitRequestFormParams  # noqa: PLC0415 - of the extra

    params = ElicitRequestFormParams(message="Who?\x1b[2J", requested_schema=form(name=TEXT))
    return await requests.elicit(None, params)  # type: ignore[arg-type]


async def ask_for_reply(requests: ServerRequests, *texts: str, **more: Any) -> Any:
    from mcp_types import (  # noqa: PLC0415 - of the extra
        CreateMessageRequestParams,
        SamplingMessage,
        TextContent,
    )

    messages = [SamplingMessage(role="user", content=TextContent(text=text)) for text in texts]
    params = CreateMessageRequestParams(messages=messages, max_tokens=9_999, **more)
    return await requests.sample(None, params)  # type: ignore[arg-type]


@needs_sdk
@pytest.mark.contract("T15")
async def test_a_server_asks_only_the_person_whose_call_runs() -> None:
    """If two sessions have calls there, and the transport does not say which asks, nobody is."""
    requests = ServerRequests(SETTINGS)
    ada, grace = (Run(name, Modify({"name": name}, "so")) for name in ("ada", "grace"))
    assert (await ask_for_name(requests)).action == "cancel"

    async def ask_elsewhere() -> Any:
        # A message that comes over a shared pipe has the context of the connection.
        return await ask_for_name(requests)

    def start_elsewhere() -> "asyncio.Task[Any]":
        return asyncio.create_task(ask_elsewhere(), context=outside)

    outside = contextvars.copy_context()
    with requests.open_call(ada.context):
        assert (await start_elsewhere()).content == {"name": "ada"}
        with requests.open_call(grace.context):
            assert (await start_elsewhere()).action == "cancel"
            assert (await ask_for_name(requests)).content == {"name": "grace"}
        with requests.open_call(Run("ada", Allow()).context):
            assert (await start_elsewhere()).action == "accept"
    assert (await ask_for_name(requests)).action == "cancel"
    assert [len(run.asked) for run in (ada, grace)] == [1, 1]
    assert "\x1b" not in ada.asked[0].question


@needs_sdk
async def test_a_question_ends_with_the_call() -> None:
    """C2: the answer to the server is a cancel, and its own task is not cancelled for it."""
    requests = ServerRequests(SETTINGS)
    run = Run("s", "never")
    with requests.open_call(run.context):
        asking = asyncio.create_task(ask_for_name(requests))
        while not run.asked:  # noqa: ASYNC110 - a few turns of the loop
            await asyncio.sleep(0)
    assert (await asking).action == "cancel"


@needs_sdk
async def test_a_server_asks_only_so_often() -> None:
    """L1: a server cannot keep a person busy for as long as it likes."""
    requests = ServerRequests(SETTINGS)
    run = Run("s", Allow())
    with requests.open_call(run.context):
        answers = [await ask_for_name(requests) for _ in range(QUESTIONS_MAX + 1)]
    assert [answer.action for answer in answers[-2:]] == ["accept", "cancel"]
    assert len(run.asked) == QUESTIONS_MAX


@needs_sdk
@pytest.mark.contract("T15")
async def test_an_address_is_shown_as_the_network_spells_it() -> None:
    from mcp_types import ElicitRequestURLParams  # noqa: PLC0415 - of the extra

    requests = ServerRequests(SETTINGS)
    run = Run("s", Allow())
    addresses = {
        "https://ex\u0430mple.com/x": "xn--exmple-4nf.com",
        "javascript:alert(1)": None,
        "file:///etc/passwd": None,
        "https:///x": None,
        "https://a.example/\x1b": None,
    }
    with requests.open_call(run.context):
        for address, host in addresses.items():
            run.asked.clear()
            params = ElicitRequestURLParams(message="Sign in.", url=address, elicitation_id="1")
            answer: Any = await requests.elicit(None, params)  # type: ignore[arg-type]
            shown = [question.arguments["host"] for question in run.asked]
            assert shown == ([] if host is None else [host])
            assert (getattr(answer, "action", None) == "accept") == (host is not None)


@needs_sdk
@pytest.mark.contract("T15")
async def test_a_model_reads_only_so_much_for_a_server() -> None:
    """Text only, of a bounded length, without tools; the same words twice are told apart."""
    from mcp_types import Tool  # noqa: PLC0415 - of the extra

    requests = ServerRequests(SETTINGS)
    run = Run("s")
    with requests.open_call(run.context):
        for _ in range(2):
            assert (await ask_for_reply(requests, "Hi.", "There.")).content.text == "A line."
        assert "more than" in (await ask_for_reply(requests, "x" * 100_001)).message
        assert "text" in (await ask_for_reply(requests)).message
        wanted = [Tool(name="t", input_schema={"type": "object"})]
        assert "no tools" in (await ask_for_reply(requests, "Hi.", tools=wanted)).message
    assert [one.occurrence for one in run.requests] == [1, 2]
    assert run.requests[0].arguments == {
        "server": "notes",
        "prompt": "user: Hi.\n\nuser: There.",
        "max_tokens": 4_096,
    }


def test_only_what_is_set_is_offered_to_a_server() -> None:
    """T15: a person can be asked by default, and a model only if the settings say so."""
    offered = ServerRequests(SETTINGS).client_options()
    assert ("elicitation_callback" in offered, "sampling_callback" in offered) == (True, False)
    other = McpStdio(name="notes", command="notes", elicitation=False, sampling=True)
    offered = ServerRequests(other).client_options()
    assert ("elicitation_callback" in offered, "sampling_callback" in offered) == (False, True)


def test_a_prompt_refers_to_resources_by_server_and_address() -> None:
    """X4: not within a word or an address of mail, and without the end of a sentence."""

    def make(name: str, schema: dict[str, Any]) -> Tool[..., Any]:
        return Tool[..., Any].from_schema(name, "Read.", schema, lambda **_: "", effect="read")

    schema = _READ_RESOURCE_TOOL.input_schema
    others = {"type": "object", "properties": {"page": {"type": "string"}}}
    tools = [
        make("notes__read_resource_2f", schema),
        make("notes__read_resource", others),
        make("notes__list_resources", others),
    ]
    (reference,) = resource_references(tools)
    assert (reference.tool, reference.argument) == ("notes__read_resource_2f", "uri")
    prompt = "See @notes:note://one, (@notes:a/b) me@notes:mail @other:x @notes:; @notes:last."
    assert re.findall(reference.pattern, prompt) == ["note://one", "a/b", "last"]


def test_roots_of_an_entry_are_its_folders() -> None:
    """T15."""
    (read,) = mcp_settings({"mcpServers": {"a": {"command": "x", "roots": ["~/work", "b"]}}}, {})
    assert read.roots == (Path("~/work"), Path("b"))
    with pytest.raises(ConfigError, match="roots"):
        mcp_settings({"mcpServers": {"a": {"command": "x", "roots": "work"}}}, {})
