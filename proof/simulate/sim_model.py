"""A simulated provider. It replies by the progress of the session, so a retry gets the same reply.

It checks each prompt that it receives, and keeps its own bill.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from decimal import Decimal
from typing import Literal

import msgspec
from typing_extensions import override

from proof.simulate.outside import BilledRequest, OutsideWorld, ProcessPower, reply_at
from proof.simulate.plan import CallPlan, ReplyPlan, RequestTrouble
from windlass.core.decide.compacting import SUMMARY_SYSTEM as SUM_UP
from windlass.core.decide.reserving import usage_cost
from windlass.core.errors import ModelError
from windlass.core.events import (
    CallDelta,
    Fact,
    KnowledgeRecalled,
    ReplyEnd,
    ReplyPiece,
    ReplyRestarted,
    RunStarted,
    StreamOpened,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)
from windlass.core.messages import AssistantMessage, Purpose, TextPart, Usage, UserMessage
from windlass.core.setup import ModelInfo, Price
from windlass.core.tool_search import CALL_TOOL
from windlass.core.transcript import message_tokens_max
from windlass.core.view import Prompt
from windlass.testing.prompts import check_prompt

PRICE = Price(Decimal(3), Decimal(15))
TOKEN_CHARS = 4
PIECES_TOGETHER = 3
"""So many pieces come without a wait in between."""
PROMPT_CHARS = 3
"""Characters of a token of a prompt."""
_BREAKING = ("drop", "cut", "stall", "refused_call")
"""The troubles that break a reply off in the middle."""


class SimModel:
    """The model of a session."""

    info = ModelInfo("sim:model", price=PRICE, output_max=300)
    purpose: Purpose = "main"

    def __init__(self, outside: OutsideWorld, power: ProcessPower) -> None:
        self.outside = outside
        self._power = power
        limit = outside.provider_limit
        self.quota_key = "" if limit is None else f"sim {outside.plan.session}"

    async def planned_reply(self, prompt: Prompt) -> ReplyPlan:
        """Return the planned reply to a prompt."""
        outside = self.outside
        _check_view(prompt, await outside.store.read(outside.plan.session))
        return reply_at(outside.plan.replies, await outside.count_steps())

    async def _choose_reply(self, prompt: Prompt, served: BilledRequest) -> ReplyPlan:
        if prompt.system != SUM_UP:
            return await self.planned_reply(prompt)
        served.purpose = "compaction" if self.purpose == "main" else self.purpose
        return _planned_summary(self.outside.plan.more.summaries, len(self.outside.billed_requests))

    async def stream(self, prompt: Prompt) -> AsyncGenerator[ReplyPiece]:
        self._power.check_on()
        outside = self.outside
        plan = outside.plan
        trouble = plan.troubles.get(len(outside.billed_requests))
        served = BilledRequest(await outside.last_run(), self.purpose)
        try:
            check_prompt(prompt)
            reply = await self._choose_reply(prompt, served)
        except AssertionError as error:
            # Kept for the rules: the runtime treats an error of a model as a failed attempt.
            outside.problems.append(f"X1: {error}")
            raise
        limit = outside.provider_limit
        if limit is not None:
            yield StreamOpened(limit.admit())
            self._power.check_on()
        outside.billed_requests.append(served)
        size = 1 + sum(map(message_tokens_max, prompt.messages)) // PROMPT_CHARS
        await asyncio.sleep(0.05)
        self._power.check_on()
        _raise_trouble(
            trouble, size, plan.more.provider_window if served.purpose == "main" else None
        )
        pieces = _reply_pieces(reply, prompt)
        if trouble == "restart":
            pieces = [*pieces[: max(1, len(pieces) // 2)], ReplyRestarted(), *pieces]
        sent = 0
        _bill_request(served, size, prompt, sent)
        breaks_at = max(1, len(pieces) // 2) if trouble in _BREAKING else None
        for at, piece in enumerate(pieces):
            if at == breaks_at:
                await _break_stream(trouble)
                return
            if trouble == "slow" or at % PIECES_TOGETHER == 0:
                await asyncio.sleep(0.1)
                self._power.check_on()
            sent += _count_tokens(piece)
            _bill_request(served, size, prompt, sent)
            yield piece
        served.whole = True
        if plan.usage_reported:
            _bill_request(served, size, prompt, sent + plan.more.hidden_tokens)
            yield UsageDelta(served.usage)
        yield ReplyEnd(_stop_reason(reply, prompt))


class BatchingSimModel(SimModel):
    """The same model, which streams the pieces that come together as batches."""

    async def stream_batches(self, prompt: Prompt) -> AsyncGenerator[tuple[ReplyPiece, ...]]:
        batch: list[ReplyPiece] = []
        fault: ModelError | None = None
        # A piece that is billed has arrived, so none waits in a batch while the stream does.
        trouble = self.outside.plan.troubles.get(len(self.outside.billed_requests))
        together = 1 if trouble in ("slow", "stall") else PIECES_TOGETHER
        try:
            async for piece in self.stream(prompt):
                batch.append(piece)
                if isinstance(piece, StreamOpened) or len(batch) == together:
                    yield tuple(batch)
                    batch = []
        except ModelError as error:
            fault = error
        if batch:
            yield tuple(batch)
        if fault is not None:
            raise fault


class HelperModel(SimModel):
    """The model of a helper: its prompt says which task it works on."""

    info = ModelInfo("sim:helper", price=PRICE, output_max=200)
    purpose: Purpose = "subagent"

    @override
    async def planned_reply(self, prompt: Prompt) -> ReplyPlan:
        users = (message.text for message in prompt.messages if isinstance(message, UserMessage))
        task = next(text for text in users if text.startswith("Task "))
        planned = self.outside.calls[int(task.removeprefix("Task "))]
        replies = sum(isinstance(message, AssistantMessage) for message in prompt.messages)
        return reply_at(planned.task, replies)


def _planned_summary(summaries: Sequence[Literal["good", "empty", "fails"]], nth: int) -> ReplyPlan:
    match summaries[nth % len(summaries)]:
        case "good":
            return ReplyPlan(f"It went well so far ({nth}).", "", (), "end")
        case "empty":
            return ReplyPlan(" ", "", (), "end")
        case "fails":
            raise ModelError("server", "planned: no summary")


def _check_view(prompt: Prompt, facts: Sequence[Fact]) -> None:
    """Check that the current prompt, pinned prompts and recalled knowledge are each shown once."""
    starts = [fact for fact in facts if isinstance(fact, RunStarted)]
    recalled = [fact for fact in facts if isinstance(fact, KnowledgeRecalled) and fact.text]
    wanted = [_prompt_text(one) for one in starts if one.pinned or one is starts[-1]]
    wanted += [one.text for one in recalled if one.seq > starts[-1].seq]
    shown = [message.text for message in prompt.messages if isinstance(message, UserMessage)]
    for text in wanted:
        count = shown.count(text)
        _require(count == 1, f"{text!r} is shown {count} times")
    for one in recalled:
        gone = one.seq > starts[-1].seq or one.text not in shown
        _require(gone, f"{one.text!r} was known to another run")


def _prompt_text(start: RunStarted) -> str:
    return "".join(part.text for part in start.prompt if isinstance(part, TextPart))


def _bill_request(served: BilledRequest, size: int, prompt: Prompt, sent: int) -> None:
    served.usage = Usage(size, min(prompt.output_max, sent))
    served.usd = usage_cost(PRICE, served.usage) or Decimal(0)


def _reply_pieces(reply: ReplyPlan, prompt: Prompt) -> list[ReplyPiece]:
    text, thinking = reply.text, reply.thinking
    pieces: list[ReplyPiece] = [ThinkingDelta(thinking)] if thinking else []
    pieces += [TextDelta(text[at : at + 5]) for at in range(0, len(text), 5)]
    calls = () if prompt.tool_choice == "none" else reply.calls
    # The fragments of all calls are interleaved, as some servers send them.
    searches = any(spec.name == CALL_TOOL for spec in prompt.tools)
    made = [_wrap_call(call) if searches else (call.tool, call.arguments) for call in calls]
    pieces += [CallDelta(at, f"p{call.number}", made[at][0]) for at, call in enumerate(calls)]
    halves = [(at, text, len(text) // 2) for at, (_, text) in enumerate(made)]
    pieces += [CallDelta(at, arguments=text[:half]) for at, text, half in halves]
    pieces += [CallDelta(at, arguments=text[half:]) for at, text, half in halves]
    return pieces


def _wrap_call(call: CallPlan) -> tuple[str, str]:
    """Return a call as a model makes it that had to search for the tool."""
    try:
        msgspec.json.decode(call.arguments, type=dict)
    except msgspec.MsgspecError:
        return call.tool, call.arguments  # Some models call by name what they have found.
    return CALL_TOOL, f'{{"name":"{call.tool}","arguments":{call.arguments}}}'


def _stop_reason(reply: ReplyPlan, prompt: Prompt) -> Literal["end", "calls", "length", "refusal"]:
    calls = reply.calls and prompt.tool_choice != "none"
    return "calls" if reply.stop == "end" and calls else reply.stop


def _count_tokens(piece: ReplyPiece) -> int:
    match piece:
        case TextDelta(text) | ThinkingDelta(text):
            return 1 + len(text) // TOKEN_CHARS
        case CallDelta():
            return len(piece.arguments) // TOKEN_CHARS
        case UsageDelta() | ReplyEnd() | StreamOpened() | ReplyRestarted():
            return 0


def _raise_trouble(trouble: RequestTrouble | None, size: int, window: int | None) -> None:
    if window is not None and size > window:
        raise ModelError("context_overflow", f"planned: {size} tokens, and {window} is all")
    if trouble not in (None, *_BREAKING, "slow", "restart"):
        raise ModelError(trouble, f"planned: {trouble}")


async def _break_stream(trouble: RequestTrouble | None) -> None:
    if trouble == "drop":
        raise ModelError("network", "planned: the connection was lost")
    if trouble == "refused_call":
        note = "planned: your call could not be read"
        raise ModelError("malformed_stream", "planned: a call was refused", note=note)
    if trouble == "stall":
        await asyncio.sleep(100_000)


def _require(holds: bool, otherwise: str) -> None:  # noqa: FBT001
    if not holds:
        raise AssertionError(otherwise)
