"""Two facts compared, and one shown in short."""

from windlass.core.audit.phrases import shown as line
from windlass.core.events import Fact

SHOWN_MAX = 200
"""Characters of a value that are shown."""


def alike(fact: Fact, other: Fact) -> bool:
    """Whether two facts are the same but for their place."""
    return type(fact) is type(other) and _fields(fact) == _fields(other)


def named(fact: Fact) -> str:
    return type(fact).__name__


def shown(fact: Fact) -> str:
    """A fact with what it says."""
    said = ", ".join(f"{name}={clip(value)}" for name, value in _fields(fact).items() if value)
    return f"{named(fact)}({said})"


def clip(value: object) -> str:
    return line(value if isinstance(value, str) else repr(value), SHOWN_MAX)


def _fields(fact: Fact) -> dict[str, object]:
    names = (name for name in fact.__struct_fields__ if name not in ("seq", "nth", "at"))
    return {name: getattr(fact, name) for name in names}
