"""Fills the templates of a manifest with the arguments of a call.

Invariant: nothing is ever put into a shell string, and an argument can only be a value where the
manifest wants one. In a command it is one word of the command line and never an option; in a URL it
is one segment of the path, and never another host or folder; in JSON it is a string or the value.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast
from urllib.parse import quote

import msgspec

from windlass.core.errors import ConfigError, ModelRetry

PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}")
SECRET = re.compile(r"\$\{([A-Za-z_]\w*)\}")
Arguments = Mapping[str, Any]


class MissingArgument(Exception):
    """A template names an argument that the call does not have."""


def find_names(template: object) -> Iterator[str]:
    """Yield the names of the arguments in a template."""
    match template:
        case str():
            yield from PLACEHOLDER.findall(SECRET.sub("", template))
        case Mapping():
            for value in cast("Mapping[str, object]", template).values():
                yield from find_names(value)
        case Sequence():
            for value in cast("Sequence[object]", template):
                yield from find_names(value)
        case _:
            pass


def find_secret_names(template: object) -> Iterator[str]:
    """Yield the names of the secrets in a template."""
    match template:
        case str():
            yield from SECRET.findall(template)
        case Mapping():
            for value in cast("Mapping[str, object]", template).values():
                yield from find_secret_names(value)
        case _:
            pass


def fill_text(template: str, arguments: Arguments) -> str:
    """Return a text with the arguments in it. Raises MissingArgument."""

    def insert(found: re.Match[str]) -> str:
        return _as_text(_take(arguments, found[1]))

    return PLACEHOLDER.sub(insert, template)


def fill_command(template: Sequence[str], arguments: Arguments) -> list[str]:
    """Return the words of a command line. A list becomes several words; what is missing, none.

    Raises ModelRetry for a value that the program would take for an option.
    """
    words: list[str] = []
    has_ended_options = False
    for part in template:
        whole = PLACEHOLDER.fullmatch(part)
        try:
            values = _as_list(_take(arguments, whole[1])) if whole else [fill_text(part, arguments)]
        except MissingArgument:
            continue
        texts = [_as_text(value) for value in values]
        if whole and not has_ended_options and any(text.startswith("-") for text in texts):
            raise ModelRetry(f"{whole[1]} must not begin with a dash.")
        if any("\0" in text for text in texts):
            raise ModelRetry("A value must not hold a zero byte.")
        has_ended_options = has_ended_options or part == "--"
        words += texts
    return words


def fill_url(template: str, arguments: Arguments) -> str:
    """Return a URL in which each argument is one segment, or a part of one, of the path."""

    def insert(found: re.Match[str]) -> str:
        text = _as_text(_take(arguments, found[1]))
        if text in {".", ".."} or not text:
            raise ModelRetry(f"{found[1]} must be a name, and not {text!r}.")
        return quote(text, safe="")

    return PLACEHOLDER.sub(insert, template)


def fill_fields(template: Mapping[str, Any], arguments: Arguments) -> dict[str, Any]:
    """Return the fields of a query or a JSON object, without those whose argument is missing."""
    filled: dict[str, Any] = {}
    for name, value in template.items():
        try:
            filled[name] = _fill_value(value, arguments)
        except MissingArgument:
            continue
    return filled


def _fill_value(template: object, arguments: Arguments) -> object:
    match template:
        case str():
            whole = PLACEHOLDER.fullmatch(template)
            return _take(arguments, whole[1]) if whole else fill_text(template, arguments)
        case Mapping():
            return fill_fields(cast("Mapping[str, Any]", template), arguments)
        case list():
            return [_fill_value(value, arguments) for value in cast("list[object]", template)]
        case _:
            return template


def _take(arguments: Arguments, name: str) -> Any:  # noqa: ANN401 - whatever the schema allows
    value = arguments.get(name)
    if value is None:
        raise MissingArgument(name)
    return value


def _as_list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else [value]


def _as_text(value: object) -> str:
    """Return a value as text: a string as it is, anything else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def check_names(template: object, parameters: Mapping[str, Any], where: str) -> None:
    """Raise ConfigError if a template names an argument that the tool does not have."""
    for name in find_names(template):
        if name not in parameters:
            raise ConfigError(f"{where}: {{{name}}} is not one of the tool's parameters")
