"""What the model sees beside and instead of the transcript, which itself never changes.

Invariant: the running prompt, pinned messages and open calls are in every view, and a call is never
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
    UndoPlanned,
)
from windlass.core.fold.phases import raise_illegal_fact
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
from windlass.core.setup import ARTIFACT_READER
from windlass.core.state import (
    CallState,
    RunState,
    State,
    StepState,
    add_labels,
    add_messages,
    mark_artifacts,
)
from windlass.core.transcript import Transcript, framing_tokens_max, message_tokens_max

MASK_MIN = 200
"""Characters from which on a result is worth masking."""


def apply_context_compacted(state: State, run: RunState, fact: ContextCompacted) -> State:
    """Make the view shorter: by a note, a summary, or masked results."""
    if fact.how == "summary":
        if run.attempt is None or run.attempt.purpose != "compaction":
            raise_illegal_fact(fact, "no summary was requested")
        state = settle_open_attempt(state, run, fact.charge)
    else:
        require_nothing_open(state, run, fact)
    run = replace(
        current_run(state),
        compacted=(*run.compacted, fact.how),
        forced=run.forced or bool(run.failures),
        # The prompt is another one now, so failures of the old prompt do not count.
        failures=(),
        asking_since=None,
    )
    if fact.how == "mask":
        if not max(state.masked_upto, state.shown_from) < fact.upto < len(state.transcript):
            raise_illegal_fact(fact, f"results before message {fact.upto} cannot be masked")
        # The ids of the calls now take the place of the results.
        state = mark_artifacts(replace(state, run=run, masked_upto=fact.upto))
        return rebuild_view(state)
    within = state.shown_from < fact.upto < len(state.transcript)
    if not within or isinstance(state.transcript[fact.upto], ToolResults):
        raise_illegal_fact(fact, f"the view cannot begin at message {fact.upto}")
    return rebuild_view(replace(state, run=run, shown_from=fact.upto, summary=fact.note))


def rebuild_view(state: State) -> State:
    """Return the state with its view built from the transcript again."""
    has_own_view = bool(state.shown_from or state.masked_upto)
    if has_own_view:
        shown = Transcript(list(_view_messages(state)))
    else:
        shown = state.transcript
    size = sum(map(message_tokens_max, shown))
    results = (message for message in shown if isinstance(message, ToolResults))
    framing = sum(map(framing_tokens_max, results))
    return replace(
        state, shown=shown, has_own_view=has_own_view, size=size, framing=framing, measure=None
    )


def _view_messages(state: State) -> Iterator[Message]:
    """Yield a note for what is left out, the messages that must stay, then the rest."""
    first = state.shown_from
    run = state.run
    prompt = state.transcript[run.new_from] if run and not run.queued_mail else None
    rest = state.transcript[first:]
    in_rest = set(map(id, rest))
    # Messages that must stay are in the present view already. Searching it, and not the whole
    # transcript, keeps the cost from growing with the session.
    staying = (message for message in state.shown if message is prompt or is_pinned(message))
    if first:
        yield UserMessage((TextPart(state.summary),), note=True)
    before_rest = (message for message in staying if id(message) not in in_rest)
    for message in chain(before_rest, _mask_old_results(state, rest)):
        yield message
        if message is prompt and run is not None and run.known is not None:
            yield run.known


def _mask_old_results(state: State, rest: Sequence[Message]) -> Iterator[Message]:
    """Yield the rest of the messages of the view, with old results masked."""
    readable = state.setup is not None and state.setup.find_tool(ARTIFACT_READER) is not None
    for at, message in enumerate(rest, state.shown_from):
        yield _mask_message(message, readable=readable) if at < state.masked_upto else message


def is_pinned(message: Message) -> bool:
    """Whether a message is in every view, as the running prompt is."""
    return isinstance(message, UserMessage) and message.pinned


def _mask_message(message: Message, *, readable: bool) -> Message:
    if not isinstance(message, ToolResults):
        return message
    return ToolResults(tuple(_mask_outcome(item, readable=readable) for item in message.items))


def _mask_outcome(outcome: CallOutcome, *, readable: bool) -> CallOutcome:
    size = len(outcome.result.text)
    if size < MASK_MIN and all(isinstance(part, TextPart) for part in outcome.result.content):
        return outcome
    if readable:
        hint = f' {ARTIFACT_READER}(id="{outcome.call.id}") reads it.'
    else:
        hint = ""
    text = f"[This old result ({size} characters) was removed to save space.{hint}]"
    return replace(outcome, result=ToolResult.from_text(outcome.result.kind, text))


def mask_saving(message: Message) -> int:
    """Return by how many tokens a message would shrink if its results were masked."""
    if not isinstance(message, ToolResults):
        return 0
    masked = _mask_message(message, readable=True)
    return message_tokens_max(message) - message_tokens_max(masked)


def apply_steering_given(state: State, run: RunState, fact: SteeringGiven) -> State:
    """Keep a message of a person until the model can be asked again."""
    if run.is_undo:
        raise_illegal_fact(fact, "the run undoes another one and asks no model")
    message = UserMessage(fact.prompt)
    return replace(state, run=replace(run, pending=(*run.pending, message)))


def apply_steering_taken(state: State, run: RunState, fact: SteeringTaken) -> State:
    """Put the waiting messages into the conversation. A reply from before is not the last one."""
    if not run.pending or run.attempt is not None or state.step is not None:
        raise_illegal_fact(fact, "no steering waits, or an attempt or a step is open")
    messages = run.pending
    run = replace(run, pending=(), reply=None)
    return add_messages(replace(state, run=run), *messages)


def apply_lookups_planned(state: State, run: RunState, fact: LookupsPlanned) -> State:
    """Open a step of the runtime's own calls."""
    require_nothing_open(state, run, fact)
    if run.steps or run.hydrated or not fact.calls:
        raise_illegal_fact(fact, "lookups are planned once, before the first step")
    if len({call.id for call in fact.calls}) != len(fact.calls):
        raise_illegal_fact(fact, "two calls have one id")
    calls = tuple(map(CallState, fact.calls))
    step = StepState(AssistantMessage(fact.calls), "calls", calls, hydrates=True)
    return replace(state, run=replace(run, hydrated=True), step=step)


def apply_undo_planned(state: State, run: RunState, fact: UndoPlanned) -> State:
    """Open the one step of a run that undoes calls."""
    require_nothing_open(state, run, fact)
    if run.steps or run.model_calls or run.hydrated or run.is_undo:
        raise_illegal_fact(fact, "calls are undone by a run that does nothing else")
    if [call.id for call in fact.calls] != [undone.by for undone in fact.undone]:
        raise_illegal_fact(fact, "each call must undo one other")
    new = {call.id for call in fact.calls if not state.transcript.has_call(call.id)}
    if len(new) != len(fact.calls):
        raise_illegal_fact(fact, "two calls have one id")
    state = replace(state, run=replace(run, is_undo=True, undoes=fact.undone))
    if not fact.calls:
        return state
    calls = tuple(map(CallState, fact.calls))
    step = StepState(AssistantMessage(fact.calls), "calls", calls, hydrates=True)
    return replace(state, step=step)


def apply_knowledge_recalled(state: State, run: RunState, fact: KnowledgeRecalled) -> State:
    """Show what is known beside the prompt, in the view of this run only."""
    require_nothing_open(state, run, fact)
    if run.steps or run.recalled:
        raise_illegal_fact(fact, "knowledge is recalled once, before the first step")
    if fact.text.strip():
        note = UserMessage((TextPart(fact.text),), note=True)
    else:
        note = None
    state = replace(state, run=replace(run, recalled=True, known=note))
    if note is None:
        return state
    state = add_labels(state, fact.labels, "what was recalled")
    shown = Transcript(list(state.shown)).append(note)
    return replace(
        state, shown=shown, has_own_view=True, size=state.size + message_tokens_max(note)
    )
