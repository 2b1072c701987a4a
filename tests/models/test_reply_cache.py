"""The reply cache: the same request, the same reply, marked and never paid for."""

import stat
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from windlass import Agent, ConfigError, Limits, ModelInfo, Price, tool
from windlass.core.audit.explain import explain
from windlass.core.events import StepProposed
from windlass.environ import may_come_from_dotenv
from windlass.journals.memory import MemoryJournal
from windlass.models import CachedModel, resolve_model
from windlass.models.options import ModelOptions
from windlass.models.reply_cache import cache_replies
from windlass.testing import ScriptedModel, VirtualClock, call
from windlass.testing.chat_wire import DONE, finish_chunk, text_answer, text_chunk
from windlass.testing.fault_server import FaultServer
from windlass.testing.wire import drop, stream_answer

INFO = ModelInfo("scripted:m", Price(Decimal(1), Decimal(5)), output_max=500)


@tool(effect="read")
def weigh(part: str) -> str:
    """Weigh a part."""
    return "2 t"


def scripted(*script: Any) -> ScriptedModel:
    return ScriptedModel(script, info=INFO, truthful=True)


SCRIPT = (call("weigh", {"part": "jib"}, id="w1"), "Two tonnes.")


@pytest.mark.contract("S12")
async def test_a_whole_run_costs_nothing_the_second_time(tmp_path: Path) -> None:
    """S12, B1: marked in the record, with calls and all, and no token counts."""
    paid = await Agent(CachedModel(scripted(*SCRIPT), tmp_path), tools=[weigh]).run("Go")
    assert paid.cost
    journal = MemoryJournal()
    agent = Agent(CachedModel(scripted(), tmp_path), tools=[weigh], journal=journal)
    free = await agent.run("Go", session="s")
    assert (free.text, free.steps) == (paid.text, paid.steps) == ("Two tonnes.", 2)
    assert free.cost == 0
    assert free.usage is not None
    assert (free.usage.total, free.usage.cached_replies, free.usage.estimated) == (0, 2, False)
    facts = await journal.read("s")
    charges = [fact.charge for fact in facts if isinstance(fact, StepProposed)]
    assert all(charge and charge.usage and charge.usage.cached_replies == 1 for charge in charges)
    assert "from the reply cache, not paid" in "\n".join(map(str, explain("s", facts)))


async def test_a_limit_is_not_used_up_by_cached_replies(tmp_path: Path) -> None:
    """B1."""
    model = CachedModel(scripted("Hello."), tmp_path)
    await Agent(model).run("Hi")
    limits = Limits(usd=Decimal("0.01"), tokens=6_000)
    agent = Agent(CachedModel(scripted(), tmp_path), limits=limits)
    for _ in range(5):
        assert (await agent.run("Hi")).outcome == "completed"


CHANGES: list[dict[str, Any]] = [
    {"prompt": "Another"},
    {"instructions": "Be brief."},
    {"tools": [weigh]},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
async def test_another_request_is_asked(change: dict[str, Any], tmp_path: Path) -> None:
    await Agent(CachedModel(scripted("One."), tmp_path)).run("Hi")
    other = {**change}
    prompt = other.pop("prompt", "Hi")
    result = await Agent(CachedModel(scripted("Two."), tmp_path), **other).run(prompt)
    assert result.text == "Two."


@pytest.mark.slow
async def test_over_http_one_request_is_made_for_each_setting(tmp_path: Path) -> None:
    """S1: options are part of the request."""
    async with FaultServer(always=text_answer("Hello.")) as server:

        def cached(**options: Any) -> CachedModel:
            return CachedModel(
                resolve_model(
                    "openai-compatible:m",
                    base_url=server.url,
                    environ={},
                    options=ModelOptions(**options),
                ),
                tmp_path,
            )

        for _ in range(2):
            await Agent(cached()).run("Hi")
            await Agent(cached(temperature=0.5)).run("Hi")
        assert len(server.requests) == 2


def kept(folder: Path) -> list[Path]:
    return list(folder.iterdir())


CUT = stream_answer(text_chunk("Hel"), finish_chunk("length"), DONE)
BROKEN = stream_answer(text_chunk("Hel"), drop())


@pytest.mark.slow
async def test_only_whole_replies_are_kept(tmp_path: Path, clock: VirtualClock) -> None:
    async with FaultServer(CUT, BROKEN, text_answer("Hello.")) as server:
        model = resolve_model("openai-compatible:m", base_url=server.url, environ={})
        agent = Agent(CachedModel(model, tmp_path), clock=clock)
        assert (await agent.run("Hi")).outcome == "truncated"
        assert kept(tmp_path) == []
        assert (await agent.run("Hi")).text == "Hello."
        assert len(kept(tmp_path)) == 1
        assert len(server.requests) == 3


@pytest.mark.parametrize("content", [b"", b"{", b'{"version":1,"model":"m","pieces":[]}'])
async def test_a_damaged_file_is_a_reply_that_is_not_there(content: bytes, tmp_path: Path) -> None:
    await Agent(CachedModel(scripted("One."), tmp_path)).run("Hi")
    (path,) = kept(tmp_path)
    path.write_bytes(content)
    assert (await Agent(CachedModel(scripted("Two."), tmp_path)).run("Hi")).text == "Two."
    assert (await Agent(CachedModel(scripted(), tmp_path)).run("Hi")).text == "Two."


async def test_nobody_else_can_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "replies"
    await Agent(CachedModel(scripted("One."), folder)).run("Hi")
    (path,) = kept(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="cannot be made"):
        CachedModel(scripted(), tmp_path / "file" / "replies")


def test_it_is_off_unless_the_environment_names_a_folder(tmp_path: Path) -> None:
    models = [scripted()]
    assert cache_replies(models, {}) is models
    (cached,) = cache_replies(models, {"WINDLASS_REPLY_CACHE": str(tmp_path)})
    assert isinstance(cached, CachedModel)
    assert not may_come_from_dotenv("WINDLASS_REPLY_CACHE")
