"""What a shell command consists of, once it is read: words, simple commands, redirections."""

from dataclasses import dataclass
from typing import TypeAlias


class Unreadable(ValueError):
    """What bash would run cannot be told with certainty."""


@dataclass(frozen=True, slots=True)
class Word:
    text: str
    """After the quotes are gone; with holes."""
    plain: bool = True
    """Nothing of it was quoted or is a hole: a reserved word counts as one."""
    bare: int = 0
    """How many of its first characters stood there as they are."""
    loose: bool = False
    """A variable, a home folder or a command's output is in it, which may hold anything."""
    code: bool = False
    """Quoted as it may be, it holds what would be a substitution if anyone evaluated it."""


@dataclass(frozen=True, slots=True)
class Simple:
    words: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class Redirection:
    writes: bool
    target: str


Found: TypeAlias = Simple | Redirection
