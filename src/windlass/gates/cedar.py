"""Policies in Cedar, judged by its own engine. Needs the extra `windlass[cedar]`.

    @id("reads")
    permit (principal, action == Action::"call", resource) when { resource.effect == "read" };

    @id("mail") @ask("May the mail go out?")
    permit (principal, action == Action::"call", resource == Tool::"send")
    when { context.approved && context.arguments.to like "*@example.com" };

A request has the principal `Agent::"name"`, the one action `Action::"call"` and the resource
`Tool::"name"`, which has `name`, `effect` and `labels`. Its context has `arguments`, `session`,
`agent`, `caller`, `trusted` (what the program says of the run), `labels` (what the session holds),
`effect` and `approved`.

The law: nothing is allowed unless a policy permits it and none forbids it. A policy that fails
denies, whatever the others say: Cedar would leave it out, and one that forbids must not be left
out. To ask is to be allowed if a person approves: what is denied is put to the same policies with
`context.approved` true, and if they allow it then, a person is asked.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.setup import digest
from windlass.core.verdicts import Allow, Ask, Deny, Verdict
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

EntityList: TypeAlias = Sequence[Mapping[str, Any]]
CACHED_ENTITY_SETS_MAX = 256
ERROR_CHARS_MAX = 200


class _CedarUid(msgspec.Struct):
    type: str
    id: str


class _CedarEntity(msgspec.Struct):
    uid: _CedarUid
    attrs: dict[str, Any] = {}
    parents: list[_CedarUid] = []


class CedarGate:
    """Judges by Cedar policies, which are read once.

    `schema`: policies and entities are checked against it when the gate is made.
    `entities`: what else the policies speak of, in Cedar's JSON, such as teams that agents are in.
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
        text = policies if isinstance(policies, str) else _read_text_file(policies)
        wanted = _read_text_file(schema) if isinstance(schema, PathLike) else schema
        self._schema = read_schema(wanted)
        self._policies: CedarPolicies = read_policies(text, self._schema)
        listed = _parse_entities(
            _read_text_file(entities) if isinstance(entities, PathLike) else entities
        )
        self._entities_by_uid = {(one.uid.type, one.uid.id): one for one in listed}
        self._check_entities(listed)
        self.title = name
        told = [self._policies.json_by_id, str(self._schema or ""), listed]
        self.name = f"{name}@{digest(told)[:12]}"
        self._cached_entities = lru_cache(maxsize=CACHED_ENTITY_SETS_MAX)(self._build_entities)

    async def judge(self, request: GateRequest) -> Verdict:
        try:
            plain = self._authorize(request, approved=False)
            if found := self._deny_on_error(plain):
                return found
            if plain.allowed:
                return Allow(self._format_rule(plain))
            approved = self._authorize(request, approved=True)
        except ValueError as error:
            told = "Not allowed: the call cannot be put to the policies"
            return Deny(f"{told}: {error}.", f"{self.title}: unfit")
        if found := self._deny_on_error(approved):
            return found
        return (
            self._make_question(request, plain, approved)
            if approved.allowed
            else self._make_denial(plain)
        )

    async def judge_reply(self, session: str, text: str) -> Allow | Deny:  # noqa: ARG002
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
        asked = {
            "principal": {"type": "Agent", "id": request.agent},
            "action": {"type": "Action", "id": "call"},
            "resource": {"type": "Tool", "id": tool.name},
            "context": _encode_json(context),
        }
        around = self._cached_entities(request.agent, tool.name, tool.effect, tool.labels)
        return load_cedar_engine().is_authorized(asked, self._policies.handle, around)

    def _build_entities(
        self, agent: str, tool: str, effect: str, labels: tuple[str, ...]
    ) -> "Entities":
        """What the policies may ask about, with the facts of this call's own two in it."""
        facts: dict[tuple[str, str], dict[str, Any]] = {
            ("Agent", agent): {},
            ("Tool", tool): {"name": tool, "effect": effect, "labels": sorted(labels)},
        }
        others = [one for uid, one in self._entities_by_uid.items() if uid not in facts]
        own = [
            _add_attributes(self._entities_by_uid.get(uid), uid, attributes)
            for uid, attributes in facts.items()
        ]
        return load_cedar_engine().Entities.from_json_str(_encode_json([*others, *own]))

    def _check_entities(self, entities: Sequence[_CedarEntity]) -> None:
        # What the runtime itself says of a tool need not be said.
        facts = {"effect": "write", "labels": list[str]()}
        whole = [
            _add_attributes(one, uid, {"name": uid[1], **facts} if uid[0] == "Tool" else {})
            for uid, one in self._entities_by_uid.items()
        ]
        if len(whole) != len(entities):
            raise ConfigError("an entity is listed twice")
        try:
            load_cedar_engine().Entities.from_json_str(_encode_json(whole), self._schema)
        except ValueError as error:
            raise ConfigError(f"the entities cannot be used: {error}") from None

    def _deny_on_error(self, result: "AuthzResult") -> Deny | None:
        """A denial, if anything at all went wrong: what failed may have been what forbids."""
        errors = result.diagnostics.errors
        if not errors and result.decision.value != "NoDecision":
            return None
        failing = [one for one in self._policies.ids if any(f"`{one}`" in told for told in errors)]
        which = self._policies.format_names(failing) or "the request"
        # What went wrong is for the record: it may show what the model is not to know.
        rule = (
            f"{self.title}: error in {which}: {printable_text(' '.join(errors), ERROR_CHARS_MAX)}"
        )
        return Deny("Not allowed: a policy failed, and one that fails denies.", rule)

    def _make_denial(self, result: "AuthzResult") -> Deny:
        reasons = result.diagnostics.reasons
        if not reasons:
            return Deny("Not allowed: no policy permits it.", f"{self.title}: default deny")
        told = " ".join(self._policies.annotation_texts(reasons, "reason"))
        which = self._policies.format_names(reasons)
        return Deny(told or f"Not allowed: {which} forbids it.", self._format_rule(result))

    def _make_question(
        self, request: GateRequest, plain: "AuthzResult", approved: "AuthzResult"
    ) -> Ask:
        """The question, by whoever holds the call back, or else by whoever would let it go."""
        holding = plain.diagnostics.reasons or approved.diagnostics.reasons
        question = "\n".join(self._policies.annotation_texts(holding, "ask"))
        which = self._policies.format_names(holding)
        told = (
            question or f"May {request.tool.name} be called? {which} wants a person to approve it."
        )
        return Ask(told, f"{self.title}: {which}")

    def _format_rule(self, result: "AuthzResult") -> str:
        return f"{self.title}: {self._policies.format_names(result.diagnostics.reasons)}"


def load_cedar(
    path: str | PathLike[str],
    *,
    schema: str | Mapping[str, Any] | PathLike[str] | None = None,
    entities: EntityList | PathLike[str] | None = None,
) -> CedarGate:
    """The gate that a file of policies describes, named after the file."""
    place = Path(path)
    return CedarGate(place, schema=schema, entities=entities, name=place.stem)


def _read_text_file(path: PathLike[str]) -> str:
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        told = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{path} cannot be read: {told}") from None


def _parse_entities(given: EntityList | str | None) -> list[_CedarEntity]:
    try:
        if isinstance(given, str):
            return msgspec.json.decode(given, type=list[_CedarEntity])
        return msgspec.convert(given or [], list[_CedarEntity])
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ConfigError(f"the entities are not a list as Cedar has it: {error}") from None


def _add_attributes(
    known: _CedarEntity | None, uid: tuple[str, str], facts: dict[str, Any]
) -> _CedarEntity:
    """An entity with what is true of it, whatever was said of it before."""
    known = known or _CedarEntity(_CedarUid(*uid))
    return _CedarEntity(known.uid, {**known.attrs, **facts}, known.parents)


def _encode_json(value: object) -> str:
    return msgspec.json.encode(value).decode()
