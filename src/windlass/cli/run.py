"""`windlass run`: one prompt, to its end."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from windlass.cli.command_context import Desk, desk_for, memory, open_journal, person
from windlass.cli.exit_codes import TABLE
from windlass.cli.options import agent_options, flags_of, limit_options, show_options
from windlass.cli.output import FORMATS, Format
from windlass.cli.prompt_input import prompt_of, schema_of
from windlass.cli.renderer import QUIET
from windlass.cli.session_picker import pick
from windlass.cli.terminal_run import Stage, staged
from windlass.core.errors import ConfigError, RunUnfinished
from windlass.core.messages import Content
from windlass.journals.archive import fork
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.ports import Journal
from windlass.project.launches import context_of, find, latest, new_session, of_folder

PICK = "?"
"""`--resume` without a name: let the person choose."""


class Where(msgspec.Struct, frozen=True):
    """Which session a run belongs to."""

    again: bool = False
    session: str | None = None
    copy: bool = False
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
    + TABLE
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
    "--output-format", "form", type=click.Choice(FORMATS), default="text", help="What is printed."
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
    form: Format,
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
    where = Where(again=again, session=session, copy=copy, keep=not no_session)
    desk = desk_for(flags_of(given), schema=schema_of(output_schema))
    parts = prompt_of(prompt, images)
    stage = staged(form=form, quiet=quiet, thinking=desk.settings.thinking)
    desk = desk.with_model(stage.screen, ask=stage.asker is not None, say=not quiet)
    sys.exit(asyncio.run(_run(desk, stage, parts, where)))


async def _run(desk: Desk, stage: Stage, prompt: tuple[Content, ...], where: Where) -> int:
    if not where.keep:
        return await once(desk, stage, memory(), new_session(desk.folder), prompt)
    with open_journal(desk.settings) as journal:
        session = await _session(journal, desk.folder, where)
        await _remind(stage, journal, desk.folder)
        return await once(desk, stage, journal, session, prompt)


async def _remind(stage: Stage, journal: SqliteJournal, folder: Path) -> None:
    """Whoever has forgotten a run that was killed is told of it, where somebody looks."""
    if stage.quiet or not stage.screen.is_terminal:
        return
    here = {one.session for one in await of_folder(journal, folder, unfinished=True)}
    left = [one for one in await journal.abandoned() if one.session in here]
    if left:
        told = f"an unfinished run is here: windlass resume {left[0].session}"
        stage.screen.line(told, QUIET, mark=stage.screen.glyphs.progress)


async def once(
    desk: Desk, stage: Stage, journal: Journal, session: str, prompt: tuple[Content, ...]
) -> int:
    """One run; the exit code for what it came to."""
    kept = isinstance(journal, SqliteJournal)
    async with desk.rig(stage, journal) as rig:
        result = await stage.drive(
            rig.agent,
            session,
            lambda watch: rig.agent.run(
                prompt,
                session=session,
                on_event=watch,
                caller=person(),
                context=context_of(desk.launch),
            ),
            kept=kept,
        )
    return stage.close(result, desk.settings.model, named=kept)


async def _session(journal: SqliteJournal, folder: Path, where: Where) -> str:
    """The session that the run belongs to: a new one, or one that goes on."""
    if where.session == PICK:
        summary = await pick(journal, folder)
    elif where.session is not None:
        summary = await find(journal, where.session)
    elif where.again:
        summary = await latest(journal, folder)
    elif where.copy:
        raise ConfigError("--fork goes with --continue or --resume: it copies a session")
    else:
        return new_session(folder)
    if summary.outcome is None:
        raise RunUnfinished(
            f"the last run of {summary.session} has not ended ({summary.state}): "
            f"windlass resume {summary.session}"
        )
    if not where.copy:
        return summary.session
    return await fork(journal, summary.session, summary.facts, new_session(folder))
