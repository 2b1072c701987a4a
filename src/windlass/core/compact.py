"""What of a transcript may be left out of the view: a plan, not an act.

Only whole groups go: a reply and the results of its calls stay together. The prompt of the running
run and the last group always stay.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from windlass.core.messages import Message, Results
from windlass.core.state import Run, State, weigh

KEEP = 0.5
"""The part of the view that is kept when it must shrink."""


def plan(state: State, run: Run) -> int | None:
    """The message from which on the view goes on, or None if there is nothing to leave out."""
    messages = state.transcript
    starts = [at for at in _groups(messages) if state.shown_from < at]
    room = KEEP * sum(weigh(messages[at]) for at in range(state.shown_from, len(messages)))
    kept = weigh(messages[run.new_from])
    best: int | None = None
    for at, end in reversed(list(pairwise([*starts, len(messages)]))):
        kept += sum(weigh(messages[one]) for one in range(at, end))
        if best is not None and kept > room:
            break
        best = at
    return best


def note(left_out: int) -> str:
    """What the model is told in the place of what was left out."""
    return f"[{left_out} earlier messages were left out, since the conversation grew too long.]"


def _groups(messages: Sequence[Message]) -> Iterator[int]:
    """Where a group begins: at every message that is not the results of the one before."""
    return (at for at, message in enumerate(messages) if not isinstance(message, Results))
