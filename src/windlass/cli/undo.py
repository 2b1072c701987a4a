"""`windlass undo`: undo what a run did. It shows what will happen first, here and in a chat.

Invariant: a person who types it has answered the question whether it may be done. A rule that
denies it still counts.
"""

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import msgspec

from windlass.agent.child_sessions import plan_nested_undo
from windlass.cli.command_context import CommandContext, load_context
from windlass.cli.options import agent_options, collect_flags, show_options
from windlass.cli.output import OUTPUT_FORMATS, OutputFormat, show_preview
from windlass.cli.screen import QUIET, TROUBLE, Screen
from windlass.core.decide.undoing import plan_undo
from windlass.core.errors import ConfigError
from windlass.core.fold.run import fold
from windlass.core.question import Question
from windlass.core.verdicts import Allow, CallPreview
from windlass.environ import find_login_name
from windlass.ports import Journal
from windlass.project.agent_session import AgentSession
from windlass.project.launches import explain_program_run, load_recorded_agent
from windlass.project.session_names import find_latest, find_session
from windlass.tools.files.snapshots import FileSnapshots
from windlass.tools.files.workspace import Workspace

UNDO_PREFIX = "undo_"
FILE_TOOLS = ("edit", "write")
"""The tools whose snapshots say what a file held before."""
NO_REDO = "It cannot be redone: to have the change back, ask for it again."


async def allow_undo(question: Question) -> Allow | None:
    """Answer the question whether a call may be undone: the person has typed that it shall be."""
    return Allow("person") if question.tool.startswith(UNDO_PREFIX) else None


async def show_undo(
    screen: Screen,
    journal: Journal,
    session: str,
    opened: AgentSession,
    folder: Path,
    run: int | None = None,
) -> None:
    """Write what undoing a run will do. Raises NothingToDo if there is nothing to undo."""
    facts = await journal.read(session)
    state = fold(session, facts)
    specs = opened.toolbox.specs
    nested = await plan_nested_undo(journal, state, specs)
    plan = plan_undo(state, facts, specs, run, nested)
    files: list[tuple[str, str]] = []
    others: list[str] = []
    for undone in plan.calls:
        call = plan.outcomes[undone.call_id].call
        path = msgspec.json.decode(call.arguments or "{}", type=dict[str, Any]).get("path")
        if call.name in FILE_TOOLS and isinstance(path, str):
            files.append((path, undone.snapshot))
        else:
            others.append(f"What {call.name} did ({undone.call_id}) is undone by its tool.")
    previews = await FileSnapshots(Workspace(folder)).preview_restore(journal, session, files)
    screen.write_line(f"undoing run {plan.run}", QUIET, mark=screen.glyphs.progress)
    for preview in (*previews, *map(CallPreview, others)):
        show_preview(screen, preview, label="")
    if plan.left:
        left = f"What {', '.join(plan.left)} did cannot be undone."
        screen.write_line(left, TROUBLE, indent=2)
    screen.write_line(NO_REDO, QUIET, indent=2)


@click.command(
    epilog="""\b
Examples:
  windlass undo                    the last run of this folder that can be undone
  windlass undo a83f90 --run 2     one run of a session, by part of its name"""
)
@click.argument("session", required=False)
@click.option("--run", "number", type=click.IntRange(min=1), help="The run; the last by default.")
@agent_options
@click.option(
    "--output-format",
    type=click.Choice(OUTPUT_FORMATS),
    default="text",
    help="What is printed: what was undone, one JSON object, or a line of JSON per event.",
)
@show_options
def undo(
    session: str | None,
    number: int | None,
    output_format: OutputFormat,
    quiet: bool,
    **given: Any,  # noqa: ANN401 - the shared options, by name
) -> None:
    """Undo what a run did, the last call first.

    Files get back their earlier content, unless they were changed since. What other tools did is
    undone if they can do it. Shell commands cannot be undone. What will happen is shown first, and
    you are not asked again; rules that deny still count. Runs that a program started with an agent
    of its own are undone by that program.
    """
    flags = collect_flags(given)
    context = load_context(flags, output_format=output_format, quiet=quiet, trust=given["trust"])
    sys.exit(asyncio.run(_undo_one(context, session, number, flags)))


async def _undo_one(
    context: CommandContext, session: str | None, number: int | None, flags: Mapping[str, object]
) -> int:
    output_format = context.terminal.output_format
    async with context.open_journal() as journal:
        if session is None:
            summary = await find_latest(journal, context.agent.folder)
        else:
            summary = await find_session(journal, session)
        name = summary.session
        facts = await journal.read(name)
        if explain_program_run(name, facts):
            raise ConfigError(
                f"session {name} is not undone from here: its runs belong to a program, whose "
                f'tools this command does not have. The program calls agent.undo("{name}")'
            )
        agent = await load_recorded_agent(journal, name, flags, open_folder=context.open_folder)
        context = replace(context, agent=agent)
        context.terminal.live.learn_calls(facts)
        async with context.open_session(journal, allow_undo) as opened:
            if output_format == "text" and not context.terminal.quiet:
                await show_undo(
                    context.terminal.screen, journal, name, opened, agent.folder, number
                )
            result = await context.terminal.drive_run(
                opened.agent,
                name,
                lambda watch: opened.agent.undo(
                    name, run=number, caller=find_login_name(), on_event=watch
                ),
            )
    return context.terminal.report_result(result)
