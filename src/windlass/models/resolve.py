"""From a name such as `openai:gpt-5` to a model that can be asked.

The law: whatever can be known to be wrong is said here, when the model is made, in one line with
the fix (P1, P3). The environment is passed in, and only here is anything taken from it.
"""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from windlass.core.errors import ConfigError
from windlass.core.secrets.secret import Secret
from windlass.core.setup import ModelInfo, Price
from windlass.core.suggestions import suggest_names
from windlass.models.anthropic.messages import AnthropicMessages
from windlass.models.dialect import Dialect, ModelOptions
from windlass.models.gemini.generate import GeminiDialect
from windlass.models.http.errors import RequestTarget, mask_keys
from windlass.models.http.model import HttpModel, ModelEndpoint
from windlass.models.http.post import find_proxy
from windlass.models.local.model import build_local_model, parse_local_name
from windlass.models.openai.responses import OpenAIResponses
from windlass.models.prices import build_model_info
from windlass.models.text_protocols.choice import build_chat_dialect
from windlass.models.vendors import VendorConfig, load_vendors
from windlass.ports import Timeouts

_ENDPOINT_PATHS = re.compile(r"/(?:chat/completions|completions|responses|messages)/?$")
_OTHER_SERVERS_HINT = (
    'For any other server of chat completions: "openai-compatible:MODEL" with base_url=.'
)


def resolve_model(
    name: str,
    *,
    environ: Mapping[str, str],
    key: str | Secret | None = None,
    base_url: str | None = None,
    options: ModelOptions | None = None,
    timeouts: Timeouts | None = None,
    info: ModelInfo | None = None,
    price: Price | None = None,
) -> HttpModel:
    """The model that a name stands for: `provider:model` or `provider/model`."""
    if (here := parse_local_name(name)) is not None:
        if base_url:
            raise ConfigError('"local" starts a server of its own: for one that runs, "llamacpp".')
        return build_local_model(
            here, environ=environ, options=options, timeouts=timeouts, info=info
        )
    provider, model = split_model_name(name)
    vendor = _find_vendor(name, provider)
    url = _choose_base_url(provider, vendor, base_url, environ)
    site = RequestTarget(
        vendor=provider, url=url, model=model, key_env=vendor.key_env, hint=vendor.hint
    )
    endpoint = ModelEndpoint(
        site=site,
        key=_find_key(provider, vendor, url, key, environ),
        key_header=vendor.key_header,
        extra_headers=vendor.headers,
        proxy=find_proxy(url, environ),
        timeouts=timeouts or Timeouts(),
    )
    policy = any(fnmatchcase(model, pattern) for pattern in vendor.reasons)
    tier = options.service_tier if options else None
    known = info or build_model_info(provider, model, price=price, tier=tier)
    return HttpModel(
        known, _build_dialect(provider, vendor, options), endpoint, options, effort_policy=policy
    )


def split_model_name(name: str) -> tuple[str, str]:
    """Provider and model, at the first colon or slash: both may be part of a model's name."""
    found = re.fullmatch(r"\s*([^:/\s]+)[:/](\S+)\s*", name)
    if found is None:
        told = f'"{name}" names no provider: write provider:model, such as "openai:gpt-5".'
        raise ConfigError(told + suggest_names(name, load_vendors()))
    return found[1], found[2]


def _find_vendor(name: str, provider: str) -> VendorConfig:
    vendor = load_vendors().get(provider)
    if vendor is None:
        near = suggest_names(provider, load_vendors())
        raise ConfigError(f'unknown provider "{provider}" in "{name}".{near} {_OTHER_SERVERS_HINT}')
    return vendor


def _choose_base_url(
    provider: str, vendor: VendorConfig, base_url: str | None, environ: Mapping[str, str]
) -> str:
    named = environ.get(vendor.url_env, "") if vendor.url_env else ""
    url = _ENDPOINT_PATHS.sub("", (base_url or named or vendor.url).strip()).rstrip("/")
    if not url:
        raise ConfigError(f'"{provider}" needs base_url=, such as "http://localhost:8000/v1".')
    if not re.match(r"https?://[^/\s]", url):
        told = mask_keys(url)
        said = f'base_url "{told}"' if base_url or not named else f'{vendor.url_env}="{told}"'
        raise ConfigError(f'{said} is no URL: it reads like "https://host/v1".')
    return url


def _find_key(
    provider: str,
    vendor: VendorConfig,
    url: str,
    given: str | Secret | None,
    environ: Mapping[str, str],
) -> Secret | None:
    """The argument, then the provider's own variable, then nothing."""
    value = given.reveal() if isinstance(given, Secret) else given
    variable = vendor.key_env or ""
    source = "the key" if value else variable
    value = (value or environ.get(variable, "")).strip()
    if not value:
        if vendor.keyless or is_local_url(url):
            return None
        raise ConfigError(f'no key for "{provider}": set {variable}, or pass key=.')
    if not value.isascii() or not value.isprintable():
        raise ConfigError(f"{source} holds characters that no key has: was it pasted whole?")
    return Secret(value)


def is_local_url(url: str) -> bool:
    """Whether a server is on this machine, and so asks for no key."""
    host = urlsplit(url).hostname or ""
    return host in {"localhost", "::1", "0.0.0.0"} or host.startswith("127.")  # noqa: S104


def _build_dialect(provider: str, vendor: VendorConfig, options: ModelOptions | None) -> Dialect:
    protocol = options.tool_protocol if options else None
    if vendor.dialect != "openai_chat" and protocol not in (None, "native"):
        told = f'tool_protocol="{protocol}" is for servers of chat completions'
        raise ConfigError(f'{told}, and "{provider}" speaks otherwise: leave it out.')
    match vendor.dialect:
        case "openai_chat":
            return build_chat_dialect(vendor.quirks, provider, protocol)
        case "openai_responses":
            return OpenAIResponses()
        case "anthropic":
            return AnthropicMessages()
        case "gemini":
            return GeminiDialect()
