"""`windlass resume`: go on with what was killed, or waits."""

import asyncio
import sys
from collections.abc import Mapping
from typing import Any

import click

from windlass.cli.command_context import load_context, load_session_context, open_journal
from windlass.cli.exit_codes import DONE
from windlass.cli.options import agent_options, collect_flags, limit_options, show_options
from windlass.cli.output import OUTPUT_FORMATS, OutputFormat
from windlass.cli.renderer import TROUBLE
from windlass.cli.screen import Screen
from windlass.cli.terminal_run import TerminalRun, open_terminal
from windlass.core.errors import ConfigError, NothingToDo, SetupDrifted
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.project.launches import find_latest, find_session


@click.command(
    epilog="""\b
Examples:
  windlass resume                  the last unfinished run of this folder
  windlass resume a83f90           a session, by a part of its name
  windlass resume --all            everything that nobody drives any more"""
)
@click.argument("session", required=False)
@click.option("--all", "everything", is_flag=True, help="All runs that were killed, one by one.")
@click.option("--consent", is_flag=True, help="Go on although the set-up changed since.")
@agent_options
@limit_options
@click.option(
    "--output-format",
    "form",
    type=click.Choice(OUTPUT_FORMATS),
    default="text",
    help="What is printed.",
)
@show_options
def resume(
    session: str | None,
    everything: bool,
    consent: bool,
    form: OutputFormat,
    quiet: bool,
    **given: Any,  # noqa: ANN401 - the shared options, by name
) -> None:
    """Go on with a run that was killed or waits, exactly where its journal ends.

    It is set up as it was started: in its folder, with its model, tools and policy; what is given
    here goes before that. Finished calls are not run again, and no reply is paid for twice.
    """
    if everything and session:
        raise ConfigError("either a session or --all, not both")
    flags = collect_flags(given)
    stage = open_terminal(
        output_format=form, quiet=quiet, thinking=load_context(flags).settings.thinking
    )
    work = (
        _resume_all(stage, flags, consent)
        if everything
        else _resume_one(stage, session, flags, consent)
    )
    sys.exit(asyncio.run(work))


async def _resume_one(
    stage: TerminalRun, session: str | None, flags: Mapping[str, object], consent: bool
) -> int:
    here = load_context(_journal_flag(flags))
    with open_journal(here.settings) as journal:
        if session is None:
            name = (await find_latest(journal, here.folder, unfinished=True)).session
        else:
            name = (await find_session(journal, session)).session
        return await resume_run(stage, journal, name, flags, consent=consent)


async def _resume_all(stage: TerminalRun, flags: Mapping[str, object], consent: bool) -> int:
    here = load_context(_journal_flag(flags))
    with open_journal(here.settings) as journal:
        # A sub-agent's session, SESSION/CALL, is its caller's to go on with.
        found = [one for one in await journal.abandoned() if "/" not in one.session]
        if not found:
            raise NothingToDo("there is no run that nobody drives")
        codes = [
            await resume_run(stage, journal, one.session, flags, consent=consent, title=one.title)
            for one in found
        ]
    return next((code for code in codes if code != DONE), DONE)


async def resume_run(
    stage: TerminalRun,
    journal: SqliteJournal,
    session: str,
    flags: Mapping[str, object],
    *,
    consent: bool = False,
    title: str = "",
) -> int:
    """Drive a session's open run to its end; the exit code for it."""
    if title:
        stage.screen.write_line(f"{session}: {title}", mark=stage.screen.glyphs.person)
    desk = await load_session_context(journal, session, flags)
    stage.live.learn_calls(await journal.read(session))
    async with desk.open_agent(stage, journal) as rig:
        try:
            result = await stage.drive_run(
                rig.agent,
                session,
                lambda watch: rig.agent.resume(session, consent=consent, on_event=watch),
            )
        except SetupDrifted as error:
            _show_drift(stage.screen, error)
            raise ConfigError("go on all the same with --consent") from None
    return stage.report_result(result, desk.settings.model)


def _show_drift(screen: Screen, error: SetupDrifted) -> None:
    screen.write_line("The set-up is another than the one that the run began with:", TROUBLE)
    for change in error.drift:
        screen.write_line(change, TROUBLE, mark=screen.glyphs.trouble, indent=2)


def _journal_flag(flags: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in flags.items() if key == "journal"}
