"""A chat from its first prompt to its last: prompts, runs, and what is typed during a run."""

import asyncio
import os
import signal
from collections.abc import Awaitable
from dataclasses import replace
from functools import partial

import click

from windlass.cli.chat.commands import (
    SLASH_COMMANDS,
    change_mode,
    complete_argument,
    next_mode,
    run_slash_command,
)
from windlass.cli.chat.completion import ChatCompleter
from windlass.cli.chat.keys import strip_quotes
from windlass.cli.chat.live_page import LivePage
from windlass.cli.chat.prompt_line import PromptFrame, PromptLine
from windlass.cli.chat.references import (
    ExpandedPrompt,
    expand_prompt,
    names_file,
    run_shell_command,
)
from windlass.cli.chat.reports import format_session
from windlass.cli.chat.runs import ChatRuns
from windlass.cli.chat.server_prompts import prompt_commands
from windlass.cli.chat.state import (
    ChatState,
    FilePromptTask,
    PromptTask,
    ResumeTask,
    RewindTask,
    ServerPromptTask,
    UndoTask,
)
from windlass.cli.screen import CALL_STYLE, PERSON, QUIET
from windlass.cli.status import format_context_left, format_usd
from windlass.cli.terminal import keep_typed_keys
from windlass.core.errors import RunUnfinished, WindlassError
from windlass.core.messages import TextPart
from windlass.core.text_clip import printable_chars
from windlass.environ import find_login_name, xdg_folder
from windlass.journals.forking import fork as fork_session
from windlass.logs import forward_warnings
from windlass.project.agent_session import AgentSession
from windlass.project.command_files import load_command_files
from windlass.project.launches import launch_context
from windlass.project.session_names import new_session_name
from windlass.project.surroundings import describe_surroundings

HISTORY_FILE = "prompts"
SHOWN_LINES_MAX = 12
"""Lines of a sent prompt that stay on the page."""
PLAN_NOTE = (
    "\n\n[Plan mode: look, but change nothing. End with a plan in numbered steps, for the person "
    "to accept or correct.]"
)
ACCEPT_PROMPT = "The plan is accepted. Carry it out."
PLAN_KEYS = "y carry it out, asking me   e carry it out, edits allowed   n go on planning"


class ChatSession:
    """Talks with a person until they leave."""

    def __init__(self, state: ChatState, page: LivePage | None) -> None:
        self._chat = state
        self._page = page
        self._frame = PromptFrame(
            self._format_status, self._format_waiting, before_draw=state.screen.update_width
        )
        settings = state.context.agent.settings
        self._commands: dict[str, str] = {}
        self._prompt = PromptLine(
            page,
            self._frame,
            state.screen.glyphs,
            history=xdg_folder("STATE", ".local/state") / HISTORY_FILE,
            completer=ChatCompleter(self._commands, complete_argument, state.context.agent.folder),
            vi_keys=settings.editing == "vi",
        )
        self._runs = ChatRuns(state, None if page is None else self._prompt, self._frame)
        self._greeted_model = ""
        # In raw mode, Ctrl-C is a key: it becomes the signal that a run listens to.
        self._prompt.actions.interrupt = lambda: os.kill(os.getpid(), signal.SIGINT)

    async def run_chat(self) -> int:
        """Talk until the person leaves; the exit code. A new model or mode means a new agent."""
        chat = self._chat
        asker = chat.context.terminal.question_prompt
        if asker is not None:
            asker.use_hold(self._prompt.hold)
        # A tool may warn from its own thread, and only this one writes on the page.
        loop = asyncio.get_running_loop()
        show = partial(loop.call_soon_threadsafe, chat.show_note)
        with keep_typed_keys(), forward_warnings(show):
            while not chat.is_leaving:
                async with chat.context.open_session(chat.journal) as opened:
                    self._show_greeting(opened)
                    self._complete_commands(opened)
                    await self._talk_with(opened)
        if chat.journal.is_kept and chat.usage.runs:
            chat.show_note(f"To continue: windlass chat -r {chat.session}")
        return 128 + self._prompt.left_by if self._prompt.left_by else 0

    async def _talk_with(self, opened: AgentSession) -> None:
        """Talk with one agent, until the person wants another one or leaves."""
        chat = self._chat
        context = chat.context
        was_interrupted = False
        while not chat.is_leaving and chat.context is context:
            if chat.tasks:
                await self._perform_task(opened)
                continue
            typed = await self._prompt.read()
            match typed.action:
                case "leave":
                    chat.is_leaving = True
                case "interrupt":
                    chat.is_leaving = was_interrupted
                    if not was_interrupted:
                        chat.show_note("Press Ctrl-C again to leave, or Ctrl-D.")
                case "mode":
                    change_mode(chat, next_mode(chat.mode))
                case "transcript":
                    await self._show_transcript()
                case _:
                    await self._handle_input(opened, typed.text)
            was_interrupted = typed.action == "interrupt"

    async def _perform_task(self, opened: AgentSession) -> None:
        _exit_on_interrupt()
        task = self._chat.tasks.popleft()
        match task:
            case PromptTask(text, is_typed):
                await self._handle_input(opened, text, is_typed=is_typed)
            case ServerPromptTask(prompt):
                await self._guard(self._run_parts(opened, prompt, typed=""))
            case FilePromptTask(text, typed):
                await self._guard(self._run_prompt(opened, text, is_typed=False, own_words=typed))
            case ResumeTask(consent):
                await self._guard(self._runs.resume(opened, consent=consent))
            case RewindTask():
                await self._guard(self._rewind(opened, task))
            case UndoTask():
                await self._guard(self._runs.undo(opened))

    async def _handle_input(
        self, opened: AgentSession, text: str, *, is_typed: bool = True
    ) -> None:
        text = strip_quotes(text)
        if not text.strip():
            return
        screen = self._chat.screen
        lines = self._prompt.pastes.fold(text).splitlines()
        hidden = len(lines) - SHOWN_LINES_MAX
        screen.write_line("\n".join(lines[:SHOWN_LINES_MAX]), PERSON, mark=screen.glyphs.person)
        if hidden > 0:
            self._chat.show_note(f"  {screen.glyphs.cut} +{hidden} lines")
        if text.startswith("!"):
            self._run_shell(text[1:].strip())
        elif text.startswith("/") and "\n" not in text and not names_file(text):
            await self._guard(run_slash_command(self._chat, opened, text))
        else:
            await self._guard(self._run_prompt(opened, text, is_typed=is_typed))

    async def _rewind(self, opened: AgentSession, task: RewindTask) -> None:
        """Return to before a message, which is then at the prompt again."""
        chat = self._chat
        if task.files:
            await self._runs.undo_from(opened, task.run)
        if not task.conversation:
            return
        before = chat.session
        name = new_session_name(chat.context.agent.folder)
        if task.at:
            name = await fork_session(chat.journal, before, task.at, name)
        chat.start_session(name)
        self._prompt.set_draft(task.text)
        chat.show_note(f"Now in {name}. The whole conversation stays as it was: {before}")

    async def _show_transcript(self) -> None:
        facts = await self._chat.journal.read(self._chat.session)
        # The pager has the terminal for itself.
        whole = format_session(facts, result_chars_max=None)
        click.echo_via_pager(printable_chars(whole, keep="\n\t"))

    async def _guard(self, work: Awaitable[None]) -> None:
        """Do something, and show what went wrong with it."""
        try:
            await work
        except RunUnfinished:
            self._chat.show_error(
                "the last run has not ended: /resume goes on with it, and asks again"
            )
        except WindlassError as error:
            self._chat.show_error(str(error))

    def _run_shell(self, command: str) -> None:
        chat = self._chat
        if not command:
            chat.show_note("Write a command behind the exclamation mark: !git status")
            return

        def show(line: str) -> None:
            chat.screen.write_verbatim(f"  {line}", QUIET)
            chat.screen.start_new_line()

        output, code = run_shell_command(command, chat.context.agent.folder, show)
        chat.notes.add(command, output, code)
        if code:
            chat.show_error(f"exit code {code}")

    async def _run_prompt(
        self, opened: AgentSession, text: str, *, is_typed: bool, own_words: str | None = None
    ) -> None:
        chat = self._chat
        agent = chat.context.agent
        prompt = expand_prompt(text, agent.folder, chat.notes, own_words)
        for problem in prompt.problems:
            chat.show_error(problem)
        if prompt.names:
            chat.screen.write_line(f"attached: {', '.join(prompt.names)}", QUIET, indent=2)
        typed = chat.remember_typed(text) if is_typed else ""
        await self._run_parts(opened, prompt, typed)

    async def _run_parts(self, opened: AgentSession, prompt: ExpandedPrompt, typed: str) -> None:
        """Do a run with a prompt and all that it brings along."""
        chat = self._chat
        agent = chat.context.agent
        changes = await opened.take_changed_tools()
        for change in changes:
            self._chat.show_note(f"MCP servers have changed: {change}")
        if changes:
            self._chat.context.show_tools_to_person(opened)
            self._complete_commands(opened)
        await self._runs.end_stopped_run(opened.agent)
        parts = prompt.parts
        if chat.mode == "plan":
            parts = (*parts, TextPart(PLAN_NOTE, by_program=True))
        if opened.toolbox.specs and not await chat.journal.read(chat.session):
            parts = (*parts, describe_surroundings(agent.folder, agent.project.environ))
        result = await self._runs.drive(
            opened,
            lambda watch: opened.agent.run(
                parts,
                session=chat.session,
                on_event=watch,
                caller=find_login_name(),
                context=launch_context(agent, typed),
                labels=prompt.labels,
            ),
        )
        if agent.compaction is not None:
            # It was asked for once. From now on, the agent has its own way again.
            chat.context = replace(chat.context, agent=replace(agent, compaction=None))
        if result.completed and chat.mode == "plan":
            await self._offer_plan()

    def _complete_commands(self, opened: AgentSession) -> None:
        """Complete the commands of the chat, and the prompts of the servers that are open."""
        self._commands.clear()
        names = {name: command.about for name, command in SLASH_COMMANDS.items()}
        self._commands.update(names)
        files = load_command_files(self._chat.context.agent.project)
        self._commands.update({name: f.about for name, f in files.items() if name not in names})
        self._commands.update(prompt_commands(opened.servers))

    def _format_waiting(self) -> list[str]:
        """What was typed and waits: for the next step of the run, or for its end."""
        chat = self._chat
        said = [f"said: {text}" for text in chat.context.terminal.live.unheard_texts]
        queued = [f"queued: {task.text}" for task in chat.tasks if isinstance(task, PromptTask)]
        return [chat.screen.clip_to_line(text) for text in (*said, *queued)]

    async def _offer_plan(self) -> None:
        """Ask whether the plan may be carried out, and in which mode."""
        chat = self._chat
        asker = chat.context.terminal.question_prompt
        if asker is None:
            return
        _exit_on_interrupt()
        key = await asker.choose_key(PLAN_KEYS, "yen")
        if key in ("y", "e"):
            change_mode(chat, "ask" if key == "y" else "allow-edits")
            chat.tasks.appendleft(PromptTask(ACCEPT_PROMPT, is_typed=False))

    def _format_status(self) -> str:
        """The line above the prompt: what the run does, or what the next one would begin with."""
        chat = self._chat
        if self._frame.is_running:
            return chat.context.terminal.status.draw_line()
        parts = [chat.context.agent.settings.model, chat.mode]
        parts += format_context_left(chat.last_view)
        if chat.usage.usd:
            parts.append(format_usd(chat.usage.usd))
        return f" {chat.screen.glyphs.dot} ".join(parts)

    def _show_greeting(self, opened: AgentSession) -> None:
        chat = self._chat
        agent = chat.context.agent
        if agent.settings.model == self._greeted_model:
            return
        self._greeted_model = agent.settings.model
        tools = f"{len(opened.toolbox.specs)} tools"
        parts = (agent.settings.model, chat.mode, tools, str(agent.folder), "/help")
        chat.screen.write_line(
            f" {chat.screen.glyphs.dot} ".join(parts),
            QUIET,
            mark=chat.screen.glyphs.progress,
            mark_style=CALL_STYLE,
        )


def _exit_on_interrupt() -> None:
    """Let Ctrl-C exit again, before what no prompt and no run handles it for."""
    asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
