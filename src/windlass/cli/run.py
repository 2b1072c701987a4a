"""`windlass run`: one prompt, of words, standard input and images, to its end."""

import asyncio
import os
import select
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec.structs import replace

from windlass.agent.attachments import attach
from windlass.cli.command_context import CommandContext, load_context
from windlass.cli.exit_codes import EXIT_CODE_TABLE
from windlass.cli.options import (
    agent_options,
    collect_flags,
    limit_options,
    read_option_file,
    refuse_without_session,
    session_options,
    show_options,
)
from windlass.cli.output import OUTPUT_FORMATS, OutputFormat
from windlass.cli.screen import QUIET
from windlass.cli.session_picker import choose_session
from windlass.cli.terminal_run import TerminalRun
from windlass.core.errors import ConfigError, RunUnfinished
from windlass.core.messages import ContentPart, Label, TextPart
from windlass.core.schema import JsonSchema
from windlass.core.session_summary import read_tag_pairs
from windlass.environ import find_login_name
from windlass.journals.forking import fork as fork_session
from windlass.journals.memory import MemoryJournal
from windlass.ports import Journal
from windlass.project.journals import ManagedJournal
from windlass.project.launches import launch_context
from windlass.project.session_names import new_session_name, sessions_of_folder
from windlass.project.surroundings import describe_surroundings

PATIENCE_S = 3.0
"""How long standard input may be silent before a message says that it is being read."""


class PromptInput(msgspec.Struct, frozen=True):
    """A prompt, and how far its words are the person's own."""

    parts: tuple[ContentPart, ...]
    typed: str
    """What the person wrote on the command line."""
    labels: tuple[Label, ...]
    """What came in by a pipe or as an image may be private, and anyone may have made it."""
    tags: Mapping[str, str] = {}


class SessionChoice(msgspec.Struct, frozen=True):
    """The options that say which session a run belongs to."""

    latest: bool = False
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
@session_options
@click.option("--fork", is_flag=True, help="Continue in a copy, and leave the session unchanged.")
@click.option(
    "--output-format",
    type=click.Choice(OUTPUT_FORMATS),
    default="text",
    help="What is printed: the reply, one JSON object, or a line of JSON per event.",
)
@click.option("--output-schema", metavar="FILE", help="A JSON Schema that the reply must match.")
@click.option(
    "--image", "images", metavar="FILE", multiple=True, help="Attach an image; may be repeated."
)
@click.option(
    "--tag", "tags", metavar="KEY=VALUE", multiple=True, help="Tag the run; may be repeated."
)
@show_options
def run(  # noqa: PLR0913, PLR0917 - one parameter per option
    prompt: tuple[str, ...],
    latest: bool,
    session: str | None,
    no_session: bool,
    fork: bool,
    output_format: OutputFormat,
    output_schema: str | None,
    images: tuple[str, ...],
    tags: tuple[str, ...],
    quiet: bool,
    **given: Any,  # noqa: ANN401 - the shared options, by name
) -> None:
    """Run a task to its end in this folder.

    PROMPT says what to do. `-` reads it from standard input; piped input is added to it. Calls that
    change things need your answer first: in a terminal you are asked; otherwise the run waits until
    you answer with `windlass approve`.
    """
    refuse_without_session(no_session=no_session, latest=latest, session=session, fork=fork)
    choice = SessionChoice(latest=latest, session=session, fork=fork, keep=not no_session)
    context = load_context(
        collect_flags(given),
        schema=read_schema(output_schema),
        output_format=output_format,
        quiet=quiet,
        trust=given["trust"],
    )
    given_prompt = replace(read_prompt(prompt, images), tags=read_tag_pairs(tags))
    sys.exit(asyncio.run(_run_prompt(context.with_chosen_model(), given_prompt, choice)))


async def _run_prompt(context: CommandContext, prompt: PromptInput, choice: SessionChoice) -> int:
    folder = context.agent.folder
    if not choice.keep:
        return await run_once(context, MemoryJournal(), new_session_name(folder), prompt)
    async with context.open_journal() as journal:
        session = await _choose_session(journal, folder, choice)
        await _remind_unfinished(context.terminal, journal, folder)
        return await run_once(context, journal, session, prompt)


async def _remind_unfinished(terminal: TerminalRun, journal: ManagedJournal, folder: Path) -> None:
    """Point out a run of this folder whose process has died, if a person is looking."""
    if terminal.quiet or not terminal.screen.is_terminal:
        return
    unfinished = await sessions_of_folder(journal, folder, unfinished=True)
    of_folder = {summary.session for summary in unfinished}
    for summary in await journal.list_abandoned():
        if summary.session in of_folder:
            message = f"unfinished run in this folder: windlass resume {summary.session}"
            terminal.screen.write_line(message, QUIET, mark=terminal.screen.glyphs.progress)
            return


async def run_once(
    context: CommandContext, journal: Journal, session: str, prompt: PromptInput
) -> int:
    """Do one run, show it, and return its exit code."""
    terminal = context.terminal
    agent = context.agent
    async with context.open_session(journal) as opened:
        parts = prompt.parts
        if opened.toolbox.specs and not await journal.read(session):
            parts = (*parts, describe_surroundings(agent.folder, agent.project.environ))
        result = await terminal.drive_run(
            opened.agent,
            session,
            lambda watch: opened.agent.run(
                parts,
                session=session,
                on_event=watch,
                caller=find_login_name(),
                context=launch_context(agent, prompt.typed),
                labels=prompt.labels,
                tags=prompt.tags,
            ),
            is_kept=journal.is_kept,
        )
    return terminal.report_result(result, show_session=journal.is_kept)


async def _choose_session(journal: ManagedJournal, folder: Path, choice: SessionChoice) -> str:
    """The name of the session: a new one, one to continue, or a copy of one."""
    summary = await choose_session(journal, folder, choice.session, latest=choice.latest)
    if summary is None:
        if choice.fork:
            raise ConfigError("--fork copies a session: it needs --continue or --resume")
        return new_session_name(folder)
    if summary.outcome is None:
        raise RunUnfinished(
            f"the last run of {summary.session} has not ended ({summary.state}). "
            f"To finish it: windlass resume {summary.session}"
        )
    if not choice.fork:
        return summary.session
    return await fork_session(journal, summary.session, summary.facts, new_session_name(folder))


def read_prompt(words: Sequence[str], images: Sequence[str] = ()) -> PromptInput:
    """Read the prompt; raises ConfigError if it is empty."""
    typed = " ".join(words)
    text = typed
    labels: tuple[Label, ...] = ()
    if text == "-":
        # The prompt itself was piped in, as scripts do it.
        text = _read_stdin()
    elif _is_piped():
        piped = _read_stdin().rstrip("\n")
        text = "\n\n".join(part for part in (text, piped) if part)
        if typed and piped:
            labels = ("untrusted", "private")
    if not text.strip():
        raise ConfigError('the prompt is empty: write windlass run "…", or pipe it in')
    if images:
        # A picture can hold what a person keeps to themselves, and words that a stranger wrote.
        labels = ("untrusted", "private")
    parts = (TextPart(text), *(attach(image) for image in images))
    return PromptInput(parts, typed, labels)


def read_schema(path: str | None) -> dict[str, Any] | None:
    """The JSON Schema in a file; raises ConfigError if it is not one."""
    if path is None:
        return None
    try:
        schema = msgspec.json.decode(read_option_file(path, "--output-schema"), type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise ConfigError(f"--output-schema {path}: it is not a JSON object: {error}") from None
    try:
        JsonSchema(schema)
    except ConfigError as error:
        raise ConfigError(f"--output-schema {path}: {error}") from None
    return schema


def _is_piped() -> bool:
    """Whether standard input is a pipe, a file or a socket, and not a terminal."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        # Standard input is not a file, as in a test that replaces it.
        return not sys.stdin.isatty()
    # /dev/null is a device, and so counts as "nothing was piped in".
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def _read_stdin() -> str:
    """All of standard input. After PATIENCE_S, a message says that it is being waited for."""
    try:
        ready, _, _ = select.select([sys.stdin], [], [], PATIENCE_S)
        if not ready and not sys.stdin.isatty():
            message = "reading the prompt from standard input (to run without it: </dev/null)"
            print(f"windlass: {message}", file=sys.stderr)
    except (OSError, ValueError):
        pass  # An object that is not a file cannot be waited for, only read.
    try:
        return sys.stdin.read()
    except UnicodeDecodeError:
        raise ConfigError("standard input is not text (UTF-8)") from None
