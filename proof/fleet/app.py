"""The agents of a fleet's workers: `windlass worker proof.fleet.app:agents`.

Each run makes some calls, one after the other, and each call has one effect outside. The provider
is a server of the campaign. What differs from worker to worker comes from the environment.
"""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from typing_extensions import override

from proof.fleet.effects import EffectService
from windlass import NOT_DONE, Agent, Limits, ModelOptions, RunContext, tool
from windlass.ports import Clock
from windlass.runtime.recorder import RealClock

AGENT = "clerk"
CALLS = 5
CALL_S = 0.05
WRITTEN = "written"


class SteppedClock(RealClock):
    """The clock of a machine that is wrong, and is set again now and then."""

    def __init__(self, offset_s: float) -> None:
        self._offset_s = offset_s
        self._since = time.monotonic()

    @override
    def now(self) -> float:
        # Every five seconds it jumps between right and wrong.
        is_wrong = int(time.monotonic() - self._since) // 5 % 2 == 0
        return super().now() + (self._offset_s if is_wrong else 0.0)


def build_agent(
    *,
    url: str,
    effects: Path,
    worker: str,
    version: str = "1",
    clock: Clock | None = None,
    journal: Any = None,  # noqa: ANN401 - whatever an agent takes
) -> Agent[str]:
    """Build the agent of a worker. Its version is in its instructions, as after an upgrade."""

    def was_written(context: RunContext, number: int) -> Any:  # noqa: ANN401, ARG001 - for `reconcile`
        service = EffectService(effects, context.session_id)
        found = service.find(context.idempotency_key, context.fencing_token, worker)
        return WRITTEN if found else NOT_DONE

    @tool(effect="write", reconcile=was_written)
    async def note(context: RunContext, number: int) -> str:  # noqa: ARG001 - it tells calls apart
        """Write a line."""
        # A worker may be stopped here for seconds, and be replaced meanwhile.
        await asyncio.sleep(CALL_S)
        service = EffectService(effects, context.session_id)
        if not service.perform(context.idempotency_key, context.fencing_token, worker):
            raise RuntimeError("another driver has this session")
        await asyncio.sleep(CALL_S)
        return WRITTEN

    return Agent(
        "openai-compatible:fleet",
        name=AGENT,
        base_url=url,
        key="no-key-is-needed",
        options=ModelOptions(extra_headers={"x-worker": worker}),
        instructions=f"You are a clerk, version {version}.",
        tools=[note],
        clock=clock,
        journal=journal,
        limits=Limits(seconds=None),
    )


def build_from_environment() -> list[Agent[str]]:
    """Build what the campaign asks of this worker."""
    environ = os.environ
    offset_s = float(environ.get("FLEET_CLOCK_OFFSET_S", "0"))
    agent = build_agent(
        url=environ["FLEET_PROVIDER"],
        effects=Path(environ["FLEET_EFFECTS"]),
        worker=environ["FLEET_WORKER"],
        version=environ.get("FLEET_VERSION", "1"),
        clock=SteppedClock(offset_s) if offset_s else None,
    )
    return [agent]


def __getattr__(name: str) -> list[Agent[str]]:
    # Only a worker has the environment, and only a worker asks for this name.
    if name == "agents":
        return build_from_environment()
    raise AttributeError(name)
