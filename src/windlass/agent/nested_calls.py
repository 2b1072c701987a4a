"""Calls that the code of a call makes, such as the code of the interpreter.

Invariant: such a call is judged, recorded and run like any other, in a child session of the run.
Instead of a model, the code says what is called next. No person can be asked there: the code would
have to wait for days. What would be asked is denied, with the advice to call the tool directly.
After a crash the session is closed and never resumed, because the code is gone.
"""

from collections.abc import AsyncGenerator, Callable
from decimal import Decimal
from functools import partial

from msgspec.structs import replace

from windlass.agent.child_driving import CallSession
from windlass.agent.child_sessions import UndrivenRuns, find_own_session
from windlass.agent.openings import RunOpenings
from windlass.agent.options import AgentParts
from windlass.core.events import (
    CallDelta,
    CallStarted,
    ReplyEnd,
    ReplyPiece,
    TextDelta,
    UsageDelta,
)
from windlass.core.limits import Limits
from windlass.core.messages import CallOutcome, TextPart, ToolResult, ToolResults, Usage
from windlass.core.setup import LoopPolicy, ModelInfo, Price, Setup, fill_loop_defaults
from windlass.core.state import State
from windlass.core.verdicts import Allow, Ask, Deny, Verdict
from windlass.core.view import Prompt
from windlass.ports import (
    BlobStore,
    CallerRun,
    CallScript,
    Gate,
    GateRequest,
    NestableTools,
    NestedOutcome,
    NestingCall,
    Timeouts,
    World,
)

NEVER = 10**9
WHOLE_BYTES_MAX = 8 * 2**20
"""A clipped result up to this size is given to the code as a whole."""
OUTPUT_TOKENS_MAX = 1_000_000
"""Code may pass long arguments."""
ASKED_RULE = "asked-in-code"
_ENDED = "The code has ended."
_RULES = fill_loop_defaults(
    LoopPolicy(
        parallel_tool_calls=False,
        tools_offered_max=0,
        # Code repeats calls for its own reasons, and no service is asked in between.
        same_call_note=NEVER,
        same_call_stop=NEVER,
        outages_max=NEVER,
    )
)


class ScriptModel:
    """Takes the place of a model: each reply is the next call of the code. It costs nothing."""

    def __init__(
        self, name: str, script: CallScript, session: str, blobs: BlobStore | None
    ) -> None:
        free = Price(Decimal(0), Decimal(0))
        self.info = ModelInfo(f"code:{name}", free, output_max=OUTPUT_TOKENS_MAX)
        self._script = script
        self._session = session
        self._blobs = blobs
        self._has_called = False
        self._has_ended = False

    async def stream(self, prompt: Prompt) -> AsyncGenerator[ReplyPiece]:
        call = None
        # A session that was steered is asked again after its end.
        if not self._has_ended:
            result = await self._find_result(prompt) if self._has_called else None
            call = await self._script.next_call(result)
        yield UsageDelta(Usage())
        if call is None:
            self._has_ended = True
            yield TextDelta(_ENDED)
            yield ReplyEnd("end")
            return
        self._has_called = True
        yield CallDelta(0, name=call.name, arguments=call.arguments)
        yield ReplyEnd("calls")

    async def _find_result(self, prompt: Prompt) -> ToolResult | None:
        """Return the result of the last call, as it was before it was clipped for a model.

        What people say to the session follows the result.
        """
        for message in reversed(prompt.messages):
            if isinstance(message, ToolResults):
                return await self._read_whole(message.items[-1].result)
        return None

    async def _read_whole(self, result: ToolResult) -> ToolResult:
        texts = [part for part in result.content if isinstance(part, TextPart)]
        if self._blobs is None or len(result.artifacts) != 1 or len(texts) != 1:
            return result
        data = await self._blobs.get_blob(self._session, result.artifacts[0])
        if data is None or len(data) > WHOLE_BYTES_MAX:
            return result
        return replace(result, content=(TextPart(data.decode(errors="replace")),), artifacts=())


class UnaskedGate:
    """The gate of the run, without questions. What a person has granted the run counts."""

    def __init__(self, gate: Gate, tool: str, read_caller: Callable[[], State]) -> None:
        self.gate = gate
        self.name = gate.name
        self.judges_replies = False
        self._tool = tool
        self._read_caller = read_caller

    async def judge(self, request: GateRequest) -> Verdict:
        grants = self._read_caller().grants
        verdict = await self.gate.judge(replace(request, grants=grants))
        if not isinstance(verdict, Ask):
            return verdict
        name = request.tool.name
        reason = (
            f"A person must be asked about this call, which cannot be done from code. Call {name} "
            f"directly, not from {self._tool}."
        )
        return Deny(reason, f"{ASKED_RULE}: {verdict.rule or self.name}")

    async def judge_reply(self, session: str, text: str) -> Allow | Deny:
        raise NotImplementedError((session, text))  # The end of the code is not a reply.


class NestedCallSession:
    """The calls that the code of one call makes."""

    def __init__(self, run: CallerRun, nesting: NestingCall) -> None:
        self._run = run
        self._nesting = nesting
        tools = run.world.tools
        specs = tools.nested_specs if isinstance(tools, NestableTools) else tools.specs
        setup = run.read_state().setup
        # What the run may not call, its code may not call either.
        offered = {spec.name for spec in setup.tools} if setup else set[str]()
        offered.discard(nesting.name)
        self.specs = tuple(spec for spec in specs if spec.name in offered)

    async def run(self, script: CallScript) -> None:
        """Judge, record and run the calls of a script until its end. A cancel ends them, too."""
        run = self._run
        nesting = self._nesting
        session = (await self._find_state()).session
        world = self._make_world(ScriptModel(nesting.name, script, session, run.world.blobs))
        setup = Setup(
            model=next(iter(world.models.values())).info,
            tools=self.specs,
            gate=world.gate.name if world.gate else "",
            limits=Limits(steps=None),
            rules=_RULES,
        )
        parts = AgentParts(world, run.mask.mask_setup(setup), run.mask)
        child = CallSession(
            nesting.name, parts, run, nesting.context, nesting.call_id, is_free=True
        )
        # Always a new run, in a session that has none or whose last one has ended.
        opening = partial(RunOpenings(parts).open_new, task=child.make_task(nesting.code))
        await child.drive(session, opening)

    def _make_world(self, model: ScriptModel) -> World:
        caller = self._run.world
        gate = caller.gate
        if gate is not None:
            gate = UnaskedGate(gate, self._nesting.name, self._run.read_state)
        return replace(
            caller,
            models={model.info.name: model},
            gate=gate,
            approver=None,
            recall=None,
            check_output=None,
            governor=None,
            # Code may compute for as long as its call may take.
            timeouts=Timeouts(connect_s=None, first_byte_s=None, idle_s=None),
        )

    async def _find_state(self) -> State:
        # The journal holds the code with its secrets masked.
        code = self._run.mask.mask_text(self._nesting.code)
        call = f"{self._nesting.context.session}/{self._nesting.call_id}"
        return await find_own_session(self._run.world.journal, call, code)

    async def read_outcome(self) -> NestedOutcome:
        """Return what was called so far."""
        state = await self._find_state()
        facts = await self._run.world.journal.read(state.session)
        results = (one for one in state.transcript if isinstance(one, ToolResults))
        calls: list[CallOutcome] = [item for result in results for item in result.items]
        began = frozenset(fact.call_id for fact in facts if isinstance(fact, CallStarted))
        return NestedOutcome(tuple(calls), began, state.labels - self._nesting.context.labels)

    async def end(self) -> None:
        """End what another driver left open. It is never resumed: the code is gone."""
        world = self._run.world
        undriven = UndrivenRuns(world.journal, world.clock, self._run.mask)
        await undriven.end_child(await self._find_state())
