"""`windlass approve` and `windlass deny`: answer the question of a waiting run, from any shell.

Invariant: a person approves only what they have read. At a terminal the call is shown, and then
they are asked. Anywhere else the session and the digest say which question they have read, so that
one that came after it is never approved.
"""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import click
import msgspec

from windlass.agent.answering import answer, list_undecided
from windlass.cli.command_context import CommandContext, load_context
from windlass.cli.exit_codes import DONE, OUTCOME_CODES
from windlass.cli.options import CommandT, collect_flags, show_options
from windlass.cli.output import show_answer_commands, show_preview, show_whole_call
from windlass.cli.question_prompt import PreviewFunction, QuestionPrompt
from windlass.cli.resume import resume_run
from windlass.cli.screen import QUIET, Screen
from windlass.cli.trust import trust_option
from windlass.core.errors import ConfigError, NothingToDo, WindlassError
from windlass.core.fold.run import fold
from windlass.core.projection.project import project_events
from windlass.core.projection.view import ReplyEntry
from windlass.core.question import Question
from windlass.core.setup import digest as make_digest
from windlass.core.state import State
from windlass.core.suggestions import suggest_names
from windlass.core.verdicts import Allow, AllowAlways, CallPreview, Deny, PersonAnswer
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
  windlass approve                                 the run that waits; you are asked
  windlass approve a83f90                          the calls that wait in a session
  windlass approve a83f90 c2_0 --always "bash(git status*)"
  windlass approve a83f90 --no-resume              answer, and resume later
  windlass approve a83f90 --digest 5e1c90…         in a script: nothing is asked"""
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
    help="Approve the call with this digest, and do not ask. Needed without a terminal.",
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

    At a terminal, the call is shown and you are asked, as in a chat: SESSION is needed only if
    several runs wait, and part of its name is enough. Without a terminal, SESSION and the digest
    of the call that you have read are needed, and CALL if an earlier call had the same digest. If
    a program started the run, the answer is only recorded: a process that has its agent resumes it.
    """
    reply = Allow("person") if always is None else AllowAlways(always, "person")
    sys.exit(asyncio.run(_answer(session, call, reply, quiet=quiet, digest=digest, **given)))


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
    sys.exit(asyncio.run(_answer(session, call, reply, quiet=quiet, **given)))


async def _answer(
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
    asker = context.terminal.question_prompt
    is_asked = asker is not None and digest is None and not isinstance(reply, Deny)
    async with context.open_journal() as journal:
        name = await _choose_waiting(journal, session)
        state = fold(name, await journal.read(name))
        waiting = await _find_questions(journal, state, call)
        preview = partial(_preview_call, context, journal, state, flags)
        if asker is not None and is_asked:
            asker.use_tools(state.setup.tools if state.setup else (), preview)
            answers = await _ask_person(asker, waiting, reply)
        else:
            question = _choose_question(waiting, digest)
            if not (quiet and isinstance(reply, Deny)):
                await _show_question(context.terminal.screen, question, preview)
            if not isinstance(reply, Deny):
                await _check_was_read(journal, name, question, session, call, digest)
            answers = [(question, reply)]
        person = find_login_name()
        for asked, given_reply in answers:
            # The id of the call and the digest are those of the question that was read.
            call_id, read = asked.call_id, asked.digest
            await answer(journal, name, call_id, given_reply, digest=read, by=person)
        if is_asked and len(answers) < len(waiting):
            context.terminal.screen.write_line(f"The run still waits: windlass approve {name}")
            return OUTCOME_CODES["suspended"]
        return await _continue_run(context, journal, name, flags, consent, no_resume)


async def _ask_person(
    asker: QuestionPrompt, waiting: Sequence[Question], reply: PersonAnswer
) -> list[tuple[Question, PersonAnswer]]:
    """Show each question and ask. A yes gives `reply`; "later" leaves the others unanswered."""
    answers: list[tuple[Question, PersonAnswer]] = []
    for question in waiting:
        chosen = await asker(question)
        if chosen is None:
            break
        answers.append((question, reply if isinstance(chosen, Allow) else chosen))
    return answers


async def _show_question(screen: Screen, question: Question, preview: PreviewFunction) -> None:
    """Write all that would run, and what it would change."""
    line = f"{question.tool}, digest {question.digest}"
    screen.write_line(line, QUIET, mark=screen.glyphs.person)
    show_whole_call(screen, question)
    changes = await preview(question.tool, question.arguments, question.chain)
    if changes is not None:
        show_preview(screen, changes)


async def _preview_call(
    context: CommandContext,
    journal: Journal,
    state: State,
    flags: Mapping[str, object],
    tool: str,
    arguments: Mapping[str, Any],
    agents: Sequence[str],
) -> CallPreview | None:
    """Return what a call would change, if that can be said here."""
    if agents or explain_program_run(state.session, await journal.read(state.session)):
        return None
    # The answer does not need it. The process that resumes the run reports what is wrong.
    with suppress(WindlassError):
        agent = await load_recorded_agent(
            journal, state.session, flags, open_folder=context.open_folder
        )
        return await agent.preview_call(tool, arguments, state.folder)
    return None


async def _check_was_read(
    journal: Journal,
    name: str,
    question: Question,
    session: str | None,
    call: str | None,
    digest: str | None,
) -> None:
    """Raise ConfigError unless the session, the digest and the call name a question that was read.

    Two calls with the same arguments have the same digest: then the call has to be named too.
    """
    command = f"windlass approve {name} {question.call_id} --digest {question.digest}"
    if session is None or digest is None:
        raise ConfigError(
            "nothing was approved: without a terminal to ask you at, a call is approved by its "
            f"session and its digest. Read the call above, then: {command}"
        )
    if call is not None:
        return
    view = project_events(await journal.read(question.session))
    replies = (entry for entry in view.entries if isinstance(entry, ReplyEntry))
    asked = [one for reply in replies for one in reply.calls if one.asked_at is not None]
    for earlier in asked:
        arguments = msgspec.json.decode(earlier.arguments or "{}", type=dict[str, object])
        if earlier.id != question.call_id and make_digest(arguments) == question.digest:
            raise ConfigError(
                f"nothing was approved: call {earlier.id} had the same digest, and it may be the "
                f"one that you read. Read the call above, then: {command}"
            )


async def _continue_run(
    context: CommandContext,
    journal: ManagedJournal,
    session: str,
    flags: Mapping[str, object],
    consent: bool,
    no_resume: bool,
) -> int:
    """Resume a run that was answered, unless another process drives it or will do so."""
    screen = context.terminal.screen
    if await journal.is_leased(session):
        screen.write_line(f"The run goes on where it is driven: windlass watch {session}", QUIET)
        return DONE
    if no_resume:
        remaining = await list_undecided(journal, fold(session, await journal.read(session)))
        show_answer_commands(screen, session, remaining)
        return DONE
    owner = explain_program_run(session, await journal.read(session))
    if owner:
        screen.write_line(f"The answer is recorded; {owner}.")
        return DONE
    try:
        return await resume_run(context, journal, session, flags, consent=consent)
    except WindlassError:
        # Otherwise the error reads as if the answer did not count.
        screen.write_line("The answer is recorded, but the run could not be resumed here.")
        raise


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


async def _find_questions(journal: Journal, state: State, call: str | None) -> list[Question]:
    """Return the questions that wait, or the one about a call. Raises NothingToDo if none does."""
    waiting = await list_undecided(journal, state)
    if not waiting:
        raise NothingToDo(f"no call waits for an answer in session {state.session}")
    found = [question for question in waiting if call in (None, question.call_id)]
    if not found:
        hint = suggest_names(str(call), [question.call_id for question in waiting])
        raise NothingToDo(f"call {call!r} does not wait in session {state.session}.{hint}")
    return found


def _choose_question(waiting: Sequence[Question], digest: str | None) -> Question:
    """Return the question with a digest, or the only one. Raises ConfigError."""
    found = [question for question in waiting if digest in (None, question.digest)]
    if not found:
        raise ConfigError(
            f"nothing was approved: --digest {digest} is not the digest of a call that waits. Look "
            "at the question again"
        )
    if len(found) > 1:
        ids = ", ".join(question.call_id for question in found)
        raise ConfigError(f"{len(found)} calls wait: name one of {ids}")
    return found[0]
