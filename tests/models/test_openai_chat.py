"""OpenAI chat completions: what goes out, byte for byte, and what is read of what comes in."""

from dataclasses import replace
from typing import Any, ClassVar

import msgspec
import pytest

from windlass.core.errors import ModelError
from windlass.core.events import (
    CallDelta,
    ReplyEnd,
    ReplyPiece,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)
from windlass.core.messages import (
    AssistantMessage,
    CallOutcome,
    ContentPart,
    FilePart,
    ImagePart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    ToolResults,
    ToolSpec,
    Usage,
    UserMessage,
)
from windlass.core.transcript import Transcript
from windlass.core.view import Prompt
from windlass.models.openai.chat import OpenAIChat
from windlass.models.openai.chat_reader import ChatReader
from windlass.models.options import ModelOptions, choose_effort
from windlass.models.vendors import ChatQuirks, load_vendors
from windlass.testing import chat_wire as wire

ME = "acme:big"
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
READ = ToolSpec("read", "Read a file.", SCHEMA)
PNG = ImagePart("image/png", b"\x89PNG")
PDF = FilePart("application/pdf", "a.pdf", b"%PDF")


def user(*parts: ContentPart | str) -> UserMessage:
    return UserMessage(tuple(TextPart(part) if isinstance(part, str) else part for part in parts))


def call(number: int, provider_id: str | None = None, arguments: str = "{}") -> ToolCall:
    return ToolCall(f"c1_{number}", "read", arguments, provider_id)


def asked(
    *calls: ToolCall, text: str = "", thinking: str = "", model: str = ME
) -> AssistantMessage:
    thought = (ThinkingPart(thinking),) if thinking else ()
    said = (TextPart(text),) if text else ()
    return AssistantMessage((*thought, *said, *calls), model)


def results(*pairs: tuple[ToolCall, str | ContentPart]) -> ToolResults:
    def result(content: str | ContentPart) -> ToolResult:
        return ToolResult("value", (TextPart(content) if isinstance(content, str) else content,))

    return ToolResults(tuple(CallOutcome(made, result(content)) for made, content in pairs))


def prompt(*messages: Message, **more: Any) -> Prompt:
    base = Prompt(ME, "", messages or (user("Hi"),), (), "auto", 256)
    return replace(base, **more)


def body(
    ask: Prompt, quirks: ChatQuirks | None = None, options: ModelOptions | None = None
) -> dict[str, Any]:
    dialect = OpenAIChat(quirks or ChatQuirks(), "acme")
    return msgspec.json.decode(dialect.encode_request(ask, "big", options or ModelOptions()).body)


def messages(*said: Message, quirks: ChatQuirks | None = None) -> list[dict[str, Any]]:
    return body(prompt(*said), quirks)["messages"]


def test_a_plain_request() -> None:
    request = OpenAIChat().encode_request(
        prompt(user("Hi"), system="Be brief."), "big", ModelOptions()
    )
    assert request.path == "/chat/completions"
    assert msgspec.json.decode(request.body) == {
        "model": "big",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 256,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
        ],
    }


def test_a_step_with_calls_and_results() -> None:
    first, second = call(0, "call_a", '{"path":"a"}'), call(1, "call_b")
    said = messages(
        user("Go"), asked(first, second, text="On it."), results((first, "A"), (second, "B"))
    )
    assert said[1:] == [
        {
            "role": "assistant",
            "content": "On it.",
            "tool_calls": [
                {
                    "id": "call_a",
                    "type": "function",
                    "function": {"name": "read", "arguments": '{"path":"a"}'},
                },
                {
                    "id": "call_b",
                    "type": "function",
                    "function": {"name": "read", "arguments": "{}"},
                },
            ],
        },
        {"role": "tool", "tool_call_id": "call_a", "content": "A"},
        {"role": "tool", "tool_call_id": "call_b", "content": "B"},
    ]


def test_a_step_of_calls_alone_has_no_content() -> None:
    assert messages(user("Go"), asked(call(0)))[1]["content"] is None
    assert messages(user("Go"), asked(text="Done"))[1] == {"role": "assistant", "content": "Done"}


class TestIds:
    """S9: the provider's own id where it can be used, else ours."""

    def ids(self, *calls: ToolCall, model: str = ME, quirks: ChatQuirks | None = None) -> list[str]:
        said: list[Message] = [user("Go")]
        for made in calls:
            said += [asked(made, model=model), results((made, "x"))]
        sent = messages(*said, quirks=quirks)
        given = [entry["tool_calls"][0]["id"] for entry in sent if "tool_calls" in entry]
        assert given == [entry["tool_call_id"] for entry in sent if entry["role"] == "tool"]
        return given

    def test_the_providers_own(self) -> None:
        assert self.ids(call(0, "call_a"), call(1, "call_b")) == ["call_a", "call_b"]

    def test_ours_when_there_is_none(self) -> None:
        assert self.ids(call(0), call(1, "")) == ["c1_0", "c1_1"]

    def test_ours_when_it_was_used_before(self) -> None:
        assert self.ids(call(0, "call"), call(1, "call")) == ["call", "c1_1"]

    def test_ours_when_another_model_gave_it(self) -> None:
        assert self.ids(call(0, "call_a"), model="other:model") == ["c1_0"]

    def test_one_that_fits_where_the_server_is_strict(self) -> None:
        """Mistral takes nine letters and digits, and nothing else."""
        quirks = load_vendors()["mistral"].quirks
        kept, made, other = self.ids(
            call(0, "abcDEF123"), call(1, "call_long_one"), call(2), quirks=quirks
        )
        assert kept == "abcDEF123"
        assert made != other
        assert all(len(one) == 9 and one.isalnum() for one in (made, other))

    def test_not_a_long_one_for_openai(self) -> None:
        quirks = load_vendors()["openai-chat"].quirks
        (made,) = self.ids(call(0, "x" * 41), quirks=quirks)
        assert len(made) <= 40


class TestThinking:
    """S11: thinking goes back where the server wants it, and to the model that made it."""

    def sent(self, quirks: ChatQuirks, model: str = ME, thinking: str = "hm") -> dict[str, Any]:
        made = call(0)
        return messages(
            user("Go"),
            asked(made, thinking=thinking, model=model),
            results((made, "x")),
            quirks=quirks,
        )[1]

    def test_it_is_left_out(self) -> None:
        assert set(self.sent(ChatQuirks())) == {"role", "content", "tool_calls"}

    def test_deepseek_refuses_a_step_with_calls_without_it(self) -> None:
        quirks = load_vendors()["deepseek"].quirks
        assert self.sent(quirks)["reasoning_content"] == "hm"
        assert self.sent(quirks, thinking="")["reasoning_content"] == ""

    def test_not_to_another_model(self) -> None:
        quirks = load_vendors()["deepseek"].quirks
        assert "reasoning_content" not in self.sent(quirks, model="other:model")

    def test_not_beside_a_plain_answer(self) -> None:
        quirks = load_vendors()["deepseek"].quirks
        said = messages(user("Go"), asked(text="Done", thinking="hm"), quirks=quirks)
        assert said[1] == {"role": "assistant", "content": "Done"}


class TestMedia:
    """P7."""

    DATA_URL = "data:image/png;base64,iVBORw=="

    def test_an_image_in_a_prompt(self) -> None:
        (said,) = messages(user("Look:", PNG, ImagePart("image/png", url="https://x/y.png")))
        assert said["content"] == [
            {"type": "text", "text": "Look:"},
            {"type": "image_url", "image_url": {"url": self.DATA_URL}},
            {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
        ]

    def test_an_image_of_a_tool_follows_as_the_users(self) -> None:
        made = call(0, "call_a")
        said = messages(user("Go"), asked(made), results((made, PNG)))
        assert said[2] == {"role": "tool", "tool_call_id": "call_a", "content": "See below."}
        assert said[3]["role"] == "user"
        assert said[3]["content"] == [
            {"type": "text", "text": "What read (call_a) returned:"},
            {"type": "image_url", "image_url": {"url": self.DATA_URL}},
        ]

    def test_images_of_two_calls_come_after_both_results(self) -> None:
        one, two = call(0), call(1)
        said = messages(user("Go"), asked(one, two), results((one, PNG), (two, PNG)), user("So?"))
        assert [entry["role"] for entry in said[1:]] == [
            "assistant",
            "tool",
            "tool",
            "user",
            "user",
        ]

    def test_an_image_of_a_tool_in_place_where_the_server_takes_it(self) -> None:
        made = call(0)
        said = messages(
            user("Go"), asked(made), results((made, PNG)), quirks=ChatQuirks(tool_images=True)
        )
        assert [part["type"] for part in said[2]["content"]] == ["image_url"]
        assert len(said) == 3

    def test_a_file(self) -> None:
        quirks = ChatQuirks(files=True)
        (said,) = messages(user("Read:", PDF), quirks=quirks)
        assert said["content"][1] == {
            "type": "file",
            "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="},
        }

    def test_plain_text_goes_as_text_everywhere(self) -> None:
        (said,) = messages(user(FilePart("text/plain", "a.txt", b"abc")))
        assert said["content"] == "a.txt:\nabc"

    @pytest.mark.parametrize(
        ("part", "quirks", "named"),
        [
            (PNG, ChatQuirks(images=False), "image"),
            (PDF, ChatQuirks(), "a.pdf"),
            (
                FilePart("application/pdf", "b.pdf", url="https://x/b.pdf"),
                ChatQuirks(files=True),
                "b.pdf",
            ),
        ],
    )
    def test_what_a_server_cannot_take_is_refused_by_name(
        self, part: ContentPart, quirks: ChatQuirks, named: str
    ) -> None:
        with pytest.raises(ModelError, match=named) as caught:
            messages(user("Look:", part), quirks=quirks)
        assert (caught.value.fault.kind, caught.value.fault.retryable) == ("bad_request", False)

    def test_a_result_that_cannot_be_shown_is_told(self) -> None:
        made = call(0)
        quirks = ChatQuirks(images=False)
        said = messages(user("Go"), asked(made), results((made, PNG)), quirks=quirks)
        assert "image/png" in said[2]["content"]
        assert len(said) == 3


class TestUsers:
    def test_words_that_follow_one_another_are_one_message(self) -> None:
        said = messages(user("One"), user('"Two"\n'), asked(text="ok"), user("Three"))
        assert [entry["content"] for entry in said] == ['One\n\n"Two"\n', "ok", "Three"]

    def test_parts_that_follow_one_another_are_one_message(self) -> None:
        (said,) = messages(user(PNG), user("and", PNG))
        assert [part["type"] for part in said["content"]] == ["image_url", "text", "image_url"]

    def test_something_stands_between_results_and_a_user_where_it_must(self) -> None:
        made = call(0)
        note = UserMessage((TextPart("Again?"),), note=True)
        talk = (user("Go"), asked(made), results((made, "x")), note)
        plain = [entry["role"] for entry in messages(*talk)]
        assert plain == ["user", "assistant", "tool", "user"]
        strict = messages(*talk, quirks=load_vendors()["mistral"].quirks)
        assert strict[3:] == [
            {"role": "assistant", "content": "OK."},
            {"role": "user", "content": "Again?"},
        ]


def test_the_history_of_a_step_is_a_prefix_of_the_next() -> None:
    """P5: byte for byte, over text, calls, images, notes and results."""
    dialect = OpenAIChat()
    transcript = Transcript([user("Go")])
    before = b""
    for step in range(1, 30):
        ask = replace(prompt(), messages=transcript, tools=(READ,), system="Be brief.")
        now = dialect.encode_request(ask, "big", ModelOptions()).body
        msgspec.json.decode(now)
        assert now.startswith(before)
        before = now.removesuffix(b"]}")
        made = ToolCall(f"c{step}_0", "read", "{}", "call_0")
        content: str | ContentPart = PNG if step % 5 == 0 else f"result {step}"
        transcript = transcript.append(asked(made, text="é"), results((made, content)))
        if step % 3 == 0:
            transcript = transcript.append(UserMessage((TextPart("note"),), note=True))


class TestTools:
    TOOL: ClassVar = {
        "type": "function",
        "function": {"name": "read", "description": "Read a file.", "parameters": SCHEMA},
    }

    def choice(self, choice: str, quirks: ChatQuirks | None = None) -> Any:
        sent = body(prompt(tools=(READ,), tool_choice=choice), quirks)
        assert sent["tools"] == [self.TOOL]
        return sent.get("tool_choice", "auto")

    def test_the_choice_of_a_tool(self) -> None:
        by_name = {"type": "function", "function": {"name": "read"}}
        assert self.choice("auto") == "auto"
        assert self.choice("none") == "none"
        assert self.choice("required") == "required"
        assert self.choice("read") == by_name
        assert self.choice("required", load_vendors()["mistral"].quirks) == "any"
        assert self.choice("required", load_vendors()["dashscope"].quirks) == "auto"
        assert self.choice("read", ChatQuirks(named_choice=False)) == "required"

    def test_no_tools_no_choice(self) -> None:
        sent = body(prompt(tool_choice="none"))
        assert not {"tools", "tool_choice"} & set(sent)

    def test_a_tool_without_parameters(self) -> None:
        sent = body(prompt(tools=(ToolSpec("now", "The time.", {}),)))
        parameters = sent["tools"][0]["function"]["parameters"]
        assert parameters == {"type": "object", "properties": {}}

    @pytest.mark.parametrize(
        ("when", "alone", "with_tools"),
        [("always", True, True), ("without_tools", True, False), ("never", False, False)],
    )
    def test_an_output_schema(self, when: Any, alone: object, with_tools: object) -> None:
        quirks = ChatQuirks(json_schema=when)
        sent = body(prompt(output_schema=SCHEMA), quirks)
        assert ("response_format" in sent) is alone
        if alone:
            assert sent["response_format"]["json_schema"]["schema"] == SCHEMA
        both = body(prompt(output_schema=SCHEMA, tools=(READ,)), quirks)
        assert ("response_format" in both) is with_tools


class TestOptions:
    def test_what_a_caller_asks_for(self) -> None:
        options = ModelOptions(
            temperature=0.0,
            top_p=0.9,
            seed=7,
            stop=("END",),
            service_tier="flex",
            extra_body={"logit_bias": {"1": 2}, "stream_options": {"chunk": 1}},
            extra_headers={"X-Title": "t"},
        )
        request = OpenAIChat().encode_request(prompt(), "big", options)
        sent = msgspec.json.decode(request.body)
        assert request.headers == {"X-Title": "t"}
        asked_for = {"temperature": 0.0, "top_p": 0.9, "seed": 7, "stop": ["END"]}
        assert asked_for.items() <= sent.items()
        assert (sent["service_tier"], sent["logit_bias"]) == ("flex", {"1": 2})
        assert sent["stream_options"] == {"include_usage": True, "chunk": 1}

    def test_a_server_has_names_of_its_own(self) -> None:
        mistral = body(prompt(), load_vendors()["mistral"].quirks, ModelOptions(seed=7))
        assert mistral["random_seed"] == 7
        assert "stream_options" not in mistral
        openai = body(prompt(system="s"), load_vendors()["openai-chat"].quirks)
        assert openai["max_completion_tokens"] == 256
        assert openai["messages"][0]["role"] == "developer"

    @pytest.mark.parametrize(
        ("vendor", "effort", "sent"),
        [
            ("openai-chat", "high", {"reasoning_effort": "high"}),
            ("openai-chat", "off", {"reasoning_effort": "none"}),
            ("openrouter", "low", {"reasoning": {"effort": "low"}}),
            ("openrouter", "off", {"reasoning": {"enabled": False}}),
            ("dashscope", "medium", {"enable_thinking": True}),
            ("dashscope", "off", {"enable_thinking": False}),
            ("deepseek", "high", {"thinking": {"type": "enabled"}, "reasoning_effort": "high"}),
            ("deepseek", "off", {"thinking": {"type": "disabled"}}),
            (
                "vllm",
                "low",
                {"chat_template_kwargs": {"enable_thinking": True, "reasoning_effort": "low"}},
            ),
            ("llamacpp", "off", {"chat_template_kwargs": {"enable_thinking": False}}),
            ("xai", "off", {}),
        ],
    )
    def test_effort_in_each_servers_words(self, vendor: str, effort: Any, sent: Any) -> None:
        """S14."""
        plain = body(prompt(), load_vendors()[vendor].quirks)
        more = body(prompt(), load_vendors()[vendor].quirks, ModelOptions(effort=effort))
        assert {name: value for name, value in more.items() if name not in plain} == sent

    def test_effort_is_not_sent_where_it_has_no_name(self) -> None:
        assert body(prompt(), ChatQuirks(), ModelOptions(effort="high")) == body(
            prompt(), ChatQuirks()
        )

    @pytest.mark.parametrize(
        ("chars", "tools", "effort"),
        [
            (10, 0, "low"),
            (400, 3, "low"),
            (401, 0, "medium"),
            (10, 4, "medium"),
            (8001, 0, "high"),
            (10, 21, "high"),
        ],
    )
    def test_the_policy(self, chars: int, tools: int, effort: str) -> None:
        """S14: from the length of the prompt and the number of tools; notes do not count."""
        note = UserMessage((TextPart("n" * 9_000),), note=True)
        ask = prompt(user("x" * chars), asked(text="ok"), note, tools=(READ,) * tools)
        assert choose_effort(ask) == effort


def read(*events: bytes) -> list[ReplyPiece]:
    """The pieces of a stream of whole events, as `data:` lines."""
    reader = ChatReader()
    pieces: list[ReplyPiece] = []
    for event in events:
        data = event.removeprefix(b"data: ").removesuffix(b"\n\n")
        pieces += reader.read_event("", data)
    return [*pieces, *reader.finish()]


class TestReader:
    def test_text_and_thinking(self) -> None:
        pieces = read(
            wire.chat_chunk({"role": "assistant", "content": ""}),
            wire.thinking_chunk("hm"),
            wire.text_chunk("Hi"),
            wire.finish_chunk(),
            wire.usage_chunk(),
            wire.DONE,
        )
        assert pieces == [
            ThinkingDelta("hm"),
            TextDelta("Hi"),
            UsageDelta(Usage(input=12, output=5, cache_read=4, reasoning=2)),
            ReplyEnd("end"),
        ]

    def test_both_in_one_chunk(self) -> None:
        chunk = wire.chat_chunk(
            {"content": "a", "reasoning": "b", "tool_calls": [{"index": 0}]}, "stop"
        )
        assert read(chunk) == [ThinkingDelta("b"), TextDelta("a"), CallDelta(0), ReplyEnd("end")]

    def test_a_call_in_fragments(self) -> None:
        pieces = read(*wire.call_chunks("read", '{"a"', ":1}"), wire.finish_chunk("tool_calls"))
        assert pieces == [
            CallDelta(0, "call_1", "read"),
            CallDelta(0, None, None, '{"a"'),
            CallDelta(0, None, None, ":1}"),
            ReplyEnd("calls"),
        ]

    def test_arguments_as_an_object(self) -> None:
        call = {"index": 0, "id": "", "function": {"name": "f", "arguments": {"a": 1}}}
        assert read(wire.chat_chunk({"tool_calls": [call]})) == [CallDelta(0, None, "f", '{"a":1}')]

    def test_a_call_of_the_old_form(self) -> None:
        chunk = wire.chat_chunk(
            {"function_call": {"name": "f", "arguments": "{}"}}, "function_call"
        )
        assert read(chunk) == [CallDelta(0, None, "f", "{}"), ReplyEnd("calls")]

    def test_content_in_parts(self) -> None:
        """Mistral's models think inside of their content."""
        content = [
            {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
            {"type": "text", "text": "Hi"},
            {"type": "reference", "reference_ids": [1]},
        ]
        assert read(wire.chat_chunk({"content": content})) == [ThinkingDelta("hm"), TextDelta("Hi")]

    @pytest.mark.parametrize(
        ("reason", "stop"),
        [
            ("stop", "end"),
            ("tool_calls", "calls"),
            ("function_call", "calls"),
            ("length", "length"),
            ("model_length", "length"),
            ("content_filter", "refusal"),
            ("something_new", "end"),
        ],
    )
    def test_why_it_stopped(self, reason: str, stop: Any) -> None:
        assert read(wire.finish_chunk(reason)) == [ReplyEnd(stop)]

    def test_a_refusal_in_words(self) -> None:
        pieces = read(wire.chat_chunk({"refusal": "I cannot."}), wire.finish_chunk())
        assert pieces == [TextDelta("I cannot."), ReplyEnd("refusal")]

    def test_the_end_is_told_once_and_last(self) -> None:
        """S8."""
        finish = wire.chat_chunk({"content": "a"}, "stop")
        pieces = read(finish, finish, wire.usage_chunk(), wire.DONE, wire.DONE)
        assert [type(piece) for piece in pieces] == [TextDelta, TextDelta, UsageDelta, ReplyEnd]

    def test_the_marker_ends_a_reply_without_a_finish_reason(self) -> None:
        """S8: Snowflake's servers send `[DONE]` and usage, and no reason."""
        pieces = read(wire.text_chunk("a"), wire.usage_chunk(), wire.DONE)
        assert [type(piece) for piece in pieces] == [TextDelta, UsageDelta, ReplyEnd]
        called = read(wire.call_chunk("{}", id="c", name="look"), wire.DONE)
        assert called[-1] == ReplyEnd("calls")

    def test_no_finish_and_no_marker_is_no_end(self) -> None:
        """S8."""
        assert read(wire.text_chunk("a")) == [TextDelta("a")]
        pieces = read(wire.text_chunk("a"), wire.usage_chunk())
        assert [type(piece) for piece in pieces] == [TextDelta, UsageDelta]

    def test_nothing_is_made_of_empty_deltas(self) -> None:
        """S4, E2."""
        null = wire.chat_chunk({"content": None, "reasoning_content": "", "tool_calls": []})
        assert (
            read(wire.text_chunk(""), null, wire.sse_event({}), wire.sse_event({"choices": []}))
            == []
        )

    @pytest.mark.parametrize(
        ("usage", "figures"),
        [
            ({"prompt_tokens": 9, "completion_tokens": 2}, Usage(input=9, output=2)),
            (
                {"prompt_tokens": 9, "completion_tokens": 2, "prompt_cache_hit_tokens": 5},
                Usage(input=9, output=2, cache_read=5),
            ),
            (
                {
                    "prompt_tokens": 9,
                    "completion_tokens": 2,
                    "total_tokens": 18,
                    "completion_tokens_details": {"reasoning_tokens": 7},
                },
                Usage(input=9, output=9, reasoning=7),
            ),
            (
                {
                    "prompt_tokens": 9,
                    "completion_tokens": 2,
                    "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 4},
                    "completion_tokens_details": None,
                },
                Usage(input=9, output=2, cache_read=3, cache_write=4),
            ),
        ],
        ids=["plain", "deepseek", "xai", "openrouter"],
    )
    def test_usage(self, usage: dict[str, Any], figures: Usage) -> None:
        """S12."""
        assert read(wire.sse_event({"choices": [], "usage": usage})) == [UsageDelta(figures)]
        assert read(wire.sse_event({"choices": [], "x_groq": {"usage": usage}})) == [
            UsageDelta(figures)
        ]

    @pytest.mark.parametrize(
        ("event", "data", "kind"),
        [
            ("", {"error": {"message": "no", "code": 502}}, "server"),
            ("", {"error": {"code": 429, "message": "x"}, "choices": []}, "rate_limit"),
            ("error", {"message": "no"}, "server"),
            ("", {"object": "error", "message": "bad", "code": 400}, "bad_request"),
        ],
    )
    def test_an_error_in_the_stream(self, event: str, data: Any, kind: str) -> None:
        with pytest.raises(ModelError) as caught:
            ChatReader().read_event(event, msgspec.json.encode(data))
        assert caught.value.fault.kind == kind

    def test_no_error_is_none(self) -> None:
        assert read(wire.chat_chunk({"content": "a"}, error=None)) == [TextDelta("a")]

    @pytest.mark.parametrize(
        "data",
        [b"{", b"[]", b"nonsense", b'{"choices":[{"delta":{"content":"\xff"}}]}', b'{"choices":1}'],
    )
    def test_what_cannot_be_read_is_malformed(self, data: bytes) -> None:
        with pytest.raises(ModelError) as caught:
            ChatReader().read_event("", data)
        assert caught.value.fault.kind == "malformed_stream"


def test_a_reply_with_one_call_at_most_can_be_asked_for() -> None:
    """P2: unless the server does not know the field."""
    single = prompt(tools=(READ,), parallel_tool_calls=False)
    assert body(single)["parallel_tool_calls"] is False
    assert "parallel_tool_calls" not in body(prompt(tools=(READ,)))
    assert "parallel_tool_calls" not in body(single, ChatQuirks(parallel_choice=False))
