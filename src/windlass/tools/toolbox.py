"""The tools of an agent, as the loop sees them: every call comes back as one result.

The law: a failing tool is a result. `run` raises only when it is cancelled.
"""

import asyncio
import copy
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, final

from windlass.core.errors import ConfigError
from windlass.core.messages import Result, ToolSpec
from windlass.core.moves import Cleared
from windlass.core.suggestions import did_you_mean
from windlass.logs import logger
from windlass.ports import CallContext, Reconciled
from windlass.tools.annotations import Misfit
from windlass.tools.artifacts import Artifacts, KeptArtifacts, MemoryArtifacts, reader
from windlass.tools.breaker import Breaker, Verdict
from windlass.tools.function import NOT_DONE, UNKNOWN, Function, Tool, as_tool
from windlass.tools.outcomes import circuit_open, may_help, result_of, verdict_on
from windlass.tools.profile import Profile
from windlass.tools.results import clipped
from windlass.tools.run_context import RunContext
from windlass.tools.tries import Attempt, Ended, Expired, Raised, Returned, Stopped

GRACE_S = 2.0
"""How long a tool that was told to stop may take over it."""
BACKOFF_S = 0.5
"""The wait before the second try; it doubles from there."""

_log = logger(__name__)


@final
class Toolbox:
    """Runs tools: converts arguments, bounds time and size, tries again where that is safe."""

    def __init__(
        self,
        tools: Sequence[Tool[..., Any] | Function] = (),
        *,
        deps: object = None,
        profile: Profile | None = None,
        artifacts: Artifacts | None = None,
        grace: float = GRACE_S,
        breaker: Callable[[], Breaker] = Breaker,
    ) -> None:
        chosen = [as_tool(given) for given in tools]
        self._artifacts = MemoryArtifacts() if artifacts is None else artifacts
        self._given_artifacts = artifacts
        # A model that may be shown a clipped result must be able to read the rest, and what is
        # offered is fixed for a run: so it is offered from the start, or never.
        if not all(tool.answers_short for tool in chosen):
            chosen.append(reader(self._artifacts))
        _check_names(chosen)
        chosen = (profile or Profile()).select(chosen)
        self._tools = {tool.name: tool for tool in chosen}
        self._specs = tuple(tool.spec for tool in chosen)
        self._deps = deps
        self._grace_s = grace
        self._breakers = {tool.endpoint: breaker() for tool in chosen}

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return self._specs

    @property
    def tools(self) -> tuple[Tool[..., Any], ...]:
        return tuple(self._tools.values())

    def with_deps(self, deps: object) -> "Toolbox":
        """The same tools for other dependencies; breakers and artifacts are shared."""
        other = copy.copy(self)
        other._deps = deps  # noqa: SLF001 - a copy of our own
        return other

    def resource(self, name: str, arguments: Mapping[str, Any]) -> str | None:
        tool = self._tools.get(name)
        return None if tool is None else tool.resource_of(arguments)

    async def run(self, cleared: Cleared, context: CallContext) -> Result:
        """Run a call to its one result.

        A cancel is raised again once the tool has stopped or its grace is over, unless the tool
        returns a value all the same: then that comes back, in a result of kind `cancelled`.
        """
        name = cleared.call.name
        tool = self._tools.get(name)
        if tool is None:
            return Result.say(
                "invalid", f"There is no tool {name!r}.{did_you_mean(name, self._tools)}"
            )
        progress = Progress(context.report)
        try:
            result = await self._tries(tool, cleared, context, progress)
        finally:
            progress.close()
        return await self._fitted(result, context)

    async def _tries(
        self, tool: Tool[..., Any], cleared: Cleared, context: CallContext, progress: "Progress"
    ) -> Result:
        """Try for as long as it may help, within the one time that a call has."""
        loop = asyncio.get_running_loop()
        until = None if tool.timeout_s is None else loop.time() + tool.timeout_s
        tries_max = 1 + (tool.retries if cleared.repeatable and tool.spec.effect != "write" else 0)
        attempt = 1
        while True:
            this = self._context(cleared, context, progress, attempt)
            left = None if until is None else until - loop.time()
            ended = await self._try(tool, cleared, context, this, left)
            if isinstance(ended, Result):
                return ended
            wait_s = BACKOFF_S * 2 ** (attempt - 1)
            out_of_time = until is not None and loop.time() + wait_s >= until
            if not may_help(ended) or attempt >= tries_max or out_of_time:
                return result_of(tool, ended, attempt)
            await asyncio.sleep(wait_s)
            attempt += 1

    async def _try(
        self,
        tool: Tool[..., Any],
        cleared: Cleared,
        context: CallContext,
        this: RunContext[Any],
        left: float | None,
    ) -> Ended | Result:
        """Try once, if the breaker lets it through."""

        def late(ended: Returned) -> None:
            context.late(result_of(tool, ended, 1))

        try:
            places, names = tool.signature.bind(cleared.arguments, this)
        except Misfit as misfit:
            return Result.say("error", f"{tool.name}: the arguments do not fit. {misfit}")
        loop, breaker = asyncio.get_running_loop(), self._breakers[tool.endpoint]
        passed = breaker.admit(loop.time())
        if passed is None:
            told = circuit_open(tool, breaker.wait_s(loop.time()))
            return Result.say("error", told, outage=True)
        verdict: Verdict = "nothing"
        try:
            job = partial(tool.function, *places, **names)
            attempt = Attempt(job, tool.name, this.stopping, late)
            ended = await attempt.run(left, self._grace_s)
            verdict = verdict_on(ended)
            return ended
        finally:
            breaker.settle(passed, verdict, loop.time())

    def _context(
        self, cleared: Cleared, context: CallContext, progress: "Progress", attempt: int
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

    async def _fitted(self, result: Result, context: CallContext) -> Result:
        async def keep(text: str) -> str | None:
            if "read_artifact" not in self._tools:
                return None
            try:
                return await self._store(context).keep(context.session, text)
            except Exception:  # noqa: BLE001 - a result that is clipped is still a result
                _log.exception("a long result could not be kept whole")
                return None

        return await clipped(result, keep, hide=context.hide)

    def _store(self, context: CallContext) -> Artifacts:
        """Where the developer said, else with the session if that can be, else in memory."""
        if self._given_artifacts is not None:
            return self._given_artifacts
        return self._artifacts if context.blobs is None else KeptArtifacts(context.blobs)

    def recover(self) -> Sequence[str]:
        """End what a dead process left behind; what it was, in words."""
        return [line for tool in self._tools.values() if tool.recover for line in tool.recover()]

    async def reconcile(self, cleared: Cleared, context: CallContext) -> Reconciled:
        """Ask the tool what became of an interrupted call. Whatever goes wrong, it is unknown."""
        tool = self._tools.get(cleared.call.name)
        if tool is None or tool.reconcile is None:
            return "unknown"
        progress = Progress(context.report)
        this = self._context(cleared, context, progress, 1)
        try:
            job = partial(tool.reconcile, this, **tool.signature.values(cleared.arguments))
            attempt = Attempt(job, f"{tool.name} (reconcile)", this.stopping)
            ended = await attempt.run(tool.timeout_s, self._grace_s)
        except Misfit as misfit:
            ended = Raised(misfit)
        finally:
            progress.close()
        match ended:
            case Returned(value) if value is NOT_DONE:
                return "not_done"
            case Returned(value) if value is None or value is UNKNOWN:
                return "unknown"
            case Returned():
                return await self._fitted(result_of(tool, ended, 1), context)
            case Raised(error):
                _log.warning("the reconcile of tool %s failed", tool.name, exc_info=error)
                return "unknown"
            case Expired() | Stopped():
                return "unknown"


class Progress:
    """Passes a tool's reports on, from any thread, until the call is over."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._home = threading.get_ident()
        self._open = True

    def __call__(self, text: str) -> None:
        if threading.get_ident() == self._home:
            self._pass_on(text)
            return
        with suppress(RuntimeError):  # The loop is closed: nobody can listen any more.
            self._loop.call_soon_threadsafe(self._pass_on, text)

    def _pass_on(self, text: str) -> None:
        if self._open:
            self._report(text)

    def close(self) -> None:
        self._open = False


def _check_names(tools: Sequence[Tool[..., Any]]) -> None:
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
