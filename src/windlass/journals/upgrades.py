"""Upgrades of a journal in two steps.

Invariant: until a person finishes an upgrade (`windlass migrate --finish`), programs of the version
before may use the journal, and nothing is written that they cannot read. A version changes its
tables so that the version before can use them too: by a step in the `MIGRATIONS` of each store.
"""

from collections.abc import Sequence

import msgspec

from windlass.core.errors import JournalFailed, UpgradeUnfinished
from windlass.core.events import Fact
from windlass.core.text_clip import printable_line

VERSION = 1
"""The version of the format: each version has one entry in the `MIGRATIONS` of each store.

Version 1 is open until the first release.
"""
NEW_FACTS: frozenset[str] = frozenset()
"""The tags of the facts that the version before cannot read. Version 1 is the first."""


class UpgradeStatus(msgspec.Struct, frozen=True):
    """The state of the upgrade of a journal."""

    version: int
    """The version of the tables."""
    is_finished: bool
    """Whether older versions refuse the journal."""
    sessions_left: int = 0
    """Sessions whose row the version before wrote, so that it may lack what is new."""


def older_wrote_error() -> JournalFailed:
    """The version before wrote to the journal at the moment when its upgrade was finished."""
    return JournalFailed(
        "the version before wrote to the journal while its upgrade was being finished; stop all "
        "programs of that version and run `windlass migrate --finish` again"
    )


def find_new_fact(facts: Sequence[Fact]) -> str | None:
    """Return the tag of the first fact that the version before cannot read, if there is one."""
    tags = (str(fact.__struct_config__.tag) for fact in facts)
    return next((tag for tag in tags if tag in NEW_FACTS), None)


def check_shared_facts(location: str, facts: Sequence[Fact]) -> None:
    """Raise UpgradeUnfinished if the version before, which may use the journal, cannot read one."""
    tag = find_new_fact(facts)
    if tag is not None:
        raise UpgradeUnfinished(
            f"{location}: {printable_line(tag)} cannot be recorded while programs of the version "
            "before may use this journal; stop or upgrade them all, then run "
            "`windlass migrate --finish`"
        )
