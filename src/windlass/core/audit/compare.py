"""Two facts compared, and one shown in short."""

from windlass.core.audit.phrases import printable_line as line
from windlass.core.events import Fact

VALUE_CHARS_MAX = 200
"""Characters of a value that are shown."""


def same_fact(fact: Fact, other: Fact) -> bool:
    """Whether two facts are the same but for their place."""
    return type(fact) is type(other) and _fact_fields(fact) == _fact_fields(other)


def fact_name(fact: Fact) -> str:
    return type(fact).__name__


def format_fact(fact: Fact) -> str:
    """A fact with what it says."""
    said = ", ".join(
        f"{name}={clip_value(value)}" for name, value in _fact_fields(fact).items() if value
    )
    return f"{fact_name(fact)}({said})"


def clip_value(value: object) -> str:
    return line(value if isinstance(value, str) else repr(value), VALUE_CHARS_MAX)


def _fact_fields(fact: Fact) -> dict[str, object]:
    names = (name for name in fact.__struct_fields__ if name not in ("seq", "nth", "at"))
    return {name: getattr(fact, name) for name in names}
