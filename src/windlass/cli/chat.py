"""`windlass chat`: prompt by prompt, in one session."""

import asyncio
import sys
from dataclasses import replace
from typing import Any

import click
import msgspec

from windlass.cli.command_context import Desk, desk_for, memory, open_journal, person
from windlass.cli.line_editor import Prompt
from windlass.cli.options import agent_options, flags_of, limit_options, show_options
from windlass.cli.output import how_to_answer, summary
from windlass.cli.renderer import BAD, QUIET
from windlass.cli.session_picker import pick
from windlass.cli.slash_commands import HELP, Bill, show_help, show_sessions, show_tools
from windlass.cli.terminal_run import Stage, Work, staged
from windlass.core.errors import ConfigError, NothingToDo, RunUnfinished, WindlassError
from windlass.core.suggestions import did_you_mean
from windlass.environ import xdg_folder
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.models.vendors import vendors
from windlass.ports import Journal
from windlass.project.agents import Rig
from windlass.project.launches import context_of, find, latest, new_session

PICK = "?"
MARK, MORE = "\x1b[1;36m{} \x1b[0m", "\x1b[2m{} \x1b[0m"


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
    desk = desk_for(flags_of(given))
    stage = staged(quiet=quiet, thinking=desk.settings.thinking)
    desk = desk.with_model(stage.screen, ask=True)
    if no_session:
        asyncio.run(Chat(desk, stage, memory(), new_session(desk.folder)).talk())
        return
    with open_journal(desk.settings) as journal:
        name = asyncio.run(_session(journal, desk, session, again=again))
        asyncio.run(Chat(desk, stage, journal, name).talk())


async def _session(journal: SqliteJournal, desk: Desk, given: str | None, *, again: bool) -> str:
    if given == PICK:
        return (await pick(journal, desk.folder)).session
    if given is not None:
        return (await find(journal, given)).session
    return (await latest(journal, desk.folder)).session if again else new_session(desk.folder)


class Chat:
    """One conversation at one terminal."""

    def __init__(self, desk: Desk, stage: Stage, journal: Journal, session: str) -> None:
        self._desk = desk
        self._stage = stage
        self._screen = stage.screen
        self._journal = journal
        self._session = session
        self._bill = Bill()
        self._leaving = False

    async def talk(self) -> None:
        """Until the person leaves. Another model means another agent, in the same session."""
        glyphs, styled = self._screen.glyphs, self._screen.styled
        mark = (MARK if styled else "{} ").format(glyphs.person)
        more = (MORE if styled else "{} ").format(glyphs.cut)
        prompt = Prompt(mark, more, history=xdg_folder("STATE", ".local/state") / "history")
        with prompt.ready(_completions):
            while not self._leaving:
                async with self._desk.rig(self._stage, self._journal) as rig:
                    self._greet(rig)
                    await self._with(rig, prompt)
        if isinstance(self._journal, SqliteJournal) and self._bill.runs:
            self._say(f"To go on: windlass chat -r {self._session}")

    async def _with(self, rig: Rig, prompt: Prompt) -> None:
        """Talk with one agent, until another is wanted or the person leaves."""
        interrupted = False
        desk = self._desk
        while not self._leaving and self._desk is desk:
            try:
                # Nothing else goes on in this process meanwhile, so it may wait.
                text = prompt.read()
            except KeyboardInterrupt:
                self._screen.typed()
                print()
                self._leaving = interrupted
                if not interrupted:
                    self._say("Once more to leave, or Ctrl-D.")
                interrupted = True
                continue
            interrupted = False
            if text is None:
                print()
                self._leaving = True
            elif text.strip():
                await self._take(rig, text)

    async def _take(self, rig: Rig, text: str) -> None:
        try:
            if text.startswith("/") and "\n" not in text:
                await self._command(rig, *text[1:].split(None, 1))
            else:
                await self._ask(rig, text)
        except RunUnfinished:
            self._complain("the last run waits for an answer: /resume asks you again")
        except WindlassError as error:
            self._complain(str(error))

    async def _ask(self, rig: Rig, text: str) -> None:
        session = self._session
        await self._drive(
            rig,
            lambda watch: rig.agent.run(
                text,
                session=session,
                on_event=watch,
                caller=person(),
                context=context_of(self._desk.launch),
            ),
        )

    async def _drive(self, rig: Rig, work: Work) -> None:
        kept = isinstance(self._journal, SqliteJournal)
        result = await self._stage.drive(rig.agent, self._session, work, kept=kept)
        self._stage.live.conclude(result.text if result.completed else "")
        self._bill.add(result)
        if result.outcome == "suspended":
            how_to_answer(self._screen, self._session, result.questions)
        self._screen.line()
        summary(self._screen, result, named=False)
        self._screen.line()

    async def _command(self, rig: Rig, name: str = "", argument: str = "") -> None:
        argument = argument.strip()
        match name:
            case "help" | "?":
                show_help(self._screen)
            case "exit" | "quit":
                self._leaving = True
            case "tools":
                show_tools(self._screen, rig.toolbox.specs)
            case "usage" | "cost":
                self._bill.show(self._screen)
            case "model":
                self._model(argument)
            case "sessions":
                show_sessions(self._screen, await self._kept().sessions(limit=10))
            case "resume":
                await self._resume(rig, argument)
            case "clear" | "new":
                self._session, self._bill = new_session(self._desk.folder), Bill()
                click.clear()
                self._say("A new session.")
            case _:
                self._complain(f"there is no /{name}.{did_you_mean(name, HELP)}")

    def _model(self, name: str) -> None:
        if not name:
            self._say(f"{self._desk.settings.model}. To change it: /model PROVIDER:MODEL")
            return
        chosen = msgspec.structs.replace(self._desk.settings, model=name)
        # Whatever is wrong with it is said before the old one is left.
        desk = replace(self._desk, loaded=replace(self._desk.loaded, settings=chosen))
        desk.check_model()
        self._desk = desk

    async def _resume(self, rig: Rig, given: str) -> None:
        if given:
            self._session = (await find(self._kept(), given)).session
        try:
            await self._drive(
                rig,
                lambda watch: rig.agent.resume(self._session, consent=bool(given), on_event=watch),
            )
        except NothingToDo:
            self._say(f"Session {self._session}: nothing is open; go on with a prompt.")

    def _kept(self) -> SqliteJournal:
        if not isinstance(self._journal, SqliteJournal):
            raise ConfigError("with --no-session there are no others")
        return self._journal

    def _greet(self, rig: Rig) -> None:
        tools = len(rig.toolbox.specs)
        told = f"{rig.settings.model} {self._screen.glyphs.dot} {tools} tools"
        self._say(f"{told} {self._screen.glyphs.dot} {rig.folder} {self._screen.glyphs.dot} /help")

    def _say(self, text: str) -> None:
        self._screen.line(text, QUIET)

    def _complain(self, text: str) -> None:
        self._screen.line(text, BAD, mark=self._screen.glyphs.no)


def _completions(text: str) -> list[str]:
    if text.startswith("/model "):
        begun = text.removeprefix("/model ")
        return [f"/model {name}:" for name in vendors() if name.startswith(begun)]
    return [f"/{name} " for name in HELP if f"/{name}".startswith(text)] if text[:1] == "/" else []
