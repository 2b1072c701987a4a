"""`windlass run`: one prompt, to its end."""

import asyncio
import sys
from pathlib import Path
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
from windlass.cli.exit_codes import EXIT_CODE_TABLE
from windlass.cli.options import agent_options, collect_flags, limit_options, show_options
from windlass.cli.output import OUTPUT_FORMATS, OutputFormat
from windlass.cli.prompt_input import read_prompt, read_schema
from windlass.cli.renderer import QUIET
from windlass.cli.session_picker import pick_session
from windlass.cli.terminal_run import TerminalRun, open_terminal
from windlass.core.errors import ConfigError, RunUnfinished
from windlass.core.messages import ContentPart
from windlass.journals.forking import fork
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.ports import Journal
from windlass.project.launches import (
    find_latest,
    find_session,
    launch_context,
    new_session_name,
    sessions_of_folder,
)

PICK = "?"
"""`--resume` without a name: let the person choose."""


class SessionChoice(msgspec.Struct, frozen=True):
    """Which session a run belongs to."""

    continue_latest: bool = False
    session: str | None = None
    fork: bool = False
    keep: bool = True


@click.command(
    epilog="""\b
Examples:
  windlass run "why does the build fail?"
  git diff | windlass run "review this" --tools read-only
  windlass run -c "now fix it" --max-usd 0.50
  windlass run "list the TODOs" --output-format json --output-schema todos.json

\b
Exit codes:
"""
    + EXIT_CODE_TABLE
)
@click.argument("prompt", nargs=-1)
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
@click.option(
    "--fork", "copy", is_flag=True, help="Go on with a copy, and leave the session as it is."
)
@click.option("--no-session", is_flag=True, help="Keep nothing of it.")
@click.option(
    "--output-format",
    "form",
    type=click.Choice(OUTPUT_FORMATS),
    default="text",
    help="What is printed.",
)
@click.option("--output-schema", metavar="FILE", help="A JSON Schema that the reply must fit.")
@click.option("--image", "images", metavar="FILE", multiple=True, help="Show it; may be repeated.")
@show_options
def run(  # noqa: PLR0913, PLR0917 - a flag each
    prompt: tuple[str, ...],
    again: bool,
    session: str | None,
    copy: bool,
    no_session: bool,
    form: OutputFormat,
    output_schema: str | None,
    images: tuple[str, ...],
    quiet: bool,
    **given: Any,  # noqa: ANN401 - the shared options, by name
) -> None:
    """Run a task to its end in this folder.

    PROMPT is what to do; `-` reads it from standard input, and what is piped in is added to it.
    Calls that change things are asked about first: here, if this is a terminal; else the run waits
    until somebody answers with `windlass approve`.
    """
    if no_session and (again or session or copy):
        raise ConfigError("--no-session keeps nothing, so there is nothing to go on with")
    where = SessionChoice(continue_latest=again, session=session, fork=copy, keep=not no_session)
    desk = load_context(collect_flags(given), schema=read_schema(output_schema))
    parts = read_prompt(prompt, images)
    stage = open_terminal(output_format=form, quiet=quiet, thinking=desk.settings.thinking)
    desk = desk.choose_model(
        stage.screen, ask_person=stage.question_prompt is not None, show_choice=not quiet
    )
    sys.exit(asyncio.run(_run_prompt(desk, stage, parts, where)))


async def _run_prompt(
    desk: CommandContext, stage: TerminalRun, prompt: tuple[ContentPart, ...], choice: SessionChoice
) -> int:
    if not choice.keep:
        return await run_once(desk, stage, memory_journal(), new_session_name(desk.folder), prompt)
    with open_journal(desk.settings) as journal:
        session = await _choose_session(journal, desk.folder, choice)
        await _remind_unfinished(stage, journal, desk.folder)
        return await run_once(desk, stage, journal, session, prompt)


async def _remind_unfinished(stage: TerminalRun, journal: SqliteJournal, folder: Path) -> None:
    """Whoever has forgotten a run that was killed is told of it, where somebody looks."""
    if stage.quiet or not stage.screen.is_terminal:
        return
    here = {one.session for one in await sessions_of_folder(journal, folder, unfinished=True)}
    left = [one for one in await journal.abandoned() if one.session in here]
    if left:
        told = f"an unfinished run is here: windlass resume {left[0].session}"
        stage.screen.write_line(told, QUIET, mark=stage.screen.glyphs.progress)


async def run_once(
    desk: CommandContext,
    stage: TerminalRun,
    journal: Journal,
    session: str,
    prompt: tuple[ContentPart, ...],
) -> int:
    """One run; the exit code for what it came to."""
    kept = isinstance(journal, SqliteJournal)
    async with desk.open_agent(stage, journal) as rig:
        result = await stage.drive_run(
            rig.agent,
            session,
            lambda watch: rig.agent.run(
                prompt,
                session=session,
                on_event=watch,
                caller=login_name(),
                context=launch_context(desk.launch),
            ),
            kept=kept,
        )
    return stage.report_result(result, desk.settings.model, show_session=kept)


async def _choose_session(journal: SqliteJournal, folder: Path, choice: SessionChoice) -> str:
    """The session that the run belongs to: a new one, or one that goes on."""
    if choice.session == PICK:
        summary = await pick_session(journal, folder)
    elif choice.session is not None:
        summary = await find_session(journal, choice.session)
    elif choice.continue_latest:
        summary = await find_latest(journal, folder)
    elif choice.fork:
        raise ConfigError("--fork goes with --continue or --resume: it copies a session")
    else:
        return new_session_name(folder)
    if summary.outcome is None:
        raise RunUnfinished(
            f"the last run of {summary.session} has not ended ({summary.state}): "
            f"windlass resume {summary.session}"
        )
    if not choice.fork:
        return summary.session
    return await fork(journal, summary.session, summary.facts, new_session_name(folder))
