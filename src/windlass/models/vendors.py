"""The vendors of models: each is a provider that `provider:model` can name.

They are read from `vendors.toml` when they are first needed. A new one is an entry there.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from windlass.models.openai.quirks import ChatQuirks

_VENDORS_PATH = Path(__file__).with_name("vendors.toml")

DialectName = Literal["openai_chat", "openai_responses", "anthropic", "gemini", "bedrock"]
CloudName = Literal["", "aws", "azure", "google"]


class VendorConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A vendor that serves models, and how to talk to it."""

    dialect: DialectName
    url: str = ""
    """The base URL; if it is empty, the caller must give one."""
    url_env: str | None = None
    """The environment variable that may name another base URL."""
    key_env: str | None = None
    """The environment variable that holds the key."""
    cloud: CloudName = ""
    """The cloud that it belongs to: its credentials count as well, where there is no key."""
    sign_in: str = ""
    """How to get in without a key, as the end of a sentence for people."""
    url_example: str = "http://localhost:8000/v1"
    """What an address looks like, if the caller must give one."""
    keyless: bool = False
    """Works without a key."""
    key_header: str = "Authorization"
    """The header that carries the key; `Authorization` carries it as a bearer token."""
    headers: dict[str, str] = {}
    """Sent with each request."""
    hint: str = ""
    """What to do when the server refuses connections."""
    reasons: tuple[str, ...] = ()
    """Name patterns of the models that take an effort, for which `choose_effort` may choose one."""
    quirks: ChatQuirks = ChatQuirks()


@cache
def load_vendors() -> Mapping[str, VendorConfig]:
    """Return all vendors by name."""
    import tomllib  # noqa: PLC0415 - costs 1.5 ms

    return msgspec.convert(tomllib.loads(_VENDORS_PATH.read_text("utf-8")), dict[str, VendorConfig])
