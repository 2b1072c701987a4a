"""Sessions that live as long as the process."""

import asyncio
from collections.abc import Sequence
from threading import Lock

from windlass.core.errors import WindlassError
from windlass.core.events import Fact
from windlass.journals.chain import check_order
from windlass.journals.summary import Summary, advance


class MemoryJournal:
    """Keeps facts as they are. An append is done when it returns: nothing is waited for."""

    def __init__(self) -> None:
        self._sessions: dict[str, list[Fact]] = {}
        # `run_sync` may drive a session from a thread of its own.
        self._one_writer = Lock()

    async def read(self, session: str, after: int = 0) -> Sequence[Fact]:
        """The facts of a session past a sequence number."""
        return tuple(self._sessions.get(session, ())[after:])

    def append(self, session: str, facts: Sequence[Fact]) -> asyncio.Future[None]:
        """Keep the facts, all or none."""
        done = asyncio.get_running_loop().create_future()
        try:
            self._keep(session, facts)
        except WindlassError as error:
            done.set_exception(error)
        else:
            done.set_result(None)
        return done

    def _keep(self, session: str, facts: Sequence[Fact]) -> None:
        if not facts:
            return
        with self._one_writer:
            known = self._sessions.get(session, [])
            check_order(session, len(known), facts)
            known.extend(facts)
            self._sessions[session] = known

    async def sessions(
        self, query: str | None = None, *, limit: int = 50, unfinished: bool = False
    ) -> list[Summary]:
        """The sessions whose name or first prompt holds the query, the latest first."""
        found = [advance(Summary(name), facts) for name, facts in self._sessions.items()]
        wanted = (query or "").casefold()
        found = [
            one
            for one in found
            if wanted in f"{one.session}\n{one.title}".casefold()
            and not (unfinished and one.outcome)
        ]
        return sorted(found, key=lambda one: one.updated, reverse=True)[:limit]

    async def delete(self, session: str) -> bool:
        """Forget a session; whether there was one."""
        with self._one_writer:
            return self._sessions.pop(session, None) is not None
