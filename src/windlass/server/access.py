"""Who calls the service, what they may do, and which sessions are theirs.

Invariant: a caller comes from a token, never from the body of a request. The caller of the first
run owns a session. Names of sessions are per owner: `report` of the caller `ann` is the session
`ann.report` of the journal, so that two callers never meet in one session.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any, Literal, get_args

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.suggestions import suggest_names
from windlass.server.errors import ApiError

Role = Literal["watch", "start", "answer", "admin"]
"""`watch` reads, `start` begins runs and speaks to them, `answer` answers questions.

`admin` includes all of them and sees the sessions of every owner.
"""
ROLES: tuple[Role, ...] = get_args(Role)
OWNER_MARK = "."
"""Separates the owner from the name of a session."""
CALLER_CHARS_MAX = 120
_PLAIN_OWNER = re.compile(r"[^A-Za-z0-9_@-]")


class Caller(msgspec.Struct, frozen=True):
    """On whose behalf a request is made."""

    name: str
    """The owner of the sessions that it begins; empty for the person whose machine this is."""
    roles: frozenset[Role]
    token: str = ""
    """The id of the token, for logs and for revoking it; never the secret."""
    context: Mapping[str, Any] = {}
    """What the gate may rely on. It comes from the token."""
    expires: float | None = None
    """When a token that is not kept here is no longer valid, in seconds since the epoch."""

    @property
    def is_admin(self) -> bool:
        """Whether the caller may do everything, to sessions of others as well."""
        return "admin" in self.roles

    @property
    def author(self) -> str:
        """Who is recorded as the author of answers and messages."""
        return self.name or "owner"

    def has_role(self, role: Role) -> bool:
        """Whether the caller may do what the role allows."""
        return role in self.roles or self.is_admin

    def require(self, role: Role) -> None:
        """Raise ApiError 403 if the caller may not do what the role allows."""
        if not self.has_role(role):
            raise ApiError(
                403,
                "role_missing",
                f"This token does not have the role {role}.",
                f"Use a token with it: windlass token create --role {role}",
            )


LOCAL_OWNER = Caller("", frozenset({"admin"}))
"""The person whose journal is served: the terminal and the service show the same sessions."""


def check_caller_name(name: str) -> str:
    """Return the name of a caller. Raises ConfigError if it cannot be one."""
    if not name.strip() or len(name) > CALLER_CHARS_MAX or not name.isprintable():
        raise ConfigError(
            f"caller={name!r}: the name of a caller has 1 to {CALLER_CHARS_MAX} visible characters"
        )
    return name


def check_roles(roles: Collection[str]) -> frozenset[Role]:
    """Return the roles. Raises ConfigError if one of them does not exist."""
    for role in roles:
        if role not in ROLES:
            raise ConfigError(f"there is no role {role!r}.{suggest_names(role, ROLES)}")
    return frozenset(role for role in ROLES if role in roles)


def owner_prefix(owner: str) -> str:
    """Return what the names of an owner's sessions begin with; empty for the local owner."""
    if not owner:
        return ""
    # A dot in the owner's name would let `a` with the session `b.x` meet `a.b` with `x`.
    plain = _PLAIN_OWNER.sub(
        lambda found: "".join(f"={byte:02X}" for byte in found[0].encode()), owner
    )
    return f"{plain}{OWNER_MARK}"


def full_session_name(owner: str, name: str) -> str:
    """Return the journal's name of a session, from the full name or the owner's own short one."""
    prefix = owner_prefix(owner)
    return name if name.startswith(prefix) else prefix + name
