"""Which of the tools at hand a model is offered."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from windlass.core.errors import ConfigError
from windlass.core.suggestions import suggest_names
from windlass.tools.function import Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Patterns over the names of tools, such as `git_*`. A name must pass both lists."""

    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    tools_max: int | None = None
    """More tools than this are an error: none is dropped in silence."""

    def __post_init__(self) -> None:
        if isinstance(self.include, str) or isinstance(self.exclude, str):
            raise ConfigError(
                'Profile: include and exclude are tuples of patterns, as in ("git_*",)'
            )
        if self.tools_max is not None and self.tools_max < 1:
            raise ConfigError(
                f"Profile(tools_max={self.tools_max}): one or more, or None for no limit"
            )

    def select_tools(self, tools: Sequence[Tool[..., Any]]) -> list[Tool[..., Any]]:
        """The tools that pass, in their order."""
        names = [tool.name for tool in tools]
        for pattern in self.include:
            if pattern not in names and not set("*?[") & set(pattern):
                raise ConfigError(
                    f"Profile: there is no tool {pattern!r}.{suggest_names(pattern, names)}"
                )
        passed = [tool for tool in tools if self.is_included(tool.name)]
        if self.tools_max is not None and len(passed) > self.tools_max:
            raise ConfigError(
                f"Profile: {len(passed)} tools pass, and tools_max is {self.tools_max}: "
                "narrow include or exclude, or raise tools_max"
            )
        return passed

    def is_included(self, name: str) -> bool:
        included = any(fnmatchcase(name, pattern) for pattern in self.include)
        return included and not any(fnmatchcase(name, pattern) for pattern in self.exclude)
