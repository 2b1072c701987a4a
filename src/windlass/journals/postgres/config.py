"""Where a Postgres journal lives, how it is reached, and its troubles in words.

The law: no password ever stands in an error, whoever wrote its text.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from hashlib import blake2b
from importlib import import_module
from typing import Any, Literal, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

from windlass.core.errors import ConfigError, ForOperator, JournalFailed

NAME_BYTES_MAX = 63
"""Postgres cuts a longer name of a schema."""
CONNECT_TIMEOUT_S = 10.0
SILENCE_S = 5.0
"""How much longer than a statement may take an answer is waited for."""
Durability = Literal["full", "relaxed"]


class PostgresConnection(Protocol):
    """As much of `asyncpg.Connection` as is used here; it brings no types of its own."""

    async def execute(self, query: str, *args: object) -> str: ...

    async def fetch(self, query: str, *args: object) -> Sequence[Sequence[Any]]: ...

    async def fetchrow(self, query: str, *args: object) -> Sequence[Any] | None: ...

    async def fetchval(self, query: str, *args: object) -> Any: ...  # noqa: ANN401 - of Postgres

    def transaction(
        self, *, isolation: str | None = None, readonly: bool = False
    ) -> AbstractAsyncContextManager[object]: ...

    async def add_listener(self, channel: str, callback: Callable[..., None]) -> None: ...

    def add_termination_listener(self, callback: Callable[..., None]) -> None: ...

    def is_closed(self) -> bool: ...

    async def close(self, *, timeout: float | None = None) -> None: ...

    def terminate(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresConfig:
    """A schema of a database, and how to deal with it."""

    dsn: str = field(repr=False)
    schema: str
    durability: Durability
    connections_max: int
    """Connections of one event loop, without the one that holds its leases."""
    timeout_s: float
    """How long one statement may take."""
    patience_s: float
    """How long a server that was there before is waited for."""

    def __post_init__(self) -> None:
        if self.durability not in ("full", "relaxed"):
            raise ConfigError(f"durability={self.durability!r}: it is 'full' or 'relaxed'")
        name = self.schema
        usable = 0 < len(name.encode(errors="replace")) <= NAME_BYTES_MAX and name.isprintable()
        if not usable or name.startswith("pg_") or name in ("public", "information_schema"):
            raise ConfigError(f"schema={name!r}: give the journal a schema of its own")
        if self.connections_max < 1:
            raise ConfigError(f"connections_max={self.connections_max}: it needs one at least")
        if not (self.timeout_s > 0 and self.patience_s >= 0):
            raise ConfigError("timeout_s must be more than 0, and patience_s 0 or more")
        try:
            scheme = urlsplit(self.dsn).scheme
        except ValueError:
            scheme = ""
        if scheme not in ("postgres", "postgresql"):
            # Not shown: it may hold a password, wherever in it that may be.
            raise ConfigError("a Postgres journal is named as postgresql://user@host/database")

    @property
    def quoted_schema(self) -> str:
        return '"' + self.schema.replace('"', '""') + '"'

    @property
    def display_url(self) -> str:
        """The place in a message; with neither user nor password."""
        parts = urlsplit(self.dsn)
        host = parts.netloc.rpartition("@")[2] or "".join(parse_qs(parts.query).get("host", []))
        return f"postgresql://{host}{parts.path}"

    def lock_key(self, *names: str) -> int:
        """The number of a lock; they are shared by all that use the database."""
        text = "\0".join(("windlass", self.schema, *names)).encode()
        return int.from_bytes(blake2b(text, digest_size=8).digest(), "big", signed=True)


async def connect_to_server(config: PostgresConfig) -> PostgresConnection:
    relaxed = config.durability == "relaxed"
    settings = {
        "application_name": "windlass",
        "synchronous_commit": "off" if relaxed else "on",
        "statement_timeout": f"{config.timeout_s * 1000:.0f}",
        # A plan for any length of a list serves all of them: planning costs more than writing.
        "plan_cache_mode": "force_generic_plan",
        "jit": "off",
        # A machine that is gone without a word holds its leases no longer than this.
        "tcp_keepalives_idle": "10",
        "tcp_keepalives_interval": "5",
        "tcp_keepalives_count": "3",
    }
    return await _load_asyncpg().connect(
        config.dsn,
        timeout=CONNECT_TIMEOUT_S,
        # The server's own limit is first: what it gave up is known not to have happened.
        command_timeout=config.timeout_s + SILENCE_S,
        server_settings=settings,
    )


def _load_asyncpg() -> Any:  # noqa: ANN401 - it brings no types of its own
    try:
        return import_module("asyncpg")
    except ImportError:
        msg = "a Postgres journal needs an extra: pip install 'windlass[postgres]'"
        raise ConfigError(msg) from None


_CONFLICT_STATES = ("40001", "40P01")
"""Two transactions were in each other's way; the one that lost may simply try again."""
_SHUTDOWN_STATES = ("57P01", "57P02", "57P03", "57P05")
_ERROR_TEXTS = {
    "28": "the server refused the user or the password; check both",
    "3D000": "there is no such database; make it, or name another one",
    "25006": "the server takes no writes, as a standby does; name the primary",
    "42501": "the user may not do this; grant the rights to the schema, or to make it",
    "53100": "the disk of the server is full; make room, then resume",
    "53300": "the server has no connection left; lower connections_max, or raise its limit",
    "57014": "a statement took too long and was given up; look at the server, then resume",
}


def is_connection_lost(error: BaseException) -> bool:
    """Whether the connection broke, so that nobody knows what became of the statement."""
    state = _sqlstate(error)
    if state is not None:
        return state.startswith("08") or state in _SHUTDOWN_STATES
    # What the driver says by itself of a connection that is no more.
    broken = type(error).__name__ in ("InterfaceError", "InternalClientError")
    return broken or isinstance(error, OSError | EOFError)


def is_transient(error: BaseException) -> bool:
    """Whether the same may succeed in a moment."""
    return is_connection_lost(error) or _sqlstate(error) in _CONFLICT_STATES


def is_unstorable(error: BaseException) -> bool:
    """Whether the server cannot hold the very values that it was given."""
    return (_sqlstate(error) or "")[:2] in ("22", "54")


def postgres_error(config: PostgresConfig, error: BaseException) -> ForOperator:
    """What went wrong with the server, and what to do, in a line."""
    state = _sqlstate(error) or ""
    words = _ERROR_TEXTS.get(state) or _ERROR_TEXTS.get(state[:2])
    if words is None and is_connection_lost(error):
        words = "the server cannot be reached; check its address, and that it runs"
    detail = _remove_passwords(config, " ".join(str(error).split()) or type(error).__name__)
    msg = f"journal {config.display_url}: {words or 'it failed'} ({detail})"
    if isinstance(error, ValueError) and not state:
        return ConfigError(msg)
    return JournalFailed(msg)


def _sqlstate(error: BaseException) -> str | None:
    return getattr(error, "sqlstate", None)


def _remove_passwords(config: PostgresConfig, text: str) -> str:
    parts = urlsplit(config.dsn)
    said = parts.netloc.rpartition("@")[0].partition(":")[2]
    secrets = {said, unquote(said), *parse_qs(parts.query).get("password", [])}
    for secret in sorted(secrets - {""}, key=len, reverse=True):
        text = text.replace(secret, "…")
    return text
