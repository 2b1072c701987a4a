"""Workers that are processes, and a provider that limits them: no storm, and every run ends."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from proof.fleet.app import AGENT, CALLS
from proof.fleet.effects import EffectService
from proof.fleet.provider import FleetProvider, write_prompt
from windlass.core.events import AttemptFailed, Fact, RunEnded
from windlass.core.mail import PromptMail
from windlass.core.messages import TextPart
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing.fault_server import serve_in_thread

pytestmark = [pytest.mark.realtime, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
RUNS = 24
REQUESTS_PER_S = 25.0
WAIT_S = 80.0


@contextmanager
def worker(journal: Path, effects: Path, url: str, name: str) -> Iterator[None]:
    command = [sys.executable, "-m", "windlass.cli", "worker", "proof.fleet.app:agents"]
    environ = {"FLEET_PROVIDER": url, "FLEET_EFFECTS": str(effects), "FLEET_WORKER": name}
    process = subprocess.Popen(
        [*command, "--journal", str(journal), "--sweep", "0.2"],
        env={**os.environ, **environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with process:
        try:
            yield
        finally:
            process.kill()


@pytest.mark.contract("F1")
@pytest.mark.timeout(180)
async def test_a_rate_limit_never_becomes_a_storm(tmp_path: Path) -> None:
    """F1: two workers, many runs, and a limit far below what they want: hardly any refusal."""
    effects = tmp_path / "effects"
    effects.mkdir()
    provider = FleetProvider(latency_s=0.01, requests_per_s=REQUESTS_PER_S)
    sessions = [f"s{number}" for number in range(RUNS)]
    with ExitStack() as stack:
        server = stack.enter_context(serve_in_thread(provider.server))
        journal = stack.enter_context(SqliteJournal(tmp_path / "s.db"))
        for session in sessions:
            prompt = (TextPart(write_prompt(session)),)
            await journal.post_mail(session, PromptMail(prompt=prompt, agent=AGENT))
        for name in ("w1", "w2"):
            stack.enter_context(worker(tmp_path / "s.db", effects, server.url, name))
        facts: dict[str, list[Fact]] = {}
        async with asyncio.timeout(WAIT_S):
            while len(facts) < RUNS:
                await asyncio.sleep(0.2)
                for session in sessions:
                    found = list(await journal.read(session))
                    if found and isinstance(found[-1], RunEnded):
                        facts[session] = found
        assert await journal.list_records("provider-quota") != []
    assert {
        str(found[-1].outcome) for found in facts.values() if isinstance(found[-1], RunEnded)
    } == {"completed"}
    assert provider.limits.accepted == RUNS * (CALLS + 1)
    # Before the first response each worker knows nothing; after it, nearly nobody is refused.
    assert provider.limits.rejected <= provider.limits.accepted // 10
    failures = [
        fact for found in facts.values() for fact in found if isinstance(fact, AttemptFailed)
    ]
    assert len(failures) == provider.limits.rejected
    done = [line for session in sessions for line in EffectService(effects, session).read()]
    assert len({line.key for line in done}) == RUNS * CALLS
