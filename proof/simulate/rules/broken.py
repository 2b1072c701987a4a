"""The error of a rule that does not hold."""

__all__ = ["RuleBroken", "require"]


class RuleBroken(AssertionError):
    """A rule does not hold."""


def require(holds: object, otherwise: str) -> None:
    """Raise RuleBroken with this text unless the condition holds."""
    if not holds:
        raise RuleBroken(otherwise)
