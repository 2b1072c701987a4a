"""`windlass new` makes a project that works before its first change."""

import subprocess
import sys
from pathlib import Path

import pytest

from cli_types import Cli
from windlass.cli.exit_codes import USAGE


def run_in(folder: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def run_tests(folder: Path) -> str:
    # Without bytecode: the changed agent may have the same size and time as the one before.
    ran = run_in(folder, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider")
    return ran.stdout + ran.stderr


@pytest.mark.slow
def test_the_tests_of_a_new_project_pass_and_notice_a_second_refund(cli: Cli) -> None:
    made = cli("new", "our-desk")
    assert (made.exit_code, "cd our-desk" in made.output) == (0, True)
    folder = Path("our-desk").absolute()
    told = run_tests(folder)
    assert "2 passed" in told, told

    agent = folder / "our_desk" / "agent.py"
    sound = agent.read_text("utf-8")
    key = "refunds[context.idempotency_key] = usd"
    assert sound.count(key) == 1
    agent.write_text(sound.replace(key, "refunds[str(len(context.deps.refunds))] = usd"), "utf-8")
    told = run_tests(folder)
    assert "1 failed, 1 passed" in told, told
    assert "test_it_refunds_once_wherever_the_power_fails" in told


@pytest.mark.slow
def test_a_new_project_is_formatted_and_has_no_lint(cli: Cli) -> None:
    name = "a" * 40
    assert cli("new", name).exit_code == 0
    for command in (("check",), ("format", "--check")):
        ran = run_in(Path(name), "-m", "ruff", *command, "--no-cache", ".")
        assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.slow
def test_the_agents_of_a_new_project_are_found_from_its_folder(cli: Cli) -> None:
    """As `windlass serve serve:agents` and `windlass policy check policy.toml` find them."""
    assert cli("new", "desk").exit_code == 0
    checked = cli("policy", "check", "desk/policy.toml")
    assert checked.exit_code == 0, checked.output
    program = (
        "import os, sys; sys.path.remove(''); os.environ['OPENAI_API_KEY'] = 'sk-not-used'\n"
        "from windlass.cli.agent_source import import_agents, name_agents\n"
        "print(list(name_agents(import_agents('serve:agents'))))"
    )
    found = run_in(Path("desk"), "-c", program)
    assert found.stdout == "['desk']\n", found.stderr


def test_an_empty_folder_is_filled(cli: Cli) -> None:
    Path("desk").mkdir()
    assert cli("new", "desk").exit_code == 0
    assert Path("desk/desk/agent.py").is_file()


@pytest.mark.parametrize(
    "name", ["7up", "a b", "büro", "desk-", "a" * 41, "class", "windlass", "json", "tests", "serve"]
)
def test_a_name_that_no_package_can_have_is_refused(cli: Cli, name: str) -> None:
    """U1: the error says what to do."""
    refused = cli("new", name)
    assert refused.exit_code == USAGE
    assert "use at most 40 letters" in refused.output or "choose another name" in refused.output
    assert not Path(name).exists()


@pytest.mark.parametrize("name", ["folder", "file"])
def test_what_is_there_is_left_alone(cli: Cli, name: str) -> None:
    """U1: the error says why nothing was written."""
    Path("folder").mkdir()
    Path("folder/mine.txt").write_text("mine")
    Path("file").write_text("mine")
    refused = cli("new", name)
    assert (refused.exit_code, "exists and is not empty" in refused.output) == (USAGE, True)
    assert [path.name for path in Path("folder").iterdir()] == ["mine.txt"]
    assert Path("file").read_text() == "mine"
