"""`windlass approve` and `windlass deny`: answer the question of a waiting run, from any shell."""

import asyncio
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import click

from windlass.agent.answering import answer, list_undecided
from windlass.cli.command_context import CommandContext, load_context
from windlass.cli.exit_codes import DONE
from windlass.cli.options import CommandT, collect_flags, show_options
from windlass.cli.output import (
    is_long_call,
    show_answer_commands,
    show_preview,
    show_whole_call,
)
from windlass.cli.resume import resume_run
from windlass.cli.screen import QUIET
from windlass.cli.trust import trust_option
from windlass.core.errors import ConfigError, NothingToDo, WindlassError
from windlass.core.fold.run import fold
from windlass.core.result import Question
from windlass.core.suggestions import suggest_names
from windlass.core.verdicts import Allow, AllowAlways, Deny, PersonAnswer
from windlass.environ import find_login_name
from windlass.ports import Journal
from windlass.project.journals import ManagedJournal
from windlass.project.launches import explain_program_run, load_recorded_agent
from windlass.project.session_names import find_session

WAITING_SHOWN = 5
EXACT_CALL = ""
"""The value of `--always` without a pattern: for exactly this call."""


def _answer_options(command: CommandT) -> CommandT:
    """The options that `approve` and `deny` share."""
    for option in (
        show_options,
        trust_option,
        click.option(
            "--consent", is_flag=True, help="Resume although the configuration has changed."
        ),
        click.option("--no-resume", is_flag=True, help="Only answer, and do not resume the run."),
    ):
        command = option(command)
    return command


@click.command(
    epilog="""\b
Examples:
  windlass approve                                 the one call that waits
  windlass approve a83f90                          the one that waits in a session
  windlass approve a83f90 c2_0 --always "bash(git status*)"
  windlass approve a83f90 --no-resume              answer, and resume later"""
)
@click.argument("session", required=False)
@click.argument("call", required=False)
@click.option(
    "--always",
    metavar="[PATTERN]",
    is_flag=False,
    flag_value=EXACT_CALL,
    help="Do not ask again in this session: about exactly this call, or calls that match PATTERN.",
)
@click.option(
    "--digest",
    metavar="DIGEST",
    help="Approve only the call with this digest. Needed for a long call, which shows it.",
)
@_answer_options
def approve(
    session: str | None,
    call: str | None,
    always: str | None,
    digest: str | None,
    quiet: bool,
    **given: Any,  # noqa: ANN401 - the shared options, by name
) -> None:
    """Allow a call that a run waits for, and resume the run.

    SESSION may be part of the session's name, and is needed only if several runs wait. CALL is
    needed only if several calls wait. The answer is valid only for the arguments that were shown,
    and all of them are shown. A long call must be approved with its digest. If a program started
    the run, the answer is only recorded: a process that has its agent resumes it.
    """
    reply = Allow("person") if always is None else AllowAlways(always, "person")
    answering = _answer_question(session, call, reply, quiet=quiet, digest=digest, **given)
    sys.exit(asyncio.run(answering))


@click.command(
    epilog="""\b
Example:
  windlass deny a83f90 --reason "not on the main branch" """
)
@click.argument("session", required=False)
@click.argument("call", required=False)
@click.option("--reason", metavar="WHY", default="", help="The reason, for the model.")
@_answer_options
def deny(
    session: str | None,
    call: str | None,
    reason: str,
    quiet: bool,
    **given: Any,  # noqa: ANN401 - the shared options, by name
) -> None:
    """Deny a call that a run waits for, and resume the run.

    The model sees the denial and its reason, and can try something else. If a program started the
    run, the answer is only recorded: a process that has its agent resumes it.
    """
    reply = Deny(reason or "The user said no.", "person")
    sys.exit(asyncio.run(_answer_question(session, call, reply, quiet=quiet, **given)))


async def _answer_question(
    session: str | None,
    call: str | None,
    reply: PersonAnswer,
    *,
    quiet: bool,
    no_resume: bool,
    consent: bool,
    digest: str | None = None,
    **given: Any,  # noqa: ANN401 - the shared options, by name
) -> int:
    flags = collect_flags(given)
    context = load_context(flags, quiet=quiet, trust=given["trust"])
    async with context.open_journal() as journal:
        screen = context.terminal.screen
        name = await _choose_waiting(journal, session)
        question = await _find_question(journal, name, call)
        if not quiet:
            word = "no" if isinstance(reply, Deny) else "yes"
            screen.write_line(f"{word} to {question.call.name}", QUIET, mark=screen.glyphs.person)
            show_whole_call(screen, question)
            await _show_changes(context, journal, name, question, flags)
        if not isinstance(reply, Deny):
            _check_was_read(question, digest)
        remaining = await answer(
            journal, name, question.call.id, reply, digest=question.digest, by=find_login_name()
        )
        if await journal.is_leased(name):
            screen.write_line(f"The run goes on where it is driven: windlass watch {name}", QUIET)
            return DONE
        if no_resume:
            show_answer_commands(screen, name, remaining)
            return DONE
        owner = explain_program_run(name, await journal.read(name))
        if owner:
            screen.write_line(f"The answer is recorded; {owner}.")
            return DONE
        return await _resume_answered(context, journal, name, flags, consent=consent)


async def _resume_answered(
    context: CommandContext,
    journal: ManagedJournal,
    session: str,
    flags: Mapping[str, object],
    *,
    consent: bool,
) -> int:
    try:
        return await resume_run(context, journal, session, flags, consent=consent)
    except WindlassError:
        # Otherwise the error reads as if the answer did not count.
        line = "The answer is recorded, but the run could not be resumed here."
        context.terminal.screen.write_line(line)
        raise


async def _show_changes(
    context: CommandContext,
    journal: Journal,
    session: str,
    question: Question,
    flags: Mapping[str, object],
) -> None:
    """Write what the call would change, if that can be said here."""
    facts = await journal.read(session)
    if question.agents or explain_program_run(session, facts):
        return
    # The answer does not need it. The process that resumes the run reports what is wrong.
    with suppress(WindlassError):
        agent = await load_recorded_agent(journal, session, flags, open_folder=context.open_folder)
        folder = fold(session, facts).folder
        preview = await agent.preview_call(question.call.name, question.arguments, folder)
        if preview is not None:
            show_preview(context.terminal.screen, preview)


def _check_was_read(question: Question, digest: str | None) -> None:
    """Raise ConfigError unless the answer is for this call, and a long one was read to its end."""
    if digest is None and is_long_call(question):
        raise ConfigError(
            f"nothing was approved: call {question.call.id} is long, and its end is easily "
            f"overlooked. Read all of it, then approve it with --digest {question.digest}"
        )
    if digest is not None and digest != question.digest:
        raise ConfigError(
            f"nothing was approved: --digest {digest} is not the digest of call "
            f"{question.call.id}. Look at the question again"
        )


async def _choose_waiting(journal: ManagedJournal, session: str | None) -> str:
    """The session that was named, or the only one that waits for an answer.

    Raises NothingToDo if none waits, and ConfigError if several do.
    """
    if session is not None:
        return (await find_session(journal, session)).session
    waiting = await journal.sessions(state=("waiting",), limit=WAITING_SHOWN + 1)
    if not waiting:
        raise NothingToDo("no run waits for an answer")
    if len(waiting) > 1:
        names = ", ".join(summary.session for summary in waiting[:WAITING_SHOWN])
        raise ConfigError(f"several runs wait for an answer: name one of {names}")
    return waiting[0].session


async def _find_question(journal: Journal, session: str, call: str | None) -> Question:
    """Return the question about a call, or the only question if no call is named.

    Raises NothingToDo if no call waits, and ConfigError if several do.
    """
    waiting = await list_undecided(journal, fold(session, await journal.read(session)))
    ids = [question.call.id for question in waiting]
    if not ids:
        raise NothingToDo(f"no call waits for an answer in session {session}")
    if call is None and len(ids) > 1:
        raise ConfigError(f"{len(ids)} calls wait: name one of {', '.join(ids)}")
    for question in waiting:
        if call in (None, question.call.id):
            return question
    hint = suggest_names(str(call), ids)
    raise NothingToDo(f"call {call!r} does not wait in session {session}.{hint}")
