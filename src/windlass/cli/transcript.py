"""A recorded session as it looked when it ran, and as the model is shown it."""

from collections.abc import Iterable, Iterator

from windlass.cli.renderer import Renderer
from windlass.cli.screen import Screen
from windlass.cli.session_table import printable
from windlass.core.errors import NothingToDo
from windlass.core.events import (
    AttemptFailed,
    Event,
    Fact,
    RunEnded,
    RunSuspended,
    StepProposed,
    TextDelta,
    ThinkingDelta,
)
from windlass.core.messages import Assistant, File, Image, Results, Text, Thinking, ToolCall, User
from windlass.core.run_report import questions
from windlass.core.state import State
from windlass.core.view import Prompt, view


def show_transcript(state: State, facts: Iterable[Fact]) -> None:
    """Show a session as if one had watched it."""
    screen, now = Screen(), [0.0]
    render = Renderer(screen, clock=lambda: now[0])
    for event in _as_watched(facts):
        now[0] = max(now[0], event.at)
        render(event)
    waiting = questions(state) if state.active else ()
    if waiting:
        render(RunSuspended(tuple(one.call.id for one in waiting)))
    elif state.active:
        screen.line("The last run has not ended: it is under way, or waits to be resumed.")
    screen.end()


def _as_watched(facts: Iterable[Fact]) -> Iterator[Event]:
    """The facts, with the text before them that a watcher would have seen."""
    for fact in facts:
        match fact:
            case StepProposed(reply):
                for part in reply.parts:
                    if isinstance(part, Text):
                        yield TextDelta(part.text, at=fact.at)
                    elif isinstance(part, Thinking):
                        yield ThinkingDelta(part.text, at=fact.at)
            case AttemptFailed(visible=True) | RunEnded():
                yield TextDelta(fact.partial)
            case _:
                pass
        yield fact


def view_lines(state: State) -> Iterator[str]:
    """What the model would be shown now, whole."""
    run, setup = state.run, state.setup
    if run is None or setup is None:
        raise NothingToDo(f"no run of session {state.session} has started")
    model = run.model or setup.model.name
    prompt = view(state, setup, run, model, output_max=setup.model.output_max)
    tools = ", ".join(spec.name for spec in prompt.tools) or "none"
    yield f"model   {prompt.model}"
    yield f"tools   {tools} (choice: {prompt.tool_choice})"
    yield from _said("system", prompt.system or "(nothing)")
    yield from _messages(prompt)


def _messages(prompt: Prompt) -> Iterator[str]:
    for message in prompt.messages:
        match message:
            case User(parts, note):
                yield from _said("note" if note else "user", *map(_part, parts))
            case Assistant(parts):
                yield from _said("model", *map(_part, parts))
            case Results(items):
                for item in items:
                    told = " ".join(map(_part, item.result.content))
                    yield from _said("result", f"[{item.call.id}] {item.result.kind}: {told}")


def _part(part: Text | Thinking | ToolCall | Image | File) -> str:
    match part:
        case Text(text):
            return text
        case Thinking(text):
            return f"(thought) {text}"
        case ToolCall():
            return f"[{part.id}] {part.name}({part.arguments})"
        case Image() | File():
            size = f"{len(part.data):,} bytes" if part.data else part.url or "nothing"
            return f"({part.media_type}, {size})"


def _said(who: str, *texts: str) -> Iterator[str]:
    """Words with the name of who says them before them, and all their lines below one another."""
    lines = printable("\n".join(texts)).splitlines() or [""]
    yield f"{who:<8}{lines[0]}"
    yield from (f"{'':<8}{line}" for line in lines[1:])
