"""Turns a name such as `openai:gpt-5` into a model that can be asked.

The law: every mistake that can be found without a request is reported here, when the model is made,
in one line with the fix. The modules below get what they need from the environment passed
in; none of them reads it.
"""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from windlass.core.errors import ConfigError
from windlass.core.secrets.secret import Secret
from windlass.core.setup import ModelInfo, Price
from windlass.core.suggestions import suggest_names
from windlass.environ import read_environment
from windlass.models.anthropic.messages import AnthropicMessages
from windlass.models.dialect import Dialect
from windlass.models.gemini.generate import GeminiDialect
from windlass.models.http.errors import RequestTarget, mask_keys
from windlass.models.http.model import HttpModel, ModelEndpoint
from windlass.models.http.post import find_proxy
from windlass.models.local.model import build_local_model, parse_local_name
from windlass.models.openai.responses import OpenAIResponses
from windlass.models.options import ModelOptions, ToolProtocol
from windlass.models.prices import build_model_info
from windlass.models.text_protocols.chat_dialects import build_chat_dialect, read_model_size
from windlass.models.vendors import VendorConfig, load_vendors
from windlass.ports import Timeouts

_ENDPOINT_PATHS = re.compile(r"/(?:chat/completions|completions|responses|messages)/?$")
_LOCAL_WITH_URL = (
    '"local" starts a server of its own and takes no base_url=. '
    'For a server that is already running, use "llamacpp:MODEL".'
)
_OTHER_SERVERS_HINT = (
    "For any other server with a chat completions API, "
    'use "openai-compatible:MODEL" with base_url=.'
)


def resolve_model(
    name: str,
    *,
    environ: Mapping[str, str] | None = None,
    key: str | Secret | None = None,
    base_url: str | None = None,
    options: ModelOptions | None = None,
    timeouts: Timeouts | None = None,
    info: ModelInfo | None = None,
    price: Price | None = None,
) -> HttpModel:
    """Return the model of a name: `provider:model`, `provider/model` or `local:PATH.gguf`.

    Keys, base URLs and proxies are looked up in `environ`, by default the environment of this
    process and the file `.env`; `key` and `base_url` win over it. `info` replaces everything that
    is known of the model, `price` only its price. Nothing is sent.

    Raises ConfigError if the name, the key, the URL or an option is wrong.
    """
    environ = read_environment() if environ is None else environ
    options = options or ModelOptions()
    if (local_name := parse_local_name(name)) is not None:
        if base_url:
            raise ConfigError(_LOCAL_WITH_URL)
        return build_local_model(
            local_name, environ=environ, options=options, timeouts=timeouts, info=info
        )
    provider, model = split_model_name(name)
    vendor = _find_vendor(name, provider)
    info = info or build_model_info(provider, model, price=price, tier=options.service_tier)
    url = _choose_base_url(provider, vendor, base_url, environ)
    target = RequestTarget(
        vendor=provider, url=url, model=model, key_env=vendor.key_env, hint=vendor.hint
    )
    endpoint = _build_endpoint(target, vendor, key, environ, timeouts or Timeouts())
    takes_effort = any(fnmatchcase(model, pattern) for pattern in vendor.reasons)
    dialect = _build_dialect(provider, model, vendor, options.tool_protocol)
    return HttpModel(info, dialect, endpoint, options, effort_policy=takes_effort)


def split_model_name(name: str) -> tuple[str, str]:
    """Return provider and model, split at the first colon or slash; a model's name may have both.

    Raises ConfigError if there is no provider.
    """
    found = re.fullmatch(r"\s*([^:/\s]+)[:/](\S+)\s*", name)
    if found is None:
        message = f'"{name}" names no provider. Write provider:model, for example "openai:gpt-5".'
        raise ConfigError(message + suggest_names(name, load_vendors()))
    return found[1], found[2]


def _find_vendor(name: str, provider: str) -> VendorConfig:
    vendor = load_vendors().get(provider)
    if vendor is None:
        suggestion = suggest_names(provider, load_vendors())
        raise ConfigError(
            f'unknown provider "{provider}" in "{name}".{suggestion} {_OTHER_SERVERS_HINT}'
        )
    return vendor


def _choose_base_url(
    provider: str, vendor: VendorConfig, base_url: str | None, environ: Mapping[str, str]
) -> str:
    """Return the argument, else the URL of the vendor's variable, else the vendor's own URL."""
    from_environ = environ.get(vendor.url_env, "") if vendor.url_env else ""
    url = base_url or from_environ or vendor.url
    # People paste the address of one endpoint where the base of all of them is wanted.
    url = _ENDPOINT_PATHS.sub("", url.strip()).rstrip("/")
    if not url:
        raise ConfigError(
            f'"{provider}" needs the address of a server, for example "http://localhost:8000/v1". '
            f"Pass base_url=, or set {vendor.url_env}; on the command line, use --base-url."
        )
    if not re.match(r"https?://[^/\s]", url):
        source = f"{vendor.url_env}=" if from_environ and not base_url else "base_url "
        raise ConfigError(
            f'{source}"{mask_keys(url)}" is not a URL. It should look like "https://host/v1".'
        )
    return url


def _build_endpoint(
    target: RequestTarget,
    vendor: VendorConfig,
    key: str | Secret | None,
    environ: Mapping[str, str],
    timeouts: Timeouts,
) -> ModelEndpoint:
    return ModelEndpoint(
        target=target,
        key=_find_key(target, vendor, key, environ),
        key_header=vendor.key_header,
        extra_headers=vendor.headers,
        proxy=find_proxy(target.url, environ),
        timeouts=timeouts,
    )


def _find_key(
    target: RequestTarget,
    vendor: VendorConfig,
    key: str | Secret | None,
    environ: Mapping[str, str],
) -> Secret | None:
    """Return the argument, else the key in the vendor's variable; None if the server needs none."""
    value = key.reveal() if isinstance(key, Secret) else key
    variable = vendor.key_env or ""
    source = "The key" if value else variable
    # Keys are often pasted with a line break at their end.
    value = (value or environ.get(variable, "")).strip()
    if not value:
        if vendor.keyless or is_local_url(target.url):
            return None
        raise ConfigError(f'no key for "{target.vendor}". Set {variable}, or pass key=.')
    if not value.isascii() or not value.isprintable():
        raise ConfigError(
            f"{source} contains characters that no key has. Check that it was pasted correctly."
        )
    return Secret(value)


def is_local_url(url: str) -> bool:
    """Whether a server runs on this machine, and so needs no key."""
    host = urlsplit(url).hostname or ""
    return host in {"localhost", "::1", "0.0.0.0"} or host.startswith("127.")  # noqa: S104


def _build_dialect(
    provider: str, model: str, vendor: VendorConfig, protocol: ToolProtocol | None
) -> Dialect:
    if vendor.dialect != "openai_chat" and protocol not in (None, "native"):
        raise ConfigError(
            f'tool_protocol="{protocol}" is only for servers with a chat completions API, and '
            f'"{provider}" has another one. Leave it out.'
        )
    match vendor.dialect:
        case "openai_chat":
            return build_chat_dialect(
                vendor.quirks, provider, protocol, model_size=read_model_size(model)
            )
        case "openai_responses":
            return OpenAIResponses()
        case "anthropic":
            return AnthropicMessages()
        case "gemini":
            return GeminiDialect()
