"""The tools of an agent, as the loop sees them: every call comes back as one result.

The law: a failing tool is a result. `run` raises only when it is cancelled.
"""

import asyncio
import copy
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, final

from windlass.core.errors import ConfigError
from windlass.core.messages import ToolResult, ToolSpec
from windlass.core.moves import ClearedCall
from windlass.core.suggestions import suggest_names
from windlass.logs import get_logger
from windlass.ports import CallContext, CallerRun, ReconcileOutcome
from windlass.tools.annotations import ArgumentMismatch
from windlass.tools.artifacts import (
    ArtifactStore,
    JournalArtifacts,
    MemoryArtifacts,
    build_artifact_reader,
)
from windlass.tools.breaker import CircuitBreaker, EndpointVerdict
from windlass.tools.function import NOT_DONE, UNKNOWN, Tool, ToolFunction, as_tool
from windlass.tools.outcomes import (
    breaker_verdict,
    build_result,
    circuit_open_text,
    is_worth_retrying,
)
from windlass.tools.profile import Profile
from windlass.tools.results import clip_result
from windlass.tools.run_context import RunContext
from windlass.tools.tries import (
    AttemptOutcome,
    ToolAttempt,
    ToolRaised,
    ToolReturned,
    ToolStopped,
    ToolTimedOut,
)

STOP_GRACE_S = 2.0
"""How long a tool that was told to stop may take over it."""
RETRY_BACKOFF_S = 0.5
"""The wait before the second try; it doubles from there."""

_log = get_logger(__name__)


@final
class Toolbox:
    """Runs tools: converts arguments, bounds time and size, tries again where that is safe."""

    def __init__(
        self,
        tools: Sequence[Tool[..., Any] | ToolFunction] = (),
        *,
        deps: object = None,
        profile: Profile | None = None,
        artifacts: ArtifactStore | None = None,
        grace: float = STOP_GRACE_S,
        breaker: Callable[[], CircuitBreaker] = CircuitBreaker,
    ) -> None:
        chosen = [as_tool(given) for given in tools]
        self._artifacts = MemoryArtifacts() if artifacts is None else artifacts
        self._given_artifacts = artifacts
        # A model that may be shown a clipped result must be able to read the rest, and what is
        # offered is fixed for a run: so it is offered from the start, or never.
        if not all(tool.has_short_result for tool in chosen):
            chosen.append(build_artifact_reader(self._artifacts))
        _check_unique_names(chosen)
        chosen = (profile or Profile()).select_tools(chosen)
        self._tools = {tool.name: tool for tool in chosen}
        self._specs = tuple(tool.spec for tool in chosen)
        self._deps = deps
        self._stop_grace_s = grace
        self._breakers = {tool.endpoint: breaker() for tool in chosen}

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return self._specs

    @property
    def tools(self) -> tuple[Tool[..., Any], ...]:
        return tuple(self._tools.values())

    def bind_run(self, run: CallerRun) -> "Toolbox":
        """Return the same tools for one run: tools of sub-agents get the run that they work for."""
        bound = {
            name: replace(tool, function=tool.bind_run(run))
            for name, tool in self._tools.items()
            if tool.bind_run is not None
        }
        if not bound:
            return self
        other = copy.copy(self)
        other._tools = {**self._tools, **bound}  # noqa: SLF001 - a copy of our own
        return other

    def with_deps(self, deps: object) -> "Toolbox":
        """The same tools for other dependencies; breakers and artifacts are shared."""
        other = copy.copy(self)
        other._deps = deps  # noqa: SLF001 - a copy of our own
        return other

    def resource_of(self, name: str, arguments: Mapping[str, Any]) -> str | None:
        tool = self._tools.get(name)
        return None if tool is None else tool.find_resource(arguments)

    async def run(self, cleared: ClearedCall, context: CallContext) -> ToolResult:
        """Run a call to its one result.

        A cancel is raised again once the tool has stopped or its grace is over, unless the tool
        returns a value all the same: then that comes back, in a result of kind `cancelled`.
        """
        name = cleared.call.name
        tool = self._tools.get(name)
        if tool is None:
            return ToolResult.from_text(
                "invalid", f"There is no tool {name!r}.{suggest_names(name, self._tools)}"
            )
        progress = ProgressRelay(context.report)
        try:
            result = await self._run_attempts(tool, cleared, context, progress)
        finally:
            progress.close()
        return await self._clip_result(result, context)

    async def _run_attempts(
        self,
        tool: Tool[..., Any],
        cleared: ClearedCall,
        context: CallContext,
        progress: "ProgressRelay",
    ) -> ToolResult:
        """Try for as long as it may help, within the one time that a call has."""
        loop = asyncio.get_running_loop()
        until = None if tool.timeout_s is None else loop.time() + tool.timeout_s
        tries_max = 1 + (tool.retries if cleared.repeatable and tool.spec.effect != "write" else 0)
        attempt = 1
        while True:
            this = self._build_context(cleared, context, progress, attempt)
            left = None if until is None else until - loop.time()
            ended = await self._run_attempt(tool, cleared, context, this, left)
            if isinstance(ended, ToolResult):
                return ended
            wait_s = RETRY_BACKOFF_S * 2 ** (attempt - 1)
            out_of_time = until is not None and loop.time() + wait_s >= until
            if not is_worth_retrying(ended) or attempt >= tries_max or out_of_time:
                return build_result(tool, ended, attempt)
            await asyncio.sleep(wait_s)
            attempt += 1

    async def _run_attempt(
        self,
        tool: Tool[..., Any],
        cleared: ClearedCall,
        context: CallContext,
        run_context: RunContext[Any],
        seconds_left: float | None,
    ) -> AttemptOutcome | ToolResult:
        """Try once, if the breaker lets it through."""

        def on_late_result(ended: ToolReturned) -> None:
            context.on_late_result(build_result(tool, ended, 1))

        try:
            places, names = tool.signature.bind_arguments(cleared.arguments, run_context)
        except ArgumentMismatch as misfit:
            return ToolResult.from_text("error", f"{tool.name}: the arguments do not fit. {misfit}")
        loop, breaker = asyncio.get_running_loop(), self._breakers[tool.endpoint]
        passed = breaker.admit(loop.time())
        if passed is None:
            told = circuit_open_text(tool, breaker.wait_s(loop.time()))
            return ToolResult.from_text("error", told, outage=True)
        verdict: EndpointVerdict = "nothing"
        try:
            job = partial(tool.function, *places, **names)
            attempt = ToolAttempt(job, tool.name, run_context.stopping, on_late_result)
            ended = await attempt.run(seconds_left, self._stop_grace_s)
            verdict = breaker_verdict(ended)
            return ended
        finally:
            breaker.record_outcome(passed, verdict, loop.time())

    def _build_context(
        self, cleared: ClearedCall, context: CallContext, progress: "ProgressRelay", attempt: int
    ) -> RunContext[Any]:
        return RunContext(
            deps=self._deps,
            session_id=context.session,
            run=context.run,
            call_id=cleared.call.id,
            tool_name=cleared.call.name,
            idempotency_key=cleared.key,
            attempt=attempt,
            report=progress,
            call=context,
        )

    async def _clip_result(self, result: ToolResult, context: CallContext) -> ToolResult:
        async def keep_whole_text(text: str) -> str | None:
            if "read_artifact" not in self._tools:
                return None
            try:
                return await self._artifact_store(context).store_text(context.session, text)
            except Exception:  # noqa: BLE001 - a result that is clipped is still a result
                _log.exception("a long result could not be kept whole")
                return None

        return await clip_result(result, keep_whole_text, hide=context.mask_text)

    def _artifact_store(self, context: CallContext) -> ArtifactStore:
        """Where the developer said, else with the session if that can be, else in memory."""
        if self._given_artifacts is not None:
            return self._given_artifacts
        return self._artifacts if context.blobs is None else JournalArtifacts(context.blobs)

    def recover(self) -> Sequence[str]:
        """End what a dead process left behind; what it was, in words."""
        return [line for tool in self._tools.values() if tool.recover for line in tool.recover()]

    async def reconcile(self, cleared: ClearedCall, context: CallContext) -> ReconcileOutcome:
        """Ask the tool what became of an interrupted call. Whatever goes wrong, it is unknown."""
        tool = self._tools.get(cleared.call.name)
        if tool is None or tool.reconcile is None:
            return "unknown"
        progress = ProgressRelay(context.report)
        this = self._build_context(cleared, context, progress, 1)
        try:
            job = partial(
                tool.reconcile, this, **tool.signature.convert_arguments(cleared.arguments)
            )
            attempt = ToolAttempt(job, f"{tool.name} (reconcile)", this.stopping)
            ended = await attempt.run(tool.timeout_s, self._stop_grace_s)
        except ArgumentMismatch as misfit:
            ended = ToolRaised(misfit)
        finally:
            progress.close()
        match ended:
            case ToolReturned(value) if value is NOT_DONE:
                return "not_done"
            case ToolReturned(value) if value is None or value is UNKNOWN:
                return "unknown"
            case ToolReturned():
                return await self._clip_result(build_result(tool, ended, 1), context)
            case ToolRaised(error):
                _log.warning("the reconcile of tool %s failed", tool.name, exc_info=error)
                return "unknown"
            case ToolTimedOut() | ToolStopped():
                return "unknown"


class ProgressRelay:
    """Passes a tool's reports on, from any thread, until the call is over."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._open = True

    def __call__(self, text: str) -> None:
        if threading.get_ident() == self._loop_thread:
            self._relay_report(text)
            return
        with suppress(RuntimeError):  # The loop is closed: nobody can listen any more.
            self._loop.call_soon_threadsafe(self._relay_report, text)

    def _relay_report(self, text: str) -> None:
        if self._open:
            self._report(text)

    def close(self) -> None:
        self._open = False


def _check_unique_names(tools: Sequence[Tool[..., Any]]) -> None:
    known: dict[str, Tool[..., Any]] = {}
    for tool in tools:
        if tool in known.values():
            raise ConfigError(f"the tool {tool.name!r} is given twice: leave one out")
        other = known.setdefault(tool.name, tool)
        if other is not tool:
            raise ConfigError(
                f"two tools are called {tool.name!r}: {other.source} and {tool.source}; "
                "give one of them another name="
            )
