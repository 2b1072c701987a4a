"""What a person allowed for a session: it lifts a question where it covers the very call."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from windlass.core.errors import ConfigError
from windlass.core.messages import Label, ToolSpec
from windlass.core.setup import digest
from windlass.core.verdicts import Allow, Ask, Deny, Grant, Modify, Verdict
from windlass.gates.combined import all_of
from windlass.gates.data_flow import flow_guard
from windlass.gates.grants import GrantGate, digest_description, make_grant
from windlass.gates.patterns import MAIN_ARGUMENTS
from windlass.gates.presets import ask, read_only
from windlass.gates.rules import Rule, RuleGate
from windlass.ports import Gate, GateRequest
from windlass.testing import BrokenGate, FixedGate, GateConformance


def spec(name: str, *fields: str, labels: tuple[Label, ...] = ()) -> ToolSpec:
    properties = {field: {"type": "string"} for field in fields}
    return ToolSpec(name, "", {"type": "object", "properties": properties}, labels=labels)


BASH = spec("bash", "command")
SEND = spec("send", "to", "body", labels=("external",))


def request(
    tool: ToolSpec, arguments: dict[str, Any], *grants: Grant, held: tuple[Label, ...] = ()
) -> GateRequest:
    return GateRequest("s", "c", tool, arguments, frozenset(held), grants=grants)


def shell(command: str, *patterns: str) -> GateRequest:
    return request(BASH, {"command": command}, *(Grant("bash", pattern=one) for one in patterns))


class TestGranted(GateConformance):
    @pytest.fixture(params=[ask, read_only, lambda: FixedGate(replies=Deny("no"))])
    def gate(self, request: pytest.FixtureRequest) -> Gate:
        return GrantGate(request.param())


@pytest.mark.contract("G6")
async def test_a_yes_for_exactly_this_call_is_for_no_other() -> None:
    gate = GrantGate(ask())
    grant = make_grant(SEND, {"to": "ann", "body": "hi"}, "", [])
    assert await gate.judge(request(SEND, {"body": "hi", "to": "ann"}, grant)) == Allow(
        "ask: default ask, granted: exactly this call"
    )
    for arguments in ({"to": "ann", "body": "ho"}, {"to": "ann"}, {}):
        assert isinstance(await gate.judge(request(SEND, arguments, grant)), Ask)
    other = spec("publish", "to", "body", labels=("external",))
    assert isinstance(await gate.judge(request(other, {"to": "ann", "body": "hi"}, grant)), Ask)


@pytest.mark.contract("G6")
@pytest.mark.parametrize(
    ("command", "patterns", "lifted"),
    [
        ("git status", ["bash(git status*)"], True),
        ("git status && git status -s", ["bash(git status*)"], True),
        ("git status && rm -rf x", ["bash(git status*)"], False),
        ("git add . && git commit", ["bash(git add*)", "bash(git commit*)"], True),
        ("git status $(rm x)", ["bash(git status*)"], False),
        ("$X", ["bash(git status*)"], False),
        ("git status > /etc/passwd", ["bash(git status*)"], False),
        ("GIT status", ["bash(git status*)"], False),
        ("env git status", ["bash(git status*)"], False),
        ("anything $(at all)", ["bash"], True),
        ("git status", ["read(git status*)"], False),
        ("git status", ["bash("], False),
        ("git status", [""], False),
    ],
)
async def test_a_pattern_covers_only_what_it_matches_for_certain(
    command: str, patterns: list[str], *, lifted: bool
) -> None:
    verdict = await GrantGate(ask()).judge(shell(command, *patterns))
    assert isinstance(verdict, Allow if lifted else Ask), verdict


@pytest.mark.contract("G2")
async def test_the_record_names_the_question_and_the_grant() -> None:
    verdict = await GrantGate(ask()).judge(shell("git status", "bash(git status*)"))
    assert verdict == Allow("ask: default ask, granted: bash(git status*)")
    nameless = GrantGate(FixedGate(Ask("?"), name="mine"))
    assert await nameless.judge(shell("x", "bash")) == Allow("mine, granted: bash")


@pytest.mark.contract("G7")
@pytest.mark.parametrize(
    ("then", "now", "lifted"),
    [
        ((), (), True),
        (("private",), ("private",), True),
        (("private", "untrusted"), ("private",), True),
        ((), ("private",), False),
        (("private",), ("private", "untrusted"), False),
    ],
)
async def test_a_grant_ends_when_the_session_holds_more(
    then: tuple[Label, ...], now: tuple[Label, ...], *, lifted: bool
) -> None:
    for pattern in ("", "send(to=ann)"):
        arguments = {"to": "ann"}
        grant = make_grant(SEND, arguments, pattern, then)
        asked = request(SEND, arguments, grant, held=now)
        assert isinstance(await GrantGate(ask()).judge(asked), Allow if lifted else Ask)


async def test_that_a_tool_sends_out_does_not_end_its_own_grant() -> None:
    """The session holds `external` once it was called, and that was no secret."""
    arguments = {"to": "ann"}
    grant = make_grant(SEND, arguments, "", [])
    asked = request(SEND, arguments, grant, held=("external",))
    assert isinstance(await GrantGate(ask()).judge(asked), Allow)
    inward = spec("send", "to", "body")
    asked = request(inward, arguments, grant, held=("external",))
    assert isinstance(await GrantGate(ask()).judge(asked), Ask)


@pytest.mark.contract("G7")
async def test_what_a_tool_brings_in_does_end_its_own_grant() -> None:
    """Its first answer may have told the model what to send with the second call."""
    fetch = spec("fetch", "url", labels=("untrusted", "external"))
    arguments = {"url": "https://example.com"}
    grant = make_grant(fetch, arguments, "fetch", ["private"])
    gate = GrantGate(all_of(ask(), flow_guard()))
    assert isinstance(await gate.judge(request(fetch, arguments, grant, held=("private",))), Allow)
    after = request(fetch, arguments, grant, held=("private", "untrusted", "external"))
    assert isinstance(await gate.judge(after), Ask)


@pytest.mark.contract("G7")
async def test_a_grant_from_before_does_not_lift_the_flow_guard() -> None:
    gate = GrantGate(all_of(ask(), flow_guard()))
    grant = make_grant(SEND, {"to": "ann"}, "send", ["private"])
    asked = request(SEND, {"to": "ann"}, grant, held=("private",))
    assert isinstance(await gate.judge(asked), Allow)
    asked = request(SEND, {"to": "ann"}, grant, held=("private", "untrusted"))
    assert isinstance(await gate.judge(asked), Ask)


@pytest.mark.contract("G6")
@pytest.mark.parametrize("verdict", [Deny("no"), Modify({"command": "ls"}, "safer"), Allow("yes")])
async def test_only_questions_are_lifted(verdict: Verdict) -> None:
    assert await GrantGate(FixedGate(verdict)).judge(shell("x", "bash")) == verdict


@pytest.mark.contract("T4")
async def test_a_question_about_other_arguments_is_lifted_with_these() -> None:
    """The call as the model made it was never allowed."""
    gate = GrantGate(FixedGate(Ask("?", "q", arguments={"command": "ls"})))
    assert isinstance(await gate.judge(shell("rm x", "bash(rm*)")), Ask)
    lifted = await gate.judge(shell("rm x", "bash(ls*)"))
    told = "A person allowed it with these arguments."
    assert lifted == Modify({"command": "ls"}, told, "q, granted: bash(ls*)")


async def test_it_is_the_gate_that_it_wraps_in_all_else() -> None:
    inner = RuleGate([Rule("allow", "@read")], reply=["*secret*"])
    gate = GrantGate(inner)
    assert (gate.name, gate.judges_replies) == (inner.name, True)
    assert isinstance(await gate.judge_reply("s", "a secret"), Deny)
    with pytest.raises(RuntimeError):
        await GrantGate(BrokenGate()).judge(shell("x", "bash"))


async def test_paths_are_seen_from_the_root() -> None:
    read = spec("write", "path")
    asked = request(read, {"path": "/ws/src/a.py"}, Grant("write", pattern="write(src/**)"))
    assert isinstance(await GrantGate(ask()).judge(asked), Ask)
    assert isinstance(await GrantGate(ask(), root="/ws").judge(asked), Allow)


def test_a_grant_holds_what_it_was_given_for() -> None:
    arguments = {"command": "git status"}
    described = digest_description(BASH)
    assert make_grant(BASH, arguments, "", ["untrusted", "private"]) == Grant(
        "bash", digest(arguments), labels=("private", "untrusted"), described=described
    )
    assert make_grant(BASH, arguments, " bash(git *) ", []) == Grant(
        "bash", pattern="bash(git *)", described=described
    )


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("git status*", r"is not a pattern.*\. Did you mean bash\(git status\*\)\?"),
        ("bsh(git status*)", r"does not cover .* Did you mean bash\(git status\*\)\?"),
        ("bash()", "has an empty pattern"),
        (
            "bash(git push*)",
            r"'bash\(git push\*\)' does not cover `git status` for certain\. Without",
        ),
        ("bash(git; ls)", "is about one command"),
        ("@reed", "not an effect or a label"),
        ("bash(cmd=git*)", "does not cover"),
    ],
)
def test_a_pattern_that_cannot_be_meant_is_refused(pattern: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        make_grant(BASH, {"command": "git status"}, pattern, [])


WORDS = st.lists(
    st.sampled_from(["git", "status", "rm", "&&", ";", "|", "$X", ">", "x"]), max_size=6
)
PATTERNS = st.sampled_from(["bash", "bash(git *)", "bash(git status*)", "bash(rm x)", "bash(*)"])


@given(WORDS.map(" ".join), PATTERNS)
async def test_what_can_be_granted_is_then_allowed_and_nothing_else(
    command: str, pattern: str
) -> None:
    asked = request(BASH, {"command": command}, Grant("bash", pattern=pattern))
    lifted = isinstance(await GrantGate(ask()).judge(asked), Allow)
    try:
        make_grant(BASH, {"command": command}, pattern, [])
    except ConfigError:
        assert not lifted
    else:
        assert lifted


@given(st.text(min_size=1), st.sampled_from(MAIN_ARGUMENTS))
def test_any_text_is_a_pattern_or_refused(pattern: str, field: str) -> None:
    try:
        grant = make_grant(spec("find", field), {field: "a"}, pattern, [])
    except ConfigError:
        return
    assert grant.pattern == pattern.strip()


@pytest.mark.contract("G7")
async def test_a_grant_ends_when_the_tool_is_described_otherwise() -> None:
    """A server that changes what its tool does, or says so, has not been allowed to."""
    add = ToolSpec("notes__add", "Add a note.", {"type": "object", "properties": {}})
    for pattern in ("", "notes__add"):
        grant = make_grant(add, {}, pattern, ())
        gate = GrantGate(FixedGate(Ask("May it?")))
        assert isinstance(await gate.judge(request(add, {}, grant)), Allow)
        for changed in (
            replace(add, description="Add a note, and send all of them."),
            replace(add, parameters={"type": "object", "properties": {"all": {}}}),
        ):
            assert isinstance(await gate.judge(request(changed, {}, grant)), Ask)
        older = replace(grant, described="")
        assert isinstance(await gate.judge(request(changed, {}, older)), Allow)
