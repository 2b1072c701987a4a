"""What a server may answer, say and do, with one that does it when asked."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typing_extensions import override

from mcp_peers import (
    OWN,
    is_alive,
    open_servers,
    own_server_settings,
    read_log,
    serve_port,
    tool_caller,
    wait_until,
)
from windlass.core.errors import ConfigError
from windlass.core.messages import FilePart, ImagePart, TextPart
from windlass.testing.tools import call_context
from windlass.tools.mcp.servers import McpServers

# ── what is offered ──────────────────────────────────────────────────────────


async def test_tools_are_named_and_sorted_by_what_they_do(tmp_path: Path) -> None:
    settings = own_server_settings(tmp_path, trustHints=True)
    async with open_servers(own=settings) as servers:
        assert not servers.servers["own"].is_connected
        specs = {tool.name: tool.spec for tool in await servers.tools()}
    assert specs["own__pid"].effect == "read"
    assert specs["own__pid"].labels == ("untrusted",)
    assert specs["own__put"].effect == "idempotent"
    assert specs["own__put"].labels == ("untrusted", "external")
    assert specs["own__slow"].effect == "write"
    assert specs["own__put"].parameters["properties"]["key"]["type"] == "string"
    odd = [name for name in specs if name.startswith("own__an_odd_name")]
    assert len(odd) == 1
    assert len(odd[0]) == 64
    theirs, ours = (name for name in specs if name.startswith("own__read_resource"))
    assert theirs == "own__read_resource"
    assert specs[ours].parameters["required"] == ["uri"]


async def test_settings_overrule_hints_and_choose_tools(tmp_path: Path) -> None:
    settings = own_server_settings(
        tmp_path,
        include=["p*"],
        exclude=["parts"],
        timeout=7,
        tools={"put": {"effect": "write", "labels": ["private"], "timeout": 3}},
    )
    async with open_servers(own=settings) as servers:
        tools = {tool.name: tool for tool in await servers.tools()}
    assert [*tools] == ["own__pid", "own__put"]
    assert tools["own__put"].spec.effect == "write"
    assert tools["own__put"].spec.labels == ("private",)
    assert (tools["own__put"].timeout_s, tools["own__pid"].timeout_s) == (3, 7)
    assert tools["own__put"].endpoint == tools["own__pid"].endpoint


async def test_a_setting_for_a_tool_that_is_not_there_is_refused(tmp_path: Path) -> None:
    async with open_servers(
        own=own_server_settings(tmp_path, tools={"puut": {"effect": "read"}})
    ) as servers:
        with pytest.raises(ConfigError, match=r"no tool 'puut'\. Did you mean put"):
            await servers.tools()


async def test_a_list_that_changed_counts_from_the_next_time(tmp_path: Path) -> None:
    async with open_servers(own=own_server_settings(tmp_path)) as servers:
        before = await servers.tools()
        await tool_caller(before)("grow")
        after = await servers.tools()
        assert "own__grown" not in {tool.name for tool in before}
        assert (await tool_caller(after)("grown")).text == "I am new"


# ── what is answered ─────────────────────────────────────────────────────────


async def test_every_kind_of_part_is_kept(tmp_path: Path) -> None:
    async with open_servers(own=own_server_settings(tmp_path)) as servers:
        result = await tool_caller(await servers.tools())("parts")
    kinds = [type(part) for part in result.content]
    assert result.kind == "value"
    assert kinds == [
        TextPart,
        ImagePart,
        FilePart,
        TextPart,
        FilePart,
        ImagePart,
        TextPart,
        TextPart,
    ]
    image, audio, note, data, link, structured = (result.content[at] for at in (1, 2, 3, 4, 6, 7))
    assert isinstance(image, ImagePart)
    assert image.data is not None
    assert image.data.startswith(b"\x89PNG")
    assert isinstance(audio, FilePart)
    assert (audio.media_type, audio.data) == ("audio/wav", b"\x00\x01")
    assert note == TextPart("note://one:\nof a resource")
    assert data == FilePart("application/x-thing", "b.bin", b"\x00\x01")
    assert link == TextPart("[resource note://two: two]")
    assert structured == TextPart('{"n":1}')


async def test_an_error_flag_is_an_error_and_structure_is_not_told_twice(tmp_path: Path) -> None:
    async with open_servers(own=own_server_settings(tmp_path)) as servers:
        use = tool_caller(await servers.tools())
        failed, table, number = await use("fail"), await use("table"), await use("pid")
    assert failed.kind == "error"
    assert "it cannot be done" in failed.text
    assert len(table.content) == len(number.content) == 1


async def test_progress_is_reported(tmp_path: Path) -> None:
    heard: list[str] = []
    context = call_context(heard)
    async with open_servers(own=own_server_settings(tmp_path)) as servers:
        assert (await tool_caller(await servers.tools(), context)("steps")).text == "done"
    assert heard == ["step 1 (1/2)", "step 2 (2/2)"]


async def test_resources_and_prompts_are_tools(tmp_path: Path) -> None:
    async with open_servers(own=own_server_settings(tmp_path)) as servers:
        tools = await servers.tools()
        use = tool_caller(tools)
        ours = next(t.name for t in tools if t.name.startswith("own__read_resource_"))
        assert (await use("list_resources")).text == "note://one (text/plain): one. A note."
        read = await use(ours.removeprefix("own__"), uri="note://one")
        assert read.text == "note://one:\nthe first note"
        prompt = await use("get_prompt", name="review", arguments={"code": "1 + 1"})
        assert prompt.text.endswith("user: Please review: 1 + 1")
        missing = await use(ours.removeprefix("own__"), uri="note://none")
        assert missing.kind == "error"


# ── time, cancel and death ───────────────────────────────────────────────────


async def test_a_call_that_takes_too_long_is_cancelled_at_the_server(tmp_path: Path) -> None:
    async with open_servers(
        own=own_server_settings(tmp_path, tools={"slow": {"timeout": 1}})
    ) as servers:
        result = await tool_caller(await servers.tools())("slow", seconds=60)
        await wait_until(lambda: read_log(tmp_path) == ["began", "cancelled"])
    assert result.kind == "timed_out"


async def test_a_cancel_is_passed_on(tmp_path: Path) -> None:
    async with open_servers(own=own_server_settings(tmp_path)) as servers:
        use = tool_caller(await servers.tools())
        call = asyncio.ensure_future(use("slow", seconds=60))
        await wait_until(lambda: read_log(tmp_path) == ["began"])
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await wait_until(lambda: read_log(tmp_path) == ["began", "cancelled"])
        assert (await use("put", key="still here")).text == "still here"


async def test_a_write_in_flight_when_the_server_dies_is_told_and_not_repeated(
    tmp_path: Path,
) -> None:
    async with open_servers(own=own_server_settings(tmp_path)) as servers:
        use = tool_caller(await servers.tools())
        pid = int((await use("pid")).text)
        call = asyncio.ensure_future(use("slow", seconds=60))
        await wait_until(lambda: read_log(tmp_path) == ["began"])
        os.kill(pid, signal.SIGKILL)
        result = await call
        assert result.kind == "error"
        assert "SIGKILL" in result.text
        assert "Whether the call took effect is not known" in result.text
        assert read_log(tmp_path) == ["began"]
        assert not servers.servers["own"].is_connected
        again = int((await use("pid")).text)
        assert again != pid


async def test_a_read_in_flight_when_the_server_dies_is_asked_again(tmp_path: Path) -> None:
    settings = own_server_settings(tmp_path, trustHints=True)
    async with open_servers(own=settings) as servers:
        use = tool_caller(await servers.tools())
        pid = int((await use("pid")).text)
        call = asyncio.ensure_future(use("slow_read", seconds=60))
        await wait_until(lambda: read_log(tmp_path) == ["read"])
        os.kill(pid, signal.SIGKILL)
        result = await call
        assert result.kind == "value"
        assert str(pid) not in result.text


async def test_a_server_that_cannot_be_started_again_is_a_visible_failure(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    script = f'test -e {broken} && {{ echo "no disk" >&2; exit 3; }}; exec "$0" "$@"'
    settings = {
        "command": "sh",
        "args": ["-c", script, sys.executable, str(OWN), str(tmp_path)],
        "tools": {"*": {"effect": "write"}},
    }
    async with open_servers(own=settings) as servers:
        use = tool_caller(await servers.tools())
        pid = int((await use("pid")).text)
        broken.touch()
        os.kill(pid, signal.SIGKILL)
        await wait_until(lambda: not servers.servers["own"].is_connected)
        first, second = await use("pid"), await use("pid")
        assert first.kind == second.kind == "error"
        assert "cannot be reached: it ended with exit code 3: no disk" in first.text
        assert "the next attempt is in" in second.text
        broken.unlink()
        await asyncio.sleep(0.6)
        assert (await use("pid")).kind == "value"


async def test_a_server_that_never_answers_is_given_up(tmp_path: Path) -> None:
    silent = {"command": "sleep", "args": ["600"], "timeout": 0.5}
    async with open_servers(own=silent) as servers:
        with pytest.raises(ConfigError, match=r"did not (answer|list its tools)"):
            await servers.tools()
    async with open_servers(
        own={**silent, "required": False}, other=own_server_settings(tmp_path)
    ) as servers:
        tools = await servers.tools()
        assert [*servers.failures] == ["own"]
        assert {tool.name.partition("__")[0] for tool in tools} == {"other"}


async def test_a_program_that_is_not_there_is_named() -> None:
    async with open_servers(own={"command": "no-such-program"}) as servers:
        with pytest.raises(ConfigError, match="there is no program 'no-such-program': install it"):
            await servers.tools()


@pytest.mark.parametrize("detached", [False, True])
async def test_nothing_that_a_server_started_outlives_the_block(
    tmp_path: Path,
    detached: bool,  # noqa: FBT001
) -> None:
    async with open_servers(own=own_server_settings(tmp_path)) as servers:
        use = tool_caller(await servers.tools())
        server, child = (
            int((await use("pid")).text),
            int((await use("spawn", detached=detached)).text),
        )
        assert is_alive(server)
        assert is_alive(child)
    await wait_until(lambda: not is_alive(server) and not is_alive(child))


async def test_a_server_that_ignores_the_end_of_its_input_is_killed(tmp_path: Path) -> None:
    stubborn = {"command": "sh", "args": ["-c", 'trap "" TERM; "$@"; sleep 600 & wait', "x"]}
    settings = {**stubborn, "args": [*stubborn["args"], sys.executable, str(OWN), str(tmp_path)]}
    async with open_servers(own=settings) as servers:
        use = tool_caller(await servers.tools())
        pid = int((await use("pid")).text)
        group = os.getpgid(pid)
        assert group != pid
        assert is_alive(group)
    assert not is_alive(group)


async def test_a_server_does_not_outlive_a_runtime_that_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(f"""
        import asyncio, os
        from windlass.tools.run_context import RunContext
        from windlass.tools.mcp.servers import McpServers
        from windlass.tools.mcp.config import mcp_settings
        ENTRY = {{"command": "sh", "args": ["-c", '"$@"; sleep 600', "x",
                 {sys.executable!r}, {str(OWN)!r}, {str(tmp_path)!r}]}}

        async def main():
            settings = mcp_settings({{"mcpServers": {{"own": ENTRY}}}}, os.environ)
            async with McpServers(settings) as servers:
                tools = {{tool.name: tool for tool in await servers.tools()}}
                context = RunContext(deps=None)
                child = await tools["own__spawn"](context, detached=False)
                print((await tools["own__pid"](context)).text, child.text, flush=True)
                await asyncio.sleep(600)

        asyncio.run(main())
        """)
    )
    quiet = subprocess.DEVNULL
    with subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, str(program)], stdin=quiet, stdout=subprocess.PIPE, stderr=quiet
    ) as runtime:
        assert runtime.stdout is not None
        line = await asyncio.to_thread(runtime.stdout.readline)
        pids = [int(one) for one in line.split()]
        assert len(pids) == 2
        pids.append(os.getpgid(pids[0]))
        assert all(map(is_alive, pids))
        runtime.kill()
    await wait_until(lambda: not any(map(is_alive, pids)))


# ── over HTTP ────────────────────────────────────────────────────────────────


async def test_a_server_over_http_dies_and_comes_back(tmp_path: Path, port: int) -> None:
    command = (sys.executable, str(OWN), str(tmp_path), str(port))
    settings = {"type": "http", "url": f"http://127.0.0.1:{port}/mcp"}
    async with open_servers(own=settings) as servers:
        with serve_port(*command, port=port) as process:
            use = tool_caller(await servers.tools())
            assert (await use("table")).kind == "value"
            call = asyncio.ensure_future(use("slow", seconds=60))
            await wait_until(lambda: read_log(tmp_path) == ["began"])
            process.kill()
            result = await call
            assert result.kind == "error"
            assert "Whether the call took effect is not known" in result.text
        down = await use("put", key="x")
        assert down.kind == "error"
        with serve_port(*command, port=port):
            await asyncio.sleep(2)
            assert (await use("put", key="x")).text == "x"


async def test_a_cancel_is_passed_on_over_http(tmp_path: Path, port: int) -> None:
    settings = {"type": "http", "url": f"http://127.0.0.1:{port}/mcp"}
    with serve_port(sys.executable, str(OWN), str(tmp_path), str(port), port=port):
        async with open_servers(own=settings) as servers:
            call = asyncio.ensure_future(tool_caller(await servers.tools())("slow", seconds=60))
            await wait_until(lambda: read_log(tmp_path) == ["began"])
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await wait_until(lambda: read_log(tmp_path) == ["began", "cancelled"])


async def test_headers_are_sent_and_a_refusal_is_named(port: int) -> None:
    seen: list[str | None] = []

    class Refuses(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(self.headers["Authorization"])
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(401)
            self.send_header("Content-Length", "0")
            self.end_headers()

        @override
        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Refuses) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        headers = {"Authorization": "Bearer abc"}
        url = f"http://127.0.0.1:{port}/mcp"
        async with open_servers(own={"type": "http", "url": url, "headers": headers}) as servers:
            with pytest.raises(ConfigError, match=r"'own' cannot be reached: .*\(HTTP 401\)"):
                await servers.tools()
        server.shutdown()
    assert set(seen) == {"Bearer abc"}


async def test_tools_belong_to_the_loop_in_which_they_were_opened(tmp_path: Path) -> None:
    async with open_servers(own=own_server_settings(tmp_path)) as servers:
        tools = await servers.tools()
        result = await asyncio.to_thread(lambda: asyncio.run(tool_caller(tools)("pid")))
        assert "event loop" in result.text


async def test_tools_are_asked_for_inside_the_block(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="async with"):
        await McpServers(
            open_servers(own=own_server_settings(tmp_path)).servers["own"].settings for _ in "x"
        ).tools()
