"""Commands of a trusted project that name their script in a roundabout way, or hide it.

What they run must be part of the digest: a later change of it is asked about again.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from windlass.core.errors import ConfigError
from windlass.gates.policy_file import parse_policy
from windlass.project.effects import describe_effects
from windlass.project.layers import layer_from_toml
from windlass.project.server_scripts import WORDS_MAX
from windlass.project.snapshot import ProjectSnapshot, take_snapshot
from windlass.project.trust import TrustStore

pytestmark = pytest.mark.contract("G7")


def make_project(folder: Path, entry: Mapping[str, object], script: str) -> Path:
    (folder / ".git").mkdir()
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"a": entry}}))
    path = folder / script
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("harmless")
    return path


def run_python(*args: str, **variables: str) -> dict[str, object]:
    return {"command": "python3", "args": [*args], "env": variables}


@pytest.mark.parametrize(
    ("entry", "script"),
    [
        (run_python("srv"), "srv/__main__.py"),
        (run_python("."), "__main__.py"),
        (run_python("-um", "srv"), "srv.py"),
        (run_python("-msrv"), "srv.py"),
        (run_python("-m", "srv.tools.run"), "srv/__init__.py"),
        (run_python("-m", "srv", PYTHONPATH="lib"), "lib/srv.py"),
        (run_python("-c", "pass", LD_PRELOAD="./lib/x.so"), "lib/x.so"),
        ({"command": "bash", "args": ["-c", "true"], "env": {"BASH_ENV": "./x.sh"}}, "x.sh"),
        ({"command": "node", "args": ["./srv"]}, "srv.js"),
        ({"command": "node", "args": ["srv"]}, "srv/index.js"),
        ({"command": "sh", "args": ["-c", "cd sub && ./run.sh"]}, "sub/run.sh"),
        ({"command": "env", "args": ["-C", "sub", "./run.sh"]}, "sub/run.sh"),
        ({"command": "npm", "args": ["--prefix", "sub", "start"]}, "sub/package.json"),
        ({"command": "make", "args": ["-C", "sub"]}, "sub/Makefile"),
    ],
)
def test_what_a_command_runs_is_part_of_the_digest(
    tmp_path: Path, entry: dict[str, object], script: str
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    path = make_project(project, entry, script)
    store = TrustStore(tmp_path / "trust.json")
    store.remember(take_snapshot(project))
    assert store.covers(take_snapshot(project))
    path.write_text("hostile")
    assert not store.covers(take_snapshot(project))


def describe(snapshot: ProjectSnapshot) -> str:
    return "\n".join(describe_effects(snapshot))


def test_a_command_behind_a_variable_of_the_project_is_shown_and_digested(tmp_path: Path) -> None:
    """`.env` is the project's own: the question must not show a harmless default instead."""
    script = make_project(tmp_path, {"command": "${RUNNER_X:-true}"}, "evil.sh")
    (tmp_path / ".env").write_text("RUNNER_X=./evil.sh\nOTHER_TOKEN=hush\n")
    snapshot = take_snapshot(tmp_path)
    assert str(script) in snapshot.digests
    assert "RUNNER_X=./evil.sh" in describe(snapshot)
    assert "hush" not in describe(snapshot)


def test_an_address_behind_a_variable_of_the_project_is_shown(tmp_path: Path) -> None:
    make_project(tmp_path, {"url": "${SITE_X:-https://good.example}"}, "x")
    (tmp_path / ".env").write_text("SITE_X=https://evil.example\n")
    assert "SITE_X=https://evil.example" in describe(take_snapshot(tmp_path))


def test_thousands_of_words_do_not_push_a_script_out_of_the_digest(tmp_path: Path) -> None:
    words = [f"w{number}" for number in range(WORDS_MAX)]
    make_project(tmp_path, {"command": "true", "args": [*words, "./evil.sh"]}, "evil.sh")
    store = TrustStore(tmp_path / "trust.json")
    snapshot = take_snapshot(tmp_path)
    assert any("words" in problem for problem in snapshot.problems)
    assert not store.covers(snapshot)


@pytest.mark.contract("U1")
def test_a_number_without_end_is_an_error_of_the_file(tmp_path: Path) -> None:
    """Python refuses such a number with an error of its own, and every command ended with it."""
    number = "9" * 5_000
    (tmp_path / "windlass.toml").write_text(f"max_steps = {number}\n")
    assert "too many digits" in take_snapshot(tmp_path).broken
    with pytest.raises(ConfigError, match="too many digits"):
        layer_from_toml(f"max_steps = {number}", "x.toml", "/")
    with pytest.raises(ConfigError, match="too many digits"):
        parse_policy(f"version = {number}")
