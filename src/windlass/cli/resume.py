"""`windlass resume`: finish a run that was killed or waits."""

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click

from windlass.agent.control import resume as end_pause
from windlass.cli.command_context import CommandContext, load_context
from windlass.cli.control import TAKEN_WAIT_S
from windlass.cli.exit_codes import DONE
from windlass.cli.options import agent_options, collect_flags, limit_options, show_options
from windlass.cli.output import OUTPUT_FORMATS, OutputFormat
from windlass.cli.screen import TROUBLE, Screen
from windlass.core.errors import ConfigError, NothingToDo, SetupDrifted
from windlass.core.fold.run import fold
from windlass.core.session_summary import SessionSummary
from windlass.environ import find_login_name
from windlass.project.journals import ManagedJournal
from windlass.project.launches import explain_program_run, is_run_imported, load_recorded_agent
from windlass.project.session_names import find_latest, find_session

RESUMED_MAX = 10_000
"""Runs that `--all` resumes at most."""


@click.command(
    epilog="""\b
Examples:
  windlass resume                  the latest unfinished run of this folder
  windlass resume a83f90           a session, by part of its name
  windlass resume --all            every run whose process has died"""
)
@click.argument("session", required=False)
@click.option("--all", "everything", is_flag=True, help="Resume all interrupted runs, one by one.")
@click.option("--consent", is_flag=True, help="Resume although the configuration has changed.")
@agent_options
@limit_options
@click.option(
    "--output-format",
    type=click.Choice(OUTPUT_FORMATS),
    default="text",
    help="What is printed: the reply, one JSON object, or a line of JSON per event.",
)
@show_options
def resume(
    session: str | None,
    everything: bool,
    consent: bool,
    output_format: OutputFormat,
    quiet: bool,
    **given: Any,  # noqa: ANN401 - the shared options, by name
) -> None:
    """Resume a run that was killed or waits for an answer, exactly where its journal ends.

    The agent is built as it was when the run started: same folder, model, tools and policy. Options
    given here replace single settings. Finished calls do not run again, and no reply is paid for
    twice. A run that a program started with its own agent is resumed by that program.
    """
    if everything and session:
        raise ConfigError("give a session or --all, not both")
    flags = collect_flags(given)
    context = load_context(flags, output_format=output_format, quiet=quiet, trust=given["trust"])
    if everything:
        work = _resume_all(context, flags, consent)
    else:
        work = _resume_one(context, session, flags, consent)
    sys.exit(asyncio.run(work))


async def _resume_one(
    context: CommandContext, session: str | None, flags: Mapping[str, object], consent: bool
) -> int:
    async with context.open_journal() as journal:
        if session is None:
            summary = await find_latest(journal, context.agent.folder, unfinished=True)
        else:
            summary = await find_session(journal, session)
        return await resume_run(context, journal, summary.session, flags, consent=consent)


async def _resume_all(context: CommandContext, flags: Mapping[str, object], consent: bool) -> int:
    """Resume one run after the other; returns the first exit code that is not 0."""
    async with context.open_journal() as journal:
        found = await _list_own_runs(journal, context.terminal.screen)
        if not found:
            raise NothingToDo(
                "there is no run to resume: every run has ended, is running, or waits for an answer"
            )
        codes: list[int] = []
        for summary in found:
            screen = context.terminal.screen
            if summary.title:
                line = f"{summary.session}: {summary.title}"
                screen.write_line(line, mark=screen.glyphs.person)
            codes.append(
                await resume_run(context, journal, summary.session, flags, consent=consent)
            )
    return next((code for code in codes if code != DONE), DONE)


async def _list_own_runs(journal: ManagedJournal, screen: Screen) -> list[SessionSummary]:
    """The abandoned runs that the command line can resume; says which ones it leaves to others."""
    found: list[SessionSummary] = []
    for summary in await journal.list_abandoned(limit=RESUMED_MAX):
        if summary.parent:
            # The session of a sub-agent is resumed by the run that it works for.
            continue
        owner = explain_program_run(summary.session, await journal.read(summary.session))
        if owner:
            screen.write_line(f"{summary.session} is left out: {owner}.")
            continue
        found.append(summary)
    return found


async def resume_run(
    context: CommandContext,
    journal: ManagedJournal,
    session: str,
    flags: Mapping[str, object],
    *,
    consent: bool = False,
) -> int:
    """Finish a session's open run with the agent that it was started with; its exit code."""
    if await _end_pause_elsewhere(journal, session, context.terminal.screen):
        return DONE
    facts = await journal.read(session)
    owner = explain_program_run(session, facts)
    if owner and fold(session, facts).is_active:
        raise ConfigError(f"session {session} is not resumed from here: {owner}")
    agent = await load_recorded_agent(journal, session, flags, open_folder=context.open_folder)
    context = replace(context, agent=agent)
    terminal = context.terminal
    terminal.live.learn_calls(facts)
    if is_run_imported(facts):
        _show_import(terminal.screen, context)
    async with context.open_session(journal) as opened:
        try:
            result = await terminal.drive_run(
                opened.agent,
                session,
                lambda watch: opened.agent.resume(session, consent=consent, on_event=watch),
            )
        except SetupDrifted as error:
            _show_drift(terminal.screen, error)
            raise ConfigError("to resume anyway, add --consent") from None
    return terminal.report_result(result)


async def _end_pause_elsewhere(journal: ManagedJournal, session: str, screen: Screen) -> bool:
    """End the pause of a run that another process drives. Returns whether it continues."""
    if not await journal.is_leased(session):
        return False
    try:
        receipt = await end_pause(journal, session, by=find_login_name())
    except NothingToDo:
        return False
    try:
        await receipt.taken(TAKEN_WAIT_S)
    except TimeoutError:
        # It may have released the run before it read the message: then the run continues here.
        return await journal.is_leased(session)
    screen.write_line(f"The run of session {session} goes on in the process that drives it.")
    return True


def _show_import(screen: Screen, context: CommandContext) -> None:
    screen.write_line(
        "This session was imported. What was allowed in it does not count, and you are asked about "
        f"each call that it left unfinished. It goes on in {context.agent.folder}, with your own "
        "settings instead of those in the file.",
        TROUBLE,
        mark=screen.glyphs.trouble,
    )


def _show_drift(screen: Screen, error: SetupDrifted) -> None:
    screen.write_line(
        "This agent's configuration differs from the one the run was started with:", TROUBLE
    )
    for change in error.drift:
        screen.write_line(change, TROUBLE, mark=screen.glyphs.trouble, indent=2)
