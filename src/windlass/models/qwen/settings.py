"""Reads the `llm_cfg` of Qwen-Agent: which model, which server, which settings.

Invariant: a setting that is not understood is passed on to the server, as Qwen-Agent does, and
never dropped. A kind of model that cannot be reached from here is an error that says what to use
instead.
"""

from collections.abc import Mapping
from typing import Any, cast

from windlass.core.errors import ConfigError
from windlass.core.setup import ModelInfo
from windlass.models.http.model import HttpModel
from windlass.models.options import ModelOptions, ToolProtocol
from windlass.models.resolve import resolve_model

DASHSCOPE_URL = "https://dashscope.aliyuncs.com/compatible-mode/v1"
"""Where Qwen-Agent sends its requests by default."""
_DASHSCOPE_TYPES = frozenset(("qwen_dashscope", "qwenvl_dashscope", "qwenaudio_dashscope"))
_OPENAI_TYPES = frozenset(("oai", "qwenvl_oai", "qwenomni_oai", "qwenaudio_oai"))
_AZURE_TYPES = frozenset(("azure",))
_PROTOCOLS: dict[str, ToolProtocol] = {"nous": "text", "qwen": "qwen"}
# Settings of Qwen-Agent itself, which no server knows. What they do is done by the runtime here.
_OWN_SETTINGS = frozenset(
    (
        "cache_dir",
        "fncall_prompt_type",
        "function_choice",
        "incremental_output",
        "lang",
        "max_input_tokens",
        "max_retries",
        "parallel_function_calls",
        "skip_stopword_postproc",
        "thought_in_content",
        "use_raw_api",
    )
)


def model_from_qwen(
    llm_cfg: Mapping[str, Any], *, environ: Mapping[str, str] | None = None
) -> HttpModel:
    """Return the model that an `llm_cfg` describes, ready for `Agent(model)`.

    Without `fncall_prompt_type` and `use_raw_api`, calls are written as text in the format of
    Hermes, which is the default of Qwen-Agent. Raises ConfigError for a model that runs inside
    of Qwen-Agent's own process.
    """
    name = str(llm_cfg.get("model") or "")
    server = _read_server(llm_cfg)
    provider, url = _choose_provider(llm_cfg, server)
    config = cast("Mapping[str, Any]", llm_cfg.get("generate_cfg") or {})
    key = str(llm_cfg.get("api_key") or "")
    window = config.get("max_input_tokens")
    model_name = f"{provider}:{name}"
    return resolve_model(
        model_name,
        environ=environ,
        key=None if key in {"", "EMPTY"} else key,
        base_url=url or None,
        options=_read_options(config),
        info=ModelInfo(model_name, window=int(window)) if window else None,
    )


def _read_server(llm_cfg: Mapping[str, Any]) -> str:
    names = ("model_server", "base_url", "api_base", "azure_endpoint")
    return next((str(llm_cfg[name]).strip() for name in names if llm_cfg.get(name)), "")


def _choose_provider(llm_cfg: Mapping[str, Any], server: str) -> tuple[str, str]:
    """Return our name of the provider, and its base URL; empty if it has one of its own."""
    kind = str(llm_cfg.get("model_type") or "")
    is_url = server.startswith(("http://", "https://"))
    if kind in _AZURE_TYPES:
        return "azure-chat", server
    if kind in _DASHSCOPE_TYPES or (not kind and not is_url):
        return "dashscope", server if is_url else DASHSCOPE_URL
    if kind in _OPENAI_TYPES or not kind:
        return ("openai-compatible", server) if is_url else ("openai-chat", "")
    raise ConfigError(
        f'model_type="{kind}" runs a model inside of Qwen-Agent. Serve the model (vllm serve, '
        'ollama, llama-server) and use its address, or use "local:PATH.gguf".'
    )


def _read_options(config: Mapping[str, Any]) -> ModelOptions:
    left = {name: value for name, value in config.items() if name not in _OWN_SETTINGS}
    extra = dict(cast("Mapping[str, Any]", left.pop("extra_body", None) or {}))
    stop = left.pop("stop", None) or ()
    return ModelOptions(
        temperature=left.pop("temperature", None),
        top_p=left.pop("top_p", None),
        seed=left.pop("seed", None),
        stop=(stop,) if isinstance(stop, str) else tuple(cast("list[str]", stop)),
        tool_protocol=_choose_protocol(config),
        extra_headers=dict(cast("Mapping[str, str]", left.pop("extra_headers", None) or {})),
        extra_body={**left, **extra},
    )


def _choose_protocol(config: Mapping[str, Any]) -> ToolProtocol:
    if config.get("use_raw_api"):
        return "native"
    name = str(config.get("fncall_prompt_type") or "nous")
    if name not in _PROTOCOLS:
        raise ConfigError(f'fncall_prompt_type="{name}" is not known: use "nous" or "qwen"')
    return _PROTOCOLS[name]
