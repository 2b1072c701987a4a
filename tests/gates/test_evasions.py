"""No way past a rule: known evasions as data, and bash itself as the judge of random commands."""

import itertools
import subprocess
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from windlass.core.messages import ToolSpec
from windlass.gates.patterns import PreparedCall
from windlass.gates.rules import Rule, RuleDecision, RuleGate

DATA = Path(__file__).parent / "data" / "evasions.toml"
EVASIONS = tomllib.loads(DATA.read_text("utf-8"))["evasion"]
BASH = ToolSpec("bash", "", {"type": "object", "properties": {"command": {"type": "string"}}})

ALLOWED = ["git status*", "echo *", "cat src/*", "find *", "xargs *", "printf *", "test *"]
ALLOWED += ["export *", "sh *", "sudo *", "env *", "eval *", "trap *", "source *", "cd *", "make"]
ALLOWED += [f"{name} *" for name in ("awk", "jobs", "sed", "sort", "split", "tar", "uniq", "wget")]
ALLOWED += ["git archive *", "git bisect *", "git submodule *", "grep *", "ls *", "dd *", "gawk *"]
LOOSE = RuleGate([Rule("allow", f"bash({pattern})") for pattern in ALLOWED])
NO_RM = RuleGate([Rule("deny", "bash(rm *)")], default="allow")


def rule_on(gate: RuleGate, command: str) -> RuleDecision:
    return gate.decide_call(PreparedCall(BASH, {"command": command}))


def test_the_corpus_is_large_and_says_nothing_twice() -> None:
    commands = [evasion["command"] for evasion in EVASIONS]
    assert len(commands) >= 60
    assert [one for one in commands if commands.count(one) > 1] == []


@pytest.mark.contract("G4")
@pytest.mark.parametrize("evasion", EVASIONS, ids=lambda evasion: repr(evasion["command"]))
def test_an_evasion_is_not_allowed(evasion: dict[str, str]) -> None:
    ruling = rule_on(LOOSE, evasion["command"])
    assert ruling.decision == "ask"
    assert ruling.explanation


@pytest.mark.contract("G4")
@pytest.mark.parametrize(
    "command", [evasion["command"] for evasion in EVASIONS if evasion.get("runs_rm")], ids=repr
)
def test_what_may_run_a_denied_command_is_denied(command: str) -> None:
    assert rule_on(NO_RM, command).decision == "deny"


HARMLESS = [
    "git status",
    "git status --short",
    "git  status\t-s",
    "'git' \"status\"",
    "git status && echo done",
    "git status | cat src/a",
    "git status; git status &",
    "git status 2>&1 >/dev/null",
    "git status 2>/dev/null < /dev/null",
    "git status # rm -rf x",
    "git status \\\n  --short",
    "(git status; echo hi)",
    "{ git status; }",
    "! git status",
    "time git status",
    "nohup git status",
    "timeout 5 git status",
    "command git status",
    "nice -n 5 git status",
    "if git status; then echo yes; else echo no; fi",
    "while git status; do echo again; done",
    "echo 'rm -rf x; $(rm) `rm`'",
    'echo "costs 5 $ or $HOME"',
    'echo "$(git status)"',
    "echo `git status`",
    "echo $((1 + 2)) $? ${HOME}",
    "cat src/*.py",
    "cat src/a <<'EOF'\n$(rm -rf x)\nEOF",
    "cat src/a <<EOF\ncosts $5\nEOF\ngit status",
    "echo <(git status)",
    "find . -name x",
    "find . -name '*.py'",
    "printf '%s\\n' $X",
    "test -f x",
    "sed -n '1,20p' src/a",
    "sed -E 's/(a|b)/[\\1]/g; /^#/d' src/a",
    "sed -n '/start/,/end/{p;q}' src/a",
    "sed -e 's|a|b|' -e '$!d' src/a",
    "awk '{print $1, $NF}' src/a",
    "awk -F: '$3 > 100 && NR > 1 {print $1}' src/a",
    "awk '/a|b/' src/a",
    "awk 'BEGIN {n = 0} {if ($1 > 3) n++} END {print n}' src/a",
    "tar czf a.tgz src",
    "tar -xf a.tgz",
    "split -l 5 src/a",
    "sort -rn src/a",
    "uniq -c",
    "git status -uno",
    "git archive HEAD src",
    "cd src && ls -la",
    "cd src && grep -rn x .",
    "cd . && git status",
    "grep -rn 'a|b' src",
    "ls -la src",
]


@pytest.mark.parametrize("command", HARMLESS, ids=repr)
def test_what_is_plain_is_still_allowed(command: str) -> None:
    ruling = rule_on(LOOSE, command)
    assert ruling.decision == "allow", ruling.explanation


@pytest.mark.parametrize(
    "command",
    ["ls x", "git rm-cached x", "echo rm x", "grep 'rm -rf' x", "git commit -m 'rm x'", "rmdir x"],
)
def test_what_only_speaks_of_a_denied_command_is_not_denied(command: str) -> None:
    assert rule_on(NO_RM, command).decision == "allow"


def test_a_wrapper_is_allowed_by_a_rule_that_names_what_it_runs() -> None:
    gate = RuleGate([Rule("allow", "bash(sudo apt*)"), Rule("allow", "bash(find * -exec grep *)")])
    assert rule_on(gate, "sudo apt update").decision == "allow"
    assert rule_on(gate, "sudo -u root apt update").decision == "ask"
    assert rule_on(gate, "sudo rm apt").decision == "ask"
    assert rule_on(gate, "find src -exec grep x {} +").decision == "allow"
    assert rule_on(gate, "find src -exec grep x {} + -exec rm {} +").decision == "ask"


def test_a_quoted_blank_does_not_end_a_word() -> None:
    gate = RuleGate([Rule("allow", "bash(deploy --dry-run *)")])
    assert rule_on(gate, "deploy --dry-run 'a b'").decision == "allow"
    assert rule_on(gate, "deploy '--dry-run a' b").decision == "ask"


def test_redirections_and_assignments_have_rules_of_their_own() -> None:
    rules = ["bash(make)", "bash(> build/*)", "bash(CI=*)"]
    gate = RuleGate([Rule("allow", rule) for rule in rules])
    assert rule_on(gate, "CI=1 make > build/log").decision == "allow"
    assert rule_on(gate, "CI=1 make > build/../log").decision == "ask"
    assert rule_on(gate, "CI=1 make > build/$X").decision == "ask"
    assert rule_on(gate, "CC=evil make").decision == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "git status " + "x" * 20_001,
        "git status;" * 600,
        "echo " + "$(echo " * 12 + ")" * 12,
        "git status \\",
        "git status <<E",
        "git status <<E\nbody",
        "git status <<$X\nbody",
        "for ((i=0;;)); do git status; done",
        "for i do git status; done",
        "sudo " + "git " * 50,
    ],
    ids=lambda command: repr(command[:30]),
)
def test_what_is_too_long_too_deep_or_unfinished_is_not_allowed(command: str) -> None:
    assert rule_on(LOOSE, command).decision == "ask"
    assert rule_on(NO_RM, command).decision == "deny"


# What bash really runs: the programs on its path write down how they were called.

FRAGMENTS = [
    *("git status", "git status -s", "git", "status", "evil", "evil x", "echo", "out", "-c", "x"),
    *(" ", " ", " ", "\n", "\t", "\\\n", ";", "&&", "||", "|", "&", "!", "#", "'", '"', "`"),
    *(
        "$(",
        ")",
        "(",
        "{",
        "}",
        "{ ",
        "; }",
        "<(",
        ">(",
        ">",
        ">>",
        "2>&1",
        "&>",
        "<",
        "<<E",
        "\nE\n",
    ),
    *(
        "<<'E'",
        "<<-E",
        "<<<",
        "$x",
        "${x}",
        "${x:-evil}",
        "x=evil",
        "x=1 ",
        "$'e'",
        '$"',
        "\\",
        "$",
    ),
    *("if ", "then ", "fi", "do ", "done", "while ", "for x in ", "case x in x) ", "esac", ";;"),
    *("eval ", "command ", "exec ", "time ", "env ", "sh -c ", "xargs ", "{git,status}", "~", "*"),
    *("$((1", "))", "((", "[[ ", " ]]", "a[$(evil)]", "f()", "function f ", "=", "..", "/", ","),
]
STUB = '#!/bin/sh\nprintf "%s\\0" "${0##*/} $*" >>"$LOG"\n'
STRICT = RuleGate(
    [Rule("allow", f"bash({one})") for one in ("git status", "git status *", "echo:*")]
)


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bin")
    for name in ("git", "evil", "env", "sh", "xargs", "status", "x", "out"):
        program = folder / name
        program.write_text(STUB)
        program.chmod(0o755)
    return folder


def ran_by_bash(command: str, stubs: Path, folder: Path) -> tuple[list[str], list[str]]:
    """What ran, and what was made."""
    log, place = folder / "log", folder / "place"
    log.unlink(missing_ok=True)
    place.mkdir(exist_ok=True)
    for old in place.iterdir():
        old.unlink()
    subprocess.run(
        ["/usr/bin/env", "bash", "--norc", "-c", f'PATH="{stubs}"\n{command}'],
        cwd=place,
        env={"LOG": str(log), "PATH": "/usr/bin:/bin"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
        check=False,
    )
    lines = log.read_text().split("\0")[:-1] if log.exists() else []
    return lines, [made.name for made in place.iterdir()]


def harmless(line: str) -> bool:
    return line == "git status" or line.startswith("git status ")


@pytest.mark.contract("G4")
@pytest.mark.realtime
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    start=st.sampled_from(["git status ", "echo ", ""]),
    fragments=st.lists(st.sampled_from(FRAGMENTS), max_size=9),
)
def test_bash_runs_nothing_beyond_what_was_allowed(
    start: str, fragments: list[str], stubs: Path, tmp_path: Path
) -> None:
    command = start + "".join(fragments)
    if rule_on(STRICT, command).decision != "allow":
        return
    lines, made = ran_by_bash(command, stubs, tmp_path)
    assert [line for line in lines if not harmless(line)] == []
    assert made == []


@pytest.mark.realtime
@pytest.mark.slow
def test_bash_agrees_on_every_short_command(stubs: Path, tmp_path: Path) -> None:
    """Two fragments behind a command, in every way in which the rules allow it."""
    commands = [f"git status {a}{b}" for a, b in itertools.product(FRAGMENTS, repeat=2)]
    allowed = [one for one in commands if rule_on(STRICT, one).decision == "allow"]
    assert len(allowed) > 100, "a gate that allows nothing proves nothing"
    for command in allowed[:: len(allowed) // 60]:
        lines, made = ran_by_bash(command, stubs, tmp_path)
        assert ([line for line in lines if not harmless(line)], made) == ([], []), command
