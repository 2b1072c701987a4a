"""Programs written for Qwen-Agent: their messages, settings and tools are read here."""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from windlass import Agent, ConfigError, FilePart, ImagePart, ModelRetry, TextPart
from windlass.core.messages import AssistantMessage, ThinkingPart, ToolResults, UserMessage
from windlass.core.view import Prompt
from windlass.models import from_qwen_messages, model_from_qwen
from windlass.models.qwen.qwen_messages import convert_message
from windlass.testing import ScriptedModel, call
from windlass.testing.chat_wire import text_answer
from windlass.testing.fault_server import FaultServer
from windlass.testing.prompts import check_prompt
from windlass.tools import adapt_qwen_tool
from windlass.tools.qwen_tools import MEDIA_BYTES_MAX

TRACES = sorted((Path(__file__).parent.parent / "parity" / "traces").glob("*.json"))


def recorded(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text("utf-8")).get("final_messages") or []


LISTS = [pytest.param(recorded(path), id=path.stem) for path in TRACES if recorded(path)]


@pytest.mark.contract("L9")
@pytest.mark.parametrize("messages", LISTS)
def test_a_list_of_qwen_agent_is_read_and_written_back(messages: list[dict[str, Any]]) -> None:
    """L9: the same texts, thoughts, calls and results, byte by byte and in the same order."""
    conversation = from_qwen_messages(messages)
    everything = [*conversation.history]
    if conversation.prompt:
        everything.append(UserMessage(conversation.prompt))
    written = [flat for message in everything for flat in convert_message(message)]
    assert [essence(message) for message in written if not is_made_up(message)] == [
        essence(message) for message in messages if not is_empty(message)
    ]


def essence(message: dict[str, Any]) -> dict[str, Any]:
    found = {key: message[key] for key in ("role", "content") if key in message}
    if called := message.get("function_call"):
        # What no provider would take back: a call without a name, or without arguments.
        found |= {"name": called["name"] or "unnamed", "arguments": called["arguments"] or "{}"}
    return found


def is_empty(message: dict[str, Any]) -> bool:
    spoken = message["content"] or message.get("function_call") or message.get("reasoning_content")
    return message["role"] == "assistant" and not spoken


def is_made_up(message: dict[str, Any]) -> bool:
    return message["role"] == "function" and "has no result" in str(message["content"])


@pytest.mark.parametrize("messages", LISTS)
def test_such_a_conversation_can_go_on(messages: list[dict[str, Any]]) -> None:
    """S9: each call has its result, so that every provider takes the history."""
    conversation = from_qwen_messages([{"role": "user", "content": "Go."}, *messages])
    history = list(conversation.history)
    calls = [part for message in history for part in getattr(message, "calls", ())]
    asked = [*history, UserMessage((TextPart("And now?"),))]
    if all(is_object(call.arguments) for call in calls):
        check_prompt(Prompt("m", "", asked, (), "auto", 256))


def is_object(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except ValueError:
        return False


async def test_a_run_goes_on_with_it() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"text": "What is it?"}, {"image": "https://x.org/a.png"}]},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "Hm.",
            "function_call": {"name": "look", "arguments": '{"at": "door"}'},
            "extra": {"function_id": "call_1"},
        },
        {
            "role": "function",
            "name": "look",
            "content": "A door.",
            "extra": {"function_id": "call_1"},
        },
        {"role": "assistant", "content": "<think>Sure.</think>A door."},
        {"role": "user", "content": "And behind it?"},
    ]
    conversation = from_qwen_messages(messages)
    assert conversation.instructions == "Be brief."
    asked, look, results, answer = conversation.history
    assert isinstance(asked, UserMessage)
    assert isinstance(answer, AssistantMessage)
    assert asked.parts[1] == ImagePart("image/png", url="https://x.org/a.png")
    assert isinstance(look, AssistantMessage)
    assert look.calls[0].provider_id == "call_1"
    assert isinstance(results, ToolResults)
    assert answer.parts == (ThinkingPart("Sure.", "think"), TextPart("A door."))
    model = ScriptedModel(["A garden."])
    result = await Agent(model).run(conversation.prompt, messages=conversation.history)
    assert result.text == "A garden."
    assert len(model.prompts[0].messages) == 5


def test_calls_without_results_get_one_that_says_so() -> None:
    two = [
        {"role": "assistant", "content": "", "function_call": {"name": n, "arguments": "{}"}}
        for n in "ab"
    ]
    result = {"role": "function", "name": "b", "content": "B"}
    conversation = from_qwen_messages([{"role": "user", "content": "x"}, *two, result])
    outcomes = conversation.history[-1]
    assert isinstance(outcomes, ToolResults)
    assert [item.result.kind for item in outcomes.items] == ["unknown", "value"]
    assert conversation.prompt == ()


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ({"role": "tool", "content": "x"}, "no role 'tool'"),
        ({"role": "function", "name": "a", "content": "x"}, "not in the list"),
        ({"role": "user", "content": [{"video": "x"}]}, "holds video"),
        ({"role": "user", "content": [{"image": "pictures/a.png"}]}, "attach"),
        ({"role": "user", "content": [{"image": "data:image/png;base64,?"}]}, "data URL"),
        ({"role": "user", "content": 3}, "neither"),
        (3, "not a message"),
    ],
)
def test_what_cannot_be_read_is_named(message: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"message 1 cannot be read: .*{problem}"):
        from_qwen_messages([{"role": "user", "content": "x"}, message])


def test_files_and_objects_are_read() -> None:
    class Dumped:
        def model_dump(self) -> dict[str, Any]:
            return {"role": "user", "content": [{"text": None, "file": "https://x.org/b.pdf"}]}

    (part,) = from_qwen_messages([Dumped()]).prompt
    assert part == FilePart("application/pdf", "b.pdf", url="https://x.org/b.pdf")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "protocol"),
    [({}, "text"), ({"fncall_prompt_type": "qwen"}, "qwen"), ({"use_raw_api": True}, "native")],
)
async def test_settings_reach_the_server(config: dict[str, Any], protocol: str) -> None:
    """P2: also those that nobody here knows."""
    async with FaultServer(text_answer("Hello.")) as server:
        generate = {"top_p": 0.8, "seed": 7, "stop": ["X"], "repetition_penalty": 1.1, **config}
        llm_cfg = {
            "model": "qwen3-32b",
            "model_server": server.url,
            "api_key": "EMPTY",
            "generate_cfg": {**generate, "max_input_tokens": 9000, "max_retries": 3},
        }
        model = model_from_qwen(llm_cfg, environ={})
        assert (await Agent(model).run("Hello?")).text == "Hello."
        sent = server.requests[0].json
    assert model.info.window == 9000
    assert model.options.tool_protocol == protocol
    assert sent["model"] == "qwen3-32b"
    assert (sent["top_p"], sent["seed"], sent["repetition_penalty"]) == (0.8, 7, 1.1)
    assert (
        not {"max_retries", "max_input_tokens", "fncall_prompt_type", "use_raw_api"} & sent.keys()
    )


@pytest.mark.parametrize(
    ("llm_cfg", "name", "host"),
    [
        (
            {"model": "qwen-max", "api_key": "a-long-key"},
            "dashscope:qwen-max",
            "dashscope.aliyuncs",
        ),
        (
            {"model": "qwen-max", "model_type": "qwen_dashscope", "api_key": "a-long-key"},
            "dashscope:qwen-max",
            "dashscope.aliyuncs",
        ),
        (
            {"model": "m", "model_type": "oai", "base_url": "http://localhost:1/v1"},
            "openai-compatible:m",
            "localhost",
        ),
        (
            {"model": "gpt-5", "model_type": "oai", "api_key": "a-long-key"},
            "openai-chat:gpt-5",
            "openai",
        ),
        (
            {
                "model": "d",
                "model_type": "azure",
                "azure_endpoint": "https://x.openai.azure.com",
                "api_key": "k" * 9,
            },
            "azure-chat:d",
            "azure",
        ),
    ],
)
def test_each_kind_of_model_has_its_provider(llm_cfg: dict[str, Any], name: str, host: str) -> None:
    model = model_from_qwen(llm_cfg, environ={})
    assert model.info.name == name
    assert host in model._endpoint.target.url


def test_a_model_inside_of_qwen_agent_is_refused_with_the_way_out() -> None:
    with pytest.raises(ConfigError, match="vllm serve"):
        model_from_qwen({"model": "m", "model_type": "transformers"}, environ={})
    with pytest.raises(ConfigError, match="nous"):
        model_from_qwen(
            {
                "model": "m",
                "model_server": "http://localhost:1/v1",
                "generate_cfg": {"fncall_prompt_type": "x"},
            },
            environ={},
        )


class Weigh:
    """A tool as programs for Qwen-Agent have them."""

    name = "weigh"
    description = "Weigh a part."
    parameters = [  # noqa: RUF012 - as those classes have them
        {"name": "part", "type": "string", "description": "which part", "required": True},
        {"name": "unit", "type": "string"},
    ]
    seen: str = ""

    def call(self, params: Any, **kwargs: Any) -> Any:
        Weigh.seen = params
        return {"part": json.loads(params)["part"], "weight": "2 t"}


async def test_a_tool_gets_its_arguments_as_text() -> None:
    """T1: with a space behind each separator, and without escapes, as its traces have them."""
    adapted = adapt_qwen_tool(Weigh, effect="read")
    assert adapted.spec.parameters["required"] == ["part"]
    assert adapted.spec.effect == "read"
    arguments = {"part": "Haken für Öl", "unit": "kg"}
    model = ScriptedModel([call("weigh", arguments), "Two tonnes."])
    result = await Agent(model, tools=[adapted]).run("Go")
    assert Weigh.seen == '{"part": "Haken für Öl", "unit": "kg"}'
    results = result.messages[2]
    assert isinstance(results, ToolResults)
    shown = json.loads(results.items[0].result.text)
    assert shown == {"part": "Haken für Öl", "weight": "2 t"}
    assert adapt_qwen_tool(Weigh()).spec.effect == "write"


def test_results_are_text_parts_or_data(tmp_path: Path) -> None:
    """T10: a picture or a file, by address, as a data URL or by its path."""

    class Draw(Weigh):
        @override
        def call(self, params: Any, **kwargs: Any) -> Any:
            return [{"text": "See:"}, {"image": "https://x.org/a.png"}]

    assert adapt_qwen_tool(Draw)(part="x") == [
        TextPart("See:"),
        ImagePart("image/png", url="https://x.org/a.png"),
    ]

    class Item:
        """An item of content as the package has it: each kind is a field, and all but one empty."""

        def __init__(self, **given: str) -> None:
            self.__dict__ = {"text": None, "image": None, "file": None, **given}

    encoded = b64encode(b"\x89PNG").decode()
    (tmp_path / "crane 1.png").write_bytes(b"\x89PNG")
    (tmp_path / "crane.csv").write_text("a,b")

    class Crop(Weigh):
        @override
        def call(self, params: Any, **kwargs: Any) -> Any:
            return [
                Item(image=f"data:image/png;base64,{encoded}"),
                Item(image=str(tmp_path / "crane 1.png")),
                Item(image=(tmp_path / "crane 1.png").as_uri()),
                Item(file=str(tmp_path / "crane.csv")),
                Item(file="https://x.org/a.pdf"),
                Item(text="(cropped)"),
            ]

    picture = ImagePart("image/png", b"\x89PNG")
    assert adapt_qwen_tool(Crop)(part="x") == [
        picture,
        picture,
        picture,
        FilePart("text/csv", "crane.csv", b"a,b"),
        FilePart("application/pdf", "a.pdf", url="https://x.org/a.pdf"),
        TextPart("(cropped)"),
    ]

    class Rows(Weigh):
        @override
        def call(self, params: Any, **kwargs: Any) -> Any:
            return [1, 2]

    assert adapt_qwen_tool(Rows)(part="x") == "[\n    1,\n    2\n]"


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("/nowhere/a.png", "No such file"),
        ("data:image/png;base64,!!", "Base64"),
        ("/dev", "Is a directory"),
        ("big", "larger than"),
    ],
)
def test_a_picture_that_is_not_there_is_told(address: str, problem: str, tmp_path: Path) -> None:
    """T7."""
    if address == "big":
        with (tmp_path / address).open("wb") as file:
            file.truncate(MEDIA_BYTES_MAX + 1)
        address = str(tmp_path / address)

    class Draw(Weigh):
        @override
        def call(self, params: Any, **kwargs: Any) -> Any:
            return [{"image": address}]

    with pytest.raises(ModelRetry, match=problem):
        adapt_qwen_tool(Draw)(part="x")


def test_what_is_not_a_tool_is_refused() -> None:
    with pytest.raises(ConfigError, match="not a tool of Qwen-Agent"):
        adapt_qwen_tool(object())  # pyright: ignore[reportArgumentType]
