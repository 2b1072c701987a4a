"""The toolbox: every call comes back as one result, in time, whatever the tool does."""

import asyncio
import contextvars
import logging
import subprocess
import sys
import threading
import urllib.error
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from windlass.core.errors import ConfigError, ModelRetry
from windlass.core.messages import ImagePart, TextPart, ToolResult
from windlass.testing.clock import VirtualClock
from windlass.testing.tools import ToolsConformance, call_context, cleared_call
from windlass.tools.breaker import CircuitBreaker, ToolUnavailable, is_unavailable
from windlass.tools.function import NOT_DONE, UNKNOWN, Tool, tool
from windlass.tools.run_context import RunContext
from windlass.tools.search import Profile
from windlass.tools.shell.reaper import ReapedProcess
from windlass.tools.shell.sandbox import Sandbox
from windlass.tools.shell.shell_tools import open_shell
from windlass.tools.toolbox import Toolbox

COLOUR: contextvars.ContextVar[str] = contextvars.ContextVar("COLOUR", default="none")


async def use(box: Toolbox, name: str, call_id: str = "c1", **arguments: Any) -> ToolResult:
    spec = next(spec for spec in box.specs if spec.name == name)
    return await box.run(cleared_call(spec, arguments, call_id=call_id), call_context())


class TestToolboxConforms(ToolsConformance):
    @pytest.fixture(params=["async", "sync"])
    def tools(self, request: pytest.FixtureRequest) -> Toolbox:
        @tool(effect="read")
        def echo(text: str) -> str:
            return text

        @tool
        async def fail() -> None:
            raise ValueError("no")

        @tool(timeout=None)
        async def hang() -> None:
            await asyncio.Event().wait()

        @tool(effect="read", name="echo")
        async def async_echo(text: str) -> str:
            return text

        return Toolbox([echo if request.param == "sync" else async_echo, fail, hang])


# ── what is offered ──────────────────────────────────────────────────────────


def number(x: int) -> int:
    return x


def words() -> str:
    return "x" * 100_000


def test_plain_functions_are_tools() -> None:
    """T1, T2: with the defaults."""
    box = Toolbox([number])
    assert [(spec.name, spec.effect) for spec in box.specs] == [("number", "write")]


def test_two_tools_of_one_name_are_an_error() -> None:
    """T17: which names both sources."""

    def other() -> int:
        return 1

    with pytest.raises(ConfigError) as caught:
        Toolbox([number, tool(other, name="number")])
    assert "test_toolbox.number" in str(caught.value)
    assert "other" in str(caught.value)
    made = tool(number)
    with pytest.raises(ConfigError, match="given twice"):
        Toolbox([made, made])
    with pytest.raises(ConfigError, match="read_artifact"):
        Toolbox([words, tool(other, name="read_artifact")])


def test_a_profile_chooses() -> None:
    """T16: globs and a maximum."""

    def named(name: str) -> Tool[..., Any]:
        return tool(number, name=name)

    tools = [named("git_log"), named("git_push"), named("read")]

    def names(**profile: Any) -> list[str]:
        return [spec.name for spec in Toolbox(tools, profile=Profile(**profile)).specs]

    assert names() == ["git_log", "git_push", "read"]
    assert names(include=("git_*",)) == ["git_log", "git_push"]
    assert names(include=("git_*", "read"), exclude=("*push",)) == ["git_log", "read"]
    assert names(tools_max=3) == ["git_log", "git_push", "read"]
    with pytest.raises(ConfigError, match="3 tools pass, and tools_max is 2"):
        names(tools_max=2)
    with pytest.raises(ConfigError, match="Did you mean read"):
        names(include=("raed",))
    with pytest.raises(ConfigError, match="tuples of patterns"):
        names(include="git_*")
    with pytest.raises(ConfigError, match="tools_max=0"):
        names(tools_max=0)


async def test_a_tool_that_was_left_out_cannot_be_run() -> None:
    """T16, L13: the same set rules what is visible and what may be dispatched."""
    box = Toolbox([number], profile=Profile(exclude=("number",)))
    result = await box.run(cleared_call(tool(number).spec, {"x": 1}), call_context())
    assert result.kind == "invalid"


def test_the_reader_of_artifacts_is_there_when_a_result_can_be_long() -> None:
    """T10."""
    assert [spec.name for spec in Toolbox([number]).specs] == ["number"]
    assert [spec.name for spec in Toolbox([number, words]).specs][2:] == ["read_artifact"]
    short = Toolbox([words], profile=Profile(exclude=("read_artifact",)))
    assert [spec.name for spec in short.specs] == ["words"]


# ── values and errors ────────────────────────────────────────────────────────


@dataclass
class Trip:
    to: str
    start: datetime


async def test_arguments_arrive_in_their_types() -> None:
    """T4: converted, and a misfit names the field."""

    def book(trip: Trip) -> int:
        return trip.start.year

    box = Toolbox([book])
    given = {"to": "Rome", "start": "2026-05-01T00:00:00"}
    assert (await use(box, "book", trip=given)).text == "2026"
    misfit = await use(box, "book", trip={**given, "start": "soon"})
    assert misfit.kind == "error"
    assert "trip.start" in misfit.text
    assert "soon" not in misfit.text
    missing = await use(box, "book")
    assert "trip: is required and missing" in missing.text


async def test_failures_are_told_and_tracebacks_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """T7: type and bounded message; the traceback only in the log."""

    def crash() -> None:
        raise KeyError("left")

    def leave() -> None:
        raise SystemExit(3)

    async def aleave() -> None:
        raise SystemExit(3)

    def stop() -> None:
        raise StopIteration

    async def quit_() -> None:
        raise asyncio.CancelledError

    def ask_again() -> None:
        raise ModelRetry("Name a city, not a country.")

    def odd() -> object:
        return object()

    box = Toolbox([crash, leave, aleave, stop, quit_, ask_again, odd])
    with caplog.at_level(logging.DEBUG, logger="windlass"):
        crashed = await use(box, "crash")
    assert (crashed.kind, crashed.text) == ("error", "KeyError: 'left'")
    assert "Traceback" in caplog.text
    for name in ("leave", "aleave"):
        with pytest.raises(SystemExit):
            await use(box, name)
    assert (await use(box, "stop")).text == "StopIteration"
    assert (await use(box, "quit_")).text == "CancelledError: the tool cancelled itself"
    assert (await use(box, "ask_again")).text == "Name a city, not a country."
    unshown = await use(box, "odd")
    assert unshown.kind == "error"
    assert unshown.text.startswith("odd ran, but its result cannot be shown")


async def test_results_of_all_kinds() -> None:
    """T10: parts, and a whole result of the tool's own."""

    def picture() -> object:
        return ["Look:", ImagePart("image/png", b"x")]

    def refused() -> ToolResult:
        return ToolResult.from_text("error", "the server said no")

    box = Toolbox([picture, refused])
    assert (await use(box, "picture")).content == (TextPart("Look:"), ImagePart("image/png", b"x"))
    assert (await use(box, "refused")) == ToolResult.from_text("error", "the server said no")


async def test_a_long_result_is_clipped_and_can_be_read_in_parts() -> None:
    """T10: head, tail, and the whole as an artifact of its session."""
    whole = "".join(f"line {at}\n" for at in range(20_000))

    def report() -> str:
        return whole

    box = Toolbox([report])
    clipped = (await use(box, "report")).text
    assert len(clipped.encode()) <= 32 * 1024
    assert whole.startswith(clipped[:10_000])
    assert whole.endswith(clipped[-10_000:])
    name = clipped.partition('read_artifact(id="')[2][:16]
    assert (await use(box, "report")).text == clipped, "named by its content"
    read, offset = "", 0
    while True:
        page = (await use(box, "read_artifact", id=name, offset=offset)).text
        text, _, told = page.rpartition("\n[characters ")
        read += text
        if "this is the end" in told:
            break
        offset = int(told.partition("offset=")[2].rstrip("]"))
    assert read == whole
    spec = box.specs[1]
    elsewhere = await box.run(cleared_call(spec, {"id": name}), call_context(session="other"))
    assert elsewhere.kind == "error"


async def test_a_store_that_fails_costs_only_the_rest() -> None:
    """T10: the law of the port holds."""

    class Broken:
        async def store_text(self, session: str, text: str) -> str:
            raise OSError("disk full")

        async def read_text(self, session: str, name: str) -> str | None:
            return None

    result = await use(Toolbox([words], artifacts=Broken()), "words")
    assert result.kind == "value"
    assert "left out …]" in result.text


# ── context and threads ──────────────────────────────────────────────────────


async def test_the_context_tells_of_the_run() -> None:
    """T1: dependencies, ids, key, progress."""

    async def look(context: RunContext[dict[str, str]]) -> list[object]:
        context.report("half")
        return [
            context.deps["db"],
            context.session_id,
            context.run,
            context.call_id,
            context.idempotency_key,
            context.tool_name,
            context.attempt,
            context.cancelled,
        ]

    box = Toolbox([look], deps={"db": "one"})
    reports: list[str] = []
    result = await box.run(cleared_call(box.specs[0], call_id="c7"), call_context(reports))
    assert result.text == '["one","s",1,"c7","s/c7","look",1,false]'
    assert reports == ["half"]
    other = await use(box.with_deps({"db": "two"}), "look")
    assert other.text.startswith('["two"')


async def test_sync_tools_run_in_threads() -> None:
    """T3: the loop goes on, context variables come along, reports come back."""
    home, free = threading.get_ident(), threading.Event()
    heard_in: list[int] = []

    def wait(context: RunContext) -> list[object]:
        context.report("waiting")
        assert free.wait(10), "the loop stood still"
        return [threading.get_ident() == home, COLOUR.get()]

    box = Toolbox([wait])
    COLOUR.set("red")
    context = call_context()
    heard = structs.replace(context, report=lambda _: heard_in.append(threading.get_ident()))
    running = asyncio.create_task(box.run(cleared_call(box.specs[0]), heard))
    for _ in range(100):
        await asyncio.sleep(0)
    free.set()
    assert (await running).text == '[false,"red"]'
    assert heard_in == [home]


async def test_a_sync_wrapper_of_an_async_function_is_awaited() -> None:
    """T3."""

    async def inner() -> str:
        await asyncio.sleep(1)
        return "in"

    def outer() -> object:
        return inner()

    assert (await use(Toolbox([outer]), "outer")).text == "in"


async def test_siblings_keep_their_results() -> None:
    """T8, T6: one result each."""

    async def maybe(x: int) -> int:
        await asyncio.sleep(x)
        if x == 1:
            raise ValueError("one")
        return x

    box = Toolbox([maybe])
    results = await asyncio.gather(*(use(box, "maybe", f"c{x}", x=x) for x in range(3)))
    assert [result.text for result in results] == ["0", "ValueError: one", "2"]


# ── time ─────────────────────────────────────────────────────────────────────


async def test_a_timeout_is_a_result(clock: VirtualClock) -> None:
    """T5: the tool is cancelled; the run goes on."""
    stopped: list[bool] = []

    @tool(timeout=5, effect="read")
    async def slow(context: RunContext) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.append(context.cancelled)

    result = await use(Toolbox([slow]), "slow")
    assert (result.kind, result.text) == ("timed_out", "The tool timed out after 5 s.")
    assert (clock.elapsed_s, stopped) == (5.0, [True])


@pytest.mark.parametrize(
    ("seconds", "kind", "text"),
    [(1, "value", "here"), (3600, "timed_out", "The tool timed out after 5 s.")],
)
async def test_what_a_plain_function_returns_to_be_awaited_has_the_same_time(
    seconds: float, kind: str, text: str, clock: VirtualClock
) -> None:
    """T5: a thread returns it, and the event loop awaits it."""

    async def fetch() -> str:
        await asyncio.sleep(seconds)
        return "here"

    @tool(timeout=5, effect="read")
    def begin() -> Any:
        return fetch()

    with clock.let_time_pass():
        result = await use(Toolbox([begin]), "begin")
    assert (result.kind, result.text) == (kind, text)


@pytest.mark.leaves_tasks
async def test_a_tool_that_ignores_its_cancel_is_left_behind(clock: VirtualClock) -> None:
    """T5: cancel, grace, and on."""

    @tool(timeout=5)
    async def deaf() -> None:
        until = clock.elapsed_s + 100
        while clock.elapsed_s < until:
            try:
                await asyncio.sleep(until - clock.elapsed_s)
            except asyncio.CancelledError:
                continue

    result = await use(Toolbox([deaf], grace=2), "deaf")
    assert result.kind == "timed_out"
    assert "Whether it took effect is not known." in result.text
    assert clock.elapsed_s == 7.0


@pytest.mark.leaves_tasks
async def test_a_thread_that_hangs_stands_in_nobodys_way(clock: VirtualClock) -> None:
    """T5, T3: however many of them hang."""
    release = threading.Event()

    @tool(timeout=5, endpoint="a")
    def stuck() -> None:
        release.wait(30)

    def quick() -> int:
        return 1

    box = Toolbox([stuck, quick], breaker=lambda: CircuitBreaker(failures_max=100))
    with clock.let_time_pass():
        results = await asyncio.gather(*(use(box, "stuck", f"c{at}") for at in range(40)))
    assert {result.kind for result in results} == {"timed_out"}
    with clock.let_time_pass():
        assert (await use(box, "quick")).text == "1"
    release.set()


@pytest.mark.slow
def test_the_program_ends_without_the_threads_that_hang() -> None:
    """T5: an abandoned thread does not hold up the end of the process."""
    code = """
import asyncio, time
from windlass.testing.tools import call_context, cleared_call
from windlass.tools.function import tool
from windlass.tools.toolbox import Toolbox

@tool(timeout=0.01)
def stuck() -> None:
    time.sleep(3600)

box = Toolbox([stuck], grace=0.01)
print(asyncio.run(box.run(cleared_call(box.specs[0]), call_context())).kind)
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout == "timed_out\n"


async def test_what_a_tool_returns_while_it_is_stopped_is_no_success(clock: VirtualClock) -> None:
    """T5: but it is not lost either."""

    @tool(timeout=5)
    async def partial() -> str:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await asyncio.sleep(1)
        return "half of it"

    result = await use(Toolbox([partial]), "partial")
    assert result.kind == "timed_out"
    assert result.text.endswith("returned: half of it")
    assert clock.elapsed_s == 6.0


async def test_a_sync_tool_can_see_that_it_should_stop() -> None:
    """T5, C4: from its thread."""

    @tool(timeout=None)
    def patient(context: RunContext) -> str:
        return "told" if context.wait(30) else "never told"

    box = Toolbox([patient])
    running = asyncio.create_task(use(box, "patient"))
    for _ in range(5):
        await asyncio.sleep(0)
    running.cancel()
    result = await running
    assert (result.kind, result.text.split()[-1]) == ("cancelled", "told")


async def test_a_cancel_passes_through(clock: VirtualClock) -> None:
    """C4: the tool is told to stop, and gets its grace."""
    ended: list[float] = []

    async def tidy() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(1)
            ended.append(clock.elapsed_s)

    running = asyncio.create_task(use(Toolbox([tidy]), "tidy"))
    await asyncio.sleep(10)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended == [11.0]


async def test_reports_after_the_end_are_not_passed_on() -> None:
    """T6: a call that has its result says no more."""
    kept: list[Callable[[str], None]] = []

    async def talk(context: RunContext) -> None:
        kept.append(context.report)

    box, reports = Toolbox([talk]), list[str]()
    await box.run(cleared_call(box.specs[0]), call_context(reports))
    kept[0]("late")
    assert reports == []


# ── trying again, and leaving alone ──────────────────────────────────────────


def flaky(effect: Any, error: Exception, fails: int, **options: Any) -> tuple[Toolbox, list[str]]:
    seen: list[str] = []

    @tool(effect=effect, **options)
    async def fetch(context: RunContext) -> int:
        seen.append(f"{context.idempotency_key} {context.attempt}")
        if len(seen) <= fails:
            raise error
        return 1

    return Toolbox([fetch]), seen


@pytest.mark.parametrize("effect", ["read", "idempotent"])
async def test_a_passing_failure_is_tried_again(effect: str, clock: VirtualClock) -> None:
    """T12: with the same idempotency key each time."""
    box, seen = flaky(effect, ConnectionResetError("gone"), fails=2)
    assert (await use(box, "fetch")).text == "1"
    assert seen == ["s/c1 1", "s/c1 2", "s/c1 3"]
    assert clock.elapsed_s == 1.5


async def test_retries_end() -> None:
    """T12, T7: and the model is told."""
    box, seen = flaky("read", ToolUnavailable("down"), fails=9)
    result = await use(box, "fetch")
    assert (result.kind, result.text) == ("error", "ToolUnavailable: down (tried 3 times)")
    assert len(seen) == 3


@pytest.mark.parametrize(
    ("effect", "error"),
    [
        ("write", ConnectionResetError()),
        ("read", ValueError()),
        ("read", ModelRetry("no")),
        ("read", FileNotFoundError(2, "no such file")),
    ],
)
async def test_nothing_else_is_tried_again(effect: str, error: Exception) -> None:
    """T12: no write, and no mistake."""
    box, seen = flaky(effect, error, fails=9)
    assert (await use(box, "fetch")).kind == "error"
    assert len(seen) == 1


async def test_retries_stay_within_the_time_of_the_call(clock: VirtualClock) -> None:
    """T5, T12: one time for all tries."""
    box, seen = flaky("read", TimeoutError(), fails=99, retries=99, timeout=10)
    assert (await use(box, "fetch")).kind == "error"
    assert clock.elapsed_s <= 10
    assert len(seen) == 5


async def test_a_broken_endpoint_is_left_alone_for_a_while(clock: VirtualClock) -> None:
    """T11, T7: opens after 5, for 30 s, and says so; one probe closes it."""
    box, seen = flaky("write", OSError("down"), fails=5)
    for at in range(5):
        assert (await use(box, "fetch", f"c{at}")).text == "OSError: down"
    refused = await use(box, "fetch", "c5")
    assert refused.kind == "error"
    assert "switched off for now; the next attempt is possible in 30 s" in refused.text
    assert len(seen) == 5
    await asyncio.sleep(30)
    assert (await use(box, "fetch", "c6")).text == "1"
    assert (await use(box, "fetch", "c7")).text == "1"


async def test_mistakes_and_cancels_do_not_open_the_breaker() -> None:
    """T11: the model's mistakes do not count."""
    box, _ = flaky("write", ValueError("mistake"), fails=20)
    results = [await use(box, "fetch", f"c{at}") for at in range(21)]
    assert results[-1].text == "1"


async def test_timeouts_open_the_breaker() -> None:
    """T11."""

    @tool(timeout=1)
    async def slow() -> None:
        await asyncio.sleep(9)

    box = Toolbox([slow])
    kinds = [(await use(box, "slow", f"c{at}")).kind for at in range(6)]
    assert kinds == ["timed_out"] * 5 + ["error"]


async def test_tools_of_one_endpoint_fail_together() -> None:
    """T11: per endpoint."""

    @tool(endpoint="server")
    async def one() -> int:
        raise ToolUnavailable

    @tool(endpoint="server")
    async def two() -> int:
        return 2

    box = Toolbox([one, two], breaker=lambda: CircuitBreaker(failures_max=1))
    await use(box, "one")
    assert "switched off" in (await use(box, "two")).text


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ToolUnavailable(), True),
        (ConnectionRefusedError(), True),
        (TimeoutError(), True),
        (OSError("network is unreachable"), True),
        (urllib.error.URLError("unreachable"), True),
        (urllib.error.HTTPError("u", 503, "busy", Message(), None), True),
        (urllib.error.HTTPError("u", 429, "slow down", Message(), None), True),
        (urllib.error.HTTPError("u", 404, "not found", Message(), None), False),
        (PermissionError(), False),
        (OSError(36, "File name too long"), False),
        (ValueError(), False),
    ],
)
def test_which_failures_are_the_infrastructures(error: Exception, *, expected: bool) -> None:
    """T7, T11, T12."""
    assert is_unavailable(error) is expected
    if isinstance(error, urllib.error.HTTPError):
        error.close()


# ── after a crash ────────────────────────────────────────────────────────────


async def reconciled(answer: Any, **options: Any) -> Any:
    def check(context: RunContext[str], path: str) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return f"{context.deps} {path}" if answer == "done" else answer

    @tool(reconcile=check, **options)
    def write(path: str) -> None: ...

    box = Toolbox([write], deps="db")
    return await box.reconcile(
        cleared_call(write.spec, {"path": "a"}, started=True), call_context()
    )


async def test_a_tool_can_say_what_became_of_its_effect() -> None:
    """J2: done, not done, or unknown; whatever goes wrong is unknown."""
    assert await reconciled("done") == ToolResult.from_text("value", "db a")
    assert await reconciled(NOT_DONE) == "not_done"
    assert await reconciled(UNKNOWN) == "unknown"
    assert await reconciled(None) == "unknown"
    assert await reconciled(ValueError("no")) == "unknown"


async def test_a_tool_without_reconcile_does_not_know() -> None:
    """J2."""
    box = Toolbox([number])
    call = cleared_call(box.specs[0], {"x": 1}, started=True)
    assert await box.reconcile(call, call_context()) == "unknown"


@pytest.mark.contract("T14")
def test_what_a_dead_runtime_left_running_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T14: each process by its program and the command that it belonged to."""
    shell = open_shell(tmp_path, sandbox=Sandbox(require="process"))
    left = ReapedProcess(
        pid=7, program="sleep 600", command="make serve", call="r/c1_0", started=None
    )
    monkeypatch.setattr(shell.reaper, "reap_leftovers", lambda: [left])
    assert Toolbox(shell.tools).recover() == ["sleep 600 (of: make serve)"]
