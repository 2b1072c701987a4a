"""Small models on a server of their own: their calls are found, kept as written, or forced (P9)."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from windlass.agent.agent import Agent
from windlass.core.events import CallFinished, Event, TextDelta
from windlass.core.messages import AssistantMessage, TextPart, ToolSpec, UserMessage
from windlass.core.view import Prompt
from windlass.models.local import model as local
from windlass.models.options import ModelOptions
from windlass.models.text_protocols.chat_dialects import (
    GrammarFallback,
    build_chat_dialect,
    read_model_size,
)
from windlass.models.text_protocols.grammar_calls import GrammarCalls
from windlass.models.text_protocols.plain_calls import NativeCalls
from windlass.models.text_protocols.text_calls import WordyNativeCalls
from windlass.models.vendors import ChatQuirks, load_vendors
from windlass.testing import RecordingTools
from windlass.testing.chat_wire import call_chunks, chat_answer, text_answer
from windlass.testing.fault_server import FaultServer
from windlass.testing.wire import WireAnswer

PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
EDITS = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "new": {"type": "string"}},
    "required": ["path", "new"],
}
READ = ToolSpec("read", "Read a file.", PATH, "read")
EDIT = ToolSpec("edit", "Edit a file.", EDITS)
READING = '{"name": "read", "arguments": {"path": "calc.py"}}'
EDITING = '{{"name": "edit", "arguments": {"path": "calc.py", "new": "a + b"}}}'


async def run_script(
    *script: WireAnswer, model: str = "llamacpp:large", protocol: Any = None
) -> tuple[Any, RecordingTools, list[dict[str, Any]], list[Event]]:
    """Return the result, the tools, the messages of the last request, and the events."""
    tools = RecordingTools({"read": "return a - b", "edit": "Edited."}, specs=(READ, EDIT))
    events: list[Event] = []
    async with FaultServer(*script) as server:
        agent = Agent(
            model,
            base_url=server.url,
            tools=tools,
            options=ModelOptions(tool_protocol=protocol),
        )
        result = await agent.run("Fix it.", on_event=events.append)
        messages = server.requests[-1].json["messages"]
    return result, tools, messages, events


@pytest.mark.contract("P9")
@pytest.mark.parametrize("protocol", ["native", "text"])
async def test_the_calls_of_a_wordy_model_do_the_work(protocol: str) -> None:
    """P9: a fence first, then doubled braces behind a sentence; the run goes on to its answer."""
    result, tools, messages, events = await run_script(
        text_answer(f"```json\n{READING}\n```"),
        text_answer(f"The bug is clear. I fix it.\n{EDITING}\n```"),
        text_answer("It is fixed."),
        protocol=protocol,
    )
    assert [ran.name for ran in tools.calls] == ["read", "edit"]
    assert result.completed
    assert result.text == "It is fixed."
    assert sum(isinstance(event, CallFinished) for event in events) == 2
    calls = [call for m in result.messages if isinstance(m, AssistantMessage) for call in m.calls]
    assert [call.origin for call in calls] == ["fenced_text", "plain_text"]
    shown = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert shown == "The bug is clear. I fix it.\nIt is fixed."
    # The history is what the model wrote, and the results have the form of its training.
    assert [(message["role"], message["content"]) for message in messages[-4:]] == [
        ("assistant", f"```json\n{READING}\n```"),
        ("user", "<tool_response>\nreturn a - b\n</tool_response>"),
        ("assistant", f"The bug is clear. I fix it.\n{EDITING[1:-1]}"),
        ("user", "<tool_response>\nEdited.\n</tool_response>"),
    ]


async def test_native_calls_stay_native_on_the_same_server() -> None:
    """S9: a model that makes both kinds gets each back as it made it."""
    result, tools, messages, _ = await run_script(
        chat_answer(call_chunks("read", '{"path": "calc.py"}')),
        text_answer(EDITING),
        text_answer("Done."),
    )
    assert result.completed
    assert [ran.name for ran in tools.calls] == ["read", "edit"]
    assert [message["role"] for message in messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]
    assert messages[1]["tool_calls"][0]["id"] == messages[2]["tool_call_id"]


async def test_a_small_model_is_forced_by_default_and_answers_with_a_function() -> None:
    """P9: its name says how small it is; a prompt with tools goes out with a schema."""
    answer = '{"name": "answer", "arguments": {"text": "Fixed."}}'
    result, tools, messages, events = await run_script(
        text_answer(READING), text_answer(answer), model="llamacpp:coder-1.5b"
    )
    assert [ran.name for ran in tools.calls] == ["read"]
    assert result.text == "Fixed."
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Fixed."
    assert '"name": "answer"' in messages[0]["content"]
    assert messages[2:] == [
        {"role": "assistant", "content": READING},
        {"role": "user", "content": "<tool_response>\nreturn a - b\n</tool_response>"},
    ]


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        (ModelOptions(), 0),
        (ModelOptions(temperature=0.7), 0.7),
        (ModelOptions(top_p=0.9), None),
    ],
)
def test_chance_does_not_choose_the_functions_of_a_small_model(
    options: ModelOptions, sent: float | None
) -> None:
    quirks = load_vendors()["llamacpp"].quirks
    dialect = build_chat_dialect(quirks, "llamacpp", model_size=0.5)
    prompt = Prompt("m", "", [UserMessage((TextPart("Hi"),))], (READ,), "auto", 9)
    body = msgspec.json.decode(dialect.encode_request(prompt, "m", options).body)
    assert body.get("temperature") == sent
    alone = dialect.encode_request(replace(prompt, tools=()), "m", ModelOptions())
    assert "temperature" not in msgspec.json.decode(alone.body)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("qwen2.5-coder:1.5b", 1.5),
        ("Qwen2.5-Coder-0.5B-Instruct-Q4_K_M", 0.5),
        ("smollm2:135m", 0.135),
        ("1.5B", 1.5),
        ("qwen3:30b-a3b", 30.0),
        ("gpt-oss:20b", 20.0),
        ("llama3.1", None),
        ("phi3:mini", None),
        ("q4_k_m", None),
        ("build4bits", None),
    ],
)
def test_a_name_says_how_large_a_model_is(name: str, size: float | None) -> None:
    assert read_model_size(name) == size


@pytest.mark.parametrize(
    ("vendor", "size", "protocol", "dialect"),
    [
        ("llamacpp", 1.5, None, GrammarFallback),
        ("llamacpp", 1.5, "native", WordyNativeCalls),
        ("llamacpp", 1.5, "grammar", GrammarCalls),
        ("llamacpp", 7.0, None, WordyNativeCalls),
        ("llamacpp", None, None, WordyNativeCalls),
        ("ollama", 0.5, None, GrammarFallback),
        ("ollama", 8.0, None, WordyNativeCalls),
        ("openrouter", 1.0, None, NativeCalls),
    ],
)
def test_the_default_follows_the_server_and_the_size(
    vendor: str, size: float | None, protocol: Any, dialect: type
) -> None:
    quirks = load_vendors()[vendor].quirks
    assert type(build_chat_dialect(quirks, vendor, protocol, model_size=size)) is dialect


def test_large_models_of_other_servers_are_read_as_before() -> None:
    """P9: words with a call in them stay words where a model may give an example."""
    assert not ChatQuirks().calls_in_words
    assert not load_vendors()["openai-chat"].quirks.calls_in_words


@pytest.mark.parametrize(
    ("name", "label", "size"),
    [("m.gguf", "1.5B", 1.5), ("coder-0.5b-q4.gguf", "", 0.5), ("m-7b.gguf", "large", 7.0)],
)
def test_the_file_says_how_large_a_local_model_is(
    tmp_path: Path, name: str, label: str, size: float
) -> None:
    """P10: its metadata first, then the name of the file."""
    content = b"GGUF\x03\0\0\0"
    if label:
        key = b"general.size_label\x08\0\0\0" + len(label).to_bytes(8, "little")
        content += key + label.encode()
    path = tmp_path / name
    path.write_bytes(content + b"\0" * 64)
    assert local._read_model_size(path) == size
