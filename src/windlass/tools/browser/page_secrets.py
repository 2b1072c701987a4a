"""Secrets that a model types by name.

Invariant: the model never sees the value. It goes only into a password field of the origin that it
belongs to, and a result that holds it shows its name instead.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final
from urllib.parse import quote, quote_plus, urlsplit

from windlass.core.errors import ConfigError, ModelRetry

_SECRET_NAME = re.compile(r"\$\{([A-Za-z_]\w*)\}")


@final
@dataclass(frozen=True, slots=True)
class PageSecret:
    """A secret that a model types by its name, and only into password fields of one origin."""

    origin: str
    """Such as `https://shop.example`."""
    value: str = field(repr=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.origin)
        if (
            parts.scheme not in {"http", "https"}
            or self.origin != f"{parts.scheme}://{parts.netloc}"
        ):
            raise ConfigError(f"{self.origin!r} is not an origin, such as https://shop.example")
        if not self.value:
            raise ConfigError(f"the secret for {self.origin} is empty")

    def belongs_to(self, url: str) -> bool:
        """Whether a page at this address may have it."""
        found = urlsplit(url)
        return f"{found.scheme}://{found.netloc}" == self.origin

    def hide_in(self, text: str, name: str) -> str:
        """Return a text with the name in place of the value, even where it is part of a URL."""
        for written in (self.value, quote(self.value, safe=""), quote_plus(self.value)):
            text = text.replace(written, f"[secret: {name}]")
        return text


def find_secret(text: str, secrets: Mapping[str, PageSecret]) -> tuple[str, PageSecret] | None:
    """Return the secret that a text names as `${NAME}`; None if it is a plain text.

    Raises ModelRetry if there is no secret of this name.
    """
    named = _SECRET_NAME.fullmatch(text)
    if named is None or not secrets:
        return None
    if named[1] not in secrets:
        raise ModelRetry(f"There is no secret {named[1]!r}. Known secrets: {', '.join(secrets)}.")
    return named[1], secrets[named[1]]


def hide_secrets(text: str, secrets: Mapping[str, PageSecret]) -> str:
    """Return a text with the names of secrets in place of their values."""
    for name, secret in secrets.items():
        text = secret.hide_in(text, name)
    return text
