"""Sessions that were folded lately, so that a long conversation is not read anew at every turn.

The journal is still asked: what it holds must go on where the known state ends, else it is read
from the start.
"""

from collections import OrderedDict
from functools import reduce

from windlass.core.events import Fact
from windlass.core.fold.run import apply, fold
from windlass.core.state import State
from windlass.ports import Journal
from windlass.runtime.recorder import Recorder

SESSIONS_MAX = 64


class Known:
    """The last state of each session that this agent drove, for a while."""

    def __init__(self) -> None:
        self._states: OrderedDict[str, tuple[State, Fact]] = OrderedDict()

    def keep(self, recorder: Recorder) -> None:
        """Remember where a session stands."""
        if recorder.last is None or recorder.last.seq != recorder.state.seq:
            self._states.pop(recorder.session, None)
            return
        self._states[recorder.session] = recorder.state, recorder.last
        self._states.move_to_end(recorder.session)
        if len(self._states) > SESSIONS_MAX:
            self._states.popitem(last=False)

    async def read(self, journal: Journal, session: str) -> State:
        """The state of a session as the journal has it now."""
        known = self._states.get(session)
        if known is not None:
            state, last = known
            facts = await journal.read(session, state.seq - 1)
            if facts and facts[0] == last:
                return reduce(apply, facts[1:], state)
        return fold(session, await journal.read(session))
