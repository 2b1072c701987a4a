"""The vendors, read from `vendors.toml` at the first need."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from windlass.models.openai.quirks import ChatQuirks

_VENDORS_PATH = Path(__file__).with_name("vendors.toml")

DialectName = Literal["openai_chat", "openai_responses", "anthropic", "gemini"]


class VendorConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who serves models, and how they are spoken to."""

    dialect: DialectName
    url: str = ""
    """The base URL; without one, the caller must give it."""
    url_env: str | None = None
    """A variable that may name another base URL."""
    key_env: str | None = None
    keyless: bool = False
    """A key is not needed."""
    key_header: str = "Authorization"
    """Carries the key; `Authorization` carries it as a bearer token."""
    headers: dict[str, str] = {}
    """Sent with each request."""
    hint: str = ""
    """What to do when nobody answers."""
    reasons: tuple[str, ...] = ()
    """Names of models that take an effort, so that the policy may choose one."""
    quirks: ChatQuirks = ChatQuirks()


@cache
def load_vendors() -> Mapping[str, VendorConfig]:
    """All vendors by name."""
    import tomllib  # noqa: PLC0415 - costs 1.5 ms

    return msgspec.convert(tomllib.loads(_VENDORS_PATH.read_text("utf-8")), dict[str, VendorConfig])
