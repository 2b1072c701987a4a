"""`windlass approve` and `windlass deny`: answer what a run waits for, from any shell."""

import asyncio
import sys
from typing import Any

import click

from windlass.agent.approvals import answer
from windlass.cli.command_context import load_context, login_name, open_journal
from windlass.cli.exit_codes import DONE
from windlass.cli.options import collect_flags, show_options
from windlass.cli.output import show_answer_commands
from windlass.cli.renderer import QUIET, format_arguments
from windlass.cli.resume import resume_run
from windlass.cli.terminal_run import open_terminal
from windlass.core.errors import ConfigError, NothingToDo
from windlass.core.fold.run import fold
from windlass.core.result import Question
from windlass.core.run_report import open_questions
from windlass.core.suggestions import suggest_names
from windlass.core.verdicts import Allow, AllowAlways, Deny, PersonAnswer
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.project.launches import find_session

EXACT_CALL = ""
"""`--always` without a pattern: for exactly this call."""


@click.command(
    epilog="""\b
Examples:
  windlass approve a83f90                          the one question that waits
  windlass approve a83f90 c2_0 --always "bash(git status*)"
  windlass approve a83f90 --no-resume              answer, and let another process go on"""
)
@click.argument("session")
@click.argument("call", required=False)
@click.option(
    "--always",
    metavar="[PATTERN]",
    is_flag=False,
    flag_value=EXACT_CALL,
    help="Do not ask again in this session: for this very call, or for what a pattern means.",
)
@click.option("--no-resume", is_flag=True, help="Only answer; `windlass resume` goes on.")
@click.option("--consent", is_flag=True, help="Go on although the set-up changed since.")
@show_options
def approve(
    session: str,
    call: str | None,
    always: str | None,
    quiet: bool,
    **given: Any,  # noqa: ANN401 - the shared options, by name
) -> None:
    """Allow a call that a run waits for, and go on with the run.

    SESSION may be a part of its name. CALL may be left out if only one call waits. The answer is
    for exactly the arguments that were shown.
    """
    reply = Allow("person") if always is None else AllowAlways(always, "person")
    sys.exit(asyncio.run(_answer_question(session, call, reply, quiet=quiet, **given)))


@click.command(
    epilog="""\b
Example:
  windlass deny a83f90 --reason "not on the main branch" """
)
@click.argument("session")
@click.argument("call", required=False)
@click.option("--reason", metavar="WHY", default="", help="Told to the model.")
@click.option("--no-resume", is_flag=True, help="Only answer; `windlass resume` goes on.")
@click.option("--consent", is_flag=True, help="Go on although the set-up changed since.")
@show_options
def deny(
    session: str,
    call: str | None,
    reason: str,
    quiet: bool,
    **given: Any,  # noqa: ANN401 - the shared options, by name
) -> None:
    """Refuse a call that a run waits for, and go on with the run.

    The model is told, with the reason, and finds another way.
    """
    reply = Deny(reason or "The user said no.", "person")
    sys.exit(asyncio.run(_answer_question(session, call, reply, quiet=quiet, **given)))


async def _answer_question(
    session: str,
    call: str | None,
    reply: PersonAnswer,
    *,
    quiet: bool,
    no_resume: bool,
    consent: bool,
    **given: Any,  # noqa: ANN401 - the shared options, by name
) -> int:
    flags = collect_flags(given)
    here = load_context(flags)
    stage = open_terminal(quiet=quiet, thinking=here.settings.thinking)
    with open_journal(here.settings) as journal:
        name = (await find_session(journal, session)).session
        question = await _find_question(journal, name, call)
        said = "no" if isinstance(reply, Deny) else "yes"
        told = f"{said} to {question.call.name}({format_arguments(question.arguments)})"
        if not quiet:
            stage.screen.write_line(
                stage.screen.clip_to_line(told), QUIET, mark=stage.screen.glyphs.person
            )
        digest = question.digest
        left = await answer(journal, name, question.call.id, reply, digest=digest, by=login_name())
        if no_resume:
            show_answer_commands(stage.screen, name, left)
            return DONE
        return await resume_run(stage, journal, name, flags, consent=consent)


async def _find_question(journal: SqliteJournal, session: str, call: str | None) -> Question:
    """The question that is meant; raises ForOperator if that is not clear."""
    waiting = open_questions(fold(session, await journal.read(session)))
    ids = [one.call.id for one in waiting]
    if not ids:
        raise NothingToDo(f"nothing waits for an answer in session {session}")
    if call is None and len(ids) > 1:
        raise ConfigError(f"{len(ids)} calls wait: say which one of {', '.join(ids)}")
    found = next((one for one in waiting if call in (None, one.call.id)), None)
    if found is None:
        near = suggest_names(str(call), ids)
        raise NothingToDo(f"no call {call!r} waits in session {session}.{near}")
    return found
