"""Suggest names for one that was mistyped: "Did you mean …?"."""

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar, Never

import msgspec


def find_near_names(name: str, names: Iterable[str]) -> list[str]:
    """Return the names that look most like this one, the best first; at most three spellings."""
    from difflib import get_close_matches  # noqa: PLC0415 - only mistakes need it

    candidates = list(names)
    folded = [candidate.casefold() for candidate in candidates]
    matches = dict.fromkeys(get_close_matches(name.casefold(), folded, 3, 0.6))
    return [
        candidate for match in matches for candidate in candidates if candidate.casefold() == match
    ]


def suggest_names(name: str, names: Iterable[str]) -> str:
    """Return a sentence to append to an error: near names, else the known ones, else nothing."""
    names = list(names)
    near = find_near_names(name, names)
    if near:
        return f" Did you mean {' or '.join(near)}?"
    if names:
        return f" Known: {', '.join(names[:20])}."
    return ""


class ForeignNames:
    """Says what to write here if an attribute is asked for that other libraries have."""

    __slots__ = ()

    foreign_names: ClassVar[Mapping[str, str]] = {}
    """What attributes are called elsewhere, and what to write instead."""

    if not TYPE_CHECKING:  # To a type checker, `__getattr__` would make every name a valid one.

        def __getattr__(self, name: str) -> Never:
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            if instead := self.foreign_names.get(name):
                message = f"{message}. Write {instead}"
            raise AttributeError(message, name=name, obj=self)


def _check_arguments(owner: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raise TypeError for an argument that settings do not have, with near names."""
    for name in given:
        if name not in known:
            near = suggest_names(name.removeprefix("max_"), known)
            raise TypeError(f"{owner}() has no setting {name!r}.{near}")


class _StructMeta(type(msgspec.Struct)):
    if not TYPE_CHECKING:

        def __call__(cls, *args: object, **options: object) -> msgspec.Struct:
            _check_arguments(cls.__name__, options, cls.__struct_fields__)
            return super().__call__(*args, **options)


class SettingsStruct(msgspec.Struct, frozen=True, metaclass=_StructMeta):
    """Settings that a caller writes. An argument that does not exist is explained.

    Reading them from a record is not slower: a decoder does not call the class.
    """


class SettingsMeta(type):
    """The same for settings that are a dataclass."""

    if not TYPE_CHECKING:

        def __call__(cls, *args: object, **options: object) -> object:
            _check_arguments(cls.__name__, options, cls.__dataclass_fields__)
            return super().__call__(*args, **options)
