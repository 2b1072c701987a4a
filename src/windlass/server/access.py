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
from windlass.core.verdicts import PERSON_KEY
from windlass.server.errors import ApiError

Role = Literal["watch", "start", "answer", "admin"]
"""`watch` reads, `start` begins runs and speaks to them, `answer` answers questions.

`admin` includes all of them and sees the sessions of every owner.
"""
ROLES: tuple[Role, ...] = get_args(Role)
TeamRole = Literal["viewer", "reviewer", "operator"]
"""What a person may do with the runs that others started: a viewer reads them, a reviewer reads and
answers their questions and nothing else, an operator reads and controls them."""
TEAM_ROLES: tuple[TeamRole, ...] = get_args(TeamRole)
GRANTED: Mapping[TeamRole, frozenset[Role]] = {
    "viewer": frozenset({"watch"}),
    "reviewer": frozenset({"answer"}),
    "operator": frozenset({"watch", "start"}),
}
"""The roles that a team role means for the sessions of others."""
ALL_AGENTS = "*"
OWNER_MARK = "."
"""Separates the owner from the name of a session."""
CALLER_CHARS_MAX = 120
_PLAIN_OWNER = re.compile(r"[^A-Za-z0-9_@-]")


class TeamGrant(msgspec.Struct, frozen=True):
    """A role for the runs that others started with some agents."""

    role: TeamRole
    agents: tuple[str, ...] = (ALL_AGENTS,)
    """Names of agents; `*` is all of them."""

    def covers(self, agent: str) -> bool:
        return ALL_AGENTS in self.agents or agent in self.agents


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
    person: str = ""
    """Whose identity was verified by an invitation, or by an identity provider."""
    grants: tuple[TeamGrant, ...] = ()
    by_token: str = ""
    """The token that a browser signed in with."""
    origin: str = ""
    """From where the request came: the page or a token, and the address."""
    lent_grants: tuple[TeamGrant, ...] = ()
    """Those of `grants` that the person has only while another one is away."""

    @property
    def counted_as(self) -> str:
        """Whom limits count for: all browsers of a token together with it."""
        return self.by_token or self.token or self.name

    @property
    def is_admin(self) -> bool:
        """Whether the caller may do everything, to sessions of others as well."""
        return "admin" in self.roles

    @property
    def sees_agents(self) -> bool:
        """Whether the caller sees all of an agent: an admin, or the person whose machine this is.

        Others see what the operator shows (`core/disclosure.py`).
        """
        return self.is_admin or not self.name

    @property
    def author(self) -> str:
        """Who is recorded as the author of answers and messages."""
        return self.person or self.name or "owner"

    @property
    def run_context(self) -> dict[str, Any]:
        """What the runs of this caller begin with: its context, and who the person is."""
        context = {key: value for key, value in self.context.items() if key != PERSON_KEY}
        return {**context, PERSON_KEY: self.person} if self.person else context

    def may_use(self, role: Role | None, owner: str, agent: str, *others: str) -> bool:
        """Whether the caller may do what a role allows with a session; None: only with its own.

        Grants must cover all agents that have worked in it: `agent` and `others`.
        """
        if self.is_admin or owner == self.name:
            return True
        grants = [grant for grant in self.grants if role in GRANTED[grant.role]]
        return all(any(grant.covers(one) for grant in grants) for one in (agent, *others))

    def list_granted_agents(self, role: Role) -> frozenset[str]:
        """Return the agents whose runs of others the caller may use so; `*` is all of them."""
        granted = [grant.agents for grant in self.grants if role in GRANTED[grant.role]]
        return frozenset(agent for agents in granted for agent in agents)

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


def invited_person(person: str, roles: Collection[str], grants: tuple[TeamGrant, ...]) -> Caller:
    """Return the caller that an invitation signs in. Their own sessions are under their name.

    Raises ConfigError for a name or a role that cannot be used.
    """
    name = check_caller_name(person)
    return Caller(name, check_roles(roles), person=name, grants=grants)


def make_grants(roles: Collection[str], agents: Collection[str] = ()) -> tuple[TeamGrant, ...]:
    """Return the grants of team roles for some agents; for all agents if none are named.

    Raises ConfigError if a role does not exist.
    """
    for role in roles:
        if role not in TEAM_ROLES:
            raise ConfigError(f"there is no team role {role!r}.{suggest_names(role, TEAM_ROLES)}")
    named = tuple(sorted(agents)) or (ALL_AGENTS,)
    return tuple(TeamGrant(role, named) for role in TEAM_ROLES if role in roles)


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
