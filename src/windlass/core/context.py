"""Settings for what a model sees: how the view stays small, and what is looked up beforehand."""

import re
from typing import Literal

from windlass.core.limits import check_numbers
from windlass.core.suggestions import SettingsStruct

CompactionMethod = Literal["mask", "summary", "window"]
"""Mask the results of old calls, summarize the beginning, or leave it out."""


class Compaction(SettingsStruct, frozen=True, kw_only=True, omit_defaults=True):
    """How the view of a model stays within its window. The transcript is never changed."""

    strategies: tuple[CompactionMethod, ...] = ("mask", "summary", "window")
    """Tried in this order, until the view is small enough."""
    window: int | None = None
    """Tokens to stay within. None: the window of the model, if it is known."""
    trigger: float = 0.8
    """The share of the window that must be full before anything is done."""
    target: float = 0.5
    """The share of the window that stays full afterwards."""
    cool_down: int = 5
    """Steps without another summary after one failed."""
    summary_tokens: int = 2_000
    """The most tokens of a summary."""

    def __post_init__(self) -> None:
        check_numbers(self, "window", "trigger", "target", "cool_down", "summary_tokens")
        if not self.target < self.trigger <= 1:
            raise ValueError(
                f"Compaction(target={self.target}, trigger={self.trigger}): "
                "it must be target < trigger <= 1"
            )


class Reference(SettingsStruct, frozen=True, omit_defaults=True):
    """Something that a prompt may refer to, and the tool that looks it up."""

    pattern: str
    """A regular expression. Its first group, or the whole match, is looked up."""
    tool: str
    argument: str
    """The argument of the tool that takes it."""


FILE_SUFFIXES = (
    "c|cc|cfg|conf|cpp|cs|css|csv|go|h|hpp|html|ini|ipynb|java|json|jsonl|js|jsx|kt|lock|log|md|php"
    "|proto|ps1|py|pyi|rb|rs|rst|sh|sql|svg|swift|tex|toml|ts|tsx|txt|xml|yaml|yml|zig"
)
FILE_REFERENCE = Reference(
    rf"(?<![\w/@.:-])((?:\.{{0,2}}/)?(?:[\w.-]+/)*[\w.-]*\w\.(?:{FILE_SUFFIXES}))(?![\w/-]|\.\w)",
    "read",
    "path",
)
"""A path with the suffix of a text file. `example.com` and `e.g.` do not match."""
URL_REFERENCE = Reference(r"https?://[^\s<>\"'`)\]]+[^\s<>\"'`)\].,;:!?]", "fetch", "url")


class Hydration(SettingsStruct, frozen=True, kw_only=True, omit_defaults=True):
    """What is looked up before the first step: files, addresses and ids that the prompt names."""

    references: tuple[Reference, ...] = (URL_REFERENCE, FILE_REFERENCE)
    calls_max: int = 5
    seconds: float = 20.0
    """How long each lookup may take."""
    tokens_max: int = 8_000
    """Of everything that is found together."""

    def __post_init__(self) -> None:
        check_numbers(self, "calls_max", "seconds", "tokens_max")
        for reference in self.references:
            try:
                re.compile(reference.pattern)
            except re.error as error:
                raise ValueError(
                    f"Reference({reference.pattern!r}): not a regular expression: {error}"
                ) from None
