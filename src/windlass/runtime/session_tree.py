"""Which session works for which: decided by their facts, never by their names.

A sub-agent's session is named after its call, SESSION/CALL, but a caller may give any session such
a name: a slash proves nothing.
"""

from windlass.core.errors import NothingToDo
from windlass.core.fold.run import fold
from windlass.core.state import State
from windlass.ports import Journal

DEPTH_MAX = 100
"""How many sessions above a sub-agent are looked up; no tree is as deep."""


async def find_root(journal: Journal, state: State) -> State:
    """Return the session at the top of those that a session works for; itself if for none.

    Raises NothingToDo if sessions are nested too deeply.
    """
    for _ in range(DEPTH_MAX):
        parent = state.parent
        above = fold(parent, await journal.read(parent)) if parent else None
        # A sub-agent whose caller has ended is a root itself: no open call leads to it.
        if above is None or not above.seq or not _leads_to(above, state):
            return state
        state = above
    raise NothingToDo(f"session {state.session} is nested too deeply")


async def works_for(journal: Journal, session: str, caller: str) -> bool:
    """Return whether a session works for another one, directly or through others."""
    for _ in range(DEPTH_MAX):
        session = fold(session, await journal.read(session)).parent
        if not session or session == caller:
            return bool(session)
    return False


def _leads_to(caller: State, session: State) -> bool:
    """Whether an open call of a run leads to the session of a sub-agent."""
    started = [call for call in caller.step_calls if call.began and call.phase != "closed"]
    return any(
        session.session == name or session.session.startswith(f"{name}.")
        for name in (caller.child_session_name(call.id) for call in started)
    )
