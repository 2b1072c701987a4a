"""Which sessions a caller may see, and whose they are.

The law: a session of another owner does not exist for a caller: the error is the same as for a name
that nobody has. The session of a sub-agent belongs to the owner of the run that it works for.
"""

from collections.abc import Iterable

from windlass.evaluation.forks import TRIAL_PREFIX
from windlass.ports import Journal, SessionCatalog
from windlass.server.access import Caller, full_session_name
from windlass.server.errors import ApiError
from windlass.server.session_cache import KnownSession, SessionCache

SESSION_CHARS_MAX = 200
PARENTS_MAX = 100
"""How many sessions above a sub-agent's are looked up."""


class SessionDirectory:
    """Finds sessions on behalf of callers."""

    def __init__(self, sessions: SessionCache) -> None:
        self._sessions = sessions

    async def find(self, caller: Caller, session: str) -> KnownSession:
        """Return what is known of a session, by its full name or the caller's short one.

        Raises ApiError 404 if there is none that the caller may see.
        """
        for name in dict.fromkeys(_possible_names(caller, session)):
            known = await self._sessions.read(name)
            if known is not None:
                await self.check_access(caller, known)
                return known
        raise no_such_session(session)

    async def check_access(self, caller: Caller, known: KnownSession) -> str:
        """Return the owner of a session. Raises ApiError 404 if the caller may not see it."""
        owner = await self.find_owner(known)
        if not caller.is_admin and owner != caller.name:
            raise no_such_session(known.summary.session)
        return owner

    async def find_owner(self, known: KnownSession) -> str:
        return (await self.find_root(known)).owner

    async def find_root(self, known: KnownSession) -> KnownSession:
        for _ in range(PARENTS_MAX):
            above = await self._sessions.read(known.parent) if known.parent else None
            if above is None:
                return known
            known = above
        return known


def _possible_names(caller: Caller, session: str) -> Iterable[str]:
    if caller.is_admin:
        yield session
    yield full_session_name(caller.name, session)
    if session.startswith(TRIAL_PREFIX):
        # A program runs trials for a caller under names without the caller's own part. No request
        # can begin a session of such a name, so whom it names as its owner can be believed.
        yield session


def check_session_name(name: str) -> str:
    """Return the name of a session that a request may begin. Raises ApiError 422."""
    if len(name) > SESSION_CHARS_MAX or not name.isprintable() or "/" in name:
        raise ApiError(
            422,
            "invalid_session_name",
            "The name of a session has at most "
            f"{SESSION_CHARS_MAX} visible characters, and no slash.",
            "Choose another name, or leave it out.",
        )
    return name


def no_such_session(session: str) -> ApiError:
    return ApiError(
        404,
        "session_not_found",
        f"There is no session {session!r} of yours.",
        "GET /runs lists your sessions.",
    )


def require_catalog(journal: Journal) -> SessionCatalog:
    """Return the journal as one that lists its sessions. Raises ApiError 501 if it does not."""
    if isinstance(journal, SessionCatalog):
        return journal
    raise ApiError(
        501,
        "not_listed",
        f"{type(journal).__name__} does not list its sessions.",
        "Use a journal that does, such as SQLite or Postgres.",
    )
