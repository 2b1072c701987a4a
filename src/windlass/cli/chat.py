"""`windlass chat`: prompt by prompt, in one session."""

import asyncio
import sys
from dataclasses import replace
from typing import Any

import click

from windlass.cli.command_context import CommandContext, load_context
from windlass.cli.line_editor import LineEditor
from windlass.cli.options import (
    agent_options,
    collect_flags,
    limit_options,
    refuse_without_session,
    session_options,
    show_options,
)
from windlass.cli.output import show_answer_commands, show_summary
from windlass.cli.screen import BAD, QUIET
from windlass.cli.session_picker import choose_session
from windlass.cli.slash_commands import (
    SLASH_COMMANDS,
    ChatUsage,
    show_help,
    show_sessions,
    show_tools,
)
from windlass.cli.terminal_run import RunWork
from windlass.core.errors import ConfigError, NothingToDo, RunUnfinished, WindlassError
from windlass.core.suggestions import suggest_names
from windlass.environ import find_login_name, xdg_folder
from windlass.journals.memory import MemoryJournal
from windlass.models.vendors import load_vendors
from windlass.project.agents import AgentSession
from windlass.project.journals import ManagedJournal, is_kept
from windlass.project.launches import launch_context
from windlass.project.session_names import find_session, new_session_name

PROMPTS_KEPT = 10
PROMPT_STYLE = "\x1b[1;36m{}\x1b[0m"
CONTINUATION_STYLE = "\x1b[2m{}\x1b[0m"


@click.command(
    epilog="""\b
Examples:
  windlass chat
  windlass chat -c                       continue where you left off
  windlass chat -m ollama:qwen3 --tools read-only
In the chat: /help, Tab completes, Ctrl-C stops a run, Ctrl-D leaves."""
)
@agent_options
@limit_options
@session_options
@show_options
def chat(
    latest: bool,
    session: str | None,
    no_session: bool,
    quiet: bool,
    **given: Any,  # noqa: ANN401 - the shared options, by name
) -> None:
    """Talk with an agent in this folder.

    Everything is recorded in the journal: leave at any time, and continue with `windlass chat -c`.
    """
    if not sys.stdin.isatty():
        raise ConfigError("a chat needs a terminal. In scripts, use windlass run.")
    refuse_without_session(no_session=no_session, latest=latest, session=session)
    flags = collect_flags(given)
    context = load_context(flags, quiet=quiet, trust=given["trust"]).with_chosen_model()
    new_name = new_session_name(context.agent.folder)
    if no_session:
        asyncio.run(ChatSession(context, MemoryJournal(), new_name).run_chat())
    else:
        asyncio.run(_chat_in_journal(context, new_name, session, latest=latest))


async def _chat_in_journal(
    context: CommandContext, new_name: str, session: str | None, *, latest: bool
) -> None:
    async with context.open_journal() as journal:
        found = await choose_session(journal, context.agent.folder, session, latest=latest)
        name = found.session if found else new_name
        await ChatSession(context, journal, name).run_chat()


class ChatSession:
    """One conversation at one terminal."""

    def __init__(self, context: CommandContext, journal: ManagedJournal, session: str) -> None:
        self._context = context
        self._terminal = context.terminal
        self._screen = context.terminal.screen
        self._journal = journal
        self._session = session
        self._usage = ChatUsage()
        self._leaving = False
        self._prompts: list[str] = []
        """What the person typed last, the latest first."""

    async def run_chat(self) -> None:
        """Talk until the person leaves. A new model means a new agent, in the same session."""
        editor = self._build_editor()
        with editor.enable_readline(_complete_input):
            while not self._leaving:
                async with self._context.open_session(self._journal) as opened:
                    self._show_greeting(opened)
                    await self._talk_with(opened, editor)
        if is_kept(self._journal) and self._usage.runs:
            self._show_note(f"To continue: windlass chat -r {self._session}")

    def _build_editor(self) -> LineEditor:
        mark = f"{self._screen.glyphs.person} "
        more = f"{self._screen.glyphs.cut} "
        if self._screen.styled:
            mark = PROMPT_STYLE.format(mark)
            more = CONTINUATION_STYLE.format(more)
        return LineEditor(mark, more, history=xdg_folder("STATE", ".local/state") / "history")

    async def _talk_with(self, opened: AgentSession, editor: LineEditor) -> None:
        """Talk with one agent, until the person wants another one or leaves."""
        interrupted = False
        context = self._context
        while not self._leaving and self._context is context:
            try:
                # This blocks the event loop, which has nothing else to do between two runs.
                text = editor.read_prompt()
            except KeyboardInterrupt:
                self._screen.forget_line()
                print()
                self._leaving = interrupted
                if not interrupted:
                    self._show_note("Press Ctrl-C again to leave, or Ctrl-D.")
                interrupted = True
                continue
            interrupted = False
            if text is None:
                print()
                self._leaving = True
            elif text.strip():
                await self._handle_input(opened, text)

    async def _handle_input(self, opened: AgentSession, text: str) -> None:
        try:
            if text.startswith("/") and "\n" not in text:
                await self._run_command(opened, *text[1:].split(None, 1))
            else:
                await self._run_prompt(opened, text)
        except RunUnfinished:
            self._show_error("the last run waits for your answer: /resume asks again")
        except WindlassError as error:
            self._show_error(str(error))

    async def _run_prompt(self, opened: AgentSession, text: str) -> None:
        session = self._session
        # An address may be looked at again, in a later run of the same chat.
        self._prompts = [text, *self._prompts][:PROMPTS_KEPT]
        typed = "\n".join(self._prompts)
        await self._drive_run(
            opened,
            lambda watch: opened.agent.run(
                text,
                session=session,
                on_event=watch,
                on_partial="restart",
                caller=find_login_name(),
                context=launch_context(self._context.agent, typed),
            ),
        )

    async def _drive_run(self, opened: AgentSession, work: RunWork) -> None:
        kept = is_kept(self._journal)
        result = await self._terminal.drive_run(opened.agent, self._session, work, is_kept=kept)
        self._terminal.live.ensure_reply_shown(result.text if result.completed else "")
        self._usage.add_run(result)
        if result.outcome == "suspended":
            show_answer_commands(self._screen, self._session, result.questions)
        self._screen.write_line()
        show_summary(self._screen, result, show_session=False)
        self._screen.write_line()

    async def _run_command(self, opened: AgentSession, name: str = "", argument: str = "") -> None:
        argument = argument.strip()
        match name:
            case "help" | "?":
                show_help(self._screen)
            case "exit" | "quit":
                self._leaving = True
            case "tools":
                show_tools(self._screen, opened.toolbox.specs)
            case "usage" | "cost":
                self._usage.show_usage(self._screen)
            case "model":
                self._change_model(argument)
            case "sessions":
                show_sessions(self._screen, await self._require_journal().sessions(limit=10))
            case "resume":
                await self._resume_session(opened, argument)
            case "undo":
                await self._drive_run(
                    opened,
                    lambda watch: opened.agent.undo(
                        self._session, caller=find_login_name(), on_event=watch
                    ),
                )
            case "clear" | "new":
                self._session = new_session_name(self._context.agent.folder)
                self._usage = ChatUsage()
                self._prompts = []
                click.clear()
                self._show_note("A new session.")
            case _:
                hint = suggest_names(name, SLASH_COMMANDS)
                self._show_error(f"there is no command /{name}.{hint}")

    def _change_model(self, name: str) -> None:
        agent = self._context.agent
        if not name:
            self._show_note(f"{agent.settings.model}. To change it: /model PROVIDER:MODEL")
            return
        agent = agent.with_model(name)
        # A wrong name is reported while the old model is still in use.
        agent.check_model()
        self._context = replace(self._context, agent=agent)

    async def _resume_session(self, opened: AgentSession, name: str) -> None:
        if name:
            self._session = (await find_session(self._require_journal(), name)).session
        try:
            await self._drive_run(
                opened,
                # A session that was named may have another configuration: naming it is consent.
                lambda watch: opened.agent.resume(
                    self._session, consent=bool(name), on_event=watch
                ),
            )
        except NothingToDo:
            self._show_note(f"Session {self._session} has no open run. Continue with a prompt.")

    def _require_journal(self) -> ManagedJournal:
        if not is_kept(self._journal):
            raise ConfigError("with --no-session there are no other sessions")
        return self._journal

    def _show_greeting(self, opened: AgentSession) -> None:
        agent = self._context.agent
        tools = f"{len(opened.toolbox.specs)} tools"
        parts = (agent.settings.model, tools, str(agent.folder), "/help")
        self._show_note(f" {self._screen.glyphs.dot} ".join(parts))

    def _show_note(self, text: str) -> None:
        self._screen.write_line(text, QUIET)

    def _show_error(self, text: str) -> None:
        self._screen.write_line(text, BAD, mark=self._screen.glyphs.no)


def _complete_input(text: str) -> list[str]:
    """The slash commands, or the providers after `/model`, that the text may become."""
    if text.startswith("/model "):
        typed = text.removeprefix("/model ")
        return [f"/model {name}:" for name in load_vendors() if name.startswith(typed)]
    if not text.startswith("/"):
        return []
    return [f"/{name} " for name in SLASH_COMMANDS if f"/{name}".startswith(text)]
