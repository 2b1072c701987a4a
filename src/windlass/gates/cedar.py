"""Policies in Cedar, evaluated by its own engine. Needs the extra `windlass[cedar]`.

    @id("reads")
    permit (principal, action == Action::"call", resource) when { resource.effect == "read" };

    @id("mail") @ask("May the mail go out?")
    permit (principal, action == Action::"call", resource == Tool::"send")
    when { context.approved && context.arguments.to like "*@example.com" };

A request has the principal `Agent::"name"`, the one action `Action::"call"` and the resource
`Tool::"name"` with the attributes `name`, `effect` and `labels`. The context has `arguments`,
`session`, `agent`, `caller`, `trusted` (what the program says about the run), `labels` (what the
session holds), `effect` and `approved`.

Invariant: nothing is allowed unless a policy permits it and none forbids it. A policy that fails to
evaluate denies the call, whatever the others say: Cedar would skip it, and a policy that forbids
must not be skipped. A denied call is evaluated a second time with `context.approved` true; if the
policies allow it then, a person is asked.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.setup import digest
from windlass.core.verdicts import Allow, Ask, Deny, Verdict
from windlass.gates.call_questions import phrase_call
from windlass.gates.cedar_policies import (
    CedarPolicies,
    load_cedar_engine,
    read_policies,
    read_schema,
)
from windlass.gates.cedar_values import cedar_arguments, cedar_value
from windlass.gates.globs import printable_text
from windlass.ports import GateRequest

if TYPE_CHECKING:
    from cedarpy import AuthzResult, Entities

T = TypeVar("T")
EntityList: TypeAlias = Sequence[Mapping[str, Any]]
CACHED_ENTITY_SETS_MAX = 256
"""Parsing entities is the slow part of a decision, so it is done once for each agent and tool."""
ERROR_CHARS_MAX = 200


class _CedarUid(msgspec.Struct):
    """The name of an entity, as Cedar's JSON has it."""

    type: str
    id: str


class _CedarEntity(msgspec.Struct):
    """An entity, as Cedar's JSON has it."""

    uid: _CedarUid
    attrs: dict[str, Any] = {}
    parents: list[_CedarUid] = []


class CedarGate:
    """A gate that decides by Cedar policies, given as text or as the path of a file.

    `schema`: policies and entities are checked against it when the gate is created.
    `entities`: what else the policies refer to, in Cedar's JSON, such as the teams of agents.
    Raises ConfigError if one of these cannot be read, or if a policy can never match.
    """

    judges_replies = False

    def __init__(
        self,
        policies: str | PathLike[str],
        *,
        schema: str | Mapping[str, Any] | PathLike[str] | None = None,
        entities: EntityList | PathLike[str] | None = None,
        name: str = "cedar",
    ) -> None:
        policy_text = _read_if_path(policies)
        self._schema = read_schema(_read_if_path(schema))
        self._policies: CedarPolicies = read_policies(policy_text, self._schema)
        listed = _parse_entities(_read_if_path(entities))
        self._entities_by_uid = {(entity.uid.type, entity.uid.id): entity for entity in listed}
        self._check_entities(listed)
        self.title = name
        # Another policy has another name, so a run is not resumed under it unnoticed.
        identity = [self._policies.json_by_id, str(self._schema or ""), listed]
        self.name = f"{name}@{digest(identity)[:12]}"
        self._cached_entities = lru_cache(maxsize=CACHED_ENTITY_SETS_MAX)(self._build_entities)

    async def judge(self, request: GateRequest) -> Verdict:
        """Ask the policies about a call. An error in one of them denies it."""
        try:
            plain = self._authorize(request, approved=False)
            if denial := self._deny_on_error(plain):
                return denial
            if plain.allowed:
                return Allow(self._format_rule(plain))
            approved = self._authorize(request, approved=True)
        except ValueError as error:
            reason = f"Not allowed: Cedar cannot evaluate this call: {error}."
            return Deny(reason, f"{self.title}: unfit")
        if denial := self._deny_on_error(approved):
            return denial
        if approved.allowed:
            return self._make_question(request, plain, approved)
        return self._make_denial(plain)

    async def judge_reply(self, session: str, text: str) -> Allow | Deny:  # noqa: ARG002
        """Allow every reply: Cedar policies are about calls."""
        return Allow(self.title)

    def _authorize(self, request: GateRequest, *, approved: bool) -> "AuthzResult":
        tool = request.tool
        context = {
            "arguments": cedar_arguments(tool, request.arguments),
            "session": cedar_value(request.session),
            "agent": cedar_value(request.agent),
            "caller": cedar_value(request.caller),
            "trusted": cedar_value(request.context),
            "labels": sorted(request.labels),
            "effect": tool.effect,
            "approved": approved,
        }
        query = {
            "principal": {"type": "Agent", "id": request.agent},
            "action": {"type": "Action", "id": "call"},
            "resource": {"type": "Tool", "id": tool.name},
            "context": _encode_json(context),
        }
        entities = self._cached_entities(request.agent, tool.name, tool.effect, tool.labels)
        return load_cedar_engine().is_authorized(query, self._policies.handle, entities)

    def _build_entities(
        self, agent: str, tool: str, effect: str, labels: tuple[str, ...]
    ) -> "Entities":
        """All entities that policies may refer to, with the true attributes of agent and tool."""
        facts: dict[tuple[str, str], dict[str, Any]] = {
            ("Agent", agent): {},
            ("Tool", tool): {"name": tool, "effect": effect, "labels": sorted(labels)},
        }
        others = [entity for uid, entity in self._entities_by_uid.items() if uid not in facts]
        own = [
            _add_attributes(self._entities_by_uid.get(uid), uid, attributes)
            for uid, attributes in facts.items()
        ]
        return load_cedar_engine().Entities.from_json_str(_encode_json([*others, *own]))

    def _check_entities(self, entities: Sequence[_CedarEntity]) -> None:
        # The runtime sets these attributes of tools, so a listed tool need not have them to fit
        # the schema.
        completed: list[_CedarEntity] = []
        for uid, entity in self._entities_by_uid.items():
            facts: dict[str, Any] = {}
            if uid[0] == "Tool":
                facts = {"name": uid[1], "effect": "write", "labels": []}
            completed.append(_add_attributes(entity, uid, facts))
        if len(completed) != len(entities):
            raise ConfigError("an entity is listed twice")
        try:
            load_cedar_engine().Entities.from_json_str(_encode_json(completed), self._schema)
        except ValueError as error:
            raise ConfigError(f"the Cedar entities cannot be used: {error}") from None

    def _deny_on_error(self, result: "AuthzResult") -> Deny | None:
        """A denial if any policy failed to evaluate: it may have been one that forbids the call."""
        errors = result.diagnostics.errors
        if not errors and result.decision.value != "NoDecision":
            return None
        failing = [
            policy for policy in self._policies.ids if any(f"`{policy}`" in text for text in errors)
        ]
        which = self._policies.format_names(failing) or "the request"
        # The details go into the record only: they may show what the model is not to know.
        details = printable_text(" ".join(errors), ERROR_CHARS_MAX)
        reason = "Not allowed: a policy failed to evaluate, which counts as a denial."
        return Deny(reason, f"{self.title}: error in {which}: {details}")

    def _make_denial(self, result: "AuthzResult") -> Deny:
        reasons = result.diagnostics.reasons
        if not reasons:
            return Deny("Not allowed: no policy permits it.", f"{self.title}: default deny")
        reason = " ".join(self._policies.annotation_texts(reasons, "reason"))
        which = self._policies.format_names(reasons)
        return Deny(reason or f"Not allowed: {which} forbids it.", self._format_rule(result))

    def _make_question(
        self, request: GateRequest, plain: "AuthzResult", approved: "AuthzResult"
    ) -> Ask:
        """The question of the policies that forbid the call, or of those that would permit it."""
        policies = plain.diagnostics.reasons or approved.diagnostics.reasons
        question = "\n".join(self._policies.annotation_texts(policies, "ask"))
        which = self._policies.format_names(policies)
        if not question:
            phrase = phrase_call(request.tool, request.arguments)
            question = f"{phrase} {which} requires approval by a person."
        return Ask(question, f"{self.title}: {which}")

    def _format_rule(self, result: "AuthzResult") -> str:
        return f"{self.title}: {self._policies.format_names(result.diagnostics.reasons)}"


def load_cedar(
    path: str | PathLike[str],
    *,
    schema: str | Mapping[str, Any] | PathLike[str] | None = None,
    entities: EntityList | PathLike[str] | None = None,
) -> CedarGate:
    """The gate of a file with policies, named after the file. Raises ConfigError."""
    file = Path(path)
    return CedarGate(file, schema=schema, entities=entities, name=file.stem)


def _read_if_path(source: T | PathLike[str]) -> T | str:
    """The text of a file if a path is given, else what is given."""
    if not isinstance(source, PathLike):
        return source
    try:
        return Path(cast("PathLike[str]", source)).read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"{source} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{source} cannot be read: it is not UTF-8") from None


def _parse_entities(given: EntityList | str | None) -> list[_CedarEntity]:
    try:
        if isinstance(given, str):
            return msgspec.json.decode(given, type=list[_CedarEntity])
        return msgspec.convert(given or [], list[_CedarEntity])
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ConfigError(f"the entities are not a list of Cedar entities: {error}") from None


def _add_attributes(
    entity: _CedarEntity | None, uid: tuple[str, str], facts: dict[str, Any]
) -> _CedarEntity:
    """The entity, or a new one, with these attributes set."""
    entity = entity or _CedarEntity(_CedarUid(*uid))
    return _CedarEntity(entity.uid, {**entity.attrs, **facts}, entity.parents)


def _encode_json(value: object) -> str:
    return msgspec.json.encode(value).decode()
