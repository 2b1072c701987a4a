"""The types of what the fixtures of the command line's tests give."""

from collections.abc import Callable
from typing import TypeAlias

from click.testing import Result

Cli: TypeAlias = Callable[..., Result]
"""`windlass ARGS…`, with `stdin=` for what is piped in."""
