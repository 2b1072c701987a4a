"""Work as a worker sees it: sessions to drive, and how its free places are dealt to their lanes."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from windlass.core.fold.run import fold
from windlass.core.mail import PromptMail
from windlass.ports import ClaimedWork, Journal, WorkLane, WorkShare
from windlass.ports.fleet import LANES_MAX


@dataclass(frozen=True, slots=True)
class WorkItem:
    """A session that may need a driver."""

    session: str
    agent: str
    caller: str
    has_mail: bool = False
    """Found by its messages, not by a run without a driver."""
    priority: int = 0
    """Of the prompt that waits: a higher one is begun first."""

    @classmethod
    def of_claimed(cls, work: ClaimedWork, any_agent: str) -> "WorkItem":
        """Return what was claimed. What any agent may do is `any_agent`'s."""
        agent = work.agent or any_agent
        return cls(work.session, agent, work.caller, not work.is_begun, work.priority)


HasRoom = Callable[[WorkItem, Sequence[WorkItem]], bool]
"""Whether one more item fits, beside what is driven and these."""


def deal_places(
    lanes: Iterable[WorkLane], driving: Iterable[WorkItem], places: int, has_room: HasRoom
) -> list[WorkShare]:
    """Return how many sessions of each lane to take.

    Runs that were begun come first: a backlog of new prompts must not hold up those of a worker
    that died. Then the caller with the fewest runs comes next, so that neither a long queue nor a
    high priority of one keeps another waiting; then the most urgent, then the oldest.
    """
    running = Counter(item.caller for item in driving)
    left = list(lanes)
    dealt: list[WorkItem] = []
    shares: Counter[WorkLane] = Counter()
    while left and len(dealt) < places:
        lane = min(
            left,
            key=lambda lane: (
                not lane.is_begun,
                running[lane.caller] if not lane.is_begun else 0,
                -lane.priority,
                lane.since,
            ),
        )
        item = WorkItem("", lane.agent, lane.caller, not lane.is_begun, lane.priority)
        if not has_room(item, dealt):
            left.remove(lane)
            continue
        dealt.append(item)
        shares[lane] += 1
        running[lane.caller] += 1
    return [WorkShare(lane, count) for lane, count in shares.items()]


def find_next_place(lanes: Sequence[WorkLane]) -> str:
    """Return the caller behind whom the next look begins: the first one, if this one saw all."""
    if len(lanes) < LANES_MAX:
        return ""
    lasts: dict[tuple[str, bool], str] = {}
    for lane in lanes:
        kind = (lane.agent, lane.is_begun)
        lasts[kind] = max(lasts.get(kind, ""), lane.caller)
    return min(lasts.values())


async def find_caller(journal: Journal, session: str) -> str:
    """Return on whose behalf the run works that is open or comes next in a session."""
    run = fold(session, await journal.read(session)).run
    if run is not None and run.outcome is None:
        return run.caller
    for letter in await journal.read_mail(session, "prompts"):
        if isinstance(letter.message, PromptMail):
            return letter.message.caller
    return run.caller if run is not None else ""
