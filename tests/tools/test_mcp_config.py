"""`mcpServers` JSON: what is understood, and what is refused with the place and the way out."""

import string
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.errors import ConfigError
from windlass.tools.mcp.config import (
    NAME_CHARS_MAX,
    McpHttp,
    McpOverride,
    McpSettings,
    McpStdio,
    find_override,
    is_tool_offered,
    mcp_settings,
    tool_name,
)
from windlass.tools.mcp.servers import McpServers

ENVIRON = {"PATH": "/bin", "TOKEN": "t0ps3cret", "HOME": "/h", "OPENAI_API_KEY": "sk-1"}


def read(**entry: Any) -> McpSettings:
    (one,) = mcp_settings({"mcpServers": {"it": entry}}, ENVIRON)
    return one


def test_a_file_as_others_write_it() -> None:
    text = """{"mcpServers": {
        "git": {"command": "uvx", "args": ["mcp-server-git", "--repo", "${HOME}/x"],
                "env": {"KEY": "${TOKEN}", "EMPTY": ""}, "cwd": "${HOME}"},
        "web": {"type": "http", "url": "https://${HOST:-example.com}/mcp",
                "headers": {"Authorization": "Bearer ${TOKEN}"}}}}"""
    assert mcp_settings(text, ENVIRON) == (
        McpStdio(
            name="git",
            command="uvx",
            args=("mcp-server-git", "--repo", "/h/x"),
            env={"PATH": "/bin", "HOME": "/h", "KEY": "t0ps3cret", "EMPTY": ""},
            cwd="/h",
        ),
        McpHttp(
            name="web",
            url="https://example.com/mcp",
            headers={"Authorization": "Bearer t0ps3cret"},
        ),
    )


def test_secrets_are_not_shown_and_keys_are_not_inherited() -> None:
    one = read(command="x", env={"KEY": "${TOKEN}"})
    assert "t0ps3cret" not in repr(one)
    assert isinstance(one, McpStdio)
    assert "OPENAI_API_KEY" not in one.env


def test_what_only_we_have() -> None:
    one = read(
        command="x",
        timeout=5,
        include=["git_*"],
        exclude=["git_push"],
        required=False,
        tools={"git_log": {"effect": "read", "labels": []}, "*": {"timeout": 1}},
    )
    assert (one.timeout_s, one.required) == (5.0, False)
    assert is_tool_offered(one, "git_log")
    assert not is_tool_offered(one, "git_push")
    assert not is_tool_offered(one, "time")
    assert find_override(one, "git_log") == McpOverride(pattern="git_log", effect="read", labels=())
    assert find_override(one, "other") == McpOverride(pattern="*", timeout_s=1.0)
    assert read(command="x", timeout=None).timeout_s is None
    assert find_override(read(command="x"), "any") is None


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"comand": "x"}, "must have either a 'command' to start or a 'url'"),
        ({"command": "x", "arg": []}, "no setting 'arg'. Did you mean args"),
        ({"command": "x", "url": "http://x"}, "must have either a 'command' to start or a 'url'"),
        ({"command": "x", "headers": {}}, "no setting 'headers'"),
        ({"command": ""}, "'command' must be a string"),
        ({"command": "x", "args": "y"}, "'args' must be a list of strings"),
        ({"command": "x", "args": [1]}, "'args' must be a string"),
        ({"command": "x", "env": {"A": 1}}, "'env.A' must be a string"),
        ({"command": "x", "env": []}, "env: must be an object, not a list"),
        ({"command": "${NONE}"}, "needs the environment variable NONE, which is not set"),
        ({"command": "x", "timeout": 0}, "'timeout' must be a number of seconds above zero"),
        ({"command": "x", "timeout": 10**6}, "'timeout' must be a number of seconds above zero"),
        ({"command": "x", "timeout": True}, "'timeout' must be a number of seconds above zero"),
        ({"command": "x", "required": "no"}, "'required' must be true or false"),
        ({"command": "x", "tools": {"a": {"efect": "read"}}}, "Did you mean effect"),
        ({"command": "x", "tools": {"a": {"effect": "reed"}}}, "Did you mean read"),
        ({"command": "x", "tools": {"a": {"labels": ["privat"]}}}, "Did you mean private"),
        ({"type": "htp", "url": "http://x"}, "no type 'htp'. Did you mean http"),
        ({"type": "http", "url": "http://x", "auth": {"type": "magic"}}, "no type 'magic'"),
        (
            {"type": "http", "url": "http://x", "auth": {"type": "client_credentials"}},
            "'client_id' must be a string",
        ),
        ({"type": "http", "url": "x.com"}, "begins with http://"),
        ({"type": "http"}, "'url' must be a string"),
        ("x", "must be an object, not a string"),
    ],
)
def test_what_is_not_understood_is_refused(entry: Any, told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        mcp_settings({"mcpServers": {"it": entry}}, ENVIRON)
    assert told in str(raised.value)
    assert str(raised.value).startswith(".mcp.json: server 'it'")


def test_a_file_that_is_none() -> None:
    with pytest.raises(ConfigError, match=r"a\.json is not valid JSON"):
        mcp_settings("{", ENVIRON, "a.json")
    with pytest.raises(ConfigError, match="Did you mean mcpServers"):
        mcp_settings({"mcpServer": {}}, ENVIRON)
    with pytest.raises(ConfigError, match="a server needs a name"):
        mcp_settings({"mcpServers": {" ": {"command": "x"}}}, ENVIRON)
    assert mcp_settings("{}", ENVIRON) == ()


def test_two_servers_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="same name"):
        McpServers([McpStdio(name="a", command="x"), McpStdio(name="a", command="y")])


async def test_a_missing_package_is_named_with_its_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    async with McpServers([McpStdio(name="a", command="x")]) as servers:
        with pytest.raises(ConfigError, match=r"pip install 'windlass\[mcp\]'"):
            await servers.tools()


@pytest.mark.slow
def test_nothing_is_imported_before_it_is_used() -> None:
    loaded = "bool({'anyio', 'mcp'} & set(sys.modules))"
    code = f"import sys, windlass.tools.mcp.servers; sys.exit({loaded})"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ── names ────────────────────────────────────────────────────────────────────


def test_names_that_are_fit_stay_as_they_are() -> None:
    assert tool_name("git", "git_status") == "git__git_status"
    assert tool_name("every-thing", "get-sum") == "every-thing__get-sum"
    assert tool_name("a", "b", taken=True) not in ("a__b", tool_name("a", "b_"))


FIT = {*string.ascii_letters, *string.digits, "_", "-"}
NAMES = st.text(max_size=80) | st.text("ab_-", min_size=1, max_size=70)


@given(st.lists(st.tuples(NAMES, NAMES), min_size=2, max_size=6, unique=True))
def test_names_are_fit_stable_and_never_clash(tools: list[tuple[str, str]]) -> None:
    names = [tool_name(server, tool) for server, tool in tools]
    assert len(set(names)) == len(names)
    for name in names:
        assert 1 <= len(name) <= NAME_CHARS_MAX
        assert set(name) <= FIT
    assert names == [tool_name(server, tool) for server, tool in tools]


@pytest.mark.contract("T15")
def test_only_a_person_lets_a_server_use_the_model() -> None:
    entry = {"mcpServers": {"notes": {"command": "notes", "sampling": True, "elicitation": False}}}
    (settings,) = mcp_settings(entry, {})
    assert (settings.sampling, settings.elicitation) == (True, False)
    with pytest.raises(ConfigError, match="a project cannot let a server use your model"):
        mcp_settings(entry, {}, of_project=True)
    (default,) = mcp_settings({"mcpServers": {"notes": {"command": "notes"}}}, {})
    assert (default.sampling, default.elicitation) == (False, True)
