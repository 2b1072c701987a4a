"""Policies in files: what is wrong is told with its line, and lets nothing start."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from windlass.cli import main
from windlass.core.errors import ConfigError
from windlass.core.messages import Label, ToolSpec
from windlass.core.verdicts import Allow, Ask, Deny
from windlass.gates.policy_file import load_policy, parse_policy
from windlass.gates.rules import Rule
from windlass.gates.written_calls import parse_written_call
from windlass.ports import GateRequest

ORDERED = """\
default = "deny"
deny_replies = ["*BEGIN PRIVATE KEY*"]

[[rule]]
allow = "bash(git status*)"
matches = ["git status --short"]
not_matches = ["git status && rm -rf x"]

[[rule]]
ask = "bash(git push*)"

[[rule]]
deny = "write(.git/**)"
reason = "Git keeps its own files."
"""


@pytest.mark.contract("G4")
def test_rules_are_read_in_their_order() -> None:
    gate = parse_policy(ORDERED, name="mine")
    assert gate.rules == (
        Rule(
            "allow",
            "bash(git status*)",
            matches=("git status --short",),
            not_matches=("git status && rm -rf x",),
        ),
        Rule("ask", "bash(git push*)"),
        Rule("deny", "write(.git/**)", "Git keeps its own files."),
    )
    assert (gate.default, gate.title, gate.judges_replies) == ("deny", "mine", True)


@pytest.mark.contract("G4")
def test_of_plain_lists_the_strictest_comes_first() -> None:
    gate = parse_policy('allow = ["bash(git *)"]\nask = ["bash(git push*)"]\ndeny = ["bash(rm *)"]')
    assert [str(rule) for rule in gate.rules] == [
        "deny bash(rm *)",
        "ask bash(git push*)",
        "allow bash(git *)",
    ]
    assert gate.default == "ask"
    assert gate.decide_call(parse_written_call("bash(git push)")).decision == "ask"


def test_an_empty_policy_asks() -> None:
    gate = parse_policy("")
    assert (gate.rules, gate.default, gate.judges_replies) == ((), "ask", False)


@pytest.mark.contract("G4")
def test_a_file_is_named_after_its_stem_and_its_rules(tmp_path: Path) -> None:
    file = tmp_path / "team.toml"
    file.write_text(ORDERED)
    gate = load_policy(file, root="/ws")
    assert gate.name.startswith("team@")
    assert gate.name == load_policy(str(file)).name
    file.write_text(ORDERED.replace("push", "pull"))
    assert gate.name != load_policy(file).name


@pytest.mark.contract("G4")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("default = @", "is not TOML: .*line 1"),
        ('defualt = "ask"', "line 1: unknown key 'defualt'. Did you mean default"),
        ('\ndefault = "alow"', "line 2: 'alow' is not a decision.* Did you mean allow"),
        ("default = 1", "line 1: default must be text"),
        (
            '[[rule]]\nallow = "bash"\n\n[[rule]]\ndney = "x"',
            "line 4: unknown key 'dney'.* mean deny",
        ),
        ('[[rule]]\nallow = "bash"\ndeny = "bash"', "line 1: a rule must have exactly one of"),
        ('[[rule]]\nreason = "x"', "line 1: a rule must have exactly one of"),
        ('[[rule]]\nallow = ["bash"]', "line 1: allow must be text"),
        ('[[rule]]\nallow = "bash"\nreason = 1', "line 1: reason must be text"),
        ('[[rule]]\nallow = "bash"\nmatches = "x"', "line 1: matches must be a list"),
        ('[[rule]]\nallow = "bash"\nmatches = [1]', "line 1: matches must be a list"),
        ('[rule]\nallow = "bash"', "line 1: write .*two brackets"),
        ("rule = [1]", "a rule must be a table"),
        ('\n\n[[rule]]\nallow = "bash("', "line 3: .*is not a pattern"),
        ('[[rule]]\nallow = "bash(ls)"\nmatches = ["rm"]', "line 1: .*does not match its own"),
        ('[[rule]]\nallow = "bash(*)"\nnot_matches = ["rm"]', "line 1: .*listed in not_matches"),
        ('allow = [\n  "bash",\n  "@reed",\n]', "line 3: @reed is not an effect or a label"),
        ('allow = "bash"', "line 1: allow must be a list"),
        ('allow = ["x"]\n[[rule]]\ndeny = "y"', "line 1: use lists or"),
        ('deny_replies = "x"', "line 1: deny_replies must be a list"),
        ('\nflow_guard = "allow"', "line 2: flow_guard must be true, false"),
        ("flow_guard = 1", "line 1: flow_guard must be true, false"),
        ("flow_gaurd = true", "line 1: .*Did you mean flow_guard"),
    ],
)
def test_a_policy_that_is_wrong_is_refused_with_its_line(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse_policy(text, source="team.toml")


@pytest.mark.contract("G4")
def test_a_policy_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_policy(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load_policy(tmp_path)
    odd = tmp_path / "odd.toml"
    odd.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="cannot be read: it is not UTF-8"):
        load_policy(odd)


SEND = ToolSpec("send", "", {"type": "object"}, labels=("external",))
HELD: frozenset[Label] = frozenset(["untrusted", "private"])


@pytest.mark.contract("G7")
@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("", Allow),
        ("flow_guard = false", Allow),
        ("flow_guard = true", Ask),
        ('flow_guard = "ask"', Ask),
        ('flow_guard = "deny"', Deny),
    ],
)
async def test_a_file_may_set_the_flow_guard(line: str, verdict: type) -> None:
    gate = parse_policy(f'{line}\nallow = ["send"]\ndeny = ["rm"]\ndeny_replies = ["*key*"]')
    assert isinstance(await gate.judge(GateRequest("s", "c", SEND, {}, HELD)), verdict)
    assert isinstance(await gate.judge(GateRequest("s", "c", SEND, {})), Allow)
    assert isinstance(await gate.judge(GateRequest("s", "c", ToolSpec("rm", "", {}), {})), Deny)
    assert gate.judges_replies
    assert isinstance(await gate.judge_reply("s", "a key"), Deny)
    assert isinstance(await gate.judge_reply("s", "hello"), Allow)


@pytest.mark.contract("J9")
def test_the_flow_guard_is_part_of_what_a_policy_is_called() -> None:
    names = [parse_policy(line).name for line in ("", "flow_guard = true", 'flow_guard = "deny"')]
    assert len(set(names)) == 3
    assert parse_policy("flow_guard = false").name == names[0]
    guarded = parse_policy('flow_guard = true\nallow = ["bash(ls *)"]', root="/ws")
    assert guarded.decide_call(parse_written_call("bash(ls x)")).decision == "allow"


@pytest.mark.contract("G7")
def test_check_and_explain_tell_of_the_flow_guard(tmp_path: Path) -> None:
    file = tmp_path / "team.toml"
    file.write_text('flow_guard = true\nallow = ["send"]')
    checked = CliRunner().invoke(main, ["policy", "check", str(file)])
    assert (checked.exit_code, "flow guard: ask" in checked.output) == (0, True)
    explained = CliRunner().invoke(main, ["policy", "explain", str(file), "send(x)"])
    assert (explained.exit_code, explained.output.splitlines()[0]) == (0, "decision  allow")
    condition = "if it sends data out while the session holds untrusted and private content"
    assert explained.output.splitlines()[-1] == f"flow      ask, {condition}"
