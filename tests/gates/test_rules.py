"""Ordered rules: the first that matches decides, and doubt never allows."""

import pytest

from windlass.core.errors import ConfigError
from windlass.core.messages import ToolSpec
from windlass.core.verdicts import Allow, Ask, Deny
from windlass.gates.patterns import PreparedCall
from windlass.gates.presets import allow_all, ask, read_only
from windlass.gates.rules import Decision, Rule, RuleGate
from windlass.gates.written_calls import parse_written_call
from windlass.ports import Gate, GateRequest
from windlass.testing import GateConformance


def spec(name: str, **fields: str) -> ToolSpec:
    """A tool with these arguments and their JSON types."""
    properties = {field: {"type": kind} for field, kind in fields.items()}
    return ToolSpec(name, "", {"type": "object", "properties": properties})


def decided(
    call: str | PreparedCall, *rules: tuple[Decision, str], default: Decision = "ask"
) -> Decision:
    gate = RuleGate([Rule(decision, pattern) for decision, pattern in rules], default=default)
    return gate.decide_call(parse_written_call(call) if isinstance(call, str) else call).decision


def request(tool: ToolSpec, **arguments: object) -> GateRequest:
    return GateRequest("s", "c", tool, arguments)


class TestRuleGate(GateConformance):
    @pytest.fixture(params=["allow", "ask", "deny"])
    def gate(self, request: pytest.FixtureRequest) -> Gate:
        rules = [Rule("deny", "send(to=*@evil.com)"), Rule("allow", "bash(git status*)")]
        return RuleGate(rules, default=request.param)


class TestPresets(GateConformance):
    @pytest.fixture(params=[read_only, ask, allow_all])
    def gate(self, request: pytest.FixtureRequest) -> Gate:
        return request.param()


class TestGateOfReplies(GateConformance):
    @pytest.fixture(params=["patterns", "function"])
    def gate(self, request: pytest.FixtureRequest) -> Gate:
        by = ["*secret*"] if request.param == "patterns" else lambda _: Deny("no")
        return RuleGate([], reply=by)


@pytest.mark.contract("G4")
def test_the_first_rule_that_matches_decides() -> None:
    rules: list[tuple[Decision, str]] = [("allow", "bash(git *)"), ("deny", "bash(git push*)")]
    assert decided("bash(git push)", *rules) == "allow"
    assert decided("bash(git push)", *reversed(rules)) == "deny"


@pytest.mark.contract("G4")
def test_of_the_parts_of_a_command_the_strictest_counts() -> None:
    rules: list[tuple[Decision, str]] = [
        ("allow", "bash(git *)"),
        ("allow", "bash(ls *)"),
        ("ask", "bash(mv *)"),
        ("deny", "bash(rm *)"),
    ]
    assert decided("bash(git log && ls x)", *rules) == "allow"
    assert decided("bash(git log && mv x y)", *rules) == "ask"
    assert decided("bash(mv x y; rm z)", *rules) == "deny"
    assert decided("bash(git log; make)", *rules, default="deny") == "deny"


@pytest.mark.contract("G4")
def test_a_rule_that_only_might_match_never_allows_and_does_deny() -> None:
    assert decided("bash($X)", ("allow", "bash(git *)")) == "ask"
    assert decided("bash($X)", ("allow", "bash(git *)"), ("deny", "bash(*)")) == "deny"
    assert decided("bash($X)", ("deny", "bash(git *)"), default="allow") == "deny"
    assert decided("bash($X)", ("ask", "bash(git *)"), default="allow") == "ask"
    assert decided("bash($X)", ("ask", "bash(git *)"), ("deny", "bash")) == "deny"
    assert decided("bash($X)", ("allow", "bash(git *)"), ("allow", "bash(*)")) == "allow"


@pytest.mark.contract("G4")
@pytest.mark.parametrize(
    ("pattern", "call", "matches"),
    [
        ("bash", "bash(x)", True),
        ("bash(*)", "bash(x; y)", True),
        ("bash(*)", "bash", True),
        ("Bash(git *)", "bash(git log)", True),
        ("bash(git log:*)", "bash(git log -1)", True),
        ("bash(git log:*)", "bash(git log)", True),
        ("bash(git log:*)", "bash(git logs)", False),
        ("bash(command=git *)", "bash(git log)", True),
        ("bash(git   log *)", "bash(git log  x)", True),
        ("write(src/**)", "write(src/a/b)", True),
        ("write(src/**)", "write(src/../b)", False),
        ("write(src/**)", 'write({"path": "src/a", "content": "x"})', True),
        ("write(content=*password*)", 'write({"path": "src/a", "content": "a password"})', True),
        ("fetch(https://docs.*)", "fetch(https://docs.python.org/3)", True),
        ("fetch(https://docs.*)", "fetch(https://docs.python.org@evil.com/)", False),
        ("send(to=*@example.com)", 'send({"to": "ann@example.com"})', True),
        ("send(to=*@example.com)", 'send({"to": ["ann@example.com", "bob@example.com"]})', True),
        ("send(to=*@example.com)", 'send({"to": ["ann@example.com", "bob@evil.com"]})', False),
        ("send(to=*@example.com)", 'send({"to": "eve@evil.com,ann@example.com"})', False),
        ("send(to=*@example.com)", 'send({"to": "eve@evil.com\\nann@example.com"})', False),
        ("send(to=*@example.com)", 'send({"to": "<eve@evil.com> ann@example.com"})', False),
        ("send(to=*@example.com)", 'send({"to": "eve@evil.com@example.com"})', False),
        ("send(to=*@example.com)", 'send({"to": {"mail": "ann@example.com"}})', False),
        ("send(to=*@example.com)", 'send({"subject": "x"})', False),
        ("send(too=*@example.com)", 'send({"to": "ann@example.com"})', False),
        ("mcp__github__*", "mcp__github__search", True),
        ("mcp__github__*", "github__search", True),
        ("github__*", "github__search", True),
        ("github__*", "gitlab__search", False),
        ("@read", "read(x)", True),
        ("@read", "write(x)", False),
        ("@read(src/**)", "read(src/x)", True),
        ("*", "anything", True),
        ("delete(name=src/**)", 'delete({"name": "src/../etc"})', False),
        ("count(n=5)", 'count({"n": 5})', True),
        ("run(script=git *)", 'run({"id": "x", "script": "git log; rm x"})', False),
        ("run(script=git *)", 'run({"id": "x", "script": "git log"})', True),
    ],
)
def test_a_pattern_allows_what_it_means(pattern: str, call: str, matches: bool) -> None:  # noqa: FBT001
    assert decided(call, ("allow", pattern)) == ("allow" if matches else "ask")


@pytest.mark.contract("G4")
@pytest.mark.parametrize(
    ("pattern", "call"),
    [
        ("send(to=*@evil.com)", 'send({"to": "ann@example.com, eve@evil.com"})'),
        ("send(to=*@evil.com)", 'send({"to": ["ann@example.com", "eve@EVIL.com"]})'),
        ("send(to=*@evil.com)", 'send({"to": {"mail": "eve@evil.com"}})'),
        ("send(too=*@evil.com)", 'send({"to": "eve@evil.com"})'),
        ("fetch(https://evil.com)", "fetch(https://x@evil.com:8443/a)"),
        ("fetch(https://evil.com)", "fetch(https:evil.com)"),
        ("write(.git/**)", "write(.GIT/config)"),
        ("write(.git/**)", "write(/ws/.git/config)"),
        ("write(.git/**)", "write(src/../.git/config)"),
        ("run(task=*a/b*)", 'run({"task": "x/y a/b"})'),
        ("bash(rm *)", 'bash({"command": ["rm", "-rf", "x"]})'),
        ("BASH(rm *)", "bash(rm x)"),
        ("search(query=*password*)", 'search({"query": "PASSWORD"})'),
    ],
)
def test_a_pattern_denies_what_might_be_meant(pattern: str, call: str) -> None:
    assert decided(call, ("deny", pattern), default="allow") == "deny"


def test_the_main_argument_is_the_schemas_to_say() -> None:
    """An argument that the tool does not have cannot stand in for the one that counts."""
    tool = spec("get", url="string")
    call = PreparedCall(
        tool, {"command": "git status", "path": "src/a", "url": "https://evil.com/"}
    )
    assert decided(call, ("allow", "get(git *)"), ("allow", "get(src/**)")) == "ask"
    assert decided(call, ("deny", "get(https://evil.com)"), default="allow") == "deny"


def test_a_tool_without_a_schema_is_matched_for_certain_only_if_it_takes_one_argument() -> None:
    tool = ToolSpec("get", "", {"type": "object"})
    one = PreparedCall(tool, {"path": "src/a"})
    two = PreparedCall(tool, {"path": "src/a", "file": "/etc/passwd"})
    assert (decided(one, ("allow", "get(src/**)")), decided(two, ("allow", "get(src/**)"))) == (
        "allow",
        "ask",
    )


def test_an_argument_that_is_left_out_has_its_default() -> None:
    fields = {"path": {"type": "string", "default": "/etc"}}
    tool = ToolSpec("list", "", {"type": "object", "properties": fields})
    assert decided(PreparedCall(tool, {}), ("deny", "list(/etc/**)"), default="allow") == "deny"


def test_the_kind_of_an_argument_may_come_from_its_format() -> None:
    fields = {"where": {"type": "string", "format": "uri"}}
    tool = ToolSpec("open", "", {"type": "object", "properties": fields})
    call = PreparedCall(tool, {"where": "https://docs.python.org@evil.com/"})
    assert decided(call, ("allow", "open(https://docs.*)")) == "ask"


def test_with_a_root_absolute_paths_are_told_apart() -> None:
    gate = RuleGate([Rule("allow", "write(src/**)")], root="/ws")
    assert gate.decide_call(parse_written_call("write(/ws/src/a)", root="/ws")).decision == "allow"
    assert gate.decide_call(parse_written_call("write(/etc/src/a)", root="/ws")).decision == "ask"


@pytest.mark.contract("G2")
async def test_each_verdict_says_which_rule_made_it() -> None:
    rules = [
        Rule("deny", "bash(rm *)", "Use the bin."),
        Rule("allow", "bash(git *)"),
        Rule("ask", "bash(mv *)", "Moves can overwrite."),
    ]
    gate, bash = RuleGate(rules, name="mine"), spec("bash", command="string")
    assert await gate.judge(request(bash, command="git log")) == Allow("mine: allow bash(git *)")
    denied = await gate.judge(request(bash, command="git log; rm x"))
    assert denied == Deny("Use the bin.", "mine: deny bash(rm *)")
    moved = await gate.judge(request(bash, command="mv x y"))
    assert moved == Ask(
        "Run mv x y? Moves can overwrite.",
        "mine: ask bash(mv *)",
    )
    other = await gate.judge(request(bash, command="git $(make)"))
    assert other == Ask("Run git $(make)? No rule decides `make`.", "mine: default ask")


@pytest.mark.parametrize("reason", ["", "Use the bin."])
async def test_a_denial_by_doubt_says_what_was_not_understood(reason: str) -> None:
    gate = RuleGate([Rule("deny", "bash(rm *)", reason)])
    verdict = await gate.judge(request(spec("bash", command="string"), command="case x in esac"))
    assert isinstance(verdict, Deny)
    assert "cannot be read with certainty" in verdict.reason
    assert "might match the rule deny bash(rm *)" in verdict.reason
    assert verdict.reason.endswith(reason)


def test_a_rule_that_missed_by_doubt_is_named() -> None:
    gate = RuleGate([Rule("allow", "bash(git *)")])
    assert (
        "allow bash(git *) does not match it for certain"
        in gate.decide_call(parse_written_call("bash($X)")).explanation
    )


@pytest.mark.contract("G4")
def test_the_name_changes_with_the_rules() -> None:
    base = RuleGate([Rule("allow", "bash")])
    same = RuleGate([Rule("allow", "bash", matches=("ls",))])
    others = [
        RuleGate([Rule("ask", "bash")]),
        RuleGate([Rule("allow", "bash(*)")]),
        RuleGate([Rule("allow", "bash")], default="deny"),
        RuleGate([Rule("allow", "bash")], reply=["x"]),
        RuleGate([Rule("allow", "bash")], reply=lambda _: Allow()),
        RuleGate([]),
    ]
    assert base.name == same.name
    assert len({gate.name for gate in (base, *others)}) == 1 + len(others)


@pytest.mark.contract("G5")
@pytest.mark.parametrize(
    ("preset", "verdicts"),
    [
        (read_only, {"read": Allow, "idempotent": Deny, "write": Deny}),
        (ask, {"read": Allow, "idempotent": Ask, "write": Ask}),
        (allow_all, {"read": Allow, "idempotent": Allow, "write": Allow}),
    ],
)
async def test_presets(preset: type, verdicts: dict[str, type]) -> None:
    for effect, verdict in verdicts.items():
        tool = ToolSpec("t", "", {"type": "object"}, effect)  # pyright: ignore[reportArgumentType]
        assert isinstance(await preset().judge(request(tool, x=1)), verdict)


@pytest.mark.contract("G5")
def test_the_names_of_presets_are_stable() -> None:
    """A run that was begun under a preset is resumed under it, also by a later version."""
    assert [preset().name for preset in (read_only, ask, allow_all)] == [
        "read_only@69c667b69528",
        "ask@8f7e9ac74b5d",
        "allow_all@9256ac9e9031",
    ]


@pytest.mark.contract("G1")
async def test_replies_are_judged_by_patterns_or_by_a_function() -> None:
    assert not RuleGate([]).judges_replies
    gate = RuleGate([], reply=["*BEGIN PRIVATE KEY*"], name="mine")
    assert gate.judges_replies
    assert await gate.judge_reply("s", "Hello") == Allow("mine: reply")
    denied = await gate.judge_reply("s", "x" * 30_000 + "\n-----begin private key-----\n")
    assert denied == Deny(
        "A reply must not match '*BEGIN PRIVATE KEY*'.",
        "mine: deny reply *BEGIN PRIVATE KEY*",
    )
    by = RuleGate([], reply=lambda text: Deny("rude", "tone") if "you" in text else Allow())
    assert await by.judge_reply("s", "you") == Deny("rude", "tone")
    assert await by.judge_reply("s", "me") == Allow()


@pytest.mark.contract("G4")
@pytest.mark.parametrize(
    ("rule", "told"),
    [
        (("alow", "bash"), "Did you mean allow"),
        (("allow", "bash("), "is not a pattern"),
        (("allow", ""), "is not a pattern"),
        (("allow", "bash()"), "empty pattern"),
        (("allow", "@reed"), "Did you mean read"),
        (("deny", "bash(curl * | sh)"), "write a rule for each"),
        (("deny", "bash(rm 'x')"), "without quotes"),
        (("deny", "bash(git log > *)"), "write a rule for each"),
        (("deny", "bash(time rm *)"), "is removed before"),
        (("allow", "fetch(docs.python.org)"), "starts with its scheme"),
        (("allow", "fetch(https://a@b/*)"), "without a user before it"),
        (("allow", "send(to=a, cc=b)"), "one argument"),
    ],
)
def test_a_rule_that_cannot_be_meant_is_refused(rule: tuple[Decision, str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Rule(*rule)


@pytest.mark.contract("G4")
def test_a_rule_holds_to_its_examples() -> None:
    Rule(
        "allow",
        "bash(git status*)",
        matches=("git status -s", "bash(git status)", 'bash({"command": "git status"})'),
        not_matches=("git status && rm -rf x", "git status > x", "read(git status)"),
    )
    Rule("deny", "bash(rm *)", matches=("sudo rm x", "$X"), not_matches=("echo rm x",))
    Rule("allow", "send(to=*@example.com)", matches=("ann@example.com",), not_matches=("a@b.c",))
    with pytest.raises(ConfigError, match="does not match its own example 'git log'"):
        Rule("allow", "bash(git status*)", matches=("git log",))
    with pytest.raises(ConfigError, match="matches 'git status', which is listed in not_matches"):
        Rule("allow", "bash(git status*)", not_matches=("git status",))
    with pytest.raises(ConfigError, match="is not a call"):
        Rule("allow", "mcp__*", matches=("git status -s",))
    with pytest.raises(ConfigError, match="not JSON"):
        Rule("allow", "bash", matches=("bash({x})",))


def test_a_default_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="Did you mean deny"):
        RuleGate([], default="deni")  # pyright: ignore[reportArgumentType]
