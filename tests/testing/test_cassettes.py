"""Cassettes: what is recorded is what is played back, and a test that asks otherwise fails (V1)."""

import asyncio
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from windlass import Agent, ConfigError, FailedByModel, RetryPolicy, RunFailed, RunResult
from windlass.models.options import ModelOptions
from windlass.testing import (
    Cassette,
    CassetteMismatch,
    FaultServer,
    RecordingTools,
    Trace,
    VirtualClock,
    serve_in_thread,
)
from windlass.testing.chat_wire import call_chunks, chat_answer, text_answer, text_chunk
from windlass.testing.tape import (
    HttpExchange,
    TapePiece,
    TapeRequest,
    first_difference,
    load_tape,
    save_tape,
)
from windlass.testing.wire import WireAnswer, drop, refuse_with, split_pieces, stall, stream_answer

KEY = "sk-test-0123456789abcdef"
ONCE = RetryPolicy(attempts_max=1, establish_max=1)


def agent_at(url: str, **settings: Any) -> Agent[str]:
    return Agent("openai-compatible:m", base_url=url, key=KEY, **settings)


def files_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def record(path: Path, *script: WireAnswer, prompt: str = "Hello?", **settings: Any) -> Trace:
    trace = Trace()
    async with FaultServer(*script) as upstream:
        async with Cassette(path, upstream=upstream.url, record=True) as cassette:
            assert cassette.mode == "record"
            with suppress(RunFailed):
                await agent_at(cassette.url, **settings).run(prompt, on_event=trace)
        assert upstream.answers_left == 0
    return trace


async def replay(path: Path, prompt: str = "Hello?", **settings: Any) -> tuple[Trace, Any]:
    trace = Trace()
    async with Cassette(path) as cassette:
        assert cassette.mode == "replay"
        try:
            result: Any = await agent_at(cassette.url, **settings).run(prompt, on_event=trace)
        except FailedByModel as failed:
            result = failed.result
    return trace, result


async def test_a_recording_is_played_back_piece_by_piece(tmp_path: Path) -> None:
    tape = tmp_path / "deep" / "hello.jsonl"
    recorded = await record(tape, text_answer("Hello there", chars=3))
    trace, result = await replay(tape)
    assert result.text == "Hello there"
    assert trace.texts() == recorded.texts() == ["Hel", "lo ", "the", "re"]
    assert result.usage.input == 12


async def test_a_run_with_tools_is_played_back(tmp_path: Path) -> None:
    tape = tmp_path / "tools.jsonl"
    script = (chat_answer(call_chunks("look", '{"at":', '"a"}')), text_answer("Seen."))
    await record(tape, *script, tools=RecordingTools({"look": "seen"}))
    tools = RecordingTools({"look": "seen"})
    _, result = await replay(tape, tools=tools)
    assert (result.text, [call.arguments for call in tools.calls]) == ("Seen.", [{"at": "a"}])


async def test_a_refusal_and_the_next_attempt_are_played_back(
    tmp_path: Path, clock: VirtualClock
) -> None:
    tape = tmp_path / "limited.jsonl"
    limited = refuse_with(429, {"error": {"message": "slow down"}}, {"Retry-After": "7"})
    await record(tape, limited, text_answer("Hello"), clock=clock)
    before_s = clock.elapsed_s
    _, result = await replay(tape, clock=clock)
    assert (result.text, result.model_calls) == ("Hello", 2)
    assert clock.elapsed_s - before_s >= 7


async def test_a_stream_that_broke_breaks_again(tmp_path: Path, clock: VirtualClock) -> None:
    tape = tmp_path / "broken.jsonl"
    await record(tape, stream_answer(text_chunk("Half"), drop()), retries=ONCE, clock=clock)
    _, result = await replay(tape, retries=ONCE, clock=clock)
    assert (result.error.kind, result.partial_text) == ("incomplete_stream", "Half")


async def test_a_client_that_left_can_leave_again(tmp_path: Path) -> None:
    """A cancel in the middle of a stream is a recording like any other."""
    tape = tmp_path / "left.jsonl"

    async def cancelled(url: str) -> RunResult[str]:
        agent, heard = agent_at(url), asyncio.Event()
        running = asyncio.create_task(
            agent.run(
                "Hi", session="s", on_event=lambda event: heard.set() if is_text(event) else None
            )
        )
        await heard.wait()
        agent.cancel("s")
        return await running

    def is_text(event: object) -> bool:
        return type(event).__name__ == "TextDelta"

    async with FaultServer(stream_answer(text_chunk("Half"), stall())) as upstream:
        async with Cassette(tape, upstream=upstream.url, record=True) as cassette:
            await cancelled(cassette.url)
        await asyncio.wait_for(upstream.requests[0].client_left.wait(), 5)
    assert [exchange.how for exchange in load_tape(tape)] == ["left"]
    async with Cassette(tape) as cassette:
        result = await cancelled(cassette.url)
    assert (result.outcome, result.partial_text) == ("cancelled", "Half")


async def test_bytes_that_are_no_text_are_kept(tmp_path: Path) -> None:
    """A character may be cut in two on the wire."""
    tape = tmp_path / "bytes.jsonl"
    await record(tape, split_pieces(text_answer("Grüße"), 1))
    kept = load_tape(tape)[0].pieces
    assert any(piece.data for piece in kept)
    assert max(len(piece.content) for piece in kept) == 1
    _, result = await replay(tape)
    assert result.text == "Grüße"


async def test_pauses_are_played_back_when_asked_for(tmp_path: Path, clock: VirtualClock) -> None:
    tape = tmp_path / "slow.jsonl"
    await record(tape, text_answer("Hello"))
    (exchange,) = load_tape(tape)
    exchange.pieces = [TapePiece(piece.text, piece.data, 10.0) for piece in exchange.pieces]
    save_tape(tape, "https://host/v1", [exchange], set())
    for paced in (False, True):
        before_s = clock.elapsed_s
        async with Cassette(tape, paced=paced) as cassette:
            await agent_at(cassette.url, clock=clock).run("Hello?")
        assert (clock.elapsed_s - before_s >= 30.0) is paced


def test_code_that_is_not_async_can_use_it(tmp_path: Path) -> None:
    def run(url: str, prompt: str) -> str:
        return asyncio.run(agent_at(url).run(prompt)).text

    tape = tmp_path / "sync.jsonl"
    with (
        serve_in_thread(FaultServer(text_answer("Hello"))) as upstream,
        Cassette(tape, upstream=upstream.url, record=True) as cassette,
    ):
        assert run(cassette.url, "Hi") == "Hello"
    with Cassette(tape) as cassette:
        assert run(cassette.url, "Hi") == "Hello"
    with pytest.raises(CassetteMismatch, match=r"messages"), Cassette(tape) as cassette:
        run(cassette.url, "Hey")


async def test_another_body_fails_the_test_with_the_place_of_the_difference(tmp_path: Path) -> None:
    tape = tmp_path / "hello.jsonl"
    await record(tape, text_answer("Hello"))
    with pytest.raises(CassetteMismatch) as raised:
        async with Cassette(tape) as cassette:
            await agent_at(cassette.url).run("Good bye?")
    told = str(raised.value)
    assert 'at $.messages[0].content, recorded "Hello?", asked "Good bye?"' in told
    assert "record it again" in told
    assert isinstance(raised.value.__cause__, FailedByModel)
    assert "$.messages[0].content" in str(raised.value.__cause__)


async def test_a_difference_that_the_code_hides_fails_the_test(tmp_path: Path) -> None:
    tape = tmp_path / "hello.jsonl"
    await record(tape, text_answer("Hello"))

    async def test() -> None:
        async with Cassette(tape) as cassette:
            with suppress(FailedByModel):
                await agent_at(cassette.url, options=ModelOptions(temperature=0.5)).run("Hello?")

    with pytest.raises(CassetteMismatch, match=r"at \$\.temperature, recorded nothing, asked 0.5"):
        await test()


async def test_another_path_fails_the_test(tmp_path: Path) -> None:
    tape = tmp_path / "hello.jsonl"
    await record(tape, text_answer("Hello"))
    with pytest.raises(CassetteMismatch, match="recorded POST /chat/completions, asked POST /resp"):
        async with Cassette(tape) as cassette:
            await Agent("openai:gpt-5", base_url=cassette.url).run("Hello?")


async def test_one_request_too_many_fails_the_test(tmp_path: Path) -> None:
    tape = tmp_path / "hello.jsonl"
    await record(tape, text_answer("Hello"))

    async def test() -> None:
        async with Cassette(tape) as cassette:
            for _ in range(2):
                await agent_at(cassette.url).run("Hello?")

    with pytest.raises(CassetteMismatch, match="has 1 request, and one more was made"):
        await test()


async def test_one_request_too_few_fails_the_test(tmp_path: Path) -> None:
    tape = tmp_path / "hello.jsonl"
    await record(tape, text_answer("Hello"))
    with pytest.raises(CassetteMismatch, match="has 1 request, but 0 were made"):
        async with Cassette(tape):
            pass


async def test_a_failure_of_the_test_itself_is_not_covered_up(tmp_path: Path) -> None:
    tape = tmp_path / "hello.jsonl"
    await record(tape, text_answer("Hello"))
    with pytest.raises(ZeroDivisionError):
        async with Cassette(tape):
            raise ZeroDivisionError


async def test_no_key_reaches_the_file(tmp_path: Path) -> None:
    """P3: not from a header, a query, a prompt, or a server that repeats it, even cut in two."""
    tape = tmp_path / "secret.jsonl"
    other = "AIza-0123456789abcdef"
    echo = refuse_with(401, {"error": {"message": f"Incorrect API key provided: {KEY}"}})
    torn = stream_answer(text_chunk("key"), f"data: {KEY}".encode()[:15], KEY.encode()[9:])
    headers = ModelOptions(extra_headers={"X-Api-Key": other, "Cookie": f"session={other}"})
    for number, script in enumerate((echo, torn)):
        path = tape.with_stem(f"secret{number}")
        await record(path, script, prompt=f"Is it {KEY}?", options=headers, retries=ONCE)
        kept = path.read_text("utf-8")
        assert KEY not in kept
        assert other not in kept
        assert KEY not in b"".join(piece.content for piece in load_tape(path)[0].pieces).decode()
        assert load_tape(path)[0].request.headers["authorization"] == "****"
        assert "Is it [secret: OPENAI_COMPATIBLE_API_KEY]?" in kept
        await replay(path, f"Is it {KEY}?", retries=ONCE, options=headers)


async def test_a_key_in_the_address_is_masked(tmp_path: Path) -> None:
    tape, key = tmp_path / "query.jsonl", "AIza-0123456789abcdef"
    async with (
        FaultServer(text_answer("Hello")) as upstream,
        Cassette(tape, upstream=upstream.url, record=True) as cassette,
    ):
        await asked(cassette.url, f"/models?alt=sse&key={key}")
    assert load_tape(tape)[0].request.path == "/models?alt=sse&key=****"
    assert key not in tape.read_text("utf-8")
    async with Cassette(tape) as cassette:
        assert await asked(cassette.url, "/models?alt=sse&key=another-one") == 200


async def asked(url: str, path: str) -> int:
    async with aiohttp.ClientSession() as session, session.get(url + path) as response:
        await response.read()
        return response.status


async def test_an_answer_without_a_body_is_played_back(tmp_path: Path) -> None:
    tape = tmp_path / "empty.jsonl"
    nothing = WireAnswer(status=204, headers=(("Content-Length", "0"),), chunked=False)
    async with (
        FaultServer(nothing, nothing) as upstream,
        Cassette(tape, upstream=upstream.url, record=True) as cassette,
    ):
        assert [await asked(cassette.url, "/a"), await asked(cassette.url, "/b")] == [204, 204]
    async with Cassette(tape) as cassette:
        assert [await asked(cassette.url, "/a"), await asked(cassette.url, "/b")] == [204, 204]


def test_without_a_file_it_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="record=True"):
        Cassette(tmp_path / "none.jsonl", upstream="https://host/v1")
    with pytest.raises(ConfigError, match="upstream="):
        Cassette(tmp_path / "none.jsonl", record=True)


async def test_a_file_that_is_there_is_never_recorded_over(tmp_path: Path) -> None:
    tape = tmp_path / "hello.jsonl"
    await record(tape, text_answer("Hello"))
    before = tape.read_bytes()
    async with Cassette(tape, upstream="http://127.0.0.1:9/v1", record=True) as cassette:
        assert (await agent_at(cassette.url).run("Hello?")).text == "Hello"
    assert tape.read_bytes() == before


async def test_a_block_that_raises_leaves_no_recording(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            FaultServer(text_answer("Hello")) as upstream,
            Cassette(tmp_path / "hello.jsonl", upstream=upstream.url, record=True) as cassette,
        ):
            await agent_at(cassette.url).run("Hello?")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await test()
    assert files_in(tmp_path) == []


async def test_a_server_that_cannot_be_reached_is_named(
    tmp_path: Path, clock: VirtualClock
) -> None:
    async with FaultServer() as server:
        url = server.url
    async with Cassette(tmp_path / "none.jsonl", upstream=url, record=True) as cassette:
        with pytest.raises(FailedByModel, match=f"cannot reach {url}"):
            await agent_at(cassette.url, clock=clock).run("Hello?")
    assert files_in(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not a cassette: it is empty"),
        ("{", "line 1"),
        ('{"kind":"request","method":"GET","path":"/"}', "`tape`"),
        ('{"kind":"tape","version":9,"upstream":"x"}', "version 9"),
        ('{"kind":"tape","version":1,"upstream":"x"}\n{"kind":"end","how":"whole"}', "line 2"),
    ],
)
def test_a_file_that_is_no_cassette_is_refused(tmp_path: Path, text: str, told: str) -> None:
    tape = tmp_path / "wrong.jsonl"
    tape.write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=told):
        Cassette(tape)


@pytest.mark.parametrize(
    ("recorded", "made", "told"),
    [
        ({"a": 1}, {"a": 1}, None),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, None),
        ({"a": [1, {"b": "x"}]}, {"a": [1, {"b": "y"}]}, 'at $.a[1].b, recorded "x", asked "y"'),
        ({"a": [1]}, {"a": [1, 2]}, "at $.a[1], recorded nothing, asked 2"),
        ({"a": 1}, {}, "at $.a, recorded 1, asked nothing"),
        ({"a": True}, {"a": 1}, "at $.a, recorded true, asked 1"),
        ("x" * 99 + "a", "x" * 99 + "b", f'"{"x" * 20}a"'),
        (None, {"a": 1}, 'at $, recorded null, asked {"a":1}'),
    ],
)
def test_the_first_difference_is_named(recorded: Any, made: Any, told: str | None) -> None:
    found = first_difference(recorded, made)
    assert found is None if told is None else (found is not None and told.strip('"') in found)


def test_a_long_value_is_shown_where_it_differs() -> None:
    found = first_difference("x" * 500 + "a" + "y" * 500, "x" * 500 + "b" + "y" * 500) or ""
    assert "xa" in found
    assert "xb" in found
    assert len(found) < 200


def test_a_file_reads_back_as_it_was_written(tmp_path: Path) -> None:
    made = HttpExchange(TapeRequest("POST", "/x", {"a": "b"}, {"c": [1, None, "ü"]}), how="whole")
    save_tape(tmp_path / "tape.jsonl", "https://user:word@host/v1", [made], set())
    assert load_tape(tmp_path / "tape.jsonl") == [made]
    assert "word" not in (tmp_path / "tape.jsonl").read_text("utf-8")


@pytest.mark.slow
def test_importing_the_doubles_does_not_import_the_wire() -> None:
    code = "import sys, windlass.testing; sys.exit('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
