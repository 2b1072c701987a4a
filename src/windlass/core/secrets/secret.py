"""A key that cannot be printed by accident."""

from typing import final
from weakref import WeakValueDictionary

from typing_extensions import override


@final
class Secret:
    """Holds a secret value. Only `reveal` returns it; `repr` and `str` do not show it."""

    __slots__ = ("__weakref__", "_value")

    def __init__(self, value: str) -> None:
        self._value = value
        _live_secrets[id(self)] = self

    def reveal(self) -> str:
        """Return the value."""
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
        raise TypeError("a Secret cannot be pickled")


# Keyed by identity: of two equal secrets, one may be collected before the other.
_live_secrets: WeakValueDictionary[int, Secret] = WeakValueDictionary()


def live_secret_values() -> frozenset[str]:
    """Return the values of all secrets that this process still holds. No log may show them."""
    return frozenset(secret.reveal() for secret in tuple(_live_secrets.values()))
