"""What is raised when a rule does not hold."""

__all__ = ["RuleBroken", "require"]


class RuleBroken(AssertionError):
    """A rule does not hold."""


def require(holds: object, otherwise: str) -> None:
    if not holds:
        raise RuleBroken(otherwise)
