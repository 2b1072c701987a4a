"""Tools whose results come from the record of another session, for trials that were forked.

Invariant: no effect is repeated by accident. A call that changes something runs only if it is
allowed by name; else its result is the recorded one, if tool and arguments are the same, or it is
refused.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from windlass.core.errors import ConfigError
from windlass.core.messages import ToolResult, ToolSpec
from windlass.core.moves import ClearedCall
from windlass.core.setup import digest
from windlass.core.suggestions import suggest_names
from windlass.evaluation.cases import ForkPoint, ToolMode
from windlass.evaluation.records import TrialCall
from windlass.ports import CallContext, CallerRun, ReconcileOutcome, RunBoundTools, Tools

REFUSED = (
    "This call was not made: in this trial, only calls that are on record have a result, and this "
    "one is not. Go on without it."
)
_CallKey = tuple[str, str]


class ReplayedTools:
    """The tools of an agent in a forked trial."""

    def __init__(
        self,
        tools: Tools,
        recorded: Mapping[_CallKey, Sequence[ToolResult]],
        *,
        mode: ToolMode = "replay",
        allow: Collection[str] = (),
        done: Iterable[TrialCall] = (),
    ) -> None:
        """Wrap tools.

        Args:
            tools: those of the agent, which run what may run.
            recorded: the results on record, by tool and arguments, in order.
            mode: `replay` runs nothing, `live` runs what only reads, `refuse` answers nothing.
            allow: tools that change things and may still run, if the mode is `live`.
            done: the calls that the trial has made already, if a crash interrupted it.
        """
        self._tools = tools
        self._recorded = recorded
        self._mode: ToolMode = mode
        self._allow = frozenset(allow)
        # What was taken before a crash is not handed out a second time.
        self._taken = Counter(
            key_of(call.name, call.arguments)
            for call in done
            if call.ran and call.result is not None and call.result.kind != "unknown"
        )

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return self._tools.specs

    def resource_of(self, name: str, arguments: Mapping[str, Any]) -> str | None:
        return self._tools.resource_of(name, arguments)

    def bind_run(self, run: CallerRun) -> Tools:
        """Return the same tools for one run: a sub-agent is called only if it may run."""
        if isinstance(self._tools, RunBoundTools):
            self._tools = self._tools.bind_run(run)
        return self

    async def run(self, cleared: ClearedCall, context: CallContext) -> ToolResult:
        """Return the recorded result, run the tool, or refuse."""
        if self._may_run(cleared):
            return await self._tools.run(cleared, context)
        recorded = None if self._mode == "refuse" else self._take_result(cleared)
        return recorded or ToolResult.from_text("denied", REFUSED)

    async def reconcile(self, cleared: ClearedCall, context: CallContext) -> ReconcileOutcome:
        """Look up the result of a call that a crash interrupted."""
        if self._may_run(cleared):
            return await self._tools.reconcile(cleared, context)
        # Nothing was done: its result would have come from the record.
        return "not_done"

    def _may_run(self, cleared: ClearedCall) -> bool:
        if self._mode != "live":
            return False
        return cleared.spec.effect == "read" or cleared.spec.name in self._allow

    def _take_result(self, cleared: ClearedCall) -> ToolResult | None:
        key = key_of(cleared.spec.name, cleared.arguments)
        results = self._recorded.get(key, ())
        nth = self._taken[key]
        self._taken[key] += 1
        if nth < len(results):
            return results[nth]
        # Looking again shows the same; doing again would be a second effect.
        return results[-1] if results and cleared.spec.effect == "read" else None


def key_of(tool: str, arguments: Mapping[str, Any]) -> _CallKey:
    """Return what two calls share if they are the same."""
    return tool, digest(dict(arguments))


def record_results(calls: Iterable[TrialCall]) -> dict[_CallKey, list[ToolResult]]:
    """Return the results of calls by tool and arguments, in order.

    Calls that were denied or never ran have none: what a gate said there, this one says itself.
    """
    recorded: defaultdict[_CallKey, list[ToolResult]] = defaultdict(list)
    for call in calls:
        if call.ran and call.result is not None:
            recorded[key_of(call.name, call.arguments)].append(call.result)
    return dict(recorded)


def check_fork_tools(point: ForkPoint, specs: Sequence[ToolSpec], *, has_workspace: bool) -> None:
    """Raise ConfigError if the tools of a fork could do something that was not requested."""
    names = [spec.name for spec in specs]
    for name in point.allow:
        if name not in names:
            hint = suggest_names(name, names)
            raise ConfigError(f"allow={name!r}: the agent has no such tool.{hint}")
    if point.allow and point.tools != "live":
        raise ConfigError(f'allow=…: with tools="{point.tools}" no tool runs, so none is allowed')
    if point.tools == "live" and not has_workspace:
        raise ConfigError(
            f'the fork of {point.session} has tools="live", so it needs a snapshot of the '
            "workspace as it was at that record: give the case a `workspace`"
        )
