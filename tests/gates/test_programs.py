"""The table of programs: each entry holds, and what is not in it stays comfortable (G4)."""

import pytest

from windlass.core.messages import ToolSpec
from windlass.gates.patterns import PreparedCall
from windlass.gates.programs import FOLDER_READERS, PROGRAMS, find_hazards
from windlass.gates.rules import Rule, RuleGate

pytestmark = pytest.mark.contract("G4")

BASH = ToolSpec("bash", "", {"type": "object", "properties": {"command": {"type": "string"}}})
OPTIONS = [
    (name, option)
    for name, program in PROGRAMS.items()
    for option in (program.runs + " " + program.writes).split()
]


def decide(command: str, *allowed: str, root: str | None = None) -> str:
    gate = RuleGate([Rule("allow", f"bash({pattern})") for pattern in allowed], root=root)
    return gate.decide_call(PreparedCall(BASH, {"command": command}, root)).decision


@pytest.mark.parametrize(("name", "option"), OPTIONS, ids=lambda one: one)
def test_a_star_matches_no_option_of_the_table(name: str, option: str) -> None:
    """Alone, with a value in any of the usual ways, abbreviated, and behind other words."""
    spelled = [f"{option} x", f"a {option} x"]
    if option.startswith("--"):
        spelled += [f"{option}=x", option[:-1] + "=x"]
    elif len(option) == 2:
        spelled += [f"{option}x", f"-q{option[1]}x"]
    for words in spelled:
        assert decide(f"{name} {words}", f"{name} *") == "ask", words
        assert decide(f"{name} {words}", f"{name} {words}") == "allow", words


@pytest.mark.parametrize("name", [name for name, one in PROGRAMS.items() if not one.script])
def test_a_word_that_is_not_known_before_it_runs_is_matched_by_no_star(name: str) -> None:
    assert decide(f"{name} $X", f"{name} *") == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "make SHELL=./evil",
        "make test CC:=./evil",
        "gmake --eval='$(shell ./evil)'",
        "dc -e '!./evil'",
        "dc '!./evil'",
        "cpio -it --rsh-command=./evil",
        "terraform -chdir=evil plan",
        "pytest --basetemp=src",
        "npm --script-shell=./evil test",
        "ex -c '!./evil' a",
        "ex -s a",
        "ed a",
        "rvim -c ':py3 import os' a",
        "vim -es a",
        "nvim -l evil.lua",
        "vimdiff '+!./evil' a b",
        "emacs --batch --eval '(shell-command \"./evil\")'",
    ],
)
def test_further_ways_to_run_or_write_something_else(command: str) -> None:
    assert decide(command, f"{command.split(maxsplit=1)[0]} *") == "ask"


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_ordinary_words_are_matched(name: str) -> None:
    script = {"sed": "p", "gsed": "p"}.get(name, "{print}" if "awk" in name else "")
    words = f"'{script}' a" if script else "a"
    # A line editor takes commands from standard input, so each of its words counts.
    if name not in ("ar", "ed", "ex", "red"):
        assert decide(f"{name} {words}", f"{name} *") == "allow"


def test_a_program_that_is_not_listed_is_taken_at_its_word() -> None:
    assert find_hazards("deploy", ["-o", "x"]) == ["", ""]
    assert decide("deploy -o x", "deploy *") == "allow"


@pytest.mark.parametrize("name", sorted(FOLDER_READERS))
def test_a_program_that_obeys_its_folder_is_asked_about_in_another_one(name: str) -> None:
    allowed = ("cd *", f"{name} test*")
    assert decide(f"cd evil && {name} test", *allowed) == "ask"
    assert decide(f"cd sub && {name} test", *allowed, f"{name} -C sub test*") == "allow"
    assert decide(f"{name} test", *allowed) == "allow"


def test_going_to_the_folder_of_the_command_is_not_a_change() -> None:
    allowed = ("cd *", "git status*")
    for folder in (".", "./", "/srv/me/project", "/srv/me/project/", "src/.."):
        assert decide(f"cd {folder} && git status", *allowed, root="/srv/me/project") == "allow"
    for folder in ("/srv/me", "/srv/me/project/evil", "..", "~", "-", "", "$HOME"):
        assert decide(f"cd {folder} && git status", *allowed, root="/srv/me/project") == "ask"


def test_a_rule_can_deny_what_runs_in_another_folder() -> None:
    gate = RuleGate([Rule("deny", "bash(git push*)")], default="allow")
    call = PreparedCall(BASH, {"command": "cd evil && git push origin"}, None)
    assert gate.decide_call(call).decision == "deny"
