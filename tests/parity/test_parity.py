"""The traces of Qwen-Agent, played again: equal where it is right, better where it is not.

Each trace in `traces` was recorded from the real package against a scripted server; the same
script is played here by a `FaultServer` to the real agent, over HTTP.
"""

import json
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from windlass.agent.agent import Agent
from windlass.core.events import AttemptFailed, CallJudged, Event, InvalidCall, TextDelta
from windlass.core.limits import Limits
from windlass.core.messages import (
    ContentPart,
    ImagePart,
    TextPart,
    ToolResult,
    ToolResults,
    ToolSpec,
)
from windlass.core.moves import ClearedCall
from windlass.core.result import FailedByModel, RunResult
from windlass.core.setup import LoopPolicy, RetryPolicy
from windlass.journals.memory import MemoryJournal
from windlass.models.http.model import HttpModel
from windlass.models.options import ModelOptions, ToolProtocol
from windlass.models.qwen.qwen_messages import to_qwen_messages
from windlass.models.resolve import resolve_model
from windlass.models.text_protocols.text_calls import TextCalls
from windlass.models.vendors import ChatQuirks
from windlass.ports import CallContext
from windlass.testing import RecordingTools
from windlass.testing.chat_wire import DONE, chat_chunk, finish_chunk, sse_event
from windlass.testing.fault_server import FaultServer
from windlass.testing.wire import WireAct, WireAnswer, WireReset, stream_answer
from windlass.tools.schemas import object_schema

TRACES = Path(__file__).with_name("traces")
NATIVE_EQUAL = [
    "01_fncall_native_example",
    "05_parallel_native_example",
    "11_agent_native_parallel",
    "20_thinking_native",
    "30_image_tool_native",
    "40_multimodal_native",
]
TEXT_EQUAL = [
    "02_fncall_nous_example",
    "06_parallel_nous_example",
    "11_agent_nous_parallel",
    "12_agent_nous_multistep",
    "19_nous_compact_json",
    "23_nous_escaped_json",
    "21_thinking_nous_field",
    "22_thinking_nous_inline",
    "35_mcp_nous",
]
LABELLED_EQUAL = ["03b_fncall_qwen", "07c_parallel_qwen", "07d_multistep_qwen"]
PROTOCOLS: dict[str, ToolProtocol] = {"nous": "text", "qwen": "qwen"}
NAMES = {"30_image_tool_native": "AI painting"}
SEED = 1234
Trace = dict[str, Any]


def load(name: str) -> Trace:
    return json.loads((TRACES / f"{name}.json").read_text("utf-8"))


def played(script: Mapping[str, Any]) -> WireAnswer:
    """One reply of the script, as the server streamed it."""
    acts: list[WireAct] = [chat_chunk(delta) for delta in script["deltas"]]
    if script.get("drop"):
        return stream_answer(*acts, WireReset())
    if script.get("no_done"):
        return stream_answer(*acts)
    acts.append(finish_chunk(script["finish"]))
    if script.get("usage"):
        acts.append(sse_event({"id": "chatcmpl-1", "choices": [], "usage": script["usage"]}))
    return stream_answer(*acts, DONE)


def specs_of(trace: Trace) -> tuple[ToolSpec, ...]:
    """The tools on offer: in the body, or in the system prompt."""
    body = trace["requests"][0]["body"]
    if "tools" in body:
        told = body["tools"]
    elif "\u273fFUNCTION\u273f" in body["messages"][0]["content"]:
        return specs_of(load("19_nous_compact_json"))
    else:
        block = body["messages"][0]["content"].split("<tools>\n")[1].split("\n</tools>")[0]
        told = [json.loads(line) for line in block.split("\n")]
    functions = [tool["function"] for tool in told]
    return tuple(
        ToolSpec(one["name"], one["description"], parameters(one["parameters"]))
        for one in functions
    )


def parameters(told: Any) -> dict[str, Any]:
    return object_schema(told, "tool") if isinstance(told, list) else told


def returns_of(trace: Trace) -> dict[tuple[str, str], tuple[ContentPart, ...]]:
    """What each call returned, by name and arguments."""
    messages = trace["final_messages"] or []
    calls = [message["function_call"] for message in messages if "function_call" in message]
    results = [message["content"] for message in messages if message["role"] == "function"]
    return {
        (call["name"], spaced(call["arguments"])): parts_of(content)
        for call, content in zip(calls, results, strict=True)
    }


def spaced(arguments: str) -> str:
    """The arguments as Qwen-Agent writes them; a call may have them in another form."""
    try:
        return json.dumps(json.loads(arguments), ensure_ascii=False)
    except ValueError:
        return arguments


def parts_of(content: str | list[dict[str, str]]) -> tuple[ContentPart, ...]:
    if isinstance(content, str):
        return (TextPart(content),)
    return tuple(
        TextPart(item["text"]) if "text" in item else picture(item["image"]) for item in content
    )


def picture(url: str) -> ImagePart:
    kind, data = url.removeprefix("data:").split(";base64,")
    return ImagePart(kind, b64decode(data))


def prompt_of(trace: Trace) -> tuple[ContentPart, ...]:
    asked = next(
        message["content"]
        for message in trace["requests"][0]["body"]["messages"]
        if message["role"] == "user"
    )
    if isinstance(asked, str):
        return (TextPart(asked),)
    # The words before the picture are Qwen-Agent's own.
    return (picture(asked[1]["image_url"]["url"]), TextPart(asked[2]["text"]))


def instructions_of(trace: Trace) -> str:
    first = trace["requests"][0]["body"]["messages"][0]
    return first["content"].split("# Tools")[0].rstrip() if first["role"] == "system" else ""


@dataclass
class Played:
    """What came of a trace."""

    server: FaultServer
    tools: RecordingTools
    result: RunResult[Any]
    events: list[Event]
    error: FailedByModel | None = None

    @property
    def requests(self) -> list[list[dict[str, Any]]]:
        return [asked.json["messages"] for asked in self.server.requests]

    @property
    def results(self) -> list[ToolResult]:
        return [
            item.result
            for message in self.result.messages
            if isinstance(message, ToolResults)
            for item in message.items
        ]


WEATHER = {
    arguments: content
    for (_, arguments), content in returns_of(load("06_parallel_nous_example")).items()
}


def behaviour(trace: Trace) -> Callable[[ClearedCall, CallContext], ToolResult]:
    known = {arguments: content for (_, arguments), content in returns_of(trace).items()}

    def behave(cleared: ClearedCall, context: CallContext) -> ToolResult:
        text = spaced(cleared.call.arguments)
        return ToolResult("value", known.get(text) or WEATHER[text])

    return behave


async def play(
    trace: Trace,
    *,
    tool: Any = None,
    model: Callable[[str], HttpModel] | None = None,
    watched: bool = False,
    **more: Any,
) -> Played:
    config = trace["llm_cfg"]["generate_cfg"]
    protocol = PROTOCOLS.get(config.get("fncall_prompt_type"), "native")
    options = ModelOptions(seed=SEED, tool_protocol=protocol)
    rules = LoopPolicy(parallel_tool_calls=config.get("parallel_function_calls", False))
    if protocol == "qwen":
        more["rules"] = rules
    specs = specs_of(trace)
    tools = RecordingTools({spec.name: tool or behaviour(trace) for spec in specs}, specs=specs)
    events: list[Event] = []
    async with FaultServer(*map(played, trace["server_script"])) as server:
        agent = Agent(
            model(server.url) if model else "openai-compatible:scripted-model",
            base_url=None if model else server.url,
            options=None if model else options,
            tools=tools,
            instructions=instructions_of(trace),
            **more,
        )
        error = None
        try:
            result = await agent.run(
                prompt_of(trace), session="s", on_event=events.append if watched else None
            )
        except FailedByModel as failed:
            error, result = failed, failed.result
    return Played(server, tools, result, events, error)


def expected(trace: Trace) -> list[dict[str, Any]]:
    return [without_empty_extra(message) for message in trace["final_messages"]]


def without_empty_extra(message: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in message.items() if key != "extra" or value}


def listed(trace: Trace, result: RunResult[Any]) -> list[dict[str, Any]]:
    """The message list. The examples keep the prompt, and write results without an id."""
    example = trace["case"].endswith("_example")
    messages = to_qwen_messages(result, name=NAMES.get(trace["case"], ""), prompt=example)
    if example:
        for message in messages:
            if message["role"] == "function":
                del message["extra"]
    return messages


@pytest.mark.parametrize("name", [*NATIVE_EQUAL, *TEXT_EQUAL])
async def test_equal_the_message_list(name: str) -> None:
    """P2, P4, L9: the same messages, in the same order, with the same ids."""
    trace = load(name)
    run = await play(trace)
    assert run.result.outcome == "completed"
    assert listed(trace, run.result) == expected(trace)
    assert len(run.server.requests) == len(trace["requests"])
    assert run.server.answers_left == 0


@pytest.mark.parametrize("name", TEXT_EQUAL)
async def test_equal_the_request_texts_byte_for_byte(name: str) -> None:
    """P4: system prompt, calls and results are the words that these models know."""
    trace = load(name)
    run = await play(trace)
    recorded = [request["body"]["messages"] for request in trace["requests"]]
    assert [texts(messages) for messages in run.requests] == [texts(one) for one in recorded]
    bodies = [asked.json for asked in run.server.requests]
    assert not any("tools" in body for body in bodies)
    assert {body["seed"] for body in bodies} == {SEED}


@pytest.mark.parametrize("name", LABELLED_EQUAL)
async def test_equal_the_labelled_sections(name: str) -> None:
    """P4: the same messages, and the same words in the same order.

    Qwen-Agent appends calls and results to the prompt of the user, and takes them out again when
    the run has ended. Here they are turns of their own, so that the encoded history only grows.
    """
    trace = load(name)
    run = await play(trace)
    found = [without(message, "extra") for message in listed(trace, run.result)]
    assert found == [without(message, "extra") for message in trace["final_messages"]]
    for ours, theirs in zip(run.requests, trace["requests"], strict=True):
        recorded = theirs["body"]["messages"]
        assert ours[0]["content"] == recorded[0]["content"]
        words = "".join(message["content"] for message in ours[1:])
        assert without_layout(words) == without_layout(recorded[1]["content"])
        assert ours[-1]["content"].endswith(recorded[-1]["content"].rpartition("\n")[2])


def without(message: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in message.items() if key != name}


def without_layout(text: str) -> str:
    """The words, without white space and without the colon behind a label that ends a turn."""
    return "".join(text.replace("\u273fRETURN\u273f:", "\u273fRETURN\u273f").split())


def texts(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in messages]


async def test_equal_the_whole_messages_where_thinking_goes_back_in_a_field() -> None:
    """S11."""
    trace = load("21_thinking_nous_field")

    def model(url: str) -> HttpModel:
        made = resolve_model("openai-compatible:scripted-model", base_url=url, environ={})
        made.dialect = TextCalls(ChatQuirks(thinking_back="reasoning_content"), "acme")
        return made

    run = await play(trace, model=model)
    assert run.requests == [request["body"]["messages"] for request in trace["requests"]]


@pytest.mark.parametrize("name", NATIVE_EQUAL)
async def test_a_native_result_names_its_call(name: str) -> None:
    """S9: with `tool_call_id`, without which strict servers refuse the request."""
    trace = load(name)
    run = await play(trace)
    for ours, theirs in zip(run.requests, trace["requests"], strict=True):
        recorded = theirs["body"]["messages"]
        assert calls_in(ours) == calls_in(recorded)
        made = [call["id"] for call in calls_in(ours)]
        named = [message["tool_call_id"] for message in ours if message["role"] == "tool"]
        assert named == made


def calls_in(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [call for message in messages for call in message.get("tool_calls", ())]


async def test_better_13_the_cap_of_steps_is_an_outcome() -> None:
    """L4, L7, L8: Qwen-Agent ends in silence, with a call as the last word."""
    trace = load("13_agent_native_maxcalls")
    rules = LoopPolicy(same_call_note=10)
    run = await play(trace, limits=Limits(steps=4), rules=rules)
    assert (run.result.outcome, run.result.steps) == ("max_steps", 4)
    assert len(run.server.requests) == len(trace["requests"]) == 4
    assert "4 steps" in run.result.reason
    assert listed(trace, run.result) == expected(trace)
    # Without a setting, the circle itself is noticed first.
    circling = await play(trace)
    assert circling.result.outcome == "stuck"


async def test_better_16_cut_arguments_are_told_and_not_run() -> None:
    """R2: Qwen-Agent runs the tool, and shows the model a traceback."""
    run = await play(load("16_agent_native_truncated_args"), watched=True)
    assert run.tools.calls == []
    verdicts = [event.verdict for event in run.events if isinstance(event, CallJudged)]
    assert [v.code for v in verdicts if isinstance(v, InvalidCall)] == ["arguments_truncated"]
    assert [result.kind for result in run.results] == ["invalid"]
    assert "Traceback" not in run.results[0].text
    assert run.result.outcome == "completed"


async def test_better_18_text_after_a_call_is_kept() -> None:
    """P4, L9: Qwen-Agent drops it from the list and from the next request."""
    run = await play(load("18_nous_tail_text_dropped"))
    said = [message.get("content") for message in to_qwen_messages(run.result)]
    assert said[:3] == ["Before. ", "", "\nAFTER TEXT"]
    own = run.requests[1][2]["content"]
    assert own.startswith("Before. \n<tool_call>\n")
    assert own.endswith("\n</tool_call>\nAFTER TEXT")


async def test_better_19c_a_call_without_a_name_is_told_with_what_was_written() -> None:
    """T7, R3: Qwen-Agent looks for a tool named "", and loses what the model wrote."""
    run = await play(load("19c_nous_no_name"))
    assert run.tools.calls == []
    assert run.results[0].kind == "invalid"
    assert "There is no tool ''" in run.results[0].text
    assert "not json at all" in run.requests[1][2]["content"]
    assert run.result.outcome == "completed"


async def test_better_28_a_call_without_arguments_runs() -> None:
    """R3: Qwen-Agent crashes on it."""
    run = await play(load("28_native_null_args"), tool="done")
    assert [(ran.name, ran.arguments) for ran in run.tools.calls] == [("boom", {})]
    assert run.result.text == "It is 72 F in San Francisco."


async def test_better_29_two_calls_with_one_id_are_two_calls() -> None:
    """S9: Qwen-Agent glues names and arguments together."""
    run = await play(load("29_native_same_id_twice"))
    assert [ran.arguments for ran in run.tools.calls] == [
        {"location": "San Francisco, CA"},
        {"location": "Tokyo"},
    ]
    ids = [call["id"] for call in calls_in(run.requests[1])]
    assert len(set(ids)) == 2
    assert ids == [m["tool_call_id"] for m in run.requests[1] if m["role"] == "tool"]


async def test_better_62_after_a_drop_nobody_sees_text_twice() -> None:
    """S5, S6: Qwen-Agent asks again behind the watcher's back, whoever saw the first part."""
    trace = load("62_drop_midstream_nous")
    unwatched = await play(trace)
    assert unwatched.result.text == "It is 72 F in San Francisco."
    assert listed(trace, unwatched.result) == expected(trace)
    watched = await play(trace, watched=True, rules=LoopPolicy(on_partial="fail"))
    assert watched.error is not None
    assert watched.result.outcome == "failed"
    assert watched.result.partial_text == "partial answer "
    seen = [event.text for event in watched.events if isinstance(event, TextDelta)]
    assert "".join(seen) == "partial answer "
    again = await play(trace, watched=True)
    assert again.result.text == "It is 72 F in San Francisco."
    assert any(type(event).__name__ == "AttemptDiscarded" for event in again.events)


async def test_better_64_a_stream_without_an_end_is_no_success() -> None:
    """S8: Qwen-Agent takes what came for the answer."""
    journal = MemoryJournal()
    trace = load("64_no_done_raw")
    run = await play(trace, retries=RetryPolicy(attempts_max=1, establish_max=1), journal=journal)
    assert run.error is not None
    assert run.result.outcome == "failed"
    assert run.result.partial_text == "partial answer "
    failed = [fact for fact in await journal.read("s") if isinstance(fact, AttemptFailed)]
    assert [fact.fault.kind for fact in failed] == ["incomplete_stream"]


async def test_better_65_an_empty_reply_is_asked_again_once() -> None:
    """L10: Qwen-Agent asks up to 20 times."""
    trace = load("65_empty_reply")
    trace["server_script"] *= 20
    run = await play(trace)
    assert run.result.outcome == "empty_reply"
    assert len(run.server.requests) == 2


async def test_better_76_interleaved_fragments_reach_their_own_calls() -> None:
    """S9: Qwen-Agent adds all fragments to the last call."""
    run = await play(load("76_raw_interleaved_parallel_deltas"))
    assert [ran.arguments for ran in run.tools.calls] == [
        {"location": "San Francisco, CA"},
        {"location": "Tokyo"},
    ]
    assert [result.kind for result in run.results] == ["value", "value"]


async def test_better_78_a_call_that_a_cancel_left_open_is_answered() -> None:
    """C3, X1: Qwen-Agent sends it on without a result, which strict servers refuse."""
    trace = load("78_native_dangling")
    first = load("01_fncall_native_example")
    specs = specs_of(first)

    def stop(cleared: ClearedCall, context: CallContext) -> str:
        agent.cancel("s")
        return "too late"

    script = [first["server_script"][0], trace["server_script"][0]]
    tools = RecordingTools({spec.name: stop for spec in specs}, specs=specs)
    async with FaultServer(*map(played, script)) as server:
        agent = Agent("openai-compatible:scripted-model", base_url=server.url, tools=tools)
        cancelled = await agent.run(prompt_of(first), session="s")
        result = await agent.run("stop. hello?", session="s")
        await agent.aclose()
    assert (cancelled.outcome, result.outcome) == ("cancelled", "completed")
    messages = server.requests[1].json["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "user"]
    assert calls_in(messages) == calls_in(trace["requests"][0]["body"]["messages"])
    assert messages[2]["tool_call_id"] == "call_a"
    assert messages[3]["content"] == "stop. hello?"


def test_every_trace_is_played() -> None:
    better = {"13", "16", "18", "19c", "28", "29", "62", "64", "65", "76", "78"}
    equal = {name.split("_")[0] for name in [*NATIVE_EQUAL, *TEXT_EQUAL, *LABELLED_EQUAL]}
    assert {path.stem.split("_")[0] for path in TRACES.glob("*.json")} == better | equal
