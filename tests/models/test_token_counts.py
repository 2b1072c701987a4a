"""Token counts: by the provider where it counts, near enough where it does not."""

from typing import Any

import pytest

from windlass import FilePart, ModelError, TextPart, ToolSpec
from windlass.core.messages import AssistantMessage, UserMessage
from windlass.models import count_tokens, estimate_text_tokens, resolve_model
from windlass.testing import ScriptedModel
from windlass.testing.fault_server import FaultServer
from windlass.testing.wire import hang_up, refuse_with, stall

LOOK = ToolSpec("look", "Look at a place.", {"type": "object", "properties": {}})
PLACE = {
    "AWS_REGION": "eu-west-1",
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "a-secret-key-of-aws",
    "HOME": "/nowhere",
}
COUNTED: dict[str, tuple[str, dict[str, Any], str]] = {
    "anthropic:claude-sonnet-4-5": ("/v1/messages/count_tokens", {"input_tokens": 42}, "messages"),
    "google:gemini-2.5-pro": (
        "/v1/models/gemini-2.5-pro:countTokens",
        {"totalTokens": 42},
        "generateContentRequest",
    ),
    "openai:gpt-5": ("/v1/responses/input_tokens", {"input_tokens": 42}, "input"),
    "bedrock:anthropic.claude-x-v1:0": (
        "/v1/model/anthropic.claude-x-v1%3A0/count-tokens",
        {"inputTokens": 42},
        "input",
    ),
    "vllm:m": ("/tokenize", {"count": 42}, "messages"),
    "llamacpp:m": ("/tokenize", {"tokens": [0] * 42}, "content"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COUNTED)
async def test_a_provider_that_counts_is_asked(name: str) -> None:
    """X6: with the whole request, and without paying for a reply."""
    path, answer, field = COUNTED[name]
    async with FaultServer(always=refuse_with(200, answer)) as server:
        key = None if name.startswith("bedrock") else "a-key-of-the-provider"
        model = resolve_model(name, environ=PLACE, base_url=server.url, key=key)
        count = await count_tokens(model, "Hello?", instructions="Be brief.", tools=[LOOK])
        (asked,) = server.requests
    assert (count.tokens, count.is_exact) == (42, True)
    assert asked.path == path
    assert field in asked.json
    assert not {"stream", "max_tokens", "max_output_tokens"} & asked.json.keys()
    assert "Hello?" in asked.body.decode()


@pytest.mark.slow
async def test_a_server_without_the_endpoint_is_estimated() -> None:
    """X6."""
    async with FaultServer(always=refuse_with(404, {"error": {"message": "no"}})) as server:
        model = resolve_model("vllm:m", environ={}, base_url=server.url)
        count = await count_tokens(model, "Hello there.")
    assert not count.is_exact
    assert 1 <= count.tokens <= 6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "kind"), [(refuse_with(503), "server"), (hang_up(stall()), "network")]
)
async def test_a_provider_that_fails_is_an_error(answer: Any, kind: str) -> None:
    """S2: and never hangs."""
    async with FaultServer(always=answer) as server:
        model = resolve_model("vllm:m", environ={}, base_url=server.url)
        with pytest.raises(ModelError) as raised:
            await count_tokens(model, "Hello there.")
    assert raised.value.fault.kind == kind


async def test_a_conversation_and_its_tools_count() -> None:
    model = ScriptedModel([])
    alone = await count_tokens(model, [TextPart("Hello there.")])
    asked = UserMessage((TextPart("Hello there."),))
    longer = await count_tokens(
        model, [asked, AssistantMessage((TextPart("I am well, thank you."),), "m")], tools=[LOOK]
    )
    assert longer.tokens > alone.tokens > 0
    picture = FilePart("application/pdf", "a.pdf", b"%PDF" * 1000)
    assert (await count_tokens(model, [picture])).tokens <= 1


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        # As counted by the tokenizers of four families; the range is theirs, and a third more.
        ("The crane at the harbour lifts up to forty tonnes.", (9, 18)),
        ("Der Kran am Hafen hebt bis zu vierzig Tonnen.", (9, 20)),
        ("港口的起重机最多能吊起四十吨。", (9, 24)),
        ("Кран в порту поднимает до сорока тонн.", (8, 26)),
        ('{"id":"a81f-0042","tonnes":12.5,"ok":true}', (15, 38)),
        ("", (0, 0)),
        ("\n\n", (1, 1)),
    ],
)
def test_an_estimate_is_near(text: str, tokens: tuple[int, int]) -> None:
    """X6: within the range of real tokenizers, in several scripts."""
    assert tokens[0] <= estimate_text_tokens(text) <= tokens[1]
