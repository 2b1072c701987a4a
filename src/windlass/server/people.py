"""People of a team: the groups that they belong to, and who stands in for them while they are away.

Invariant: a person is whoever a service verified, by an invitation, their own token or an
identity provider. What they belong to is looked up with each request, so that a change counts at
once, and never comes from a request. Who stands in for another one lends their groups and stays one
person.
"""

import hashlib
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from windlass.core.errors import ConfigError, NothingToDo
from windlass.core.verdicts import LentRoles, VerifiedPerson
from windlass.ports import Journal
from windlass.server.access import Caller, TeamGrant, check_caller_name
from windlass.server.owned_records import OwnedRecords

GROUPS_MAX = 50
"""Groups of one person."""
LOOK_S = 3.0
"""How long people and groups are not looked up again."""


class PersonRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a person, besides what their token says."""

    person: str
    groups: tuple[str, ...] = ()
    stand_in: str = ""
    """Who answers in their place while they are away."""
    away_until: float | None = None
    """Until when, in seconds since the epoch; None: until they say otherwise."""

    @property
    def owner(self) -> str:
        """People belong to the service, whose name is empty."""
        return ""

    @property
    def name(self) -> str:
        """The name of the record: people have names that no record can have."""
        return name_person(self.person)

    def is_away(self, now: float) -> bool:
        """Whether somebody stands in for them now."""
        return bool(self.stand_in) and (self.away_until is None or now < self.away_until)


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """People who may do something together, such as `finance`."""

    name: str
    grants: tuple[TeamGrant, ...] = ()
    """What they may do with the runs that others started."""

    @property
    def owner(self) -> str:
        """Groups belong to the service, whose name is empty."""
        return ""


class PeopleStore(OwnedRecords[PersonRecord]):
    """The people of one journal."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal, "person", PersonRecord)

    async def put(self, person: str, groups: tuple[str, ...]) -> PersonRecord:
        """Say which groups a person belongs to. Raises ConfigError for a name that cannot be one.

        Who stands in for them stays as it is.
        """
        if len(groups) > GROUPS_MAX:
            raise ConfigError(f"a person belongs to at most {GROUPS_MAX} groups")
        named = tuple(sorted({check_caller_name(group) for group in groups}))
        new = PersonRecord(person=check_caller_name(person), groups=named)
        return await self._change_or_add(new, lambda known: replace(known, groups=named))

    async def send_away(
        self, person: str, stand_in: str, away_until: float | None = None
    ) -> PersonRecord:
        """Say who stands in for a person; nobody if it is empty. Raises ConfigError."""
        if stand_in == person:
            raise ConfigError(f"{person} cannot be their own stand-in")
        if stand_in:
            check_caller_name(stand_in)
        new = PersonRecord(
            person=check_caller_name(person), stand_in=stand_in, away_until=away_until
        )
        return await self._change_or_add(
            new, lambda known: replace(known, stand_in=stand_in, away_until=away_until)
        )

    async def remove_person(self, person: str) -> None:
        """Forget what is known about a person. Raises NothingToDo if nothing is."""
        try:
            await self.delete(name_person(person))
        except NothingToDo:
            raise NothingToDo(f"nothing is known about a person {person!r}") from None

    async def forget_person(self, person: str) -> None:
        """Forget a person who has left, also as the one who stands in for others.

        Else the next person of that name would have what the others lend.
        """
        with suppress(NothingToDo):
            await self.remove_person(person)
        for one in [one async for one in self.walk() if one.stand_in == person]:
            await self.send_away(one.person, "")

    async def _change_or_add(
        self, new: PersonRecord, change: Callable[[PersonRecord], PersonRecord]
    ) -> PersonRecord:
        changed = await self.change(new.name, change)
        if changed is None:
            await self.add(new)
        return changed or new


class GroupStore(OwnedRecords[Group]):
    """The groups of one journal."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal, "group", Group)

    async def put(self, group: Group) -> Group:
        """Make a group, or change what its people may do. Raises ConfigError for a wrong name."""
        changed = await self.change(group.name, lambda _: group)
        if changed is None:
            await self.add(group)
        return group


class _KnownPeople(msgspec.Struct, frozen=True):
    """All people and groups, as they were read at one time."""

    people: dict[str, PersonRecord]
    groups: dict[str, Group]
    until: float

    def list_grants(self, names: tuple[str, ...]) -> tuple[TeamGrant, ...]:
        """Return what the people of some groups may do."""
        found = [self.groups[name].grants for name in names if name in self.groups]
        return tuple(grant for grants in found for grant in grants)


class PeopleBook:
    """What callers are as people: their groups, and those that others lend them."""

    def __init__(self, journal: Journal, now: Callable[[], float] = time.time) -> None:
        self._journal = journal
        self._now = now
        self._known = _KnownPeople({}, {}, 0.0)

    def forget(self) -> None:
        """Look everything up again: this process has changed it."""
        self._known = _KnownPeople({}, {}, 0.0)

    async def extend(self, caller: Caller) -> Caller:
        """Return a caller with what the groups of the person may do, and those that are lent."""
        known = await self._read()
        groups = known.list_grants(self._groups_of(known, caller.person))
        own = tuple(dict.fromkeys((*caller.grants, *groups)))
        away = self._list_away(known, caller.person)
        given = dict.fromkeys(grant for one in away for grant in known.list_grants(one.groups))
        lent = tuple(grant for grant in given if grant not in own)
        return replace(caller, grants=(*own, *lent), lent_grants=lent)

    async def verify(self, caller: Caller, agent: str) -> VerifiedPerson | None:
        """Return who a caller is towards a question of an agent's run; None if nobody verified it.

        `agent` is the one of the run at the top.
        """
        if not caller.person:
            return None
        known = await self._read()
        groups = self._groups_of(known, caller.person)
        # What another one lent is not the person's own: a starter may have lent it.
        own = [grant for grant in caller.grants if grant not in caller.lent_grants]
        team = {*_list_team_roles(own, agent), *(("admin",) if caller.is_admin else ())}
        away = self._list_away(known, caller.person)
        lent = tuple(LentRoles(one.person, _list_roles(known, one.groups, agent)) for one in away)
        roles = tuple(sorted({*groups, *team}))
        return VerifiedPerson(caller.person, caller.name, roles, lent, caller.origin)

    def _groups_of(self, known: _KnownPeople, person: str) -> tuple[str, ...]:
        record = known.people.get(person)
        return record.groups if record else ()

    def _list_away(self, known: _KnownPeople, person: str) -> list[PersonRecord]:
        """Return those for whom a person stands in."""
        now = self._now()
        return [
            record
            for record in known.people.values()
            if record.stand_in == person and record.is_away(now) and record.groups
        ]

    async def _read(self) -> _KnownPeople:
        now = self._now()
        if now >= self._known.until:
            people = {one.person: one async for one in PeopleStore(self._journal).walk()}
            groups = {one.name: one async for one in GroupStore(self._journal).walk()}
            self._known = _KnownPeople(people, groups, now + LOOK_S)
        return self._known


def _list_roles(known: _KnownPeople, groups: tuple[str, ...], agent: str) -> tuple[str, ...]:
    """Return groups, and the roles in the team that they give for an agent."""
    team = _list_team_roles(known.list_grants(groups), agent)
    return tuple(sorted({*groups, *team}))


def _list_team_roles(grants: Iterable[TeamGrant], agent: str) -> set[str]:
    return {grant.role for grant in grants if grant.covers(agent)}


def name_person(person: str) -> str:
    """Return the name of a person's record."""
    return hashlib.sha256(person.encode()).hexdigest()[:40]
