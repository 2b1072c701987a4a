"""Which tools a model is offered, and `search_tools` for agents with too many to show all.

The words of a query are looked for in names, descriptions and parameters. Rare words count more,
and a word in a name counts more than one in a description.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, cast

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.messages import ToolSpec
from windlass.core.suggestions import suggest_names
from windlass.core.tool_search import CALL_SPEC, CALL_TOOL, SEARCH_SPEC
from windlass.tools.function import Tool, ToolFunction

FOUND_MAX = 8
"""Tools in one result."""
NAME_WEIGHT = 3.0
DESCRIPTION_CHARS_MAX = 1_000
_WORD = re.compile(r"[a-z]+|[0-9]+")


class ToolIndex:
    """The tools that can be searched for."""

    def __init__(self, specs: Sequence[ToolSpec]) -> None:
        self._specs = specs
        self._words = [_count_words(spec) for spec in specs]
        found_in = Counter(word for words in self._words for word in words)
        self._rarity = {word: math.log(1 + len(specs) / count) for word, count in found_in.items()}

    def search(self, query: str) -> list[ToolSpec]:
        """Return the tools that fit best, at most FOUND_MAX, the best one first."""
        wanted = set(_split_words(query))
        scores = [
            (sum(words[word] * self._rarity[word] for word in wanted & words.keys()), at)
            for at, words in enumerate(self._words)
        ]
        best = sorted((score, -at) for score, at in scores if score > 0)[-FOUND_MAX:]
        return [self._specs[-at] for _, at in reversed(best)]

    def describe(self, query: str) -> str:
        """Return what `search_tools` says: a line of JSON for each tool that fits."""
        found = self.search(query)
        if not found:
            names = [spec.name for spec in self._specs]
            near = suggest_names(query, names)
            return f"No tool fits {query!r}.{near} Try other words, such as what it works on."
        lines = [
            msgspec.json.encode(
                {
                    "name": spec.name,
                    "description": spec.description[:DESCRIPTION_CHARS_MAX],
                    "parameters": spec.parameters,
                }
            ).decode()
            for spec in found
        ]
        return "\n".join([f"Call them with {CALL_TOOL}.", *lines])


def build_search_tools(specs: Sequence[ToolSpec]) -> tuple[Tool[..., Any], Tool[..., Any]]:
    """Build the two tools that represent all others."""
    describe: ToolFunction = ToolIndex(specs).describe

    def call_tool(name: str, arguments: dict[str, Any]) -> str:  # noqa: ARG001 - see below
        # Never reached: the runtime judges and runs the call that is inside.
        raise AssertionError(name)

    unreachable: ToolFunction = call_tool
    search = cast("type[Tool[..., Any]]", Tool).from_schema(
        SEARCH_SPEC.name,
        SEARCH_SPEC.description,
        SEARCH_SPEC.parameters,
        describe,
        effect="read",
        retries=0,
    )
    call = cast("type[Tool[..., Any]]", Tool).from_schema(
        CALL_SPEC.name, CALL_SPEC.description, CALL_SPEC.parameters, unreachable
    )
    # For code, all tools are there.
    return replace(search, only_by_model=True), replace(call, only_by_model=True)


def _count_words(spec: ToolSpec) -> Counter[str]:
    words: Counter[str] = Counter()
    for word in set(_split_words(spec.description)):
        words[word] += 1
    parameters = spec.parameters.get("properties", {})
    for word in set(_split_words(" ".join(parameters))):
        words[word] += 1
    for word in set(_split_words(spec.name)):
        words[word] += int(NAME_WEIGHT)
    return words


def _split_words(text: str) -> list[str]:
    """Return the words of a text, also those inside `camelCase`, without plural endings."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).lower()
    words = _WORD.findall(spaced)
    return [word.removesuffix("s") if len(word) > 3 else word for word in words]  # noqa: PLR2004


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Patterns for the names of tools, such as `git_*`. A tool must pass both lists."""

    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    tools_max: int | None = None
    """More tools than this are an error: no tool is dropped silently."""

    def __post_init__(self) -> None:
        if isinstance(self.include, str) or isinstance(self.exclude, str):
            raise ConfigError(
                'Profile: include and exclude must be tuples of patterns, as in ("git_*",)'
            )
        if self.tools_max is not None and self.tools_max < 1:
            raise ConfigError(
                f"Profile(tools_max={self.tools_max}): must be 1 or more, or None for no limit"
            )

    def select_tools(self, tools: Sequence[Tool[..., Any]]) -> list[Tool[..., Any]]:
        """Return the tools that pass, in their order.

        Raises ConfigError if `include` names a tool that does not exist, or more than `tools_max`
        tools pass.
        """
        check_patterns(self.include, [tool.name for tool in tools], "Profile")
        selected = [tool for tool in tools if self.is_included(tool.name)]
        if self.tools_max is not None and len(selected) > self.tools_max:
            raise ConfigError(
                f"Profile: {len(selected)} tools pass, and tools_max is {self.tools_max}: "
                "narrow include or exclude, or raise tools_max"
            )
        return selected

    def is_included(self, name: str) -> bool:
        """Whether the profile has a tool of this name."""
        return matches_patterns(name, self.include, self.exclude)


def matches_patterns(name: str, include: Sequence[str], exclude: Sequence[str]) -> bool:
    """Whether a name matches a pattern of `include` and none of `exclude`."""
    included = any(fnmatchcase(name, pattern) for pattern in include)
    return included and not any(fnmatchcase(name, pattern) for pattern in exclude)


def check_patterns(patterns: Sequence[str], names: Collection[str], owner: str) -> None:
    """Raise ConfigError if a pattern without wildcards is not the name of a tool.

    It is probably misspelled, and would otherwise have no effect.
    """
    for pattern in patterns:
        if pattern not in names and not set("*?[") & set(pattern):
            raise ConfigError(
                f"{owner} has no tool {pattern!r}.{suggest_names(pattern, sorted(names))}"
            )
