"""What the model is shown beside and instead of the transcript, which is never changed.

The law: the running prompt, pinned messages and open calls are in every view, and a call is never
without its result.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

from msgspec.structs import replace

from windlass.core.events import (
    ContextCompacted,
    KnowledgeRecalled,
    LookupsPlanned,
    SteeringGiven,
    SteeringTaken,
)
from windlass.core.fold.calls import raise_illegal_fact
from windlass.core.fold.steps import current_run, require_nothing_open, settle_open_attempt
from windlass.core.messages import (
    AssistantMessage,
    CallOutcome,
    Message,
    TextPart,
    ToolResult,
    ToolResults,
    UserMessage,
)
from windlass.core.state import (
    CallState,
    RunState,
    State,
    StepState,
    add_labels,
    add_messages,
    message_tokens_max,
)
from windlass.core.transcript import Transcript

MASK_MIN = 200
"""Characters from which on a result is worth masking."""


def apply_context_compacted(state: State, run: RunState, fact: ContextCompacted) -> State:
    if fact.how == "summary":
        if run.attempt is None or run.attempt.purpose != "compaction":
            raise_illegal_fact(fact, "no summary was asked for")
        state = settle_open_attempt(state, run, fact.charge)
    else:
        require_nothing_open(state, run, fact)
    run = replace(
        current_run(state),
        compacted=(*run.compacted, fact.how),
        forced=run.forced or bool(run.failures),
        failures=(),
        asking_since=None,
    )
    if fact.how == "mask":
        if not max(state.masked_upto, state.shown_from) < fact.upto < len(state.transcript):
            raise_illegal_fact(fact, f"results before message {fact.upto} cannot be masked")
        return rebuild_view(replace(state, run=run, masked_upto=fact.upto))
    within = state.shown_from < fact.upto < len(state.transcript)
    if not within or isinstance(state.transcript[fact.upto], ToolResults):
        raise_illegal_fact(fact, f"the view cannot begin at message {fact.upto}")
    return rebuild_view(replace(state, run=run, shown_from=fact.upto, summary=fact.note))


def rebuild_view(state: State) -> State:
    """The state with its view made anew from the transcript."""
    apart = bool(state.shown_from or state.masked_upto)
    shown = Transcript(list(_view_messages(state))) if apart else state.transcript
    size = sum(map(message_tokens_max, shown))
    return replace(state, shown=shown, apart=apart, size=size, measure=None)


def _view_messages(state: State) -> Iterator[Message]:
    """A note for what is left out, what of it must stay in view, then the rest."""
    first, run = state.shown_from, state.run
    prompt = state.transcript[run.new_from] if run else None
    rest = state.transcript[first:]
    here = set(map(id, rest))
    # What must stay is in the view already: the cost does not grow with the session.
    staying = (one for one in state.shown if one is prompt or is_pinned(one))
    if first:
        yield UserMessage((TextPart(state.summary),), note=True)
    for message in chain(
        (one for one in staying if id(one) not in here), _mask_old_results(state, rest)
    ):
        yield message
        if message is prompt and run is not None and run.known is not None:
            yield run.known


def _mask_old_results(state: State, rest: Sequence[Message]) -> Iterator[Message]:
    """What the view goes on with; old results are masked."""
    readable = state.setup is not None and state.setup.find_tool("read_artifact") is not None
    for at, message in enumerate(rest, state.shown_from):
        yield _mask_message(message, readable=readable) if at < state.masked_upto else message


def is_pinned(message: Message) -> bool:
    """Whether a message is in every view, as the running prompt is."""
    return isinstance(message, UserMessage) and message.pinned


def _mask_message(results: Message, *, readable: bool) -> Message:
    if not isinstance(results, ToolResults):
        return results
    return ToolResults(tuple(_mask_outcome(item, readable=readable) for item in results.items))


def _mask_outcome(item: CallOutcome, *, readable: bool) -> CallOutcome:
    size = len(item.result.text)
    if size < MASK_MIN and all(isinstance(part, TextPart) for part in item.result.content):
        return item
    told = f"[This result ({size} characters) was left out, since it is old."
    told += f' read_artifact(id="{item.call.id}") reads it.]' if readable else "]"
    return replace(item, result=ToolResult.from_text(item.result.kind, told))


def mask_saving(message: Message) -> int:
    """How much smaller a message would be in the view if its results were masked."""
    if not isinstance(message, ToolResults):
        return 0
    return message_tokens_max(message) - message_tokens_max(_mask_message(message, readable=True))


def apply_steering_given(state: State, run: RunState, fact: SteeringGiven) -> State:
    said = UserMessage(fact.prompt)
    return replace(state, run=replace(run, pending=(*run.pending, said)))


def apply_steering_taken(state: State, run: RunState, fact: SteeringTaken) -> State:
    """A reply that came before it was heard is not the last one."""
    if not run.pending or run.attempt is not None or state.step is not None:
        raise_illegal_fact(fact, "nothing was said meanwhile, or an attempt or a step is open")
    run, said = replace(run, pending=(), reply=None), run.pending
    return add_messages(replace(state, run=run), *said)


def apply_lookups_planned(state: State, run: RunState, fact: LookupsPlanned) -> State:
    require_nothing_open(state, run, fact)
    if run.steps or run.hydrated or not fact.calls:
        raise_illegal_fact(fact, "what a prompt speaks of is looked up once, before the first step")
    if len({call.id for call in fact.calls}) != len(fact.calls):
        raise_illegal_fact(fact, "two calls have one id")
    step = StepState(
        AssistantMessage(fact.calls), "calls", tuple(map(CallState, fact.calls)), hydrates=True
    )
    return replace(state, run=replace(run, hydrated=True), step=step)


def apply_knowledge_recalled(state: State, run: RunState, fact: KnowledgeRecalled) -> State:
    """It stands beside the prompt in the view of this run alone."""
    require_nothing_open(state, run, fact)
    if run.steps or run.recalled:
        raise_illegal_fact(
            fact, "what is known about a prompt is recalled once, before the first step"
        )
    known = UserMessage((TextPart(fact.text),), note=True) if fact.text.strip() else None
    state = replace(state, run=replace(run, recalled=True, known=known))
    if known is None:
        return state
    state = add_labels(state, fact.labels, "what was recalled")
    shown = Transcript(list(state.shown)).append(known)
    return replace(state, shown=shown, apart=True, size=state.size + message_tokens_max(known))
