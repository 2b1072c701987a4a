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
from windlass.core.suggestions import did_you_mean
from windlass.models.anthropic.messages import AnthropicMessages
from windlass.models.dialect import Dialect, Options
from windlass.models.gemini.generate import Gemini
from windlass.models.http.errors import Site, masked
from windlass.models.http.model import Endpoint, HttpModel
from windlass.models.http.post import proxy_for
from windlass.models.local.model import local_model, local_name
from windlass.models.openai.responses import OpenAIResponses
from windlass.models.prices import info_for
from windlass.models.text_protocols.choice import chat
from windlass.models.vendors import Vendor, vendors
from windlass.ports import Timeouts

_PATHS = re.compile(r"/(?:chat/completions|completions|responses|messages)/?$")
_OTHER = 'For any other server of chat completions: "openai-compatible:MODEL" with base_url=.'


def resolve(
    name: str,
    *,
    environ: Mapping[str, str],
    key: str | Secret | None = None,
    base_url: str | None = None,
    options: Options | None = None,
    timeouts: Timeouts | None = None,
    info: ModelInfo | None = None,
    price: Price | None = None,
) -> HttpModel:
    """The model that a name stands for: `provider:model` or `provider/model`."""
    if (here := local_name(name)) is not None:
        if base_url:
            raise ConfigError('"local" starts a server of its own: for one that runs, "llamacpp".')
        return local_model(here, environ=environ, options=options, timeouts=timeouts, info=info)
    provider, model = split(name)
    vendor = _vendor(name, provider)
    url = _url(provider, vendor, base_url, environ)
    site = Site(vendor=provider, url=url, model=model, key_env=vendor.key_env, hint=vendor.hint)
    endpoint = Endpoint(
        site=site,
        key=_key(provider, vendor, url, key, environ),
        key_header=vendor.key_header,
        extra=vendor.headers,
        proxy=proxy_for(url, environ),
        timeouts=timeouts or Timeouts(),
    )
    policy = any(fnmatchcase(model, pattern) for pattern in vendor.reasons)
    tier = options.service_tier if options else None
    known = info or info_for(provider, model, price=price, tier=tier)
    return HttpModel(known, _dialect(provider, vendor, options), endpoint, options, policy=policy)


def split(name: str) -> tuple[str, str]:
    """Provider and model, at the first colon or slash: both may be part of a model's name."""
    found = re.fullmatch(r"\s*([^:/\s]+)[:/](\S+)\s*", name)
    if found is None:
        told = f'"{name}" names no provider: write provider:model, such as "openai:gpt-5".'
        raise ConfigError(told + did_you_mean(name, vendors()))
    return found[1], found[2]


def _vendor(name: str, provider: str) -> Vendor:
    vendor = vendors().get(provider)
    if vendor is None:
        near = did_you_mean(provider, vendors())
        raise ConfigError(f'unknown provider "{provider}" in "{name}".{near} {_OTHER}')
    return vendor


def _url(provider: str, vendor: Vendor, base_url: str | None, environ: Mapping[str, str]) -> str:
    named = environ.get(vendor.url_env, "") if vendor.url_env else ""
    url = _PATHS.sub("", (base_url or named or vendor.url).strip()).rstrip("/")
    if not url:
        raise ConfigError(f'"{provider}" needs base_url=, such as "http://localhost:8000/v1".')
    if not re.match(r"https?://[^/\s]", url):
        told = masked(url)
        said = f'base_url "{told}"' if base_url or not named else f'{vendor.url_env}="{told}"'
        raise ConfigError(f'{said} is no URL: it reads like "https://host/v1".')
    return url


def _key(
    provider: str, vendor: Vendor, url: str, given: str | Secret | None, environ: Mapping[str, str]
) -> Secret | None:
    """The argument, then the provider's own variable, then nothing."""
    value = given.reveal() if isinstance(given, Secret) else given
    variable = vendor.key_env or ""
    source = "the key" if value else variable
    value = (value or environ.get(variable, "")).strip()
    if not value:
        if vendor.keyless or is_local(url):
            return None
        raise ConfigError(f'no key for "{provider}": set {variable}, or pass key=.')
    if not value.isascii() or not value.isprintable():
        raise ConfigError(f"{source} holds characters that no key has: was it pasted whole?")
    return Secret(value)


def is_local(url: str) -> bool:
    """Whether a server is on this machine, and so asks for no key."""
    host = urlsplit(url).hostname or ""
    return host in {"localhost", "::1", "0.0.0.0"} or host.startswith("127.")  # noqa: S104


def _dialect(provider: str, vendor: Vendor, options: Options | None) -> Dialect:
    protocol = options.tool_protocol if options else None
    if vendor.dialect != "openai_chat" and protocol not in (None, "native"):
        told = f'tool_protocol="{protocol}" is for servers of chat completions'
        raise ConfigError(f'{told}, and "{provider}" speaks otherwise: leave it out.')
    match vendor.dialect:
        case "openai_chat":
            return chat(vendor.quirks, provider, protocol)
        case "openai_responses":
            return OpenAIResponses()
        case "anthropic":
            return AnthropicMessages()
        case "gemini":
            return Gemini()
