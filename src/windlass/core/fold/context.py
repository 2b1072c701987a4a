"""What the model is shown beside and instead of the transcript, which is never changed.

The law: the running prompt, pinned messages and open calls are in every view, and a call is never
without its result.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

from msgspec.structs import replace

from windlass.core.events import Compacted, Heeded, Hydrated, Recalled, Steered
from windlass.core.fold.calls import illegal
from windlass.core.fold.steps import charge, current, nothing_open
from windlass.core.messages import (
    Assistant,
    CallResult,
    Message,
    Result,
    Results,
    Text,
    User,
)
from windlass.core.state import Call, Run, State, Step, holding, say, weigh
from windlass.core.transcript import Transcript

MASK_MIN = 200
"""Characters from which on a result is worth masking."""


def compacted(state: State, run: Run, fact: Compacted) -> State:
    if fact.how == "summary":
        if run.attempt is None or run.attempt.purpose != "compaction":
            illegal(fact, "no summary was asked for")
        state = charge(state, run, fact.charge)
    else:
        nothing_open(state, run, fact)
    run = replace(
        current(state),
        compacted=(*run.compacted, fact.how),
        forced=run.forced or bool(run.failures),
        failures=(),
        asking_since=None,
    )
    if fact.how == "mask":
        if not max(state.masked_upto, state.shown_from) < fact.upto < len(state.transcript):
            illegal(fact, f"results before message {fact.upto} cannot be masked")
        return rendered(replace(state, run=run, masked_upto=fact.upto))
    within = state.shown_from < fact.upto < len(state.transcript)
    if not within or isinstance(state.transcript[fact.upto], Results):
        illegal(fact, f"the view cannot begin at message {fact.upto}")
    return rendered(replace(state, run=run, shown_from=fact.upto, summary=fact.note))


def rendered(state: State) -> State:
    """The state with its view made anew from the transcript."""
    apart = bool(state.shown_from or state.masked_upto)
    shown = Transcript(list(_messages(state))) if apart else state.transcript
    size = sum(map(weigh, shown))
    return replace(state, shown=shown, apart=apart, size=size, measure=None)


def _messages(state: State) -> Iterator[Message]:
    """A note for what is left out, what of it must stay in view, then the rest."""
    first, run = state.shown_from, state.run
    prompt = state.transcript[run.new_from] if run else None
    rest = state.transcript[first:]
    here = set(map(id, rest))
    # What must stay is in the view already: the cost does not grow with the session.
    staying = (one for one in state.shown if one is prompt or is_pinned(one))
    if first:
        yield User((Text(state.summary),), note=True)
    for message in chain((one for one in staying if id(one) not in here), _faded(state, rest)):
        yield message
        if message is prompt and run is not None and run.known is not None:
            yield run.known


def _faded(state: State, rest: Sequence[Message]) -> Iterator[Message]:
    """What the view goes on with; old results are masked."""
    readable = state.setup is not None and state.setup.tool("read_artifact") is not None
    for at, message in enumerate(rest, state.shown_from):
        yield _masked(message, readable=readable) if at < state.masked_upto else message


def is_pinned(message: Message) -> bool:
    """Whether a message is in every view, as the running prompt is."""
    return isinstance(message, User) and message.pinned


def _masked(results: Message, *, readable: bool) -> Message:
    if not isinstance(results, Results):
        return results
    return Results(tuple(_masked_item(item, readable=readable) for item in results.items))


def _masked_item(item: CallResult, *, readable: bool) -> CallResult:
    size = len(item.result.text)
    if size < MASK_MIN and all(isinstance(part, Text) for part in item.result.content):
        return item
    told = f"[This result ({size} characters) was left out, since it is old."
    told += f' read_artifact(id="{item.call.id}") reads it.]' if readable else "]"
    return replace(item, result=Result.say(item.result.kind, told))


def mask_saves(message: Message) -> int:
    """How much smaller a message would be in the view if its results were masked."""
    if not isinstance(message, Results):
        return 0
    return weigh(message) - weigh(_masked(message, readable=True))


def steered(state: State, run: Run, fact: Steered) -> State:
    said = User(fact.prompt)
    return replace(state, run=replace(run, pending=(*run.pending, said)))


def heeded(state: State, run: Run, fact: Heeded) -> State:
    """A reply that came before it was heard is not the last one."""
    if not run.pending or run.attempt is not None or state.step is not None:
        illegal(fact, "nothing was said meanwhile, or an attempt or a step is open")
    run, said = replace(run, pending=(), reply=None), run.pending
    return say(replace(state, run=run), *said)


def hydrated(state: State, run: Run, fact: Hydrated) -> State:
    nothing_open(state, run, fact)
    if run.steps or run.hydrated or not fact.calls:
        illegal(fact, "what a prompt speaks of is looked up once, before the first step")
    if len({call.id for call in fact.calls}) != len(fact.calls):
        illegal(fact, "two calls have one id")
    step = Step(Assistant(fact.calls), "calls", tuple(map(Call, fact.calls)), hydrates=True)
    return replace(state, run=replace(run, hydrated=True), step=step)


def recalled(state: State, run: Run, fact: Recalled) -> State:
    """It stands beside the prompt in the view of this run alone."""
    nothing_open(state, run, fact)
    if run.steps or run.recalled:
        illegal(fact, "what is known about a prompt is recalled once, before the first step")
    known = User((Text(fact.text),), note=True) if fact.text.strip() else None
    state = replace(state, run=replace(run, recalled=True, known=known))
    if known is None:
        return state
    state = holding(state, fact.labels, "what was recalled")
    shown = Transcript(list(state.shown)).append(known)
    return replace(state, shown=shown, apart=True, size=state.size + weigh(known))
