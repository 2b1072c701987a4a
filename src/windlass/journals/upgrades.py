"""Upgrades of a journal that an older version still uses.

The law: until the upgrade is finished (`windlass migrate --finish`), nothing is written that the
older version could not read. What needs a newer fact, or a driver that takes mail, is refused.
"""

from collections.abc import Sequence

import msgspec

from windlass.core.errors import JournalFailed, UpgradeUnfinished
from windlass.core.events import Fact
from windlass.core.text_clip import printable_line

OLDER_FACTS = frozenset(
    (
        "Allotted",
        "AttemptFailed",
        "AttemptStarted",
        "CallAnswered",
        "CallFinished",
        "CallJudged",
        "CallLate",
        "CallStarted",
        "Compacted",
        "Heeded",
        "Hydrated",
        "NoteGiven",
        "Recalled",
        "ReplyJudged",
        "RunEnded",
        "RunResumed",
        "RunStarted",
        "Steered",
        "StepProposed",
    )
)
"""The tags of the facts that the version before this one can read: those of the corpus."""


class UpgradeStatus(msgspec.Struct, frozen=True):
    """Where the upgrade of a journal stands."""

    version: int
    """The version of the tables."""
    is_finished: bool
    """Whether older versions refuse the journal."""
    sessions_left: int = 0
    """Sessions whose row does not have all columns of this version yet."""


def upgrade_unfinished_error(location: str, what: str) -> UpgradeUnfinished:
    """Something was asked for that an older program, which may share the journal, cannot read."""
    return UpgradeUnfinished(
        f"{location}: {what} is not possible while programs of an older version may use this "
        "journal; stop or upgrade them all, then run `windlass migrate --finish`"
    )


def older_wrote_error() -> JournalFailed:
    """An older version wrote to the journal at the moment when its upgrade was finished."""
    return JournalFailed(
        "an older version wrote to the journal while its upgrade was being finished; stop all "
        "programs of the older version and run `windlass migrate --finish` again"
    )


def find_unshared(facts: Sequence[Fact]) -> str | None:
    """Return the tag of the first fact that an older version cannot read; None if it reads all."""
    tags = (str(fact.__struct_config__.tag) for fact in facts)
    return next((tag for tag in tags if tag not in OLDER_FACTS), None)


def check_shared_facts(location: str, facts: Sequence[Fact]) -> None:
    """Raise UpgradeUnfinished if an older version could not read one of the facts."""
    tag = find_unshared(facts)
    if tag is not None:
        raise upgrade_unfinished_error(location, f"to record {printable_line(tag)}")
