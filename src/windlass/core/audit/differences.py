"""Compare facts, and say where a journal and the rules of this version differ."""

import msgspec
from typing_extensions import override

from windlass.core.events import RULES_VERSION, Fact
from windlass.core.text_clip import printable_line

VALUE_CHARS_MAX = 200
"""Characters of a value that are shown."""
_PLACE_FIELDS = ("seq", "nth", "at", "worked_s", "driver")
"""Where, when and by whom a fact was written, which is not what it says."""


class ReplayDifference(msgspec.Struct, frozen=True):
    """The first record that the rules of this version would not have written."""

    seq: int
    recorded: str
    rules: str
    """What the rules would have done there, in words."""

    @override
    def __str__(self) -> str:
        return f"record {self.seq} is {self.recorded}; the rules would {self.rules}"


class OtherRules(msgspec.Struct, frozen=True):
    """The first record that differs in a session which other rules made. It proves nothing."""

    seq: int
    version: int
    """Of the rules that made it; 0: before versions were recorded."""

    @override
    def __str__(self) -> str:
        age = "older" if self.version < RULES_VERSION else "newer"
        made = f"made by {age} rules (version {self.version}, this Windlass has {RULES_VERSION})"
        return f"record {self.seq} was {made}: it cannot be compared from there on"


def same_fact(fact: Fact, other: Fact) -> bool:
    """Whether two facts say the same, whatever their places."""
    return type(fact) is type(other) and _fact_fields(fact) == _fact_fields(other)


def format_fact(fact: Fact) -> str:
    """Return a fact as its name and those of its fields that say something."""
    fields = (f"{name}={clip_value(value)}" for name, value in _fact_fields(fact).items() if value)
    return f"{type(fact).__name__}({', '.join(fields)})"


def clip_value(value: object) -> str:
    """Return a value on one line of a bounded length."""
    return printable_line(value if isinstance(value, str) else repr(value), VALUE_CHARS_MAX)


def _fact_fields(fact: Fact) -> dict[str, object]:
    names = (name for name in fact.__struct_fields__ if name not in _PLACE_FIELDS)
    return {name: getattr(fact, name) for name in names}
