"""The tools of an agent, as the loop sees them: every call returns one result.

Invariant: a tool that fails has a result too. `run` raises only when it is cancelled.
"""

import asyncio
import copy
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, final

from windlass.core.errors import ConfigError
from windlass.core.messages import ToolResult, ToolSpec
from windlass.core.moves import ClearedCall
from windlass.core.setup import ARTIFACT_READER
from windlass.core.suggestions import suggest_names
from windlass.core.verdicts import CallPreview
from windlass.logs import get_logger
from windlass.ports import CallContext, CallerRun, ReconcileOutcome
from windlass.tools.artifacts import (
    ArtifactStore,
    JournalArtifacts,
    MemoryArtifacts,
    build_artifact_reader,
)
from windlass.tools.attempts import (
    AttemptOutcome,
    ToolAttempt,
    ToolRaised,
    ToolReturned,
    ToolStopped,
    ToolTimedOut,
)
from windlass.tools.breaker import CircuitBreaker, EndpointVerdict, is_unavailable
from windlass.tools.call_changes import build_undo_tool, preview_call, take_snapshot
from windlass.tools.function import NOT_DONE, UNKNOWN, Tool, ToolFunction, as_tool, bind_tool
from windlass.tools.outcomes import (
    breaker_verdict,
    build_result,
    build_result_off_loop,
    circuit_open_text,
    log_tool_error,
    raise_program_exit,
)
from windlass.tools.process_calls import call_in_process
from windlass.tools.results import clip_result
from windlass.tools.run_context import ProgressRelay, RunContext
from windlass.tools.schemas import ArgumentMismatch
from windlass.tools.search import Profile, build_search_tools

STOP_GRACE_S = 2.0
"""How long a tool that was asked to stop may take to do so."""
RETRY_BACKOFF_S = 0.5
"""The wait before the second attempt. It doubles before each further one."""

_log = get_logger(__name__)


@final
class Toolbox:
    """Runs tools: converts arguments, limits time and size, and retries where that is safe.

    Args:
        tools: The tools, or plain functions.
        deps: What `RunContext.deps` is in a call.
        profile: Which of the tools are offered; all by default.
        artifacts: Where results are stored that are too long to show. By default in the journal if
            it can store blobs, otherwise in memory.
        grace: Seconds that a tool gets to stop after a cancel or a time-out.
        breaker: Makes the circuit breaker of each endpoint.

    Raises:
        ConfigError: Two tools have the same name, or the profile does not fit.
    """

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
        # A model that gets a clipped result must be able to read the rest. `read_artifact` is one
        # of the tools from the start, and the model is shown it once there is something to read.
        if not all(tool.has_short_result for tool in chosen):
            chosen.append(build_artifact_reader(self._artifacts))
        _check_unique_names(chosen)
        chosen = (profile or Profile()).select_tools(chosen)
        self._tools = {tool.name: tool for tool in chosen}
        self._specs = tuple(tool.spec for tool in chosen)
        self._deps = deps
        self._stop_grace_s = grace
        self._breakers = {tool.endpoint: breaker() for tool in chosen}
        undo_tools = [build_undo_tool(tool) for tool in chosen if tool.undo is not None]
        _check_unique_names([*chosen, *undo_tools])
        self._undo_tools = {tool.name: tool for tool in undo_tools}
        self._run: CallerRun | None = None
        """The run that these tools work for, if they are bound to one."""

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """What the model sees of each tool."""
        return self._specs

    @property
    def undo_specs(self) -> tuple[ToolSpec, ...]:
        """The tools that undo calls of others, which no model is offered."""
        return tuple(tool.spec for tool in self._undo_tools.values())

    def _find_tool(self, name: str, folder: Path | None = None) -> Tool[..., Any] | None:
        """Return a tool, for the run that it is bound to, or else for a folder; None if unknown.

        Raises WorkspaceMissing if the folder of the run is gone.
        """
        tool = self._tools.get(name) or self._undo_tools.get(name)
        if tool is None:
            return None
        if self._run is not None:
            return bind_tool(tool, self._run)
        return tool if folder is None or tool.bind_folder is None else tool.bind_folder(folder)

    @property
    def tools(self) -> tuple[Tool[..., Any], ...]:
        """The tools themselves."""
        return tuple(self._tools.values())

    def with_search(self) -> "Toolbox":
        """Return the same tools with the two that represent all of them: see `search.py`."""
        searched = [spec for spec in self._specs if not spec.needs_artifact]
        chosen = [*self._tools.values(), *build_search_tools(searched)]
        _check_unique_names(chosen)
        other = copy.copy(self)
        other._tools = {tool.name: tool for tool in chosen}  # noqa: SLF001 - a copy of our own
        other._specs = tuple(tool.spec for tool in chosen)  # noqa: SLF001 - as above
        new = {tool.endpoint: CircuitBreaker() for tool in chosen}
        other._breakers = {**new, **self._breakers}  # noqa: SLF001 - as above
        return other

    @property
    def nested_specs(self) -> tuple[ToolSpec, ...]:
        """The tools that the code of another tool can call."""
        return tuple(
            tool.spec
            for tool in self._tools.values()
            if not tool.only_by_model and tool.bind_run is None and not tool.spec.needs_artifact
        )

    def bind_run(self, run: CallerRun) -> "Toolbox":
        """Return the same tools for one run.

        Those of sub-agents get the run that they work for, and those that work in a folder use the
        one that the run recorded.
        """
        if all(tool.bind_run is None and tool.bind_folder is None for tool in self.tools):
            return self
        other = copy.copy(self)
        other._run = run  # noqa: SLF001 - a copy of our own
        return other

    def with_deps(self, deps: object) -> "Toolbox":
        """Return the same tools with other dependencies; breakers and artifacts are shared."""
        other = copy.copy(self)
        other._deps = deps  # noqa: SLF001 - a copy of our own
        return other

    def check_deps(self) -> None:
        """Raise ConfigError if the deps are not what a tool's `RunContext[…]` says."""
        for tool in self._tools.values():
            wanted = tool.signature.deps_type
            if wanted is not None and not isinstance(self._deps, wanted):
                raise ConfigError(
                    f"tool {tool.name!r} needs deps of type {wanted.__name__}, but they are "
                    f"{type(self._deps).__name__}: pass Toolbox(tools, deps=…)"
                )

    def resource_of(self, name: str, arguments: Mapping[str, Any]) -> str | None:
        tool = self._find_tool(name)
        return None if tool is None else tool.find_resource(arguments)

    async def preview(
        self,
        name: str,
        arguments: Mapping[str, Any],
        chain: Sequence[str] = (),
        folder: Path | None = None,
    ) -> CallPreview | None:
        """Return what a call would change if it ran now; None if its tool does not say."""
        if chain:
            below = [tool.team for tool in self._tools.values() if chain[0] in tool.team]
            # Two tools may know an agent of this name, and it is unknown which of them asks.
            if len(below) != 1:
                return None
            return await below[0][chain[0]](name, arguments, chain[1:], folder)
        tool = self._find_tool(name, folder)
        return None if tool is None else await preview_call(tool, arguments)

    async def take_snapshot(self, cleared: ClearedCall, context: CallContext) -> str:
        """Return what must be known to undo a call that is about to run; empty if nothing."""
        tool = self._find_tool(cleared.call.name)
        if tool is None or tool.snapshot is None:
            return ""
        progress = ProgressRelay(context.report)
        return await take_snapshot(
            tool, cleared, self._build_context(cleared, context, progress, 1)
        )

    async def run(self, cleared: ClearedCall, context: CallContext) -> ToolResult:
        """Run a call, and return its one result.

        A cancel is raised again once the tool has stopped or its grace is over. If the tool returns
        a value in the meantime, the value is returned in a result of kind `cancelled` instead.
        Raises KeyboardInterrupt or SystemExit if the tool did.
        """
        name = cleared.call.name
        tool = self._find_tool(name)
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
        progress: ProgressRelay,
    ) -> ToolResult:
        """Run attempts while a retry may help. All of them share the timeout of the call."""
        loop = asyncio.get_running_loop()
        until = math.inf
        if tool.timeout_s is not None:
            until = loop.time() + tool.timeout_s
        attempts_max = 1
        # The tool may be another one than when the call was recorded: both must be repeatable.
        if cleared.repeatable and tool.spec.effect != "write":
            attempts_max += tool.retries
        attempt = 1
        while True:
            run_context = self._build_context(cleared, context, progress, attempt)
            seconds_left = None if until == math.inf else until - loop.time()
            outcome = await self._run_attempt(tool, cleared, context, run_context, seconds_left)
            if isinstance(outcome, ToolResult):
                return outcome
            if isinstance(outcome, ToolReturned):
                return await build_result_off_loop(tool, outcome, attempt)
            raise_program_exit(outcome)
            wait_s = RETRY_BACKOFF_S * 2 ** (attempt - 1)
            may_work_later = isinstance(outcome, ToolRaised) and is_unavailable(outcome.error)
            is_out_of_time = loop.time() + wait_s >= until
            if not may_work_later or attempt >= attempts_max or is_out_of_time:
                return await build_result_off_loop(tool, outcome, attempt)
            await asyncio.sleep(wait_s)
            if not await context.still_driving():
                return await build_result_off_loop(tool, outcome, attempt)
            attempt += 1

    async def _run_attempt(
        self,
        tool: Tool[..., Any],
        cleared: ClearedCall,
        context: CallContext,
        run_context: RunContext[Any],
        seconds_left: float | None,
    ) -> AttemptOutcome | ToolResult:
        """Run one attempt, if the breaker admits it.

        Returns a result if it could not begin: the arguments do not match, or the breaker is open.
        """
        on_late_result = partial(_report_late_result, tool, context)
        try:
            positional, named = tool.signature.bind_arguments(cleared.arguments, run_context)
        except ArgumentMismatch as mismatch:
            text = f"The arguments do not match the parameters of {tool.name}. {mismatch}"
            return ToolResult.from_text("error", text)
        loop = asyncio.get_running_loop()
        breaker = self._breakers[tool.endpoint]
        admission = breaker.admit(loop.time())
        if admission is None:
            text = circuit_open_text(tool, breaker.wait_s(loop.time()))
            return ToolResult.from_text("error", text, outage=True)
        verdict: EndpointVerdict = "nothing"
        try:
            job = partial(tool.function, *positional, **named)
            if tool.address is not None:
                job = partial(call_in_process, tool.address, cleared.arguments)
            on_blocked = partial(_report_blocking, run_context)
            told = (run_context.stopping, on_late_result, on_blocked, context.keep_leftover)
            attempt = ToolAttempt(job, tool.name, *told)
            outcome = await attempt.run(seconds_left, self._stop_grace_s)
            verdict = breaker_verdict(outcome)
            return outcome
        finally:
            # Also after a cancel: an admission that is never settled would block the next probe.
            breaker.record_outcome(admission, verdict, loop.time())

    def _build_context(
        self, cleared: ClearedCall, context: CallContext, progress: ProgressRelay, attempt: int
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
            loop=asyncio.get_running_loop(),
        )

    async def _clip_result(self, result: ToolResult, context: CallContext) -> ToolResult:
        async def store_whole_text(text: str) -> str | None:
            if ARTIFACT_READER not in self._tools:
                return None
            store = self._artifacts
            if self._given_artifacts is None and context.blobs is not None:
                store = JournalArtifacts(context.blobs)
            try:
                return await store.store_text(context.session, text)
            except Exception:  # noqa: BLE001 - the clipped result is still useful
                _log.exception("a long result could not be stored")
                return None

        return await clip_result(result, store_whole_text, mask=context.mask_text)

    def recover(self) -> Sequence[str]:
        """End what a dead process left running, and return a line about each."""
        tools = filter(None, map(self._find_tool, self._tools))
        return [line for tool in tools if tool.recover for line in tool.recover()]

    async def reconcile(self, cleared: ClearedCall, context: CallContext) -> ReconcileOutcome:
        """Ask the tool whether an interrupted call took effect. An error means "unknown"."""
        tool = self._find_tool(cleared.call.name)
        if tool is None or tool.reconcile is None:
            return "unknown"
        progress = ProgressRelay(context.report)
        run_context = self._build_context(cleared, context, progress, 1)
        try:
            arguments = tool.signature.convert_arguments(cleared.arguments)
            job = partial(tool.reconcile, run_context, **arguments)
            attempt = ToolAttempt(job, f"{tool.name} (reconcile)", run_context.stopping)
            outcome = await attempt.run(tool.timeout_s, self._stop_grace_s)
        except ArgumentMismatch as mismatch:
            outcome = ToolRaised(mismatch)
        finally:
            progress.close()
        raise_program_exit(outcome)
        match outcome:
            case ToolReturned(value) if value is NOT_DONE:
                return "not_done"
            case ToolReturned(value) if value is None or value is UNKNOWN:
                return "unknown"
            case ToolReturned():
                result = await build_result_off_loop(tool, outcome, 1)
                return await self._clip_result(result, context)
            case ToolRaised(error):
                log_tool_error(tool.name, "failed to reconcile", error)
                return "unknown"
            case ToolTimedOut() | ToolStopped():
                return "unknown"


def _report_blocking(context: RunContext[Any], seconds: float) -> None:
    context.report(f"[{context.tool_name} blocked the event loop for {seconds:.1f} s]")


def _report_late_result(tool: Tool[..., Any], context: CallContext, late: ToolReturned) -> None:
    context.on_late_result(build_result(tool, late, 1))


def _check_unique_names(tools: Sequence[Tool[..., Any]]) -> None:
    by_name: dict[str, Tool[..., Any]] = {}
    for tool in tools:
        other = by_name.get(tool.name)
        if other is tool:
            raise ConfigError(f"the tool {tool.name!r} is given twice: leave one out")
        if other is not None:
            raise ConfigError(
                f"two tools are called {tool.name!r}: {other.source} and {tool.source}; "
                "give one of them another name="
            )
        by_name[tool.name] = tool
