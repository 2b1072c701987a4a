"""From a name to a model: what is wrong is said at once, with the fix (P1, P3)."""

import pickle
from typing import Any

import msgspec
import pytest

from windlass.core.errors import ConfigError
from windlass.core.messages import TextPart, UserMessage
from windlass.core.secrets.mask import Secret
from windlass.core.setup import ModelInfo
from windlass.core.view import Prompt
from windlass.models.options import ModelOptions
from windlass.models.resolve import resolve_model, split_model_name
from windlass.models.vendors import load_vendors
from windlass.testing.chat_wire import text_answer
from windlass.testing.fault_server import FaultServer, ReceivedRequest

KEY = "sk-test-0123456789abcdef"
CLOUD_PLACES = {
    "HOME": "/nowhere",
    "AWS_REGION": "us-east-1",
    "AZURE_OPENAI_ENDPOINT": "https://x.openai.azure.com",
    "GOOGLE_CLOUD_PROJECT": "p",
}
"""Where the models of clouds are; their credentials are not here."""
PROMPT = Prompt("", "", [UserMessage((TextPart("Hi"),))], (), "auto", 256)


def config_error(name: str, environ: dict[str, str] | None = None, **more: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        resolve_model(name, environ=environ or {}, **more)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("openai:gpt-5", ("openai", "gpt-5")),
        ("openai/gpt-5", ("openai", "gpt-5")),
        ("ollama:llama3:8b", ("ollama", "llama3:8b")),
        ("openrouter:anthropic/claude-x", ("openrouter", "anthropic/claude-x")),
        ("openrouter/anthropic/claude-x:beta", ("openrouter", "anthropic/claude-x:beta")),
        (" groq:x ", ("groq", "x")),
    ],
)
def test_a_name_is_split_at_the_first_mark(name: str, parts: tuple[str, str]) -> None:
    """P1."""
    assert split_model_name(name) == parts


@pytest.mark.parametrize("name", ["gpt-5", "", ":gpt-5", "openai:", "openai: gpt"])
def test_a_name_without_provider_or_model_is_refused(name: str) -> None:
    assert "provider:model" in config_error(name)


@pytest.mark.contract("P2")
@pytest.mark.parametrize(
    ("name", "cap"),
    [
        ("openai-chat:m", "max_completion_tokens"),
        ("groq:m", "max_completion_tokens"),
        ("mistral:m", "max_tokens"),
        ("deepseek:m", "max_tokens"),
        ("ollama:m", "max_tokens"),
    ],
)
def test_each_server_of_chat_completions_is_spoken_to_in_its_own_way(name: str, cap: str) -> None:
    """How they differ is data of the vendor, and it reaches the request."""
    dialect = resolve_model(name, environ={}, key=KEY).dialect
    body = msgspec.json.decode(dialect.encode_request(PROMPT, "m", ModelOptions()).body)
    caps = {"max_tokens", "max_completion_tokens"}
    assert {field: body[field] for field in caps & body.keys()} == {cap: PROMPT.output_max}


def test_an_unknown_provider_is_refused_with_a_near_one() -> None:
    """P1."""
    message = config_error("opnai:gpt-5")
    assert "Did you mean openai" in message
    assert "openai-compatible" in message


@pytest.mark.parametrize(
    "name", [name for name, vendor in load_vendors().items() if not vendor.keyless]
)
def test_a_missing_key_names_the_variable(name: str) -> None:
    """P3."""
    variable = load_vendors()[name].key_env
    assert variable is not None
    place = CLOUD_PLACES if load_vendors()[name].cloud else {}
    assert variable in config_error(f"{name}:m", place)
    with_key = {variable: KEY, **place}
    assert resolve_model(f"{name}:m", environ=with_key).info == ModelInfo(f"{name}:m")
    assert resolve_model(f"{name}:m", key=KEY, environ=place).info.name == f"{name}:m"


@pytest.mark.parametrize(
    "name", [name for name, vendor in load_vendors().items() if vendor.keyless]
)
def test_a_local_server_needs_no_key(name: str) -> None:
    assert resolve_model(f"{name}:m", base_url="http://localhost:1/v1", environ={})


def test_no_vendor_is_missing() -> None:
    """P2."""
    wanted = "openai anthropic google openrouter groq together mistral deepseek dashscope xai"
    local = "ollama vllm llamacpp lmstudio openai-compatible"
    assert {*wanted.split(), *local.split()} <= set(load_vendors())
    for vendor in load_vendors().values():
        assert vendor.url == vendor.url.rstrip("/")


def test_any_server_needs_its_address() -> None:
    assert "base_url" in config_error("openai-compatible:m")


@pytest.mark.parametrize("url", ["localhost:8000/v1", "ftp://x/v1", "https://", "/v1"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    assert "https://host/v1" in config_error("openai-compatible:m", base_url=url)


def test_an_address_of_the_environment_is_named_by_its_variable() -> None:
    message = config_error("openai:m", {"OPENAI_BASE_URL": "nowhere"}, key=KEY)
    assert "OPENAI_BASE_URL" in message


async def ask(model: str, server: FaultServer, **more: Any) -> ReceivedRequest:
    more.setdefault("base_url", server.url)
    more.setdefault("environ", {})
    async for _ in resolve_model(model, **more).stream(PROMPT):
        pass
    return server.requests[-1]


async def test_the_argument_goes_before_the_variable() -> None:
    """P3."""
    environ = {"GROQ_API_KEY": " from-the-environment\n"}
    async with FaultServer(always=text_answer("hi")) as server:
        asked = await ask("groq:m", server, key="from-the-argument", environ=environ)
        assert asked.headers["authorization"] == "Bearer from-the-argument"
        asked = await ask("groq:m", server, key=Secret("a-secret"), environ=environ)
        assert asked.headers["authorization"] == "Bearer a-secret"
        asked = await ask("groq:m", server, environ=environ)
        assert asked.headers["authorization"] == "Bearer from-the-environment"
        asked = await ask("ollama:m", server, environ=environ)
        assert "authorization" not in asked.headers


async def test_the_address_may_be_given_with_its_path() -> None:
    async with FaultServer(always=text_answer("hi")) as server:
        for url in (server.url, f"{server.url}/", f"{server.url}/chat/completions"):
            asked = await ask("vllm:m", server, base_url=url)
            assert asked.path == "/v1/chat/completions"
        asked = await ask("vllm:m", server, base_url=None, environ={"VLLM_BASE_URL": server.url})
        assert asked.json["model"] == "m"


async def test_a_vendor_may_want_headers_of_its_own() -> None:
    async with FaultServer(always=text_answer("hi")) as server:
        asked = await ask("llamacpp:m", server)
        assert asked.headers["connection"] == "close"
        asked = await ask("vllm:m", server, options=ModelOptions(extra_headers={"X-A": "b"}))
        assert asked.headers["x-a"] == "b"
        assert "connection" not in asked.headers


async def test_the_policy_chooses_an_effort_where_the_model_takes_one() -> None:
    """S14."""
    async with FaultServer(always=text_answer("hi")) as server:
        asked = await ask("openai-chat:gpt-5", server)
        assert asked.json["reasoning_effort"] == "low"
        asked = await ask("openai-chat:gpt-5", server, options=ModelOptions(effort="high"))
        assert asked.json["reasoning_effort"] == "high"
        asked = await ask("openai-chat:gpt-4o", server)
        assert "reasoning_effort" not in asked.json


@pytest.mark.parametrize("key", ["sk-abc def\ndef", "sk-“quoted”", "sk-\x00"])
def test_a_key_that_can_be_none_is_refused_and_not_shown(key: str) -> None:
    """P3."""
    message = config_error("openai:m", {"OPENAI_API_KEY": key})
    assert "OPENAI_API_KEY" in message
    assert "sk-" not in message


def test_a_secret_does_not_show_itself() -> None:
    """P3."""
    secret = Secret(KEY)
    model = resolve_model("openai:gpt-5", key=secret, environ={})
    shown = f"{secret} {secret!r} {model!r} {model._endpoint!r} {vars(model)}"
    assert KEY not in shown
    assert secret.reveal() == KEY
    assert (secret, bool(secret), bool(Secret(""))) == (Secret(KEY), True, False)
    assert hash(secret) == hash(Secret(KEY))
    with pytest.raises(TypeError):
        pickle.dumps(secret)


def test_an_address_with_a_password_is_not_shown() -> None:
    model = resolve_model("openai-compatible:m", base_url="https://a:hunter2@host/v1", environ={})
    assert "hunter2" not in repr(model)
