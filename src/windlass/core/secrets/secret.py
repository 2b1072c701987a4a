"""A key that cannot be printed by accident."""

from typing import final
from weakref import WeakValueDictionary

from typing_extensions import override


@final
class Secret:
    """Holds a secret value; shows it only when asked to by name."""

    __slots__ = ("__weakref__", "_value")

    def __init__(self, value: str) -> None:
        self._value = value
        _live_secrets[id(self)] = self

    def reveal(self) -> str:
        return self._value

    def __bool__(self) -> bool:
        return bool(self._value)

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    @override
    def __hash__(self) -> int:
        return hash(self._value)

    @override
    def __repr__(self) -> str:
        return "Secret(****)"

    @override
    def __reduce__(self) -> str:
        raise TypeError("a secret is not pickled")


# By identity: of two that are equal, one may be gone before the other.
_live_secrets: WeakValueDictionary[int, Secret] = WeakValueDictionary()


def live_secret_values() -> frozenset[str]:
    """The values that anybody in this process still holds: what no log may show."""
    return frozenset(secret.reveal() for secret in tuple(_live_secrets.values()))
