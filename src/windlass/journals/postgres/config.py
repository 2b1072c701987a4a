"""Where a Postgres journal is, how to connect to it, and what its errors mean.

Invariant: no error contains a password, not even in text that the driver or the server wrote.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from hashlib import blake2b
from importlib import import_module
from typing import Any, Protocol
from urllib.parse import parse_qs, parse_qsl, unquote, urlencode, urlsplit

from windlass.core.errors import ConfigError, ForOperator, JournalFailed
from windlass.journals.wording import (
    DIRECT_OPTION,
    POOLER_OPTION,
    POSTGRES_SCHEMES,
    Durability,
    check_durability,
    show_journal_name,
    split_server_url,
)

NAME_BYTES_MAX = 63
"""Postgres truncates longer names of schemas."""
DEFAULT_PORT = "5432"
CONNECT_TIMEOUT_S = 10.0
LEASE_S = 10.0
LEASE_MIN_S = 1.0
TCP_TIMEOUT_S = 15.0
"""How long the server keeps a connection on which nothing is acknowledged."""
ANSWER_GRACE_S = 5.0
"""How much longer than the statement timeout to wait for an answer."""


class PostgresConnection(Protocol):
    """The part of `asyncpg.Connection` that is used here; asyncpg is not annotated."""

    async def execute(self, query: str, *args: object) -> str: ...

    async def fetch(self, query: str, *args: object) -> Sequence[Sequence[Any]]: ...

    async def fetchrow(self, query: str, *args: object) -> Sequence[Any] | None: ...

    async def fetchval(self, query: str, *args: object) -> Any: ...  # noqa: ANN401 - of Postgres

    def transaction(
        self, *, isolation: str | None = None, readonly: bool = False
    ) -> AbstractAsyncContextManager[object]: ...

    async def add_listener(self, channel: str, callback: Callable[..., None]) -> None: ...

    async def remove_listener(self, channel: str, callback: Callable[..., None]) -> None: ...

    def get_server_pid(self) -> int: ...

    def add_termination_listener(self, callback: Callable[..., None]) -> None: ...

    def is_closed(self) -> bool: ...

    async def close(self, *, timeout: float | None = None) -> None: ...

    def terminate(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresConfig:
    """The schema of a journal, and how to use it. Raises ConfigError for unusable values."""

    dsn: str = field(repr=False)
    schema: str
    durability: Durability
    connections_max: int
    """Connections of one event loop, not counting the one that stays open."""
    timeout_s: float
    """How long one statement may take."""
    patience_s: float
    """How long to retry when a server that was reachable before does not answer."""
    lease_s: float = LEASE_S
    """How long a process has its sessions after its last sign of life."""

    def __post_init__(self) -> None:
        check_durability(self.durability)
        name = self.schema
        is_usable = 0 < len(name.encode(errors="replace")) <= NAME_BYTES_MAX and name.isprintable()
        if not is_usable or name.startswith("pg_") or name in ("public", "information_schema"):
            raise ConfigError(
                f"schema={name!r}: the journal needs its own schema; pass another name"
            )
        if self.connections_max < 1:
            raise ConfigError(f"connections_max={self.connections_max}: it must be at least 1")
        if not (self.timeout_s > 0 and self.patience_s >= 0):
            raise ConfigError("timeout_s must be more than 0, and patience_s must be 0 or more")
        if not LEASE_MIN_S <= self.lease_s < float("inf"):
            raise ConfigError(f"lease_s={self.lease_s}: it must be at least {LEASE_MIN_S:g} s")
        _, options = split_own_options(self.dsn)
        if options.get(POOLER_OPTION) not in (None, "transaction"):
            raise ConfigError(
                "?pooler= of a Postgres journal is `transaction`; leave it out for the server "
                "itself, and for a pooler in session mode"
            )
        if DIRECT_OPTION in options and POOLER_OPTION not in options:
            raise ConfigError("?direct= names the server behind a pooler: pass ?pooler=transaction")
        for url in (self.dsn, options.get(DIRECT_OPTION, self.dsn)):
            _check_url(url)

    @property
    def is_pooled(self) -> bool:
        """Whether a pooler gives each transaction another connection to the server."""
        return POOLER_OPTION in split_own_options(self.dsn)[1]

    @property
    def has_direct(self) -> bool:
        """Whether the server itself can be reached: to listen, and to hold a lock."""
        options = split_own_options(self.dsn)[1]
        return POOLER_OPTION not in options or DIRECT_OPTION in options

    @property
    def quoted_schema(self) -> str:
        """The name of the schema, for use in SQL."""
        return '"' + self.schema.replace('"', '""') + '"'

    @property
    def location(self) -> str:
        """How errors name the journal: the URL without user and password."""
        return f"journal {show_journal_name(self.dsn)}"

    @property
    def server(self) -> str:
        """Where the server is, in words: its host and port, or the folder of its socket."""
        parts = urlsplit(self.dsn)
        options = parse_qs(parts.query)
        hosts = parts.netloc.rpartition("@")[2] or "".join(options.get("host", []))
        if unquote(hosts).startswith("/"):
            return f"the socket in {unquote(hosts)}"
        first = hosts.partition(",")[0]
        host, colon, port = first.rpartition(":")
        if not colon or not port.isdecimal():
            host = first
            port = "".join(options.get("port", [])) or DEFAULT_PORT
        return f"host {host or 'localhost (or PGHOST)'}, port {port}"

    def lock_key(self, *names: str) -> int:
        """Return the number of an advisory lock.

        All programs that use the database share these numbers, so it is a hash of our names.
        """
        text = "\0".join(("windlass", self.schema, *names)).encode()
        return int.from_bytes(blake2b(text, digest_size=8).digest(), "big", signed=True)

    def channel_name(self, what: str) -> str:
        """Return the name of a channel for notifications, which may have 63 bytes."""
        text = f"windlass live\0{self.schema}\0{what}".encode()
        return f"windlass_{blake2b(text, digest_size=16).hexdigest()}"


def split_own_options(dsn: str) -> tuple[str, dict[str, str]]:
    """Return a URL without the options that only Windlass knows, and these options."""
    address, _, query = dsn.partition("?")
    pairs = parse_qsl(query, keep_blank_values=True)
    own = {name: value for name, value in pairs if name in (POOLER_OPTION, DIRECT_OPTION)}
    if not own:
        return dsn, own
    rest = urlencode([(name, value) for name, value in pairs if name not in own])
    return f"{address}?{rest}" if rest else address, own


def _check_url(dsn: str) -> None:
    parts = split_server_url(dsn)
    if parts is None or parts.scheme not in POSTGRES_SCHEMES:
        # The value is not shown: there may be a password anywhere in it.
        raise ConfigError(
            "this is not the URL of a Postgres journal: write postgresql://user@host/database. "
            "In a password, write @ : / ? # % as %40 %3A %2F %3F %23 %25."
        )


async def connect_to_server(
    config: PostgresConfig, *, is_direct: bool = False
) -> PostgresConnection:
    """Open a connection; raises what asyncpg raises, or ConfigError if it is not installed.

    `is_direct`: to the server itself if there is a way, even if the others go through a pooler.
    """
    dsn, own = split_own_options(config.dsn)
    # Longer than the server's own limit: when the server gives up, nothing has been written.
    # When only we give up, the result is unknown.
    answer_s = config.timeout_s + ANSWER_GRACE_S
    connect = _load_asyncpg().connect
    if own and not (is_direct and config.has_direct):
        # A pooler takes no settings, and a statement that has a name stays on one connection.
        return await connect(
            dsn, timeout=CONNECT_TIMEOUT_S, command_timeout=answer_s, statement_cache_size=0
        )
    settings = {
        "application_name": "windlass",
        "synchronous_commit": "on" if config.durability == "full" else "off",
        "statement_timeout": f"{config.timeout_s * 1000:.0f}",
        # One plan serves lists of any length. Planning again would cost more than the write itself.
        "plan_cache_mode": "force_generic_plan",
        "jit": "off",
        # If this machine vanishes, the server gives its connections up after so long. Keepalives
        # are sent only while the server waits for an answer to nothing else.
        "tcp_keepalives_idle": "10",
        "tcp_keepalives_interval": "5",
        "tcp_keepalives_count": "3",
        "tcp_user_timeout": f"{TCP_TIMEOUT_S * 1000:.0f}",
    }
    return await connect(
        own.get(DIRECT_OPTION, dsn),
        timeout=CONNECT_TIMEOUT_S,
        command_timeout=answer_s,
        server_settings=settings,
    )


def _load_asyncpg() -> Any:  # noqa: ANN401 - it has no type annotations
    try:
        return import_module("asyncpg")
    except ImportError:
        raise ConfigError(
            "a Postgres journal needs an extra package: pip install 'windlass[postgres]'"
        ) from None


_CONFLICT_STATES = ("40001", "40P01")
"""Serialization failure and deadlock: the transaction that lost may simply try again."""
_LEFT_STATES = ("57P01", "57P02", "57P03", "57P05", "25006", "55000")
"""The server shuts down, or is a standby, or has become one: another connection may lead to the
one that took its place."""
_ERROR_TEXTS = {
    "08P01": "the server refused the settings of the connection, as a pooler does; if it is one in "
    "transaction mode, add ?pooler=transaction to the URL",
    "28": "the server rejected the user or the password; check both, in the URL or in PGUSER, "
    "PGPASSWORD and ~/.pgpass",
    "3D000": "the database does not exist; create it with createdb, or use another one",
    "25006": "the server is read-only, as a standby is; use the primary server",
    "42501": "the user lacks permission; grant it the rights to use or create the schema",
    "53100": "the disk of the server is full; free some space, then resume the run",
    "53300": "the server has no free connection; lower connections_max or raise its limit",
    "57014": "a statement took too long and was cancelled; check the server, then resume the run",
}
"""What happened and what to do, by SQLSTATE or its class. All others get a general text."""


def is_connection_lost(error: BaseException) -> bool:
    """Whether the connection broke, so that it is unknown whether the statement was executed."""
    state = _sqlstate(error)
    if state is not None:
        return state.startswith("08") or state in _LEFT_STATES
    # These two come from asyncpg itself, when it uses a connection that is already gone.
    is_broken = type(error).__name__ in ("InterfaceError", "InternalClientError")
    return is_broken or isinstance(error, OSError | EOFError)


def is_transient(error: BaseException) -> bool:
    """Whether the same statement may succeed in a moment."""
    return is_connection_lost(error) or _sqlstate(error) in _CONFLICT_STATES


def is_unstorable(error: BaseException) -> bool:
    """Whether Postgres cannot store the values that it was given (data exception, too large)."""
    return (_sqlstate(error) or "")[:2] in ("22", "54")


def is_server_answer(error: BaseException) -> bool:
    """Whether the server itself reported the error, so that the statement is over."""
    return hasattr(error, "sqlstate")


def postgres_error(config: PostgresConfig, error: BaseException) -> ForOperator:
    """Return the error to raise: what went wrong with the server, and what to do."""
    state = _sqlstate(error) or ""
    text = _ERROR_TEXTS.get(state) or _ERROR_TEXTS.get(state[:2])
    if text is None and is_connection_lost(error):
        text = (
            f"the server cannot be reached at {config.server}; check the address, that the server "
            "is running, and that it accepts connections from here"
        )
    if text is None:
        text = "the server reported an error; check its log, then resume the run"
    detail = _remove_passwords(config, " ".join(str(error).split()) or type(error).__name__)
    message = f"{config.location}: {text} ({detail})"
    # asyncpg raises ValueError for a URL with options that it does not know.
    if isinstance(error, ValueError) and not state:
        return ConfigError(message)
    return JournalFailed(message)


def _sqlstate(error: BaseException) -> str | None:
    return getattr(error, "sqlstate", None)


def _remove_passwords(config: PostgresConfig, text: str) -> str:
    passwords: set[str] = set()
    for url in (config.dsn, split_own_options(config.dsn)[1].get(DIRECT_OPTION, "")):
        parts = urlsplit(url)
        in_url = parts.netloc.rpartition("@")[0].partition(":")[2]
        options = parse_qs(parts.query)
        passwords |= {in_url, unquote(in_url)}
        passwords |= {*options.get("password", []), *options.get("sslpassword", [])}
    # The longest first: one may be contained in another.
    for password in sorted(passwords - {""}, key=len, reverse=True):
        text = text.replace(password, "…")
    return text
