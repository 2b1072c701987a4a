"""The slash commands of a chat: what each does, and the line in the help about it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import click

from windlass.cli.chat import pickers, reports
from windlass.cli.chat.server_prompts import choose_prompt, prompt_commands
from windlass.cli.chat.state import ChatState, FilePromptTask, PromptTask, ResumeTask, UndoTask
from windlass.cli.screen import CALL_STYLE
from windlass.cli.session_picker import format_age, pick_session
from windlass.cli.tools import show_tools
from windlass.core.errors import ConfigError
from windlass.core.fold.run import fold
from windlass.core.setup import Compaction
from windlass.core.suggestions import suggest_names
from windlass.core.text_clip import clip_line
from windlass.journals.forking import fork as fork_session
from windlass.models.vendors import load_vendors
from windlass.project.agent_session import AgentSession
from windlass.project.command_files import load_command_files
from windlass.project.session_names import find_session, new_session_name
from windlass.project.settings import PERMISSION_MODES, PermissionMode

INSTRUCTIONS_FILE = "AGENTS.md"
CommandHandler = Callable[[ChatState, AgentSession, str], Awaitable[None]]
MODE_HELP: Mapping[PermissionMode, str] = {
    "ask": "reads are allowed; you are asked about the rest",
    "read-only": "reads are allowed; the rest is denied",
    "allow-edits": "files may be changed; you are asked about the rest",
    "plan": "nothing is changed until you accept the plan",
    "allow-all": "everything is allowed that no rule forbids",
}
MODE_CYCLE: tuple[PermissionMode, ...] = ("ask", "allow-edits", "plan")
"""The modes that Shift-Tab goes through."""
SESSIONS_SHOWN = 10
PROMPT_CHARS = 200
"""Of the prompt of a file that is shown when it is used."""
COMPACT_NOW = Compaction(
    strategies=("summary", "window"), window=1_000, trigger=0.002, target=0.001
)
"""Makes the view shorter at once, however much room the model has."""
INIT_PROMPT = (
    f"Look at this project and write {INSTRUCTIONS_FILE} for agents that will work in it: what it "
    "is, how it is laid out, how to set it up, build, test and lint it (with the exact commands), "
    f"and which conventions the code follows. If {INSTRUCTIONS_FILE} exists, improve it and keep "
    "what is still true. Be brief: a page at most, and nothing that the code says by itself."
)
KEY_HELP = (
    ("Enter", "sends; during a run, speaks to the agent at once"),
    ("Tab", "completes /commands and @files; during a run, queues the prompt"),
    ("Esc, Ctrl-C", "stop a run; Ctrl-C at the prompt clears it, twice leaves"),
    ("Alt-Enter, Ctrl-J", "a new line; so does Enter after a backslash"),
    ("Ctrl-R", "searches the history; Up and Down go through it"),
    ("Ctrl-G", "edits the prompt in $EDITOR, and opens a long paste"),
    ("Ctrl-O", "shows the whole session: thinking, and results in full"),
    ("Shift-Tab", "changes the mode: ask, allow-edits, plan"),
    ("@file", "attaches a file or a picture"),
    ("!command", "runs a command of yours, and tells the agent what it printed"),
)


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """A command of the chat."""

    about: str
    run: CommandHandler


async def run_slash_command(chat: ChatState, opened: AgentSession, text: str) -> None:
    """Do what a line that begins with `/` says."""
    name, _, argument = text[1:].partition(" ")
    if ":" in name:
        await choose_prompt(chat, opened, name, argument)
        return
    # The beginning of a name is enough, if no other name begins so.
    begun = [
        command for known, command in SLASH_COMMANDS.items() if name and known.startswith(name)
    ]
    command = SLASH_COMMANDS.get(ALIASES.get(name, name))
    files = load_command_files(chat.context.agent.project)
    if command is None and name in files:
        argument = argument.strip()
        text = files[name].fill_in(argument)
        chat.show_note(f"{chat.screen.glyphs.progress} {clip_line(text, PROMPT_CHARS)}")
        typed = text if files[name].is_own else argument
        chat.tasks.appendleft(FilePromptTask(text, typed))
        return
    command = command or (begun[0] if len(begun) == 1 else None)
    if command is None:
        hint = suggest_names(name, [*SLASH_COMMANDS, *files])
        chat.show_error(f"there is no command /{name}.{hint}")
        return
    await command.run(chat, opened, argument.strip())


def complete_argument(command: str) -> Sequence[str]:
    """The words that may follow a command."""
    match command:
        case "model":
            return [pickers.SAVE, *(f"{vendor}:" for vendor in load_vendors())]
        case "mode":
            return PERMISSION_MODES
        case _:
            return ()


def change_mode(chat: ChatState, mode: PermissionMode) -> None:
    """Continue in another mode, which needs another agent in the same session."""
    chat.context = replace(chat.context, agent=chat.context.agent.with_mode(mode))


def next_mode(mode: PermissionMode) -> PermissionMode:
    """The mode that Shift-Tab chooses."""
    if mode not in MODE_CYCLE:
        return MODE_CYCLE[0]
    return MODE_CYCLE[(MODE_CYCLE.index(mode) + 1) % len(MODE_CYCLE)]


async def _show_help(chat: ChatState, opened: AgentSession, _argument: str) -> None:
    commands = [(f"/{name}", command.about) for name, command in SLASH_COMMANDS.items()]
    files = [
        (f"/{name}", file.about or file.problem)
        for name, file in load_command_files(chat.context.agent.project).items()
        if name not in SLASH_COMMANDS
    ]
    prompts = [(f"/{name}", about) for name, about in prompt_commands(opened.servers).items()]
    chat.show_rows([*commands, *files, *prompts, *KEY_HELP], CALL_STYLE)


async def _change_model(chat: ChatState, _opened: AgentSession, name: str) -> None:
    if name == pickers.SAVE:
        pickers.save_model(chat)
        return
    agent = chat.context.agent
    chosen = name or await pickers.pick_model(chat)
    if chosen is None or chosen == agent.settings.model:
        chat.show_note(f"{agent.settings.model}. The default of this project: /model save")
        return
    agent = agent.with_model(chosen)
    # A wrong name is reported while the old model is still in use.
    agent.check_model()
    chat.context = replace(chat.context, agent=agent)


async def _change_mode(chat: ChatState, _opened: AgentSession, name: str) -> None:
    if not name:
        marked = [
            (f"{'*' if mode == chat.mode else ' '} {mode}", about)
            for mode, about in MODE_HELP.items()
        ]
        chat.show_rows(marked, CALL_STYLE)
        return
    modes: dict[str, PermissionMode] = {mode: mode for mode in PERMISSION_MODES}
    mode = modes.get(name)
    if mode is None:
        chat.show_error(f"there is no mode {name!r}.{suggest_names(name, PERMISSION_MODES)}")
        return
    change_mode(chat, mode)
    chat.show_note(f"Mode {mode}: {MODE_HELP[mode]}.")


async def _compact(chat: ChatState, _opened: AgentSession, _argument: str) -> None:
    agent = replace(chat.context.agent, compaction=COMPACT_NOW)
    chat.context = replace(chat.context, agent=agent)
    chat.show_note("The next prompt begins with a summary of the conversation so far.")


async def _show_cost(chat: ChatState, _opened: AgentSession, _argument: str) -> None:
    chat.usage.show_usage(chat.screen)


async def _show_tools(chat: ChatState, opened: AgentSession, _argument: str) -> None:
    show_tools(chat.screen, opened.toolbox.specs)


async def _show_sessions(chat: ChatState, _opened: AgentSession, _argument: str) -> None:
    found = await chat.require_journal().sessions(limit=SESSIONS_SHOWN)
    screen = chat.screen
    for summary in found:
        age = format_age(summary.updated)
        line = f"{summary.session}  {summary.state}, {age}: {summary.title}"
        screen.write_line(screen.clip_to_line(line), mark=screen.glyphs.progress)
    if not found:
        chat.show_note("No sessions yet.")


async def _resume(chat: ChatState, _opened: AgentSession, name: str) -> None:
    """Resume the open run of this session, or choose another session."""
    if not name and fold(chat.session, await chat.journal.read(chat.session)).is_active:
        chat.tasks.append(ResumeTask())
        return
    journal = chat.require_journal()
    if name:
        summary = await find_session(journal, name)
    else:
        summary = await pick_session(journal, chat.context.agent.folder)
    chat.start_session(summary.session)
    await reports.show_continued(chat, summary)
    if summary.outcome is None:
        # Naming a session is consent to resume it under this configuration.
        chat.tasks.append(ResumeTask(consent=True))


async def _fork(chat: ChatState, _opened: AgentSession, _argument: str) -> None:
    journal = chat.require_journal()
    facts = await journal.read(chat.session)
    if not facts:
        raise ConfigError("there is nothing to copy yet")
    before = chat.session
    name = new_session_name(chat.context.agent.folder)
    chat.session = await fork_session(journal, before, len(facts), name)
    chat.show_note(f"Now in {chat.session}, a copy. The original stays as it is: {before}")


async def _clear(chat: ChatState, _opened: AgentSession, _argument: str) -> None:
    chat.start_session(new_session_name(chat.context.agent.folder))
    click.clear()
    chat.show_note("A new session.")


async def _init(chat: ChatState, _opened: AgentSession, _argument: str) -> None:
    chat.tasks.append(PromptTask(INIT_PROMPT, is_typed=False))


async def _undo(chat: ChatState, _opened: AgentSession, _argument: str) -> None:
    chat.tasks.append(UndoTask())


async def _exit(chat: ChatState, _opened: AgentSession, _argument: str) -> None:
    chat.is_leaving = True


SLASH_COMMANDS: Mapping[str, SlashCommand] = {
    "help": SlashCommand("this list", _show_help),
    "model": SlashCommand(
        "choose a model, from a list or by its name; save: for this project", _change_model
    ),
    "mode": SlashCommand(
        "what is allowed: ask, allow-edits, plan, …; with a name, change it", _change_mode
    ),
    "permissions": SlashCommand(
        "what may run, and what you allowed for good", reports.show_permissions
    ),
    "context": SlashCommand("how full the model's context is", reports.show_context),
    "compact": SlashCommand("summarize the conversation so far", _compact),
    "cost": SlashCommand("tokens, money and time of this chat", _show_cost),
    "diff": SlashCommand(
        "what has changed in this folder since the last commit", reports.show_diff
    ),
    "review": SlashCommand(
        "let the agent review what has changed since the last commit", reports.review_changes
    ),
    "undo": SlashCommand("undo what the last run did; again, the run before it", _undo),
    "rewind": SlashCommand(
        "return to an earlier message: conversation, files, or both", pickers.pick_rewind
    ),
    "tools": SlashCommand("the tools of the agent", _show_tools),
    "mcp": SlashCommand("the MCP servers, and whether they answer", reports.show_servers),
    "init": SlashCommand(f"write {INSTRUCTIONS_FILE}, the instructions for this project", _init),
    "sessions": SlashCommand("the latest sessions", _show_sessions),
    "resume": SlashCommand("go on with an open run, or choose another session", _resume),
    "fork": SlashCommand("go on in a copy of this session", _fork),
    "export": SlashCommand(
        "write this session to a file: Markdown, or .jsonl to import", reports.export_chat
    ),
    "clear": SlashCommand("start a new session, and clear the screen", _clear),
    "exit": SlashCommand("leave; so does Ctrl-D", _exit),
}
ALIASES = {"?": "help", "usage": "cost", "new": "clear", "quit": "exit"}
