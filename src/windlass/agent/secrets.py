"""What an agent must not let be seen: the secrets that its parts hold, and what its maker says."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, TypeAlias, cast, runtime_checkable

from windlass.core.errors import ConfigError
from windlass.core.secrets.mask import VALUE_CHARS_MIN, Mask
from windlass.core.secrets.secret import Secret
from windlass.environ import environment, secrets_of

Secrets: TypeAlias = Mapping[str, str] | Collection[str] | Mask
"""Values, by name or bare; or a mask of one's own, which is used as it is."""
KEY_CHARS_MIN = 8
"""What is shorter stands in for a key where a server wants none."""


@runtime_checkable
class Holding(Protocol):
    """A model or a set of tools that holds secrets."""

    @property
    def secrets(self) -> Mapping[str, Secret]: ...


def mask_of(given: Secrets | None, parts: Sequence[object]) -> Mask:
    """The mask of an agent: the environment's secrets, those of its parts, and what is given."""
    if isinstance(given, Mask):
        return given
    named = _named(given or ())
    for name, value in named.items():
        if len(value.strip()) < VALUE_CHARS_MIN:
            told = f"secrets={name!r}: a value of less than {VALUE_CHARS_MIN} characters"
            raise ConfigError(f"{told} cannot be told from ordinary words")
    held = {
        name: secret.reveal()
        for part in parts
        if isinstance(part, Holding)
        for name, secret in part.secrets.items()
        if len(secret.reveal()) >= KEY_CHARS_MIN
    }
    # Of two names for one value the first is told: the maker's own word comes before all others.
    return Mask((*named.items(), *held.items(), *secrets_of(environment()).items()))


def _named(given: Mapping[str, str] | Collection[str]) -> dict[str, str]:
    if isinstance(given, Mapping):
        return dict(cast("Mapping[str, str]", given))
    listed = [given] if isinstance(given, str) else list(given)
    return {str(number): value for number, value in enumerate(listed, 1)}
