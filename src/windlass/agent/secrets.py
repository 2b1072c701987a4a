"""What an agent must not let be seen: the secrets that its parts hold, and what its maker says."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, TypeAlias, cast, runtime_checkable

from windlass.core.errors import ConfigError
from windlass.core.secrets.mask import VALUE_CHARS_MIN, Mask
from windlass.core.secrets.secret import Secret
from windlass.environ import find_secrets, read_environment

Secrets: TypeAlias = Mapping[str, str] | Collection[str] | Mask
"""Values, by name or bare; or a mask of one's own, which is used as it is."""
KEY_CHARS_MIN = 8
"""What is shorter stands in for a key where a server wants none."""


@runtime_checkable
class HoldsSecrets(Protocol):
    """A model or a set of tools that holds secrets."""

    @property
    def secrets(self) -> Mapping[str, Secret]: ...


def build_mask(given: Secrets | None, parts: Sequence[object]) -> Mask:
    """The mask of an agent: the environment's secrets, those of its parts, and what is given."""
    if isinstance(given, Mask):
        return given
    named = _name_values(given or ())
    for name, value in named.items():
        if len(value.strip()) < VALUE_CHARS_MIN:
            problem = f"secrets={name!r}: a value of less than {VALUE_CHARS_MIN} characters"
            raise ConfigError(f"{problem} cannot be told from ordinary words")
    part_secrets = {
        name: secret.reveal()
        for part in parts
        if isinstance(part, HoldsSecrets)
        for name, secret in part.secrets.items()
        if len(secret.reveal()) >= KEY_CHARS_MIN
    }
    # Of two names for one value the first is told: the maker's own word comes before all others.
    return Mask((*named.items(), *part_secrets.items(), *find_secrets(read_environment()).items()))


def _name_values(given: Mapping[str, str] | Collection[str]) -> dict[str, str]:
    if isinstance(given, Mapping):
        return dict(cast("Mapping[str, str]", given))
    listed = [given] if isinstance(given, str) else list(given)
    return {str(number): value for number, value in enumerate(listed, 1)}
