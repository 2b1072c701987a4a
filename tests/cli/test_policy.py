"""`windlass policy`: check and explain."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from windlass.cli import main

POLICY = """\
[[rule]]
deny = "bash(rm *)"
reason = "Use the bin."
matches = ["rm -rf x", "sudo rm x"]

[[rule]]
allow = "bash(git *)"
not_matches = ["git log > x"]

[[rule]]
allow = "write(src/**)"
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "team.toml"
    path.write_text(POLICY)
    return str(path)


def run(*args: str) -> Result:
    return CliRunner().invoke(main, ["policy", *args])


@pytest.mark.contract("G4")
def test_a_sound_policy_is_counted(file: str) -> None:
    said = run("check", file)
    assert said.exit_code == 0
    assert f"{file}: 3 rules, 3 examples, default ask, team@" in said.output


@pytest.mark.contract("G4")
def test_an_unsound_policy_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "team.toml"
    path.write_text(POLICY.replace('"git log > x"', '"git log"'))
    said = run("check", str(path))
    assert (said.exit_code, said.output.count("\n")) == (2, 1)
    assert "team.toml, line 6: allow bash(git *) matches 'git log'" in said.output
    assert run("check", str(tmp_path / "none.toml")).exit_code == 2


@pytest.mark.contract("G2")
@pytest.mark.parametrize(
    ("call", "lines"),
    [
        (
            'bash({"command": "rm -rf /"})',
            [
                "decision  deny",
                "rule      deny bash(rm *)  (1 of 3)",
                "why       `rm -rf /` matches the rule deny bash(rm *)",
                "reason    Use the bin.",
            ],
        ),
        (
            "bash(git log && make)",
            ["decision  ask", "rule      default ask", "why       no rule decides `make`"],
        ),
        (
            "bash(git log)",
            [
                "decision  allow",
                "rule      allow bash(git *)  (2 of 3)",
                "why       `git log` matches the rule allow bash(git *)",
            ],
        ),
    ],
)
def test_a_decision_is_explained(file: str, call: str, lines: list[str]) -> None:
    found = run("explain", file, call)
    assert (found.exit_code, found.output.splitlines()) == (0, lines)


def test_a_root_tells_absolute_paths_apart(file: str) -> None:
    assert "decision  allow" in run("explain", file, "write(/ws/src/a)", "--root", "/ws").output
    assert "decision  ask" in run("explain", file, "write(/ws/src/a)").output


def test_the_effect_may_be_given(tmp_path: Path) -> None:
    path = tmp_path / "reads.toml"
    path.write_text('allow = ["@read"]')
    assert "decision  allow" in run("explain", str(path), "read(x)").output
    assert "decision  ask" in run("explain", str(path), "look(x)").output
    assert "decision  allow" in run("explain", str(path), "look(x)", "--effect", "read").output


def test_a_call_that_is_none_is_refused(file: str) -> None:
    said = run("explain", file, "rm -rf /")
    assert (said.exit_code, "is not a call" in said.output) == (2, True)
    assert run("explain", file, "bash({x})").exit_code == 2
