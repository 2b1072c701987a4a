"""`windlass chat`: prompt by prompt, in one session."""

import asyncio
import sys
from dataclasses import replace
from typing import Any

import click
import msgspec

from windlass.cli.command_context import (
    CommandContext,
    load_context,
    login_name,
    memory_journal,
    open_journal,
)
from windlass.cli.line_editor import LineEditor
from windlass.cli.options import agent_options, collect_flags, limit_options, show_options
from windlass.cli.output import show_answer_commands, show_summary
from windlass.cli.renderer import BAD, QUIET
from windlass.cli.session_picker import pick_session
from windlass.cli.slash_commands import (
    SLASH_COMMANDS,
    ChatUsage,
    show_help,
    show_sessions,
    show_tools,
)
from windlass.cli.terminal_run import RunWork, TerminalRun, open_terminal
from windlass.core.errors import ConfigError, NothingToDo, RunUnfinished, WindlassError
from windlass.core.suggestions import suggest_names
from windlass.environ import xdg_folder
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.models.vendors import load_vendors
from windlass.ports import Journal
from windlass.project.agents import AgentSession
from windlass.project.launches import find_latest, find_session, launch_context, new_session_name

PICK = "?"
PROMPT_STYLE, CONTINUATION_STYLE = "\x1b[1;36m{} \x1b[0m", "\x1b[2m{} \x1b[0m"


@click.command(
    epilog="""\b
Examples:
  windlass chat
  windlass chat -c                       go on where you left
  windlass chat -m ollama:qwen3 --tools read-only
In the chat: /help, Tab completes, Ctrl-C stops a run, Ctrl-D leaves."""
)
@agent_options
@limit_options
@click.option(
    "-c", "--continue", "again", is_flag=True, help="Go on with this folder's last session."
)
@click.option(
    "-r",
    "--resume",
    "session",
    metavar="[SESSION]",
    is_flag=False,
    flag_value=PICK,
    help="Go on with a session; a part of its name will do, none lets you choose.",
)
@click.option("--no-session", is_flag=True, help="Keep nothing of it.")
@show_options
def chat(
    again: bool,
    session: str | None,
    no_session: bool,
    quiet: bool,
    **given: Any,  # noqa: ANN401 - the shared options, by name
) -> None:
    """Talk with an agent in this folder.

    Everything is kept in the journal: leave whenever you like, and go on with `windlass chat -c`.
    """
    if not sys.stdin.isatty():
        raise ConfigError("a chat needs a terminal; for scripts there is `windlass run`")
    if no_session and (again or session):
        raise ConfigError("--no-session keeps nothing, so there is nothing to go on with")
    desk = load_context(collect_flags(given))
    stage = open_terminal(quiet=quiet, thinking=desk.settings.thinking)
    desk = desk.choose_model(stage.screen, ask_person=True)
    if no_session:
        asyncio.run(
            ChatSession(desk, stage, memory_journal(), new_session_name(desk.folder)).run_chat()
        )
        return
    with open_journal(desk.settings) as journal:
        name = asyncio.run(_choose_session(journal, desk, session, again=again))
        asyncio.run(ChatSession(desk, stage, journal, name).run_chat())


async def _choose_session(
    journal: SqliteJournal, desk: CommandContext, given: str | None, *, again: bool
) -> str:
    if given == PICK:
        return (await pick_session(journal, desk.folder)).session
    if given is not None:
        return (await find_session(journal, given)).session
    return (
        (await find_latest(journal, desk.folder)).session
        if again
        else new_session_name(desk.folder)
    )


class ChatSession:
    """One conversation at one terminal."""

    def __init__(
        self, desk: CommandContext, stage: TerminalRun, journal: Journal, session: str
    ) -> None:
        self._context = desk
        self._terminal = stage
        self._screen = stage.screen
        self._journal = journal
        self._session = session
        self._usage = ChatUsage()
        self._leaving = False

    async def run_chat(self) -> None:
        """Until the person leaves. Another model means another agent, in the same session."""
        glyphs, styled = self._screen.glyphs, self._screen.styled
        mark = (PROMPT_STYLE if styled else "{} ").format(glyphs.person)
        more = (CONTINUATION_STYLE if styled else "{} ").format(glyphs.cut)
        prompt = LineEditor(mark, more, history=xdg_folder("STATE", ".local/state") / "history")
        with prompt.enable_readline(_complete_input):
            while not self._leaving:
                async with self._context.open_agent(self._terminal, self._journal) as rig:
                    self._show_greeting(rig)
                    await self._talk_with(rig, prompt)
        if isinstance(self._journal, SqliteJournal) and self._usage.runs:
            self._show_note(f"To go on: windlass chat -r {self._session}")

    async def _talk_with(self, rig: AgentSession, prompt: LineEditor) -> None:
        """Talk with one agent, until another is wanted or the person leaves."""
        interrupted = False
        desk = self._context
        while not self._leaving and self._context is desk:
            try:
                # Nothing else goes on in this process meanwhile, so it may wait.
                text = prompt.read_prompt()
            except KeyboardInterrupt:
                self._screen.forget_line()
                print()
                self._leaving = interrupted
                if not interrupted:
                    self._show_note("Once more to leave, or Ctrl-D.")
                interrupted = True
                continue
            interrupted = False
            if text is None:
                print()
                self._leaving = True
            elif text.strip():
                await self._handle_input(rig, text)

    async def _handle_input(self, rig: AgentSession, text: str) -> None:
        try:
            if text.startswith("/") and "\n" not in text:
                await self._run_command(rig, *text[1:].split(None, 1))
            else:
                await self._run_prompt(rig, text)
        except RunUnfinished:
            self._show_error("the last run waits for an answer: /resume asks you again")
        except WindlassError as error:
            self._show_error(str(error))

    async def _run_prompt(self, rig: AgentSession, text: str) -> None:
        session = self._session
        await self._drive_run(
            rig,
            lambda watch: rig.agent.run(
                text,
                session=session,
                on_event=watch,
                caller=login_name(),
                context=launch_context(self._context.launch),
            ),
        )

    async def _drive_run(self, rig: AgentSession, work: RunWork) -> None:
        kept = isinstance(self._journal, SqliteJournal)
        result = await self._terminal.drive_run(rig.agent, self._session, work, kept=kept)
        self._terminal.live.ensure_reply_shown(result.text if result.completed else "")
        self._usage.add_run(result)
        if result.outcome == "suspended":
            show_answer_commands(self._screen, self._session, result.questions)
        self._screen.write_line()
        show_summary(self._screen, result, show_session=False)
        self._screen.write_line()

    async def _run_command(self, rig: AgentSession, name: str = "", argument: str = "") -> None:
        argument = argument.strip()
        match name:
            case "help" | "?":
                show_help(self._screen)
            case "exit" | "quit":
                self._leaving = True
            case "tools":
                show_tools(self._screen, rig.toolbox.specs)
            case "usage" | "cost":
                self._usage.show_usage(self._screen)
            case "model":
                self._change_model(argument)
            case "sessions":
                show_sessions(self._screen, await self._require_journal().sessions(limit=10))
            case "resume":
                await self._resume_session(rig, argument)
            case "clear" | "new":
                self._session, self._usage = new_session_name(self._context.folder), ChatUsage()
                click.clear()
                self._show_note("A new session.")
            case _:
                self._show_error(f"there is no /{name}.{suggest_names(name, SLASH_COMMANDS)}")

    def _change_model(self, name: str) -> None:
        if not name:
            self._show_note(f"{self._context.settings.model}. To change it: /model PROVIDER:MODEL")
            return
        chosen = msgspec.structs.replace(self._context.settings, model=name)
        # Whatever is wrong with it is said before the old one is left.
        desk = replace(self._context, loaded=replace(self._context.loaded, settings=chosen))
        desk.check_model()
        self._context = desk

    async def _resume_session(self, rig: AgentSession, given: str) -> None:
        if given:
            self._session = (await find_session(self._require_journal(), given)).session
        try:
            await self._drive_run(
                rig,
                lambda watch: rig.agent.resume(self._session, consent=bool(given), on_event=watch),
            )
        except NothingToDo:
            self._show_note(f"Session {self._session}: nothing is open; go on with a prompt.")

    def _require_journal(self) -> SqliteJournal:
        if not isinstance(self._journal, SqliteJournal):
            raise ConfigError("with --no-session there are no others")
        return self._journal

    def _show_greeting(self, rig: AgentSession) -> None:
        tools = len(rig.toolbox.specs)
        told = f"{rig.settings.model} {self._screen.glyphs.dot} {tools} tools"
        self._show_note(
            f"{told} {self._screen.glyphs.dot} {rig.folder} {self._screen.glyphs.dot} /help"
        )

    def _show_note(self, text: str) -> None:
        self._screen.write_line(text, QUIET)

    def _show_error(self, text: str) -> None:
        self._screen.write_line(text, BAD, mark=self._screen.glyphs.no)


def _complete_input(text: str) -> list[str]:
    if text.startswith("/model "):
        begun = text.removeprefix("/model ")
        return [f"/model {name}:" for name in load_vendors() if name.startswith(begun)]
    return (
        [f"/{name} " for name in SLASH_COMMANDS if f"/{name}".startswith(text)]
        if text[:1] == "/"
        else []
    )
