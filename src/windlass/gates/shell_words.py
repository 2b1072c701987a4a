"""What a shell command consists of, once it is read: words, simple commands, redirections."""

from dataclasses import dataclass
from typing import TypeAlias


class UnreadableCommand(ValueError):
    """What bash would run cannot be told with certainty."""


@dataclass(frozen=True, slots=True)
class ShellWord:
    text: str
    """After the quotes are gone; with holes."""
    is_plain: bool = True
    """Nothing of it was quoted or is a hole: a reserved word counts as one."""
    unquoted_chars: int = 0
    """How many of its first characters stood there as they are."""
    has_expansion: bool = False
    """A variable, a home folder or a command's output is in it, which may hold anything."""
    has_code: bool = False
    """Quoted as it may be, it holds what would be a substitution if anyone evaluated it."""


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    words: tuple[ShellWord, ...]


@dataclass(frozen=True, slots=True)
class FileRedirection:
    writes: bool
    target: str


ShellItem: TypeAlias = SimpleCommand | FileRedirection
