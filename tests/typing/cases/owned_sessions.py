"""A session is used through the handle that its owner was given, never by a name (A13)."""

from dataclasses import replace

from windlass.core.projection.view import Projection
from windlass.core.session_summary import SessionSummary
from windlass.core.verdicts import Allow
from windlass.ports import Journal
from windlass.server.access import Caller
from windlass.server.client_run import ClientRun
from windlass.server.owned_reading import is_caught_up, read_recorded_facts
from windlass.server.service import Service
from windlass.server.session_directory import OwnedSession

# expect: "_OwnerSeal" is private
from windlass.server.session_directory import _OwnerSeal

# expect: "_SEAL" is private
from windlass.server.session_directory import _SEAL


async def use_a_name(service: Service, journal: Journal, name: str) -> None:
    # expect: "str" is not assignable to "OwnedSession"
    service.watch(name)
    # expect: "str" is not assignable to "OwnedSession"
    await service.read_facts(name)
    # expect: "str" is not assignable to "OwnedSession"
    await service.cancel(name)
    # expect: "str" is not assignable to "OwnedSession"
    await service.answer(name, "c1", Allow())
    # expect: "str" is not assignable to "OwnedSession"
    await service.fork(name, 1)
    # expect: "str" is not assignable to "OwnedSession"
    await read_recorded_facts(journal, name)
    # expect: "str" is not assignable to "OwnedSession"
    await is_caught_up(journal, name, 1)


def follow_a_name(service: Service, name: str) -> ClientRun:
    # expect: "str" is not assignable to "OwnedSession"
    return ClientRun(service, name, 1)


async def use_what_is_only_listed(service: Service, listed: SessionSummary) -> None:
    # expect: "SessionSummary" is not assignable to "OwnedSession"
    await service.cancel(listed)


def make_it_up(caller: Caller, summary: SessionSummary, view: Projection) -> None:
    # expect: "seal"
    OwnedSession(caller, caller.name, "", summary, view, {}, None, None)
    # expect: "None" is not assignable to "_OwnerSeal"
    OwnedSession(caller, caller.name, "", summary, view, {}, None, None, None)


def change(session: OwnedSession, other: SessionSummary) -> None:
    # expect: Attribute "summary" is read-only
    session.summary = other
    # expect: Cannot assign to attribute "name"
    session.name = "ann.plan"


# expect: Base class "OwnedSession" is marked final
class Looser(OwnedSession):
    """A subclass could do without the seal."""


def steal(session: OwnedSession, other: SessionSummary) -> tuple[OwnedSession, _OwnerSeal]:
    """What is reported is the import above; pyright cannot see through `dataclasses.replace`.

    That one is refused when it runs: see `tests/server/test_isolation.py`.
    """
    assert _SEAL
    return replace(session, summary=other), _OwnerSeal()
