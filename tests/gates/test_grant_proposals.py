"""U2: what is proposed when a person allows calls like one for the rest of a session."""

import pytest

from windlass.core.messages import ToolSpec
from windlass.gates.grant_proposals import covers_call, describe_reach, propose_pattern


def tool(name: str, argument: str) -> ToolSpec:
    return ToolSpec(name, "", parameters={"properties": {argument: {"type": "string"}}})


BASH = tool("bash", "command")
EDIT = tool("edit", "path")
FETCH = tool("fetch", "url")


@pytest.mark.parametrize(
    ("command", "pattern"),
    [
        ("make", "bash(make)"),
        ("make test", "bash(make *)"),
        ("git commit -m x", "bash(git commit *)"),
        ("git add a && git add b", "bash(git add *)"),
        ("npm run build -- --fast", "bash(npm run build *)"),
        ("python -m pytest -q tests", "bash(python -m pytest *)"),
        ("git add a && git commit -m x", ""),
        ("git -C elsewhere status", ""),
        ("rm -rf build", ""),
        ("python setup.py", ""),
        ("uv run python x.py", ""),
        ("curl https://example.com", ""),
        ("sudo make", ""),
        ("./configure", ""),
        ("make > log", ""),
        ("$TOOL run", ""),
        ("make $(cat x)", ""),
    ],
)
def test_a_command_is_proposed_with_its_subcommand_and_a_risky_one_only_as_it_is(
    command: str, pattern: str
) -> None:
    assert propose_pattern(BASH, {"command": command}) == pattern


def test_a_file_is_proposed_with_its_folder_and_a_page_with_its_site() -> None:
    assert propose_pattern(EDIT, {"path": "src/a/b.py"}) == "edit(src/a/**)"
    assert propose_pattern(EDIT, {"path": "notes.txt"}) == "edit(notes.txt)"
    assert propose_pattern(FETCH, {"url": "https://example.com/a/b?c"}) == (
        "fetch(https://example.com/*)"
    )
    assert propose_pattern(FETCH, {"url": "https://me:key@example.com/"}) == ""
    assert propose_pattern(tool("send", "to"), {"to": "someone"}) == ""


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("bash(git commit *)", "every command that begins with `git commit`"),
        ("edit(src/**)", "edit for every file below src"),
        ("fetch(https://example.com/*)", "fetch for everything at https://example.com"),
        ("bash(make)", "every call of bash for make, whatever its other arguments are"),
        ("bash", "every call of bash"),
        ("bash(g*t)", "every call of bash whose main argument looks like g*t"),
    ],
)
def test_what_a_pattern_allows_is_said_in_words(pattern: str, words: str) -> None:
    assert describe_reach(pattern) == words


def test_a_pattern_covers_only_what_it_certainly_matches() -> None:
    assert covers_call(BASH, {"command": "git commit -m x"}, "bash(git commit *)")
    assert not covers_call(BASH, {"command": "git commit; rm x"}, "bash(git commit *)")
    assert not covers_call(BASH, {"command": "ls"}, "bash(")
