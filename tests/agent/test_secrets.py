"""Secrets: planted wherever one could be, and looked for wherever one could come out (G8, P3)."""

import asyncio
import base64
import logging
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typing_extensions import override

import windlass
from windlass import (
    Agent,
    Ask,
    CallLate,
    CallProgress,
    ConfigError,
    Deny,
    ModelOptions,
    RunContext,
    RunFailed,
    RunStarted,
    StepProposed,
    TextPart,
    ThinkingDelta,
    UserMessage,
    tool,
)
from windlass.core.errors import ModelError
from windlass.core.secrets.mask import Mask, Secret
from windlass.core.session_summary import SessionSummary
from windlass.core.view import Prompt
from windlass.environ import find_secrets
from windlass.journals.memory import MemoryJournal
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.logs import get_logger
from windlass.models.resolve import resolve_model
from windlass.testing import FixedGate, ScriptedModel, Trace, VirtualClock, call, say, think
from windlass.testing.chat_wire import call_chunks, chat_answer, text_chunk, thinking_chunk
from windlass.testing.fault_server import FaultServer
from windlass.testing.wire import WireAnswer, refuse_with, wait

pytestmark = pytest.mark.contract("G8")

KEY = "mk-canary-of-the-model-91f3"
CANARIES = {
    "key": KEY,
    "environment": "env-canary-5510-xyz",
    "address": "db-canary-pass-77",
    "given": "crm-canary-3141-abc",
    "header": "header-canary-2718-q",
    "key-like": "sk-canary0123456789abcdefGHIJ",
}
ALL = " ".join(CANARIES.values())


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRM_API_TOKEN", CANARIES["environment"])
    monkeypatch.setenv("DATABASE", f"postgres://app:{CANARIES['address']}@db/x")


def leaks(text: str | bytes) -> list[str]:
    """The canaries that are in a text, in any form in which they might travel."""
    told = text if isinstance(text, str) else text.decode("utf-8", "replace")
    return [
        name
        for name, value in CANARIES.items()
        if value in told or base64.b64encode(value.encode()).decode()[:-4] in told
    ]


def in_files(folder: Path) -> bytes:
    """All that is on the disk, what is not yet in its place included."""
    return b"".join(file.read_bytes() for file in folder.iterdir())


def all_of(error: BaseException) -> Iterator[str]:
    """An error and all that it came from, in every way in which it may be printed."""
    yield from (str(error), repr(error), "".join(traceback.format_exception(error)))
    for other in (error.__cause__, error.__context__):
        if other is not None:
            yield from all_of(other)


@tool
def spill(context: RunContext, text: str) -> str:
    """Say what nobody may hear, in each way in which a tool can."""
    context.report(f"reading {ALL[:30]}")
    context.report(ALL[30:])
    return f"{text} {ALL} {base64.b64encode(ALL.encode()).decode()}"


@tool(retries=0)
def fail() -> str:
    """Fail with a secret on the lips."""
    raise ValueError(f"cannot log in with {ALL}")


TOOLS = [spill, fail]


def in_pieces(text: str, size: int) -> list[bytes]:
    return [text_chunk(text[at : at + size]) for at in range(0, len(text), size)]


def script(size: int) -> list[WireAnswer]:
    """Two calls and a reply, with every canary in each of them."""
    arguments = msgspec.json.encode({"text": ALL}).decode()
    pieces = [arguments[at : at + size] for at in range(0, len(arguments), size)]
    thoughts = [thinking_chunk(ALL[at : at + size]) for at in range(0, len(ALL), size)]
    return [
        chat_answer(*thoughts, *in_pieces(f"I use {ALL}.", size), call_chunks("spill", *pieces)),
        chat_answer(call_chunks("fail", "{}")),
        chat_answer(*thoughts, *in_pieces(f"The keys are {ALL}.", size)),
    ]


def agent_at(server: FaultServer, **parts: Any) -> Agent[str]:
    return Agent(
        "openai-compatible:m",
        base_url=server.url,
        key=KEY,
        options=ModelOptions(extra_headers={"X-Api-Key": CANARIES["header"]}),
        secrets={"crm": CANARIES["given"]},
        instructions=f"Your keys: {ALL}",
        tools=TOOLS,
        **parts,
    )


@pytest.mark.realtime
@pytest.mark.parametrize("size", [1, 3, 8, 500])
async def test_no_canary_comes_out_anywhere(
    size: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """P3: not on the disk, to no watcher, in no log, in no result, and not to the model."""
    caplog.set_level(logging.DEBUG)
    trace = Trace()
    with SqliteJournal(tmp_path / "journal.db") as journal:
        async with FaultServer(*script(size)) as server:
            agent = agent_at(server, journal=journal)
            result = await agent.run(f"Use {ALL}", session="s", on_event=trace, caller=ALL)
            late = [event async for event in agent.watch("s")]
            on_disk = in_files(tmp_path)
            bodies = b"".join(asked.body for asked in server.requests)
            assert {asked.headers["authorization"] for asked in server.requests} == {
                f"Bearer {KEY}"
            }
    trace.check()
    assert result.outcome == "completed"
    for seen in (trace.events, late):
        assert leaks(repr(seen)) == []
        assert leaks(b"".join(msgspec.json.encode(event) for event in seen)) == []
    # What a watcher puts together of the pieces, too.
    assert leaks(trace.shown_text()) == []
    assert "sk-[secret]" in trace.shown_text()
    assert leaks(on_disk) == []
    assert leaks(bodies) == []
    assert leaks(repr(result) + repr(result.messages) + result.text) == []
    assert "[secret: crm]" in result.text
    assert "fail" in caplog.text
    assert leaks(caplog.text) == []
    assert leaks(in_files(tmp_path)) == []


@pytest.mark.realtime
async def test_what_is_too_long_to_be_shown_is_masked_before_it_is_kept(tmp_path: Path) -> None:
    """T10: nor is half of a secret left where a result was cut."""

    @tool(effect="read")
    def dump() -> str:
        """Say too much."""
        return f"{ALL} " * 2_000

    model = ScriptedModel([call("dump"), "Done."])
    with SqliteJournal(tmp_path / "journal.db") as journal:
        agent = Agent(model, tools=[dump], secrets=list(CANARIES.values()), journal=journal)
        result = await agent.run("Go.")
        assert leaks(in_files(tmp_path)) == []
    halves = [value[: len(value) // 2] for value in CANARIES.values()]
    assert [half for half in halves if half in repr(result.messages)] == []


@pytest.mark.parametrize("status", [400, 401, 429, 500])
async def test_an_error_that_echoes_the_headers_keeps_them_to_itself(
    status: int, clock: VirtualClock
) -> None:
    """P3: in the error, in its chain, in its result, on record, and for the watchers."""
    trace, store = Trace(), MemoryJournal()
    echo = {"error": {"message": f"bad request with Authorization: Bearer {KEY} and {ALL}"}}
    async with FaultServer(always=refuse_with(status, echo)) as server:
        agent = agent_at(server, journal=store, clock=clock)
        with pytest.raises(RunFailed) as raised:
            await agent.run("Hello?", session="s", on_event=trace)
    told = "".join(all_of(raised.value))
    assert leaks(told + repr(raised.value.result) + repr(raised.value.fault)) == []
    assert leaks(repr(trace.events) + repr(await store.read("s"))) == []


async def test_an_error_of_the_wire_does_not_hold_the_request() -> None:
    """P3: the library's own errors print the headers."""
    async with FaultServer() as server:
        url = server.url
    model = resolve_model("openai-compatible:m", base_url=url, key=KEY, environ={})
    with pytest.raises(ModelError) as raised:
        async for _ in model.stream(prompt()):
            pass
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None
    assert leaks("".join(all_of(raised.value)) + repr(model)) == []


async def test_a_late_result_is_masked_like_any_other(clock: VirtualClock) -> None:
    """C4: also when the run is long over."""

    @tool(timeout=1)
    async def dawdle() -> str:
        """Come late."""
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(60)
        return ALL

    store = MemoryJournal()
    model = ScriptedModel([call("dawdle"), "Done."])
    agent = Agent(
        model, tools=[dawdle], secrets=list(CANARIES.values()), journal=store, clock=clock
    )
    await agent.run("Go.", session="s")
    await asyncio.sleep(300)
    await agent.aclose()
    facts = await store.read("s")
    assert any(isinstance(fact, CallLate) for fact in facts)
    assert leaks(repr(facts)) == []


async def test_what_a_gate_says_is_masked_too(clock: VirtualClock) -> None:
    trace = Trace()
    gate = FixedGate(Deny(f"no {ALL}"), replies=lambda _: Deny(ALL))
    model = ScriptedModel([call("fail"), "a", "b", "c"])
    agent = Agent(model, tools=TOOLS, gate=gate, secrets=list(CANARIES.values()), clock=clock)
    result = await agent.run("Go.", on_event=trace)
    assert result.outcome == "policy_denied"
    assert leaks(repr(trace.events) + repr(result.messages)) == []


async def test_a_journal_that_fails_with_a_secret_keeps_it(clock: VirtualClock) -> None:
    class Failing(MemoryJournal):
        @override
        def append(self, session: str, facts: Any, row: SessionSummary) -> Any:
            if any(isinstance(fact, StepProposed) for fact in facts):
                raise OSError(f"cannot reach postgres://app:{CANARIES['address']}@db")
            return super().append(session, facts, row)

    trace = Trace()
    with pytest.raises(RunFailed) as raised:
        await Agent(ScriptedModel(["Hi"]), journal=Failing(), clock=clock).run(
            "Go.", on_event=trace
        )
    assert leaks("".join(all_of(raised.value)) + repr(trace.events)) == []


async def test_who_comes_in_the_middle_of_a_secret_is_not_shown_it(clock: VirtualClock) -> None:
    """E5: nor is anything of the rest missing, or there twice."""
    value = CANARIES["given"]
    pieces = [
        text_chunk("It is "),
        text_chunk(value[:9]),
        text_chunk(value[9:]),
        text_chunk(" or not."),
    ]
    for at in (0.5, 1.5, 2.5):
        async with FaultServer(slowly(*pieces)) as server:
            agent = agent_at(server, clock=clock)
            running = asyncio.create_task(agent.run("Go.", session="s"))
            await asyncio.sleep(at)
            trace = Trace()
            async for event in agent.watch("s"):
                trace(event)
            assert (await running).text == "It is [secret: crm] or not."
        assert trace.shown_text() == "It is [secret: crm] or not."


def slowly(*pieces: bytes) -> WireAnswer:
    whole = chat_answer(*pieces)
    acts: list[Any] = []
    for act in whole.acts:
        acts += (act, wait(1.0))
    return replace(whole, acts=tuple(acts))


async def test_thinking_and_progress_are_masked_in_pieces(clock: VirtualClock) -> None:
    trace = Trace()
    model = ScriptedModel(
        [[think(ALL), say(ALL), call("spill", {"text": ALL})], [think(ALL), say("ok")]]
    )
    agent = Agent(model, tools=TOOLS, secrets=list(CANARIES.values()), clock=clock)
    await agent.run("Go.", on_event=trace)
    trace.check()
    thought_of = "".join(event.text for event in trace.of_type(ThinkingDelta))
    progress = "".join(event.text for event in trace.of_type(CallProgress))
    assert leaks(thought_of + progress + repr(trace.events)) == []
    assert thought_of.count("[secret: 1]") == 2
    assert progress.count("[secret: 1]") == 1


async def test_the_model_is_not_told_and_the_tool_gets_what_the_model_wrote(
    clock: VirtualClock,
) -> None:
    """T4: history, journal and execution agree on the arguments."""
    got: list[str] = []

    @tool
    def send(text: str) -> str:
        """Send."""
        got.append(text)
        return text

    value = CANARIES["given"]
    with ScriptedModel([call("send", {"text": f"a {value} b"}), "Done."]) as model:
        agent = Agent(model, tools=[send], secrets={"crm": value}, clock=clock)
        result = await agent.run(f"Send {value}.")
    assert got == ["a [secret: crm] b"]
    assert leaks(repr(result.messages)) == []


async def test_instructions_with_a_secret_are_no_drift(clock: VirtualClock) -> None:
    """What an agent offers is what it recorded, so that its runs can be resumed."""
    store = MemoryJournal()

    def agent() -> Agent[str]:
        model, told = ScriptedModel([call("fail"), "Done."]), f"Use {ALL}"
        gate = FixedGate(Ask("May I?"))
        return Agent(model, instructions=told, tools=TOOLS, gate=gate, journal=store, clock=clock)

    waiting = await agent().run("Go.", session="s")
    assert waiting.outcome == "suspended"
    await agent().abandon("s")
    await agent().run("Again.", session="s")
    starts = [fact for fact in await store.read("s") if isinstance(fact, RunStarted)]
    assert [start.setup is None for start in starts] == [False, True]
    resumed = await agent().resume("s")
    assert resumed.outcome == "suspended"


async def test_an_agent_that_must_handle_keys_can(clock: VirtualClock) -> None:
    trace = Trace()
    agent = Agent(ScriptedModel([ALL]), secrets=Mask(key_like=False), clock=clock)
    result = await agent.run("Go.", on_event=trace)
    assert (result.text, trace.shown_text()) == (ALL, ALL)
    only = Agent(ScriptedModel([ALL]), secrets=Mask([CANARIES["given"]]), clock=clock)
    assert leaks((await only.run("Go.")).text) == ["key", "environment", "address", "header"]


def test_a_secret_that_is_hardly_one_is_refused() -> None:
    for given in ({"pin": "1234"}, ["1234"], "1234", {"empty": ""}):
        with pytest.raises(ConfigError, match="shorter than 6 characters"):
            Agent(ScriptedModel(["-"]), secrets=given)


async def test_a_bare_value_is_one_value(clock: VirtualClock) -> None:
    agent = Agent(ScriptedModel(["a correct-horse b"]), secrets="correct-horse", clock=clock)
    assert (await agent.run("Go.")).text == "a [secret: 1] b"


ENVIRON = {
    "OPENAI_API_KEY": "sk-0123456789",
    "GITHUB_TOKEN_RO": "ghs-0123456789",
    "PGPASSWORD": "open sesame",
    "AWS_SECRET_ACCESS_KEY": "/abc/def/0123456789",
    "MY_CREDENTIALS": "a:b:c:d:e",
    "CACHE_ADDRESS": "redis://:cachepass99@cache/0",
    "SHORT_KEY": "abc",
    "KEYBOARD_LAYOUT": "us-international",
    "MONKEY": "a-long-monkey",
    "GOOGLE_APPLICATION_CREDENTIALS": str(Path(__file__)),
    "SSH_KEY_PATH": "some/where/else",
    "TOKEN_URL": "https://login.example.com/token",
    "PWD": "/somewhere/over/there",
}


def test_the_environment_says_by_its_names_what_is_secret() -> None:
    """P3: the password inside an address, too; a file's name is none."""
    assert sorted(find_secrets(ENVIRON)) == [
        "AWS_SECRET_ACCESS_KEY",
        "CACHE_ADDRESS",
        "GITHUB_TOKEN_RO",
        "MY_CREDENTIALS",
        "OPENAI_API_KEY",
        "PGPASSWORD",
    ]
    assert find_secrets(ENVIRON)["CACHE_ADDRESS"] == "cachepass99"
    dsn = "postgres://ann:my%2Fpass99@db/app"
    assert set(find_secrets({"SENTRY_DSN": dsn}).values()) == {dsn, "my%2Fpass99", "my/pass99"}


@pytest.mark.contract("G8")
@pytest.mark.parametrize(
    "name",
    [
        *(
            "DB_PASS",
            "STRIPE_SK",
            "SESSION_ID_SECRET_ID",
            "MYSQL_PWD",
            "GITHUB_PAT",
            "AUTH",
            "NPM_CONFIG__AUTH",
            "API_TOKENS",
            "SSHPASS",
        ),
        *(
            "db_pass",
            "DB_PASS_2",
            "TOKEN1",
            "APP_SECRETS",
            "MASTER_KEYS",
            "SESSION_JWT",
            "AWS_CREDS",
        ),
    ],
)
def test_more_names_that_mean_a_secret(name: str) -> None:
    assert find_secrets({name: "open-sesame-77"})[name] == "open-sesame-77"


@pytest.mark.contract("G8")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PWD", "/somewhere/over/there"),
        ("OLDPWD", "/somewhere/over/there"),
        ("PATH", "/usr/bin:/usr/local/bin"),
        ("SSH_AUTH_SOCK", "/run/somewhere/agent.123"),
        ("AUTH_MODE", "passwordless"),
        ("PASS_THROUGH", "everything"),
        ("COMPASS", "north-by-northwest"),
        ("MAX_OUTPUT_TOKENS", "100000000"),
        ("PATTERN", "some-pattern"),
        ("AUTHOR", "somebody-else"),
    ],
)
def test_names_that_only_sound_like_a_secret(name: str, value: str) -> None:
    assert find_secrets({name: value}) == {}


@pytest.mark.contract("G8")
def test_each_item_of_a_list_of_secrets_is_one() -> None:
    found = find_secrets({"API_TOKENS": "first-token-1, second-token-2;short"})
    assert {"first-token-1", "second-token-2"} <= set(found.values())
    assert "short" not in found.values()


# ── logs ─────────────────────────────────────────────────────────────────────


def test_a_log_holds_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    """In the message, in its arguments, in the exception; for as long as anybody holds it."""
    log, held = get_logger("windlass.testing.secrets"), Secret(CANARIES["given"])
    error = ValueError(ALL)
    log.error("with %s and %r", ALL, {"a": held, "b": CANARIES["given"]}, exc_info=error)
    log.warning("%s", f"Bearer {CANARIES['key-like']}", stack_info=True)
    record = caplog.records[0]
    assert record.exc_info is None
    assert "ValueError" in (record.exc_text or "")
    told = caplog.text + repr([vars(one) for one in caplog.records])
    assert set(leaks(told)) <= set(CANARIES) - {"given", "key-like"}


def test_a_log_without_secrets_is_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    log = get_logger("windlass.testing.secrets")
    log.error("with %s", "words", exc_info=ValueError("an ordinary failure"))
    record = caplog.records[0]
    assert record.args == ("words",)
    assert record.exc_info is not None


def test_every_logger_of_the_package_is_discreet() -> None:
    """A module that asks `logging` itself would be the one that leaks."""
    source = Path(windlass.__file__).parent
    asking = [
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if "getLogger(" in path.read_text("utf-8") and "testing" not in path.parts
    ]
    assert asking == ["logs.py"]


def prompt() -> Prompt:
    return Prompt("m", "", [UserMessage((TextPart("Hello?"),))], (), "auto", 100)
