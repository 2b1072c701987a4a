"""Cedar policies: nothing is allowed that they do not permit, and doubt denies."""

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.errors import ConfigError
from windlass.core.messages import Label, ToolSpec
from windlass.core.verdicts import Allow, Ask, Deny
from windlass.gates.cedar import CedarGate, load_cedar
from windlass.gates.cedar_values import DEPTH_MAX
from windlass.gates.combined import all_of
from windlass.gates.presets import allow_all
from windlass.ports import Gate, GateRequest
from windlass.testing import GateConformance

POLICIES = """
@id("reads")
permit (principal, action == Action::"call", resource) when { resource.effect == "read" };

@id("mail") @ask("May the mail go out?")
permit (principal, action == Action::"call", resource == Tool::"send")
when { context.approved && context.arguments.to like "*@example.com" };

@id("no-keys") @reason("Keys stay here.")
forbid (principal, action, resource)
when { context.arguments has path && context.arguments.path like "*.pem" };
"""
SCHEMA = """
entity Team;
entity Agent in [Team];
entity Tool { name: String, effect: String, labels: Set<String> };
action call appliesTo {
  principal: Agent, resource: Tool,
  context: { arguments: { to?: String }, caller: String, approved: Bool },
};
"""
PERMIT_ALL = "permit (principal, action, resource);"
READ = ToolSpec("read", "", {"type": "object"}, "read")
SEND = ToolSpec("send", "", {"type": "object"}, labels=("external",))


def request(tool: ToolSpec = SEND, **arguments: object) -> GateRequest:
    return GateRequest("s", "c", tool, arguments, agent="bot", caller="ann")


def when(condition: str, effect: str = "permit") -> CedarGate:
    """A gate of one policy with one condition; one that forbids stands beside a permit."""
    policy = f"{effect} (principal, action, resource) when {{ {condition} }};"
    return CedarGate(policy if effect == "permit" else f"{policy} {PERMIT_ALL}")


class TestCedarGate(GateConformance):
    @pytest.fixture(params=[POLICIES, PERMIT_ALL, ""], ids=["some", "all", "none"])
    def gate(self, request: pytest.FixtureRequest) -> Gate:
        return CedarGate(request.param)


@pytest.mark.contract("G4")
async def test_what_is_permitted_is_allowed_and_the_rest_denied() -> None:
    gate = CedarGate(POLICIES, name="team")
    assert await gate.judge(request(READ, path="a")) == Allow("team: reads")
    write = ToolSpec("write", "", {"type": "object"})
    told = "Not allowed: no policy permits it."
    assert await gate.judge(request(write)) == Deny(told, "team: default deny")


@pytest.mark.contract("G4")
async def test_a_forbid_wins_and_says_why() -> None:
    gate = CedarGate(POLICIES)
    assert await gate.judge(request(READ, path="x.pem")) == Deny(
        "Keys stay here.", "cedar: no-keys"
    )
    plain = CedarGate(f"{PERMIT_ALL} forbid (principal, action, resource);")
    assert await plain.judge(request()) == Deny(
        "Not allowed: policy1 forbids it.", "cedar: policy1"
    )


@pytest.mark.contract("G2")
async def test_what_a_person_may_approve_is_asked_about() -> None:
    gate = CedarGate(POLICIES)
    asked = await gate.judge(request(to="bob@example.com"))
    assert asked == Ask("May the mail go out?", "cedar: mail")
    assert isinstance(await gate.judge(request(to="eve@evil.org")), Deny)


@pytest.mark.contract("G2")
async def test_a_forbid_that_an_approval_lifts_asks_too() -> None:
    gate = CedarGate(
        f'{PERMIT_ALL} @id("out") forbid (principal, action, resource) '
        'when { resource.labels.contains("external") } unless { context.approved };'
    )
    asked = await gate.judge(request())
    assert asked == Ask("Send? out requires approval by a person.", "cedar: out")
    assert isinstance(await gate.judge(request(READ)), Allow)
    shut = all_of(gate, CedarGate(""))
    assert isinstance(await shut.judge(request()), Deny)


async def test_an_approval_does_not_lift_what_is_forbidden_anyway() -> None:
    gate = CedarGate(
        f"{PERMIT_ALL} forbid (principal, action, resource) unless {{ context.approved }};"
        'forbid (principal, action, resource == Tool::"send");'
    )
    assert isinstance(await gate.judge(request()), Deny)


@pytest.mark.contract("G1")
async def test_a_forbid_that_fails_denies() -> None:
    """Cedar itself leaves out what fails, and would allow."""
    gate = when('context.arguments.to == "eve"', "forbid")
    verdict = await gate.judge(request())
    assert isinstance(verdict, Deny)
    assert "error in policy0" in verdict.rule
    assert isinstance(await gate.judge(request(to="ann")), Allow)
    hidden = when("context.approved && context.arguments.to == 1", "forbid")
    assert isinstance(await hidden.judge(request()), Allow)


@pytest.mark.contract("G1")
async def test_what_fails_only_once_approved_denies_as_well() -> None:
    gate = CedarGate(
        "permit (principal, action, resource) when { context.approved };"
        "forbid (principal, action, resource) when { context.approved && context.arguments.x };"
    )
    assert isinstance(await gate.judge(request()), Deny)


@pytest.mark.contract("G4")
@pytest.mark.parametrize(
    "condition",
    [
        'principal == Agent::"bot" && context.agent == "bot"',
        'context.caller == "ann"',
        'context.session == "s"',
        'context.trusted.team == "ops" && context.trusted.level > 2',
        'context.labels.containsAll(["private", "untrusted"])',
        'resource == Tool::"send" && resource.name like "se*"',
        'resource.effect == "write" && context.effect == "write"',
        'resource.labels.contains("external")',
        'context.arguments.to == ["a", "b"] && context.arguments.deep.er == true',
    ],
)
async def test_all_that_is_known_can_be_asked_about(condition: str) -> None:
    known = GateRequest(
        "s",
        "c",
        SEND,
        {"to": ["b", "a", "a"], "deep": {"er": True}},
        labels=frozenset[Label](["untrusted", "private"]),
        agent="bot",
        caller="ann",
        context={"team": "ops", "level": 3},
    )
    assert isinstance(await when(condition).judge(known), Allow)
    assert isinstance(await when(f"!({condition})").judge(known), Deny)


NUMBER = ToolSpec(
    "pay",
    "",
    {
        "type": "object",
        "properties": {
            "usd": {"type": "number"},
            "tip": {"anyOf": [{"type": "number"}, {"type": "null"}]},
            "count": {"type": "integer"},
        },
    },
)


@pytest.mark.parametrize(
    ("condition", "arguments", "holds"),
    [
        ('context.arguments.usd.lessThan(decimal("10.0"))', {"usd": 9}, True),
        ('context.arguments.usd.lessThan(decimal("10.0"))', {"usd": 9.99}, True),
        ('context.arguments.usd.lessThan(decimal("10.0"))', {"usd": 10.5}, False),
        ('context.arguments.usd.lessThan(decimal("10.0"))', {"usd": 1e-7}, False),
        ('context.arguments.usd.lessThan(decimal("10.0"))', {"usd": -1e30}, False),
        ('context.arguments.usd.lessThan(decimal("10.0"))', {"usd": float("nan")}, False),
        ('context.arguments.usd.lessThan(decimal("10.0"))', {"usd": float("-inf")}, False),
        ('context.arguments.tip.lessThan(decimal("10.0"))', {"tip": 1}, True),
        ("context.arguments.count < 10", {"count": 9}, True),
        ("context.arguments.count < 10", {"count": -(2**63)}, True),
        ("context.arguments.count < 10", {"count": -(2**63) - 1}, False),
        ("context.arguments.count < 10", {"count": True}, False),
        ("context.arguments has tip", {"tip": None}, False),
        ('context.arguments.list.contains("null")', {"list": [None]}, False),
        ('context.arguments.list like "*"', {"list": [1.00001]}, False),
        ('context.arguments.count like "*"', {"count": 2**70}, False),
    ],
)
async def test_no_number_is_taken_for_another(
    condition: str, arguments: dict[str, Any], *, holds: bool
) -> None:
    verdict = await when(condition).judge(request(NUMBER, **arguments))
    assert isinstance(verdict, Allow if holds else Deny)


@pytest.mark.parametrize("value", [2**70, -(2**63) - 1, 1e-9, 1e300, float("nan"), [None], [[]]])
async def test_what_cedar_cannot_hold_does_not_stop_a_policy_that_does_not_ask(
    value: object,
) -> None:
    assert isinstance(await CedarGate(PERMIT_ALL).judge(request(odd=value)), Allow)


@pytest.mark.parametrize(
    "value",
    [
        {"__entity": {"type": "Team", "id": "admins"}},
        {"__extn": {"fn": "decimal", "arg": "1.0"}},
        {"__expr": 'Team::"admins"'},
        [{"deep": {"__entity": {"type": "Team", "id": "admins"}}}],
        "\ud800",
        {"\ud800": 1},
        {1: 2},
        b"bytes",
        object(),
    ],
    ids=lambda value: repr(value).split(" at ")[0],
)
async def test_what_cedar_would_read_as_its_own_denies(value: object) -> None:
    verdict = await CedarGate(PERMIT_ALL).judge(request(team=value))
    assert isinstance(verdict, Deny)
    assert verdict.rule == "cedar: unfit"


async def test_arguments_cannot_name_an_entity() -> None:
    """Cedar's JSON would make a team of it, and the model a member of the team."""
    gate = when('context.arguments.team == Team::"admins"')
    for team in ({"__entity": {"type": "Team", "id": "admins"}}, {"type": "Team", "id": "admins"}):
        assert isinstance(await gate.judge(request(team=team)), Deny)


async def test_what_is_nested_too_deeply_denies() -> None:
    deep: object = 1
    for _ in range(DEPTH_MAX - 1):
        deep = [deep]
    gate = CedarGate(PERMIT_ALL)
    assert isinstance(await gate.judge(request(deep=deep)), Allow)
    for _ in range(5_000):
        deep = {"a": deep}
    assert isinstance(await gate.judge(request(deep=deep)), Deny)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["__entity", "__extn", "__expr", "type", "id", "fn", "arg"])
            | st.text(max_size=5),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)
ARGUMENTS = st.dictionaries(st.sampled_from(["to", "path", "usd"]) | st.text(), VALUES, max_size=4)
UNPERMITTED = CedarGate(
    """
    permit (principal, action, resource) when { context.arguments.to == Team::"x" };
    permit (principal, action, resource) when { context.arguments.usd == ip("10.0.0.1") };
    permit (principal, action, resource == Tool::"other");
    permit (principal, action, resource) when { context.approved && context.caller == "nobody" };
    forbid (principal, action, resource) when { context.arguments.path like "*.pem" };
    """
)
PERMITTED = CedarGate(
    f"{PERMIT_ALL} forbid (principal, action, resource) when {{ context.arguments has to }};"
)


@pytest.mark.contract("G1")
@given(ARGUMENTS, st.text(), st.text(), ARGUMENTS)
async def test_nothing_is_allowed_that_no_policy_permits(
    arguments: dict[str, Any], agent: str, caller: str, context: dict[str, Any]
) -> None:
    asked = GateRequest("s", "c", SEND, arguments, agent=agent, caller=caller, context=context)
    assert isinstance(await UNPERMITTED.judge(asked), Deny)


@pytest.mark.contract("G1")
@given(ARGUMENTS)
async def test_nothing_is_allowed_that_a_policy_forbids(arguments: dict[str, Any]) -> None:
    verdict = await PERMITTED.judge(request(SEND, **arguments))
    assert isinstance(verdict, Allow | Deny)
    if arguments.get("to") is not None:
        assert isinstance(verdict, Deny)


@pytest.mark.contract("G4")
@pytest.mark.parametrize(
    ("policies", "told"),
    [
        ("permit (principal", "cannot be read: unexpected end"),
        ("team.cedar", "cannot be read: .*load_cedar"),
        ("permit (principal == ?principal, action, resource);", "template"),
        (
            'permit (principal == User::"x", action, resource);',
            "never match: the type of principal .*Agent",
        ),
        ('permit (principal, action == Action::"send", resource);', 'never match: .*"call"'),
        ('permit (principal, action in [Action::"a"], resource);', 'never match: .*"call"'),
        ('permit (principal, action in [X::Action::"call"], resource);', "never match"),
        ('@id("x") forbid (principal, action, resource is File);', "policy x can never match"),
        (
            "forbid (principal, action, resource) when { context has argument };",
            "'argument'. Did you mean arguments",
        ),
        ('@ask("?") permit (principal, action, resource);', "uses context.approved"),
    ],
)
def test_a_policy_that_cannot_be_meant_is_refused(policies: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        CedarGate(policies)


@pytest.mark.contract("G4")
@pytest.mark.parametrize(
    ("policies", "told"),
    [
        ("permit (principal, action, resource) when { resource.effects == 1 };", "schema"),
        ('permit (principal, action, resource) when { context.arguments.to == "a" };', "optional"),
    ],
)
def test_what_a_schema_does_not_allow_is_refused(policies: str, told: str) -> None:
    CedarGate(PERMIT_ALL, schema=SCHEMA)
    with pytest.raises(ConfigError, match=told):
        CedarGate(policies, schema=SCHEMA)
    with pytest.raises(ConfigError, match="the Cedar schema cannot be read"):
        CedarGate(PERMIT_ALL, schema="entity {")


async def test_a_schema_does_not_bind_the_arguments_of_other_tools() -> None:
    gate = CedarGate(PERMIT_ALL, schema=SCHEMA)
    assert isinstance(await gate.judge(request(READ, path="a")), Allow)


TEAM = [
    {"uid": {"type": "Team", "id": "ops"}},
    {"uid": {"type": "Agent", "id": "bot"}, "parents": [{"type": "Team", "id": "ops"}]},
    {"uid": {"type": "Tool", "id": "send"}, "attrs": {"effect": "read"}},
]


async def test_agents_can_be_in_teams() -> None:
    policy = (
        'permit (principal in Team::"ops", action, resource) when { resource.effect == "write" };'
    )
    gate = CedarGate(policy, schema=SCHEMA, entities=TEAM)
    assert isinstance(
        await gate.judge(request()), Allow
    )  # What a tool does is not for a list to say.
    other = GateRequest("s", "c", SEND, {}, agent="other")
    assert isinstance(await gate.judge(other), Deny)


@pytest.mark.parametrize(
    ("entities", "told"),
    [
        ([{"uid": "Team"}], "not a list of Cedar entities"),
        ([TEAM[0], TEAM[0]], "listed twice"),
        ([{"uid": {"type": "Nobody", "id": "x"}}], "cannot be used"),
    ],
)
def test_entities_that_cannot_be_used_are_refused(entities: list[Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        CedarGate(PERMIT_ALL, schema=SCHEMA, entities=entities)


def test_the_name_tells_policies_apart_and_not_their_layout() -> None:
    name = CedarGate(POLICIES).name
    assert name.startswith("cedar@")
    assert name == CedarGate(f"// As before.\n{POLICIES}").name
    others = [
        CedarGate(POLICIES.replace("read", "write")),
        CedarGate(POLICIES.replace("go out", "be sent")),
        CedarGate(POLICIES, entities=TEAM),
    ]
    assert len({name, *(gate.name for gate in others)}) == 4
    assert CedarGate(PERMIT_ALL).name != CedarGate(PERMIT_ALL, schema=SCHEMA).name


@pytest.mark.contract("G4")
async def test_policies_come_from_a_file(tmp_path: Path) -> None:
    file, schema, entities = (tmp_path / name for name in ("team.cedar", "s", "e.json"))
    file.write_text(PERMIT_ALL)
    schema.write_text(SCHEMA)
    entities.write_text('[{"uid": {"type": "Team", "id": "ops"}}]')
    gate = load_cedar(str(file), schema=schema, entities=entities)
    assert gate.name.startswith("team@")
    assert await gate.judge(request()) == Allow("team: policy0")
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_cedar(tmp_path / "none.cedar")
    file.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="it is not UTF-8"):
        load_cedar(file)


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cedarpy", None)
    with pytest.raises(ConfigError, match=r"windlass\[cedar\]"):
        CedarGate(PERMIT_ALL)


async def test_it_composes_with_other_gates() -> None:
    verdict = await all_of(allow_all(), CedarGate(POLICIES)).judge(request(READ))
    assert verdict == Allow("allow_all: default allow + cedar: reads")
