"""Turns a name such as `openai:gpt-5` into a model that can be asked.

Invariant: every mistake that can be found without a request is reported here, when the model is
made, in one line with the fix. The modules below get what they need from the environment passed in;
none of them reads it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

import windlass.models.lazy_providers as providers
from windlass.core.errors import ConfigError
from windlass.core.secrets.mask import Secret
from windlass.core.session_summary import check_text
from windlass.core.setup import ModelInfo, Price
from windlass.core.suggestions import suggest_names
from windlass.environ import read_environment
from windlass.http.urls import find_proxy, is_loopback
from windlass.logs import get_logger
from windlass.models.dialect import Dialect, RequestSigner
from windlass.models.http.model import HttpModel, ModelEndpoint
from windlass.models.http.provider_errors import RequestTarget, mask_keys
from windlass.models.options import ModelOptions, ToolProtocol
from windlass.models.prices import (
    build_model_info,
    find_listing,
    has_listings,
    suggest_models,
)
from windlass.models.vendors import VendorConfig, load_vendors
from windlass.ports import Timeouts

_log = get_logger(__name__)
_ENDPOINT_PATHS = re.compile(r"/(?:chat/completions|completions|responses|messages)/?$")
_LOCAL_NAME = re.compile(r"\s*local[:/]\s*(.*?)\s*")
_LOCAL_WITH_URL = (
    '"local" starts a server of its own and takes no base_url=. '
    'For a server that is already running, use "llamacpp:MODEL".'
)
_OTHER_SERVERS_HINT = (
    "For any other server with a chat completions API, "
    'use "openai-compatible:MODEL" with base_url=.'
)


def resolve_model(  # noqa: PLR0913 - keywords with defaults, as an agent has them
    name: str,
    *,
    environ: Mapping[str, str] | None = None,
    key: str | Secret | None = None,
    base_url: str | None = None,
    options: ModelOptions | None = None,
    timeouts: Timeouts | None = None,
    info: ModelInfo | None = None,
    price: Price | None = None,
    strict: bool = False,
) -> HttpModel:
    """Return the model of a name: `provider:model`, `provider/model` or `local:PATH.gguf`.

    Keys, base URLs and proxies are looked up in `environ`, by default the environment of this
    process and the file `.env`; `key` and `base_url` win over it. `info` replaces everything that
    is known of the model, `price` only its price. If `strict`, the provider must list the model.

    Nothing is sent. Raises ConfigError if the name, the key, the URL or an option is wrong.
    """
    environ = read_environment() if environ is None else environ
    options = options or ModelOptions()
    if (local_name := parse_local_name(name)) is not None:
        if base_url:
            raise ConfigError(_LOCAL_WITH_URL)
        return providers.build_local_model(
            local_name, environ=environ, options=options, timeouts=timeouts, info=info
        )
    provider, model = split_model_name(check_text("model", name))
    vendor = _find_vendor(name, provider)
    url = _choose_base_url(provider, vendor, base_url, environ)
    if info is None and url == vendor.url.rstrip("/"):
        _check_model_name(provider, model, strict=strict)
    info = info or build_model_info(provider, model, price=price, tier=options.service_tier)
    found_key = _find_key(vendor, key, environ)
    endpoint = _build_endpoint(provider, vendor, model, url, found_key, environ)
    takes_effort = any(fnmatchcase(model, pattern) for pattern in vendor.reasons)
    dialect = _build_dialect(provider, model, vendor, options.tool_protocol)
    timed = replace(endpoint, timeouts=timeouts or Timeouts())
    return HttpModel(info, dialect, timed, options, effort_policy=takes_effort)


def _check_model_name(provider: str, model: str, *, strict: bool) -> None:
    """Warn of a model that the provider's own server may not have. Raises ConfigError if strict.

    New models appear daily, so the list may be behind.
    """
    if not has_listings(provider) or find_listing(provider, model) is not None:
        return
    problem = f'"{provider}" is not known to have a model "{model}".'
    problem += suggest_models(provider, model)
    if strict:
        raise ConfigError(f"{problem} Check its name, or leave out strict_models=True.")
    _log.warning("%s If it is a new one, its price is not known.", problem)


def can_sign_in(provider: str, environ: Mapping[str, str]) -> bool:
    """Whether this machine has credentials for a vendor of a cloud. Nothing is sent."""
    if not load_vendors()[provider].cloud:
        return False
    try:
        resolve_model(f"{provider}:any", environ=environ)
    except ConfigError:
        return False
    return True


def parse_local_name(name: str) -> str | None:
    """Return the path or model name behind `local:`, or None if the name has another provider."""
    found = _LOCAL_NAME.fullmatch(name)
    return found and found[1]


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
    if not url and vendor.cloud in {"aws", "google"}:
        return url  # It follows from the region, or from the project.
    if not url:
        raise ConfigError(
            f'"{provider}" needs the address of a server, for example "{vendor.url_example}". '
            f"Pass base_url=, or set {vendor.url_env}; on the command line, use --base-url."
        )
    if not re.match(r"https?://[^/\s]", url):
        source = f"{vendor.url_env}=" if from_environ and not base_url else "base_url "
        raise ConfigError(
            f'{source}"{mask_keys(url)}" is not a URL. It should look like "https://host/v1".'
        )
    return url


def _build_endpoint(
    provider: str,
    vendor: VendorConfig,
    model: str,
    url: str,
    key: Secret | None,
    environ: Mapping[str, str],
) -> ModelEndpoint:
    place = _locate_model(vendor, model, url, environ, has_key=key is not None)
    if key is None and place.signer is None:
        _require_keyless(provider, vendor, place.url)
    target = RequestTarget(
        vendor=provider,
        url=place.url,
        model=model,
        key_env=vendor.key_env,
        hint=vendor.hint,
        signed=place.signer is not None,
    )
    return ModelEndpoint(
        target=target,
        key=key,
        key_header=vendor.key_header,
        extra_headers=vendor.headers,
        query=place.query,
        signer=place.signer,
        proxy=find_proxy(place.url, environ),
    )


@dataclass(frozen=True, slots=True)
class _ModelPlace:
    """The address of a model, and how requests are signed."""

    url: str
    """The base URL."""
    query: str = ""
    signer: RequestSigner | None = None
    """None if the caller has a key, or if there are no credentials."""


def _locate_model(
    vendor: VendorConfig, model: str, url: str, environ: Mapping[str, str], *, has_key: bool
) -> _ModelPlace:
    """Return where a model of a vendor is. `url` is what the caller or the environment says.

    A key wins over all other credentials. Raises ConfigError if the region, the project or the
    credentials are wrong.
    """
    match vendor.cloud:
        case "":
            return _ModelPlace(url)
        case "aws":
            region = providers.find_region(environ)
            signer = None if has_key else providers.find_aws_signer(environ, region)
            return _ModelPlace(url or providers.bedrock_url(region), signer=signer)
        case "azure":
            base, query = providers.azure_address(url, model, vendor.dialect, environ)
            signer = None if has_key else providers.find_azure_signer(environ)
            return _ModelPlace(base, query, signer)
        case "google":
            identity = None if has_key else providers.find_google_identity(environ)
            publisher = "anthropic" if _is_claude(model) else "google"
            project = identity.project if identity else ""
            base = providers.vertex_address(url, publisher, environ, project, with_key=has_key)
            return _ModelPlace(base, signer=identity.signer if identity else None)


def _is_claude(model: str) -> bool:
    """Whether a model of Vertex AI is Anthropic's, which has the API of its maker."""
    return model.startswith("claude-")


def _find_key(
    vendor: VendorConfig, key: str | Secret | None, environ: Mapping[str, str]
) -> Secret | None:
    """Return the argument, else the key in the vendor's variable, else None."""
    value = key.reveal() if isinstance(key, Secret) else key
    variable = vendor.key_env or ""
    source = "The key" if value else variable
    # Keys are often pasted with a line break at their end.
    value = (value or environ.get(variable, "")).strip()
    if not value:
        return None
    if not value.isascii() or not value.isprintable():
        raise ConfigError(
            f"{source} contains characters that no key has. Check that it was pasted correctly."
        )
    return Secret(value)


def _require_keyless(provider: str, vendor: VendorConfig, url: str) -> None:
    """Raise ConfigError unless a server can be asked without a key."""
    if vendor.keyless or is_local_url(url):
        return
    ways = f"Set {vendor.key_env}, or pass key=."
    if vendor.sign_in:
        ways = f"Set {vendor.key_env}, pass key=, {vendor.sign_in}."
    raise ConfigError(f'no key for "{provider}". {ways}')


def is_local_url(url: str) -> bool:
    """Whether a server runs on this machine, and so needs no key."""
    host = urlsplit(url).hostname or ""
    return host == "0.0.0.0" or is_loopback(host)  # noqa: S104


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
            size = providers.read_model_size(model)
            return providers.build_chat_dialect(vendor.quirks, provider, protocol, model_size=size)
        case "openai_responses":
            return providers.OpenAIResponses()
        case "anthropic":
            return providers.AnthropicMessages()
        case "gemini" if vendor.cloud == "google" and _is_claude(model):
            return providers.AnthropicMessages(host="vertex")
        case "gemini":
            return providers.GeminiDialect()
        case "bedrock":
            return providers.BedrockConverse()
