"""A recorded session as it looked while it ran, and the prompt that the model would get now."""

from collections.abc import Iterable, Iterator

from windlass.cli.renderer import EventRenderer
from windlass.cli.screen import Screen
from windlass.core.errors import NothingToDo
from windlass.core.events import Fact
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
from windlass.core.result import open_questions
from windlass.core.state import State
from windlass.core.text_clip import printable_chars
from windlass.core.view import Prompt, build_prompt


def show_transcript(state: State, facts: Iterable[Fact]) -> None:
    """Show a session as a person who watched it would have seen it."""
    now = 0.0
    screen = Screen()
    # Silences are measured on the clock of the recording.
    renderer = EventRenderer(screen, clock=lambda: now)
    for fact in facts:
        now = max(now, fact.at)
        renderer.show_event(fact)
    if state.is_active and open_questions(state):
        renderer.show_suspension()
    elif state.is_active:
        screen.write_line("The last run has not ended: it is still running, or can be resumed.")
    screen.end_line()


def format_view(state: State) -> Iterator[str]:
    """The lines of the whole prompt that the model would get now.

    Raises NothingToDo if no run of the session has started.
    """
    run = state.run
    setup = state.setup
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
                    text = " ".join(map(_format_part, item.result.content))
                    line = f"[{item.call.id}] {item.result.kind}: {text}"
                    yield from _format_speech("result", line)


def _format_part(part: TextPart | ThinkingPart | ToolCall | ImagePart | FilePart) -> str:
    match part:
        case TextPart(text):
            return text
        case ThinkingPart(text):
            return f"(thinking) {text}"
        case ToolCall():
            return f"[{part.id}] {part.name}({part.arguments})"
        case ImagePart() | FilePart():
            size = f"{len(part.data):,} bytes" if part.data else part.url or "nothing"
            return f"({part.media_type}, {size})"


def _format_speech(who: str, *texts: str) -> Iterator[str]:
    """The texts with the speaker before the first line, and the other lines indented below."""
    lines = printable_chars("\n".join(texts), keep="\n").splitlines() or [""]
    yield f"{who:<8}{lines[0]}"
    yield from (f"{'':<8}{line}" for line in lines[1:])
