"""Where a journal and the rules of this version part, in words."""

import msgspec
from typing_extensions import override

from windlass.core.events import RULES


class ReplayDifference(msgspec.Struct, frozen=True):
    """Where a journal and the rules of this version part."""

    seq: int
    recorded: str
    rules: str
    """What the rules would have done there, in words."""

    @override
    def __str__(self) -> str:
        return f"record {self.seq} is {self.recorded}; the rules would {self.rules}"


class OtherRules(msgspec.Struct, frozen=True):
    """Where a session that other rules made is not as the rules of this version would have it."""

    seq: int
    version: int
    """Of the rules that made it; 0: before versions were recorded."""

    @override
    def __str__(self) -> str:
        age = "older" if self.version < RULES else "newer"
        made = f"made by {age} rules (version {self.version}, this Windlass has {RULES})"
        return f"record {self.seq} was {made}: it cannot be compared from there on"
