"""Read the values of an entry of `mcpServers` JSON, and say where a wrong one is."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from windlass.core.errors import ConfigError
from windlass.core.suggestions import suggest_names

TIMEOUT_S_MAX = 24 * 3600.0
"""A larger number was probably meant as milliseconds."""

VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(?::-([^}]*))?\}")
"""`${NAME}` or `${NAME:-default}`, in any value of a server."""

T = TypeVar("T")


def require_mapping(where: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}: must be an object, not {_describe_type(value)}")
    return cast("Mapping[str, Any]", value)


def check_keys(where: str, entry: Mapping[str, Any], keys: Sequence[str]) -> None:
    for key in entry:
        if key not in keys:
            raise ConfigError(f"{where}: there is no setting {key!r}.{suggest_names(key, keys)}")


def _describe_type(value: object) -> str:
    # bool comes before int, because True is also an int.
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", int: "a number"}
    return next((name for kind, name in names.items() if isinstance(value, kind)), "this")


@dataclass(frozen=True, slots=True)
class EntryReader:
    """Reads the values of one entry; raises ConfigError with the place of the entry."""

    where: str
    environ: Mapping[str, str] = field(repr=False)
    of_project: bool = False
    only_tightens: bool = False

    def value_error(self, key: str, expected: str) -> ConfigError:
        return ConfigError(f"{self.where}: {key!r} must be {expected}")

    def read_text(self, key: str, value: object) -> str:
        if not isinstance(value, str) or not value:
            raise self.value_error(key, "a string that is not empty")
        return VARIABLE.sub(self._expand_variable, value)

    def _expand_variable(self, found: re.Match[str]) -> str:
        name = found[1]
        default = cast("str | None", found[2])
        value = self.environ.get(name, default)
        if value is None:
            raise ConfigError(
                f"{self.where} needs the environment variable {name}, which is not set: "
                f"set it, or write ${{{name}:-default}}"
            )
        return value

    def read_texts(self, key: str, value: object) -> tuple[str, ...]:
        if not isinstance(value, list):
            raise self.value_error(key, 'a list of strings, as in ["a", "b"]')
        return tuple(self._read_item(key, item) for item in cast("list[object]", value))

    def read_pairs(self, key: str, value: object) -> dict[str, str]:
        pairs = require_mapping(f"{self.where}: {key}", value)
        return {name: self._read_item(f"{key}.{name}", item) for name, item in pairs.items()}

    def _read_item(self, key: str, value: object) -> str:
        # An argument or a variable may be empty, unlike its own setting.
        return "" if value == "" else self.read_text(key, value)

    def read_seconds(self, key: str, value: object) -> float | None:
        match value:
            case None:
                return None
            case int() | float() if not isinstance(value, bool) and 0 < value <= TIMEOUT_S_MAX:
                return float(value)
            case _:
                raise self.value_error(key, "a number of seconds above zero, or null for no limit")

    def read_flag(self, key: str, value: object) -> bool:
        if not isinstance(value, bool):
            raise self.value_error(key, "true or false")
        return value

    def read_trust(self, key: str, value: object) -> bool:
        what = "declare that a server's hints are to be trusted"
        return self._read_own_flag(key, value, what)

    def read_sampling(self, key: str, value: object) -> bool:
        return self._read_own_flag(key, value, "let a server use your model")

    def _read_own_flag(self, key: str, value: object, what: str) -> bool:
        """Read a flag that only a person's own settings can set."""
        is_set = self.read_flag(key, value)
        if is_set and self.of_project:
            raise ConfigError(
                f"{self.where}: a project cannot {what}: "
                f"remove {key!r}, or name the server in a file of your own, outside of the "
                "project, and set mcp_config to it in your own settings"
            )
        return is_set

    def check_choice(self, key: str, value: object, among: Sequence[str]) -> str:
        if value not in among:
            near = suggest_names(str(value), among)
            raise ConfigError(f"{self.where}: there is no {key} {value!r}.{near}")
        return cast("str", value)


def read_optional(
    read: Callable[[str, object], T], key: str, entry: Mapping[str, Any], default: T
) -> T:
    return read(key, entry[key]) if key in entry else default
