"""Which of the available tools a model is offered."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from windlass.core.errors import ConfigError
from windlass.core.suggestions import suggest_names
from windlass.tools.function import Tool


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
