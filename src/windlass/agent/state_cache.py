"""Sessions that were folded lately, so that a long conversation is not read anew at every turn.

The journal is still asked: what it holds must go on where the known state ends, else it is read
from the start.
"""

from collections import OrderedDict
from functools import reduce

from windlass.core.events import Fact
from windlass.core.fold.run import apply_fact, fold
from windlass.core.state import State
from windlass.ports import Journal
from windlass.runtime.recorder import Recorder

CACHED_SESSIONS_MAX = 64


class StateCache:
    """The last state of each session that this agent drove, for a while."""

    def __init__(self) -> None:
        self._states: OrderedDict[str, tuple[State, Fact]] = OrderedDict()

    def remember(self, recorder: Recorder) -> None:
        """Remember where a session stands."""
        if recorder.last_fact is None or recorder.last_fact.seq != recorder.state.seq:
            self._states.pop(recorder.session, None)
            return
        self._states[recorder.session] = recorder.state, recorder.last_fact
        self._states.move_to_end(recorder.session)
        if len(self._states) > CACHED_SESSIONS_MAX:
            self._states.popitem(last=False)

    async def read_state(self, journal: Journal, session: str) -> State:
        """The state of a session as the journal has it now."""
        cached = self._states.get(session)
        if cached is not None:
            state, last = cached
            facts = await journal.read(session, state.seq - 1)
            if facts and facts[0] == last:
                return reduce(apply_fact, facts[1:], state)
        return fold(session, await journal.read(session))
