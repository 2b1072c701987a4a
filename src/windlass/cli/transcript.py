"""A recorded session as it looked when it ran, and as the model is shown it."""

from collections.abc import Iterable, Iterator

from windlass.cli.renderer import EventRenderer
from windlass.cli.screen import Screen
from windlass.cli.session_table import printable_text
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
from windlass.core.messages import (
    AssistantMessage,
    FilePart,
    ImagePart,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResults,
    UserMessage,
)
from windlass.core.run_report import open_questions
from windlass.core.state import State
from windlass.core.view import Prompt, build_prompt


def show_transcript(state: State, facts: Iterable[Fact]) -> None:
    """Show a session as if one had watched it."""
    screen, now = Screen(), [0.0]
    render = EventRenderer(screen, clock=lambda: now[0])
    for event in _events_as_watched(facts):
        now[0] = max(now[0], event.at)
        render(event)
    waiting = open_questions(state) if state.is_active else ()
    if waiting:
        render(RunSuspended(tuple(one.call.id for one in waiting)))
    elif state.is_active:
        screen.write_line("The last run has not ended: it is under way, or waits to be resumed.")
    screen.end_line()


def _events_as_watched(facts: Iterable[Fact]) -> Iterator[Event]:
    """The facts, with the text before them that a watcher would have seen."""
    for fact in facts:
        match fact:
            case StepProposed(reply):
                for part in reply.parts:
                    if isinstance(part, TextPart):
                        yield TextDelta(part.text, at=fact.at)
                    elif isinstance(part, ThinkingPart):
                        yield ThinkingDelta(part.text, at=fact.at)
            case AttemptFailed(visible=True) | RunEnded():
                yield TextDelta(fact.partial)
            case _:
                pass
        yield fact


def format_view(state: State) -> Iterator[str]:
    """What the model would be shown now, whole."""
    run, setup = state.run, state.setup
    if run is None or setup is None:
        raise NothingToDo(f"no run of session {state.session} has started")
    model = run.model or setup.model.name
    prompt = build_prompt(state, setup, run, model, output_max=setup.model.output_max)
    tools = ", ".join(spec.name for spec in prompt.tools) or "none"
    yield f"model   {prompt.model}"
    yield f"tools   {tools} (choice: {prompt.tool_choice})"
    yield from _format_speech("system", prompt.system or "(nothing)")
    yield from _format_messages(prompt)


def _format_messages(prompt: Prompt) -> Iterator[str]:
    for message in prompt.messages:
        match message:
            case UserMessage(parts, note):
                yield from _format_speech("note" if note else "user", *map(_format_part, parts))
            case AssistantMessage(parts):
                yield from _format_speech("model", *map(_format_part, parts))
            case ToolResults(items):
                for item in items:
                    told = " ".join(map(_format_part, item.result.content))
                    yield from _format_speech(
                        "result", f"[{item.call.id}] {item.result.kind}: {told}"
                    )


def _format_part(part: TextPart | ThinkingPart | ToolCall | ImagePart | FilePart) -> str:
    match part:
        case TextPart(text):
            return text
        case ThinkingPart(text):
            return f"(thought) {text}"
        case ToolCall():
            return f"[{part.id}] {part.name}({part.arguments})"
        case ImagePart() | FilePart():
            size = f"{len(part.data):,} bytes" if part.data else part.url or "nothing"
            return f"({part.media_type}, {size})"


def _format_speech(who: str, *texts: str) -> Iterator[str]:
    """Words with the name of who says them before them, and all their lines below one another."""
    lines = printable_text("\n".join(texts)).splitlines() or [""]
    yield f"{who:<8}{lines[0]}"
    yield from (f"{'':<8}{line}" for line in lines[1:])
