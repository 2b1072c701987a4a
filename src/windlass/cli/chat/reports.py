"""What the slash commands show about a session: its context, its permissions, its changes."""

from collections.abc import Sequence
from pathlib import Path

from windlass.cli.chat.references import OUTSIDE_LABELS, ExpandedPrompt
from windlass.cli.chat.state import ChatState, ServerPromptTask
from windlass.cli.live_view import diff_style
from windlass.cli.markdown.stream import MarkdownStream
from windlass.cli.screen import BAD, CALL_STYLE, GOOD, PERSON, QUIET
from windlass.cli.session_picker import format_age
from windlass.core.decide.reserving import estimate_tokens
from windlass.core.errors import ConfigError
from windlass.core.events import Fact, RunStarted
from windlass.core.fold.run import fold
from windlass.core.messages import TextPart, ThinkingPart
from windlass.core.phrases import format_count
from windlass.core.projection.entries import PromptEntry
from windlass.core.projection.project import project_events
from windlass.core.projection.view import ReplyEntry
from windlass.core.session_summary import SessionSummary
from windlass.core.text_clip import clip_line, printable_chars
from windlass.journals.archive import export_session
from windlass.project.agent_session import AgentSession
from windlass.project.agents import configured_servers
from windlass.project.git_reader import run_git

BAR_CELLS = 30
TOKEN_BYTES_MAX = 6
"""A count of fewer tokens than one for so many bytes leaves something out."""
DIFF_LINES_MAX = 400
CONTINUED_LINES = 12
REVIEW_CHARS_MAX = 60_000
REVIEW_PROMPT = (
    "Review the changes of the working tree below, and change nothing. Read around them where it "
    "is needed. Report mistakes first, the gravest one at the top, each with its file and line, "
    "what goes wrong and how to mend it; then what is missing, such as a test. Say so if all is "
    "well, and leave out what is a matter of taste."
)
RESULT_CHARS_MAX = 2_000
"""Of the result of a call, in an export."""


async def show_context(chat: ChatState, _opened: AgentSession, _argument: str) -> None:
    """Write how much of the model's context is used, and by what."""
    facts = await chat.journal.read(chat.session)
    state = fold(chat.session, facts)
    while state.run is not None and state.run.is_undo:
        # An undo asks no model, and has tools of its own.
        starts = [at for at, fact in enumerate(facts) if isinstance(fact, RunStarted)]
        facts = facts[: starts[-1]]
        state = fold(chat.session, facts)
    if state.setup is None:
        chat.show_note("Nothing was sent to the model yet.")
        return
    model = state.setup.model
    whole = max(1, state.fixed + state.size)
    # Some servers leave the tools out of what they count.
    used = round(max(estimate_tokens(state, model.name), whole / TOKEN_BYTES_MAX))
    instructions = round(used * len(state.setup.instructions.encode()) / whole)
    tools = round(used * state.fixed / whole) - instructions
    talk = used - instructions - tools
    line = f"about {used:,} tokens"
    if model.window:
        filled = min(BAR_CELLS, round(BAR_CELLS * used / model.window))
        bar = "#" * filled + "." * (BAR_CELLS - filled)
        left = max(0, model.window - used)
        line += f" of {model.window:,}  [{bar}]  {left:,} left"
    chat.screen.write_line(line)
    rows = [
        ("instructions", f"{instructions:,}"),
        ("tools", f"{tools:,} in {format_count(len(state.offered), 'tool')}"),
        ("conversation", f"{talk:,} in {format_count(len(state.shown), 'message')}"),
    ]
    if state.shown_from:
        rows.append(("left out", format_count(state.shown_from, "earlier message")))
    chat.show_rows(rows, QUIET)


async def show_permissions(chat: ChatState, opened: AgentSession, _argument: str) -> None:
    """Write what may run: the mode, the policies, and what was allowed for this session."""
    agent = chat.context.agent
    loaded = agent.loaded
    rows: list[tuple[str, str]] = []
    if loaded.uses_mode:
        origin = loaded.origins.get("permission_mode", "")
        rows.append(("mode", f"{chat.mode} ({origin}); to change it: /mode"))
    rows += [("policy", policy.path) for policy in loaded.policies]
    rows.append(("flow guard", "on" if loaded.settings.flow_guard else "off"))
    notices = [spec.notice for spec in opened.toolbox.specs if spec.notice]
    if notices:
        rows.append(("commands", notices[0]))
    grants = fold(chat.session, await chat.journal.read(chat.session)).grants
    for grant in grants:
        shown = grant.pattern or f"one exact call of {grant.tool}"
        rows.append(("always", printable_chars(shown)))
    if not grants:
        rows.append(("always", "nothing was allowed for the rest of this session"))
    chat.show_rows(rows, CALL_STYLE)


async def show_diff(chat: ChatState, _opened: AgentSession, _argument: str) -> None:
    """Write what differs from the last commit, and which files are new."""
    folder = chat.context.agent.folder
    changes = read_changes(folder)
    new = run_git(folder, "ls-files", "--others", "--exclude-standard") or ""
    screen = chat.screen
    lines = changes.splitlines()
    for line in lines[:DIFF_LINES_MAX]:
        screen.write_verbatim(screen.trim_to_width(line), diff_style(line))
        screen.start_new_line()
    if len(lines) > DIFF_LINES_MAX:
        chat.show_note(f"{screen.glyphs.cut} +{len(lines) - DIFF_LINES_MAX} lines")
    for name in new.splitlines():
        screen.write_line(f"new file: {name}", GOOD)
    if not lines and not new:
        chat.show_note("Nothing has changed since the last commit.")


async def review_changes(chat: ChatState, _opened: AgentSession, argument: str) -> None:
    """Let the agent review what differs from the last commit."""
    folder = chat.context.agent.folder
    changes = read_changes(folder)
    new = run_git(folder, "ls-files", "--others", "--exclude-standard") or ""
    if not changes and not new:
        chat.show_note("Nothing has changed since the last commit.")
        return
    if len(changes) > REVIEW_CHARS_MAX:
        changes = f"{changes[:REVIEW_CHARS_MAX]}\n[cut off: read the rest with git diff HEAD]"
    lines = format_count(len(changes.splitlines()), "line")
    chat.show_note(f"{chat.screen.glyphs.progress} the review gets {lines} of differences")
    asked = TextPart(f"{REVIEW_PROMPT} {argument}".rstrip())
    given = f"\n\n<diff>\n{changes}\n</diff>\n<new_files>\n{new}</new_files>"
    prompt = ExpandedPrompt((asked, TextPart(given, by_program=True)), OUTSIDE_LABELS)
    chat.tasks.appendleft(ServerPromptTask(prompt))


def read_changes(folder: Path) -> str:
    """What differs from the last commit. Raises ConfigError outside a repository."""
    plain = ("--no-ext-diff", "--no-textconv", "--no-color")
    changes = run_git(folder, "diff", *plain, "HEAD")
    if changes is None:
        changes = run_git(folder, "diff", *plain)
    if changes is None:
        raise ConfigError(f"{folder} is not in a git repository")
    return changes


async def show_servers(chat: ChatState, opened: AgentSession, _argument: str) -> None:
    """Write the MCP servers, with the number of their tools, or why they do not answer."""
    agent = chat.context.agent
    servers = configured_servers(agent.loaded, agent.project)
    screen = chat.screen
    for server in servers:
        failure = opened.mcp_failures.get(server.name)
        if failure is not None:
            screen.write_line(f"{server.name}: {failure}", BAD, mark=screen.glyphs.no)
            continue
        names = [spec.name for spec in opened.toolbox.specs]
        count = sum(name.startswith(f"{server.name}__") for name in names)
        line = f"{server.name}: {format_count(count, 'tool')}"
        screen.write_line(line, GOOD, mark=screen.glyphs.yes)
    if not servers:
        chat.show_note("No MCP servers. To add one: windlass mcp add NAME COMMAND")


async def export_chat(chat: ChatState, _opened: AgentSession, argument: str) -> None:
    """Write the session to a file: as Markdown to read, or as lines that can be imported."""
    path = _choose_file(chat.context.agent.folder, argument or f"{chat.session}.md")
    facts = await chat.journal.read(chat.session)
    if not facts:
        raise ConfigError("there is nothing to export yet")
    if path.suffix == ".jsonl":
        with path.open("wb") as file:
            await export_session(chat.journal, chat.session, file.write)
    else:
        path.write_text(format_session(facts), "utf-8")
    chat.show_note(f"Written: {path}")


def _choose_file(folder: Path, name: str) -> Path:
    path = folder / Path(name).expanduser()
    if path.exists():
        raise ConfigError(f"{path} exists already: name another file")
    return path


def format_session(facts: Sequence[Fact], result_chars_max: int | None = RESULT_CHARS_MAX) -> str:
    """A session as a Markdown document. With None it is whole: long results, and the thinking."""
    view = project_events(facts)
    blocks = [f"# Session {view.session}"]
    for entry in view.entries:
        if isinstance(entry, PromptEntry):
            blocks.append(f"## Prompt\n\n{entry.text}")
        elif isinstance(entry, ReplyEntry):
            thoughts = [part.text for part in entry.parts if isinstance(part, ThinkingPart)]
            if result_chars_max is None:
                blocks += [f"(thinking) {text}" for text in thoughts if text]
            if entry.text:
                blocks.append(entry.text)
            for call in entry.calls:
                shown = f"{call.name}({call.arguments or call.call.arguments})"
                result = call.result.text if call.result else ""
                if result_chars_max is not None and len(result) > result_chars_max:
                    result = f"{result[:result_chars_max]}\n[…]"
                # A fence longer than any in the result, so that the result cannot end it.
                blocks.append(f"~~~~~~text\n{shown}\n\n{result}\n~~~~~~")
    return "\n\n".join(blocks) + "\n"


async def show_continued(chat: ChatState, summary: SessionSummary) -> None:
    """Write what a session was about: its last prompt, and the end of the last reply."""
    screen = chat.screen
    age = format_age(summary.updated)
    runs = format_count(summary.runs, "run")
    chat.show_note(
        f"Continuing {summary.session}: {summary.title} ({runs}, {summary.state}, {age})"
    )
    view = project_events(await chat.journal.read(summary.session))
    chat.last_view = view
    prompts = [entry for entry in view.entries if isinstance(entry, PromptEntry)]
    replies = [entry for entry in view.entries if isinstance(entry, ReplyEntry) and entry.text]
    if prompts:
        text = clip_line(prompts[-1].text, 4 * screen.width)
        screen.write_line(text, PERSON, mark=screen.glyphs.person)
    if replies and prompts and replies[-1].seq > prompts[-1].seq:
        lines = replies[-1].text.strip().splitlines()
        hidden = len(lines) - CONTINUED_LINES
        if hidden > 0:
            chat.show_note(f"{screen.glyphs.cut} {hidden} lines above")
        _show_reply(chat, "\n".join(lines[-CONTINUED_LINES:]))
    screen.write_line()


def _show_reply(chat: ChatState, text: str) -> None:
    if chat.screen.styled:
        markdown = MarkdownStream(chat.screen)
        markdown.feed(text)
        markdown.end_reply()
    else:
        chat.screen.stream_text(text)
        chat.screen.end_line()
