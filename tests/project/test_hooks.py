"""Hooks of installed packages: they observe and forbid, and break nothing."""

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from windlass import Agent, Allow, ConfigError, Deny, RunEnded, tool
from windlass.core.verdicts import Verdict
from windlass.gates import all_of, allow_all
from windlass.ports import GateRequest
from windlass.project import hooks
from windlass.project.hooks import HookGate, HookObserver, hook_gates, hook_observer, list_hooks
from windlass.project.settings import SETTING_KEYS
from windlass.testing import ScriptedModel, VirtualClock, call

PACKAGE = """
seen = []

def audit(session, event):
    seen.append((session, type(event).__name__))

class Closed:
    name = "closed"
    judges_replies = False
    async def judge(self, request):
        from windlass import Deny
        return Deny("The office is closed.")
    async def judge_reply(self, session, text):
        raise RuntimeError
"""
POINTS = """
[windlass_observers]
audit = office_hooks:audit
[windlass_gates]
closed = office_hooks:Closed
broken = office_hooks:missing
"""


@tool
def lift() -> str:
    """Lift."""
    return "up"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An installed package with hooks, as pip would leave it."""
    info = tmp_path / "office_hooks-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: office-hooks\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(POINTS)
    (tmp_path / "office_hooks.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(str(tmp_path))
    import office_hooks  # pyright: ignore[reportMissingImports] # noqa: PLC0415 - made above

    yield office_hooks
    import sys  # noqa: PLC0415

    del sys.modules["office_hooks"]


async def test_a_hook_sees_every_event_and_a_gate_forbids(package: Any) -> None:
    """G1: the strictest gate counts, so that a hook can only forbid more."""
    observer = hook_observer(["audit", "closed"])
    gate = all_of(allow_all(), *hook_gates(["audit", "closed"]))
    model = ScriptedModel([call("lift"), "It is closed."])
    agent = Agent(model, tools=[lift], gate=gate, telemetry=observer)
    result = await agent.run("Lift it.", session="s")
    assert result.text == "It is closed."
    assert isinstance(observer, HookObserver)
    observer.close()
    assert package.seen[-1] == ("s", "RunEnded")
    assert ("s", "CallJudged") in package.seen
    assert ("s", "CallStarted") not in package.seen


def test_only_named_hooks_are_loaded(package: Any) -> None:
    assert {(hook.name, hook.package) for hook in list_hooks()} >= {
        ("audit", "office-hooks 1.2"),
        ("closed", "office-hooks 1.2"),
    }
    assert hook_observer([]) is None
    assert list(hook_gates([])) == []
    assert SETTING_KEYS["hooks"].of_person


def test_a_gate_that_is_missing_or_broken_lets_nothing_start(package: Any) -> None:
    """G2."""
    with pytest.raises(ConfigError, match=r"no installed package provides a hook 'closd'.*closed"):
        list(hook_gates(["closd"]))
    with pytest.raises(ConfigError, match="cannot be loaded"):
        list(hook_gates(["broken"]))


class RaisingGate:
    name = "raising"
    judges_replies = False

    async def judge(self, request: GateRequest) -> Verdict:
        raise RuntimeError("no")

    async def judge_reply(self, session: str, text: str) -> Allow | Deny:
        raise RuntimeError("no")


class HangingGate(RaisingGate):
    @override
    async def judge(self, request: GateRequest) -> Verdict:
        await asyncio.sleep(3600)
        return Allow()

    @override
    async def judge_reply(self, session: str, text: str) -> Allow | Deny:
        return Allow()


@pytest.mark.contract("G2")
@pytest.mark.parametrize("make_gate", [RaisingGate, HangingGate])
async def test_a_gate_that_fails_denies(make_gate: Any, clock: VirtualClock) -> None:
    """G2: whether it raises or hangs."""
    gate = HookGate("x", make_gate)
    model = ScriptedModel([call("lift"), "No."])
    agent = Agent(model, tools=[lift], gate=gate, clock=clock)
    await agent.run("Lift it.")
    denied = model.prompts[1].messages[-1]
    assert "hook:x failed" in str(denied)
    if make_gate is RaisingGate:
        assert isinstance(await gate.judge_reply("s", "Hello."), Deny)


def test_a_gate_that_cannot_be_made_is_named() -> None:
    with pytest.raises(ConfigError, match="'x' makes no gate"):
        HookGate("x", lambda: 1 / 0)  # pyright: ignore[reportArgumentType]


async def test_an_observer_that_raises_hangs_or_is_slow_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """E1: what it misses is its own loss."""
    monkeypatch.setattr(hooks, "QUEUE_EVENTS_MAX", 3)
    monkeypatch.setattr(hooks, "CLOSE_S", 0.01)
    release = threading.Event()
    told: list[str] = []

    def raising(session: str, event: Any) -> None:
        told.append(type(event).__name__)
        raise RuntimeError("no")

    def hanging(session: str, event: Any) -> None:
        release.wait(20)

    observer = HookObserver([("raising", raising), ("hanging", hanging)])
    seen: list[Any] = []
    agent = Agent(ScriptedModel(["Hello."]), telemetry=observer)
    result = await agent.run("Hi", on_event=seen.append)
    observer.close()
    release.set()
    assert result.text == "Hello."
    assert isinstance(seen[-1], RunEnded)
    for _ in range(200):
        if told:
            break
        time.sleep(0.01)  # noqa: ASYNC251 - another thread is awaited
    assert told
