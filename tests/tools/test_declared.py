"""Tools of a manifest: a command or a request, and nothing that an argument could add to it."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass import Agent, ConfigError, ModelRetry, ToolUnavailable
from windlass.testing import ScriptedModel, call
from windlass.testing.fault_server import FaultServer
from windlass.testing.wire import refuse_with
from windlass.tools import Tool, load_tools
from windlass.tools.declared.templates import fill_command, fill_url

pytestmark = pytest.mark.realtime  # Starts real programs, and a server.
SHOW = "import json,os,sys; print(json.dumps([sys.argv[1:], sys.stdin.read(), dict(os.environ)]))"


def manifest(folder: Path, text: str, name: str = "tools.toml", **more: Any) -> Tool[..., Any]:
    path = folder / name
    path.write_text(text)
    (tool,) = load_tools(path, **more)
    return tool


def command(argv: list[str], **fields: Any) -> str:
    """A manifest with one command, whose parameters are all optional texts."""
    names = ("a", "b")
    listed = ", ".join(f'{{ name = "{name}", type = "any" }}' for name in names)
    more = "\n".join(f"{key} = {_toml(value)}" for key, value in fields.items())
    return (
        f'[[tool]]\nname = "t"\ndescription = "T."\ntimeout = 5\nparameters = [{listed}]\n'
        f"[tool.command]\nargv = {json.dumps([sys.executable, *argv])}\n{more}\n"
    )


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return (
            "{ " + ", ".join(f"{name} = {json.dumps(text)}" for name, text in value.items()) + " }"
        )
    return json.dumps(value)


async def show(tool: Tool[..., Any], **arguments: Any) -> list[Any]:
    return json.loads(await tool.function(**arguments))


NASTY = ["; rm -rf /", "$(id)", "`id`", "a b", "'", '"', "&& x", "| y", "*", "~", "\n", "ü"]


@pytest.mark.slow
async def test_a_value_is_one_word_whatever_is_in_it(tmp_path: Path) -> None:
    """T9: no shell ever sees it."""
    tool = manifest(tmp_path, command(["-c", SHOW, "--name={a}", "{b}"], stdin="{a}!"))
    for value in NASTY:
        words, stdin, _ = await show(tool, a=value, b=value)
        assert words == [f"--name={value}", value]
        assert stdin == f"{value}!"


@given(st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_any_text_is_one_word_or_refused(value: str) -> None:
    """T9."""
    try:
        words = fill_command(["tool", "{a}", "x={a}"], {"a": value})
    except ModelRetry:
        assert value.startswith("-")
    else:
        assert words == ["tool", value, f"x={value}"]


def test_a_value_is_never_an_option() -> None:
    with pytest.raises(ModelRetry, match="dash"):
        fill_command(["git", "log", "{a}"], {"a": "--output=/etc/passwd"})
    with pytest.raises(ModelRetry, match="dash"):
        fill_command(["rm", "{a}"], {"a": ["x", "-rf"]})
    assert fill_command(["rm", "--", "{a}"], {"a": "-x"}) == ["rm", "--", "-x"]
    with pytest.raises(ModelRetry, match="zero byte"):
        fill_command(["rm", "{a}"], {"a": "a\0b"})


def test_lists_numbers_and_what_is_missing() -> None:
    assert fill_command(["x", "{a}", "--n={b}", "{c}"], {"a": ["p", "q"], "b": 3}) == [
        "x",
        "p",
        "q",
        "--n=3",
    ]


@pytest.mark.slow
async def test_a_program_gets_only_the_variables_that_are_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T9: a secret is in its variables, and in no result."""
    monkeypatch.setenv("OTHER_TOKEN", "not-for-this-program")
    tool = manifest(
        tmp_path,
        command(["-c", SHOW], environ={"TOKEN": "${MY_KEY}"}),
        secrets={"MY_KEY": "a-secret-value"}.get,
    )
    output = await tool.function()
    assert "a-secret-value" not in output
    _, _, environ = json.loads(output)
    assert environ["TOKEN"] == "****"
    assert "OTHER_TOKEN" not in environ
    bare = manifest(tmp_path, command(["-c", SHOW], environ={"TOKEN": "${NO}"}), secrets={}.get)
    with pytest.raises(ToolUnavailable, match="the secret NO is not set"):
        await bare.function()


@pytest.mark.slow
async def test_a_failure_is_told_with_its_output(tmp_path: Path) -> None:
    """T7."""
    failing = manifest(tmp_path, command(["-c", "print('why'); raise SystemExit(3)"]))
    with pytest.raises(ModelRetry, match=r"exit code 3\.\nwhy"):
        await failing.function()
    text = command([]).replace(json.dumps(sys.executable), '"no-such-program-here"')
    with pytest.raises(ToolUnavailable, match="cannot be started"):
        await manifest(tmp_path, text).function()
    long = manifest(tmp_path, command(["-c", "print('x' * 10**6)"], output_bytes_max=100))
    assert len(await long.function()) == 100


@pytest.mark.slow
async def test_nothing_survives_a_cancel(tmp_path: Path) -> None:
    """T5, C1: also not what the program started itself."""
    program = (
        "import subprocess,sys,time,os; p = subprocess.Popen([sys.executable, '-c', "
        "'import time; time.sleep(60)']); "
        "open('pids', 'w').write(f'{os.getpid()} {p.pid} '); time.sleep(60)"
    )
    tool = manifest(tmp_path, command(["-c", program]))
    running = asyncio.ensure_future(tool.function())
    pids = tmp_path / "pids"
    await until(lambda: pids.exists() and pids.read_text().endswith(" "))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    for pid in map(int, pids.read_text().split()):
        await until(lambda pid=pid: is_gone(pid))


@pytest.mark.slow
async def test_a_survivor_that_holds_the_pipes_keeps_no_call_waiting(tmp_path: Path) -> None:
    """C1: a descendant in a session of its own is out of reach, and the pipes are closed anyway."""
    program = (
        "import subprocess,sys,time,os; p = subprocess.Popen([sys.executable, '-c', "
        "'import time; time.sleep(60)'], start_new_session=True); "
        "open('pids', 'w').write(f'{p.pid} '); time.sleep(60)"
    )
    running = asyncio.ensure_future(manifest(tmp_path, command(["-c", program])).function())
    pids = tmp_path / "pids"
    await until(lambda: pids.exists() and pids.read_text().endswith(" "))
    survivor = int(pids.read_text())
    try:
        before = open_pipes()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await asyncio.sleep(0)
        assert open_pipes() < before
    finally:
        os.kill(survivor, signal.SIGKILL)


def open_pipes() -> int:
    """How many pipes this process has open."""
    found = 0
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found += "pipe:" in str(entry.readlink())
    return found


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(2_000):
        if holds():
            return
        await asyncio.sleep(0.01)
    pytest.fail("it never came")


def is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


HTTP = """
[[tool]]
name = "weather"
description = "The weather in a city."
effect = "read"
labels = ["untrusted", "external"]
[tool.parameters]
type = "object"
required = ["city"]
[tool.parameters.properties]
city = {{ type = "string" }}
days = {{ type = "integer" }}
[tool.http]
url = "{url}/cities/{{city}}/weather"
method = "POST"
query = {{ days = "{{days}}", units = "metric" }}
headers = {{ Authorization = "Bearer ${{WEATHER_KEY}}" }}
body = {{ asked = ["{{city}}"], note = "for {{city}}", days = "{{days}}" }}
"""
KEY = {"WEATHER_KEY": "a-weather-key"}


@pytest.mark.slow
async def test_a_request_has_its_arguments_in_their_places(tmp_path: Path) -> None:
    """T9: and an argument leads to no other path."""
    answer = refuse_with(200, {"sky": "blue", "echo": "a-weather-key"})
    async with FaultServer(always=answer) as server:
        tool = manifest(tmp_path, HTTP.format(url=server.url), secrets=KEY.get)
        assert tool.spec.labels == ("untrusted", "external")
        text = await tool.function(city="Sankt Pölten/../x?y#z", days=2)
        assert json.loads(text) == {"sky": "blue", "echo": "****"}
        first = server.requests[-1]
        await tool.function(city="Graz")
        second = server.requests[-1]
        with pytest.raises(ModelRetry, match="must be a name"):
            await tool.function(city="..")
    assert first.path.startswith("/v1/cities/Sankt%20P%C3%B6lten%2F..%2Fx%3Fy%23z/weather?")
    assert first.path.endswith("?days=2&units=metric")
    assert first.headers["authorization"] == "Bearer a-weather-key"
    assert first.headers["accept-encoding"] == "identity"
    assert first.json == {
        "asked": ["Sankt Pölten/../x?y#z"],
        "note": "for Sankt Pölten/../x?y#z",
        "days": 2,
    }
    assert second.path == "/v1/cities/Graz/weather?units=metric"
    assert "days" not in second.json


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "error"), [(404, ModelRetry), (302, None), (503, ToolUnavailable)]
)
async def test_what_a_server_refuses_is_told(
    status: int, error: type[Exception] | None, tmp_path: Path
) -> None:
    """T7: and no redirect is followed, which could lead the key elsewhere."""
    headers = {"Location": "http://127.0.0.1:1/"}
    async with FaultServer(always=refuse_with(status, "gone", headers)) as server:
        tool = manifest(tmp_path, HTTP.format(url=server.url), secrets=KEY.get)
        if error is None:
            said = "The server answered with a redirect (302) to http://127.0.0.1:1/."
            assert await tool.function(city="Graz") == f"{said} It was not followed.\ngone"
            return
        with pytest.raises(error, match=str(status)):
            await tool.function(city="Graz")


@given(st.text(min_size=1, max_size=30))
def test_no_value_leaves_its_segment(value: str) -> None:
    try:
        url = fill_url("https://host/a/{x}/b", {"x": value})
    except (ModelRetry, UnicodeEncodeError):
        return
    assert url.count("/") == 5
    assert url.startswith("https://host/a/")
    assert not set(url) & set("?#\\ \n")


@pytest.mark.slow
async def test_an_agent_uses_it_like_any_other_tool(tmp_path: Path) -> None:
    """G1, T2: checked against its schema, gated and recorded."""
    tool = manifest(tmp_path, command(["-c", SHOW, "{a}"]))
    model = ScriptedModel([call("t", {"a": "jib", "zzz": 1}), call("t", {"a": "jib"}), "Done."])
    result = await Agent(model, tools=[tool]).run("Go")
    assert result.text == "Done."
    shown = [message for message in model.prompts[-1].messages if "jib" in str(message)]
    assert len(shown) >= 2


WRONG: dict[str, tuple[Callable[[str], str], str]] = {
    "both": (lambda text: text + '[tool.http]\nurl = "https://x.org/"\n', "either"),
    "neither": (lambda text: text.split("[tool.command]")[0], "either"),
    "no_program": (lambda text: text.replace(json.dumps(sys.executable), '"{a}"'), "program"),
    "unknown_name": (lambda text: text.replace('"{a}"', '"{zzz}"'), "zzz"),
    "unknown_field": (lambda text: text + 'shell = "true"\n', "shell"),
    "secret_in_argv": (lambda text: text.replace('"{a}"', '"${KEY}"'), "environ"),
    "argument_in_environ": (lambda text: text + 'environ = { X = "{a}" }\n', "arguments"),
    "not_toml": (lambda text: "[[", "tools.toml"),
    "twice": (lambda text: text + text, "two tools"),
}


@pytest.mark.parametrize(("change", "problem"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_found_when_it_is_loaded(
    change: Callable[[str], str], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=problem):
        manifest(tmp_path, change(command(["-c", SHOW, "{a}"])))


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("https://{{city}}.example.org/x", "fixed"),
        ("ftp://x.org/", "https"),
        ("https://x.org/?a={{city}}", "no query"),
        ("https://x.org/${{KEY}}", "secret"),
    ],
)
def test_an_argument_cannot_name_the_host(url: str, problem: str, tmp_path: Path) -> None:
    text = HTTP.format(url="U").replace("U/cities/{city}/weather", url.format())
    with pytest.raises(ConfigError, match=problem):
        manifest(tmp_path, text)


def test_a_manifest_may_be_yaml(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    text = """
tool:
  - name: now
    description: The time.
    effect: read
    command: {argv: [date]}
"""
    tool = manifest(tmp_path, text, "tools.yaml")
    assert (tool.name, tool.spec.effect, tool.spec.parameters["properties"]) == ("now", "read", {})
    with pytest.raises(ConfigError):
        manifest(tmp_path, "tool: [", "tools.yml")
    with pytest.raises(ConfigError, match="No such file"):
        load_tools(tmp_path / "none.toml")
