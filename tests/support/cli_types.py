"""The types of what the fixtures of the command line's tests give."""

from collections.abc import Callable
from typing import TypeAlias

from click.testing import Result

Cli: TypeAlias = Callable[..., Result]
"""`windlass ARGS…`, with `stdin=` for what is piped in."""


def approval_in(output: str) -> list[str]:
    """The words of the first command that a waiting run offers to approve its call with."""
    return output.split("windlass approve ", 1)[1].split("\n", 1)[0].split()
