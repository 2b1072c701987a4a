"""What the settings of a server may say about signing in (`"auth"` in `.mcp.json`)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from windlass.core.errors import ConfigError
from windlass.tools.mcp.entry_reader import EntryReader, check_keys, read_optional, require_mapping

PORT_MAX = 65_535
_PROGRAM_KEYS = (
    *("type", "client_id", "client_secret", "issuer", "scope"),
    *("private_key", "signing_algorithm"),
)
_PERSON_KEYS = (
    *("type", "client_id", "client_secret", "issuer", "scope"),
    *("client_metadata_url", "redirect_port"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class McpCredentials:
    """What a program shows to get a token for a server (OAuth client credentials)."""

    client_id: str
    client_secret: str = field(default="", repr=False)
    issuer: str
    """The address of the authorization server. The secret goes nowhere else, whatever the MCP
    server says."""
    scope: str | None = None
    private_key: str = field(default="", repr=False)
    """A key in PEM that signs an assertion, instead of a secret (`private_key_jwt`)."""
    signing_algorithm: str = "ES256"


@dataclass(frozen=True, slots=True, kw_only=True)
class McpSignIn:
    """How a person signs in at a server (OAuth authorization code). All of it can be left out."""

    client_id: str = ""
    """Of a client that was registered by hand. Without it, Windlass registers itself."""
    client_secret: str = field(default="", repr=False)
    issuer: str = ""
    """The only authorization server to use, and a host that need not be public."""
    scope: str | None = None
    """The rights to ask for, instead of those that the server names."""
    client_metadata_url: str = ""
    """The address of a document about the client, for servers that take it as its id."""
    redirect_port: int | None = None
    """The port of the local redirect, for clients that were registered with a fixed one."""


McpAuth: TypeAlias = McpCredentials | McpSignIn
"""How a token is had: by a program's own credentials, or by a person who signs in."""


def read_auth(reader: EntryReader, given: object) -> McpAuth:
    """Read the `auth` of a server. Raises ConfigError."""
    where = f"{reader.where}: auth"
    entry = require_mapping(where, given)
    inner = EntryReader(where, reader.environ)
    kind = inner.check_choice(
        "type", entry.get("type"), ["client_credentials", "authorization_code"]
    )
    if kind == "client_credentials":
        return _read_credentials(inner, entry)
    return _read_sign_in(inner, entry)


def _read_credentials(reader: EntryReader, entry: Mapping[str, Any]) -> McpCredentials:
    check_keys(reader.where, entry, _PROGRAM_KEYS)
    # Without either of them, the error asks for the secret.
    proof = "private_key" if "private_key" in entry else "client_secret"
    return McpCredentials(
        client_id=reader.read_text("client_id", entry.get("client_id")),
        issuer=reader.read_text("issuer", entry.get("issuer")),
        scope=read_optional(reader.read_text, "scope", entry, None),
        signing_algorithm=read_optional(reader.read_text, "signing_algorithm", entry, "ES256"),
        **{proof: reader.read_text(proof, entry.get(proof))},
    )


def _read_sign_in(reader: EntryReader, entry: Mapping[str, Any]) -> McpSignIn:
    check_keys(reader.where, entry, _PERSON_KEYS)
    names = ("client_id", "client_secret", "issuer", "client_metadata_url")
    texts = {name: reader.read_text(name, entry[name]) for name in names if name in entry}
    if "client_secret" in texts and "client_id" not in texts:
        raise ConfigError(f"{reader.where}: a 'client_secret' needs its 'client_id'")
    if not texts.get("client_metadata_url", "https://").startswith("https://"):
        raise reader.value_error("client_metadata_url", "a URL that begins with https://")
    port = entry.get("redirect_port")
    if port is not None and (type(port) is not int or not 0 < port <= PORT_MAX):
        raise reader.value_error("redirect_port", f"a number between 1 and {PORT_MAX}")
    scope = read_optional(reader.read_text, "scope", entry, None)
    return McpSignIn(scope=scope, redirect_port=port, **texts)
