"""G6, U2: commands that only look are not asked about, and in doubt a person is asked."""

from pathlib import Path

import pytest

from windlass.core.messages import ToolSpec
from windlass.core.verdicts import Allow, Ask, Deny
from windlass.gates import allow_edits, ask, plan
from windlass.gates.safe_commands import SafeCommandGate, is_safe_command
from windlass.ports import GateRequest

BASH = ToolSpec(
    "bash",
    "",
    parameters={"properties": {"command": {"type": "string"}, "background": {"type": "boolean"}}},
    effect="write",
)
WRITE = ToolSpec(
    "write", "", parameters={"properties": {"path": {"type": "string"}}}, effect="idempotent"
)
SAFE = [
    "ls -la src",
    "git status --short",
    "git --no-pager log --oneline -5 | head -3",
    "git branch --show-current",
    "find . -name '*.py'",
    "grep -rn word . 2>/dev/null | sort | uniq -c",
    "cat 'a file'",
    "echo hi && pwd",
]
UNSAFE = [
    "",
    "make",
    "cat a > b",
    "cat ../secret",
    "cat /etc/hosts",
    "cat ~/.ssh/id_rsa",
    "cat link",
    "cd && cat .ssh/id_rsa",
    "ls $(rm a)",
    "ls `rm a`",
    "ls *",
    "ls; rm a",
    "PATH=. ls",
    "/bin/ls",
    "./ls",
    "sudo ls",
    "find . -delete",
    "find . -exec rm {} +",
    "find -L . -name x",
    "grep -R word .",
    "grep -f../secret a",
    "sort -oa b",
    "sort --outp=a b",
    "uniq a b",
    "rg --pre=sh word",
    "git branch new",
    "git -c core.pager=sh log",
    "git diff --ext-diff",
    "git diff --outp=a",
    "git push",
    "date --set=now",
    "wc -l < ../secret",
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("x")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path / "secret")
    return folder


@pytest.mark.parametrize("command", SAFE)
def test_a_command_that_only_looks_is_known(command: str, root: Path) -> None:
    assert is_safe_command(command, root)


@pytest.mark.parametrize("command", UNSAFE)
def test_in_doubt_a_command_may_do_more_than_look(command: str, root: Path) -> None:
    assert not is_safe_command(command, root)


async def test_a_question_is_lifted_and_a_denial_only_where_nothing_changes(root: Path) -> None:
    def request(**arguments: object) -> GateRequest:
        return GateRequest("s", "c", BASH, arguments)

    asking = SafeCommandGate(ask(), root)
    assert asking.name == ask().name
    assert isinstance(await asking.judge(request(command="git status")), Allow)
    assert isinstance(await asking.judge(request(command="git commit")), Ask)
    assert isinstance(await asking.judge(request(command="git status", background=True)), Ask)
    planning = SafeCommandGate(plan(), root, denied_too=True)
    assert isinstance(await planning.judge(request(command="git status")), Allow)
    denied = await planning.judge(request(command="git commit"))
    assert isinstance(denied, Deny)
    assert "plan" in denied.reason
    assert isinstance(await SafeCommandGate(plan(), root).judge(request(command="ls")), Deny)


@pytest.mark.parametrize(
    ("path", "verdict"),
    [("notes.txt", Allow), (".git/config", Ask), ("sub/.git/hooks/pre-commit", Ask)],
)
async def test_edits_are_allowed_except_those_that_git_would_run(path: str, verdict: type) -> None:
    gate = allow_edits()
    judged = await gate.judge(GateRequest("s", "c", WRITE, {"path": path}))
    assert isinstance(judged, verdict)
