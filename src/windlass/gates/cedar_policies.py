"""Cedar policies, read and checked when a gate is made.

The law: a policy that can never be meant lets nothing start. That is a text that is no policy, what
a schema does not allow, a template that nobody fills in, a name that no request has, and a question
that would never be put. Cedar itself would let a forbid with a slip of the pen be silent.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.suggestions import did_you_mean

if TYPE_CHECKING:
    from cedarpy import PolicySet, Schema

ACTION = "call"
SCOPES = {"principal": "Agent", "action": "Action", "resource": "Tool"}
CONTEXT = ("agent", "approved", "arguments", "caller", "effect", "labels", "session", "trusted")
ERRORS_MAX = 3


@dataclass(frozen=True, slots=True)
class Policies:
    """A set of policies, with what is written over each."""

    handle: "PolicySet"
    told: dict[str, Any]
    """All that they say, without comments and layout."""

    @property
    def ids(self) -> list[str]:
        """As Cedar numbers them: policy0, policy1."""
        return list(self.told)

    def named(self, ids: Iterable[str]) -> str:
        """The policies by their `@id`, or by their number."""
        return " + ".join(sorted(self._note(one, "id") or one for one in ids))

    def notes(self, ids: Iterable[str], kind: str) -> list[str]:
        """What is written over these policies under `@kind`, each once."""
        found = (self._note(one, kind) for one in sorted(ids))
        return list(dict.fromkeys(note for note in found if note))

    def _note(self, policy: str, kind: str) -> str:
        return _notes(self.told.get(policy, {})).get(kind) or ""


def cedar() -> ModuleType:
    """The engine; it is loaded when the first gate is made."""
    try:
        import cedarpy  # noqa: PLC0415 - of the extra
    except ImportError:
        raise ConfigError("Cedar policies need an extra: pip install 'windlass[cedar]'") from None
    return cedarpy


def read_schema(schema: str | Mapping[str, Any] | None) -> "Schema | None":
    if schema is None:
        return None
    text = schema if isinstance(schema, str) else msgspec.json.encode(schema).decode()
    try:
        return cedar().Schema.from_str(text)
    except ValueError as error:
        raise ConfigError(f"the Cedar schema cannot be read: {error}") from None


def read_policies(text: str, schema: "Schema | None") -> Policies:
    engine = cedar()
    try:
        handle = engine.PolicySet.from_str(text)
        whole = msgspec.json.decode(engine.policies_to_json_str(text), type=dict[str, Any])
    except ValueError as error:
        told = f"the Cedar policies cannot be read: {error}"
        path = "" if "(" in text else "; for those in a file use load_cedar(path)"
        raise ConfigError(f"{told}{path}") from None
    if whole["templates"]:
        raise ConfigError("a Cedar template (?principal, ?resource) permits and forbids nothing")
    policies = Policies(handle, whole["staticPolicies"])
    for one, policy in policies.told.items():
        _check(policies.named([one]), policy)
    if schema is not None:
        _validate(text, schema)
    return policies


def _validate(text: str, schema: "Schema") -> None:
    found = cedar().validate_policies(text, schema)
    if not found.validation_passed:
        told = "; ".join(str(error.error) for error in found.errors[:ERRORS_MAX])
        raise ConfigError(f"the Cedar policies do not fit their schema: {told}")


def _check(name: str, policy: dict[str, Any]) -> None:
    for variable, kind in SCOPES.items():
        for given in _types(policy[variable]):
            if given != kind:
                told = f"{variable} is always of the type {kind}, and never {given}"
                raise ConfigError(f"the Cedar policy {name} can never match: {told}")
    actions = _entities(policy["action"])
    if actions and {"type": "Action", "id": ACTION} not in actions:
        raise ConfigError(
            f"the Cedar policy {name} can never match: "
            f'the one action is Action::"{ACTION}", and the tool is the resource'
        )
    used = set(_context_names(policy["conditions"]))
    for given in sorted(used.difference(CONTEXT)):
        told = f"context has no {given!r}.{did_you_mean(given, CONTEXT)}"
        raise ConfigError(f"the Cedar policy {name}: {told}")
    if "ask" in _notes(policy) and "approved" not in used:
        told = "@ask puts a question only where a condition speaks of context.approved"
        raise ConfigError(f"the Cedar policy {name}: {told}")


def _notes(policy: Mapping[str, Any]) -> dict[str, str | None]:
    return policy.get("annotations", {})


def _entities(scope: Mapping[str, Any]) -> list[dict[str, str]]:
    return [scope["entity"]] if "entity" in scope else scope.get("entities", [])


def _types(scope: Mapping[str, Any]) -> Iterator[str]:
    """The types that a scope names for the thing itself; what it is in may be of any other."""
    if scope["op"] == "is":
        yield scope["entity_type"]
    elif scope["op"] == "==":
        yield scope["entity"]["type"]


def _context_names(condition: object) -> Iterator[str]:
    """What of the context a condition speaks of."""
    if isinstance(condition, list):
        for one in cast("list[object]", condition):
            yield from _context_names(one)
    elif isinstance(condition, dict):
        fields = cast("dict[str, Any]", condition)
        if fields.get("left") == {"Var": "context"} and "attr" in fields:
            yield fields["attr"]
        for one in fields.values():
            yield from _context_names(one)
