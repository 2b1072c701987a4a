"""How what a model is shown is kept small, and what is looked up for it beforehand."""

import re
from typing import Literal

import msgspec

from windlass.core.limits import check_numbers

CompactionMethod = Literal["mask", "summary", "window"]
"""Mask the results of old calls, sum up the beginning, or leave it out."""


class Compaction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How what a model is shown stays within its window. The transcript is never touched."""

    strategies: tuple[CompactionMethod, ...] = ("mask", "summary", "window")
    """Tried in this order, until the view is small enough."""
    window: int | None = None
    """Tokens to stay within; None: those that the model has, if that is known."""
    trigger: float = 0.8
    """The part of the window that must be full before anything is done."""
    target: float = 0.5
    """The part that is left full."""
    cool_down: int = 5
    """Steps without another summary after one failed."""
    summary_tokens: int = 2_000
    """The length of a summary at the most."""

    def __post_init__(self) -> None:
        check_numbers(self, "window", "trigger", "target", "cool_down", "summary_tokens")
        if not self.target < self.trigger <= 1:
            raise ValueError("Compaction(target=…, trigger=…): target < trigger <= 1")


class Reference(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a prompt may speak of, and the tool that looks it up."""

    pattern: str
    """A regular expression; its first group, or all of it, is what is looked up."""
    tool: str
    argument: str


FILE_SUFFIXES = (
    "c|cc|cfg|conf|cpp|cs|css|csv|go|h|hpp|html|ini|ipynb|java|json|jsonl|js|jsx|kt|lock|log|md|php"
    "|proto|ps1|py|pyi|rb|rs|rst|sh|sql|svg|swift|tex|toml|ts|tsx|txt|xml|yaml|yml|zig"
)
FILE_REFERENCE = Reference(
    rf"(?<![\w/@.:-])((?:\.{{0,2}}/)?(?:[\w.-]+/)*[\w.-]*\w\.(?:{FILE_SUFFIXES}))(?![\w/-]|\.\w)",
    "read",
    "path",
)
"""What ends as files of text do; `example.com` and `e.g.` do not."""
URL_REFERENCE = Reference(r"https?://[^\s<>\"'`)\]]+[^\s<>\"'`)\].,;:!?]", "fetch", "url")


class Hydration(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is looked up before the first step: files, addresses, ids that the prompt names."""

    references: tuple[Reference, ...] = (URL_REFERENCE, FILE_REFERENCE)
    calls_max: int = 5
    seconds: float = 20.0
    tokens_max: int = 8_000
    """Of all that is found together."""

    def __post_init__(self) -> None:
        check_numbers(self, "calls_max", "seconds", "tokens_max")
        for reference in self.references:
            try:
                re.compile(reference.pattern)
            except re.error as error:
                told = f"Reference({reference.pattern!r}): it is no regular expression: {error}"
                raise ValueError(told) from None
