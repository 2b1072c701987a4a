"""`windlass approve` and `windlass deny`: answer what a run waits for, from any shell."""

import asyncio
import sys
from typing import Any

import click

from windlass.agent.approvals import answer
from windlass.cli.command_context import desk_for, open_journal, person
from windlass.cli.exit_codes import DONE
from windlass.cli.options import flags_of, show_options
from windlass.cli.output import how_to_answer
from windlass.cli.renderer import QUIET, pairs
from windlass.cli.resume import go_on
from windlass.cli.terminal_run import staged
from windlass.core.errors import ConfigError, NothingToDo
from windlass.core.fold.run import fold
from windlass.core.result import Question
from windlass.core.run_report import questions
from windlass.core.suggestions import did_you_mean
from windlass.core.verdicts import Allow, Always, Deny, Reply
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.project.launches import find

EXACTLY = ""
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
    flag_value=EXACTLY,
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
    reply = Allow("person") if always is None else Always(always, "person")
    sys.exit(asyncio.run(_answer(session, call, reply, quiet=quiet, **given)))


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
    sys.exit(asyncio.run(_answer(session, call, reply, quiet=quiet, **given)))


async def _answer(
    session: str,
    call: str | None,
    reply: Reply,
    *,
    quiet: bool,
    no_resume: bool,
    consent: bool,
    **given: Any,  # noqa: ANN401 - the shared options, by name
) -> int:
    flags = flags_of(given)
    here = desk_for(flags)
    stage = staged(quiet=quiet, thinking=here.settings.thinking)
    with open_journal(here.settings) as journal:
        name = (await find(journal, session)).session
        question = await _question(journal, name, call)
        said = "no" if isinstance(reply, Deny) else "yes"
        told = f"{said} to {question.call.name}({pairs(question.arguments)})"
        if not quiet:
            stage.screen.line(stage.screen.clip(told), QUIET, mark=stage.screen.glyphs.person)
        digest = question.digest
        left = await answer(journal, name, question.call.id, reply, digest=digest, by=person())
        if no_resume:
            how_to_answer(stage.screen, name, left)
            return DONE
        return await go_on(stage, journal, name, flags, consent=consent)


async def _question(journal: SqliteJournal, session: str, call: str | None) -> Question:
    """The question that is meant; raises ForOperator if that is not clear."""
    waiting = questions(fold(session, await journal.read(session)))
    ids = [one.call.id for one in waiting]
    if not ids:
        raise NothingToDo(f"nothing waits for an answer in session {session}")
    if call is None and len(ids) > 1:
        raise ConfigError(f"{len(ids)} calls wait: say which one of {', '.join(ids)}")
    found = next((one for one in waiting if call in (None, one.call.id)), None)
    if found is None:
        near = did_you_mean(str(call), ids)
        raise NothingToDo(f"no call {call!r} waits in session {session}.{near}")
    return found
