"""Where a Temporal server is, and how to speak to it: `temporal://HOST:PORT/NAMESPACE?…`.

Invariant: an address holds no secret, so that it can be part of a command line. The API key comes
from the environment, and a private key is named by its file.
"""

import hashlib
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import msgspec

from windlass.core.errors import ConfigError
from windlass.environ import read_process_environment

DEFAULT_PORT = 7233
API_KEY_VARIABLE = "TEMPORAL_API_KEY"
EXAMPLE = "temporal://127.0.0.1:7233/default"
ID_BYTES_MAX = 900
"""Of a workflow's id. A server takes 1,000, and a schedule adds the time."""


class EngineAddress(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Temporal server, its namespace, and how Windlass uses them."""

    host: str
    """With its port."""
    namespace: str = "default"
    prefix: str = "windlass"
    """The beginning of all task queues, workflows and schedules: one for each journal."""
    heartbeat_s: float = 10.0
    """After this time without a sign of life, the engine gives a run to another worker."""
    tls: bool = False
    server_name: str = ""
    """The name in the server's certificate, if it is not that of the host."""
    ca: str = ""
    """A file with the certificates that count, besides the system's own."""
    cert: str = ""
    key: str = ""

    def __post_init__(self) -> None:
        if bool(self.cert) != bool(self.key):
            raise ConfigError(
                "a client certificate for the engine needs both cert=FILE and key=FILE"
            )
        if not self.prefix or "/" in self.prefix or not self.prefix.isprintable():
            raise ConfigError(f"prefix={self.prefix!r}: pass visible characters without a slash")
        if not 1.0 <= self.heartbeat_s <= 3600.0:  # noqa: PLR2004 - a second to an hour
            raise ConfigError(f"heartbeat_s={self.heartbeat_s}: pass 1 to 3600 seconds")

    def workflow_id(self, session: str) -> str:
        """Return the id of the workflow that sees to a session."""
        name = f"{self.prefix}/{session}"
        if len(name.encode()) <= ID_BYTES_MAX:
            return name
        return f"{self.prefix}/#{hashlib.sha256(session.encode()).hexdigest()}"

    def task_queue(self, agent: str, configuration: str = "") -> str:
        """Return the queue of an agent, or the one of its workers with one configuration."""
        name = f"{self.prefix}/{agent}" if agent else self.prefix
        return f"{name}@{configuration}" if configuration else name

    def read_api_key(self) -> str | None:
        """Return the API key from the environment, for an address with TLS; None without one."""
        return read_process_environment().get(API_KEY_VARIABLE) or None if self.tls else None

    def read_file(self, option: str) -> bytes | None:
        """Return what the file of an option holds; None if none is named. Raises ConfigError."""
        name = getattr(self, option)
        if not name:
            return None
        try:
            return Path(name).read_bytes()
        except OSError as error:
            raise ConfigError(f"--engine …?{option}={name}: {error.strerror or error}") from None


def parse_engine_address(text: str) -> EngineAddress:
    """Read `temporal://HOST:PORT/NAMESPACE?tls=1&…`, with the fields of EngineAddress as options.

    Any option of TLS switches it on. Raises ConfigError if it is not such an address.
    """
    parts = urlsplit(text)
    if parts.scheme != "temporal" or not parts.hostname:
        raise ConfigError(f"--engine {text!r} is not an engine's address: pass one as {EXAMPLE}")
    if parts.username or parts.password:
        raise ConfigError(f"--engine: leave the key out, and set {API_KEY_VARIABLE} instead")
    try:
        port = parts.port or DEFAULT_PORT
    except ValueError:
        raise ConfigError(f"--engine {text!r}: the port is not a number") from None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    options: dict[str, object] = dict(parse_qsl(parts.query))
    options |= {"host": f"{host}:{port}", "namespace": parts.path.strip("/") or "default"}
    if options.keys() & {"server_name", "ca", "cert", "key"}:
        options.setdefault("tls", True)
    try:
        return msgspec.convert(options, EngineAddress, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"--engine {text!r}: {error}") from None
