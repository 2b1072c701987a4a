"""`windlass chat`: prompt by prompt, in one session."""

import asyncio
import sys
from dataclasses import replace
from typing import Any

import click
from prompt_toolkit.utils import is_dumb_terminal

from windlass.cli.chat.live_page import LivePage
from windlass.cli.chat.reports import show_continued
from windlass.cli.chat.session import ChatSession
from windlass.cli.chat.state import ChatState, ResumeTask
from windlass.cli.command_context import CommandContext, load_context
from windlass.cli.options import (
    agent_options,
    collect_flags,
    limit_options,
    refuse_without_session,
    session_options,
    show_options,
)
from windlass.cli.session_picker import choose_session
from windlass.core.errors import ConfigError
from windlass.journals.memory import MemoryJournal
from windlass.project.session_names import new_session_name


@click.command(
    epilog="""\b
Examples:
  windlass chat
  windlass chat -c                       continue where you left off
  windlass chat -m ollama:qwen3 --tools read-only
In the chat: /help, Tab completes, Esc stops a run, Ctrl-D leaves."""
)
@agent_options
@limit_options
@session_options
@show_options
def chat(
    latest: bool,
    session: str | None,
    no_session: bool,
    quiet: bool,
    **given: Any,  # noqa: ANN401 - the shared options, by name
) -> None:
    """Talk with an agent in this folder.

    Everything is recorded in the journal: leave at any time, and continue with `windlass chat -c`.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError("a chat needs a terminal. In scripts, use windlass run.")
    refuse_without_session(no_session=no_session, latest=latest, session=session)
    flags = collect_flags(given)
    page = None if is_dumb_terminal() else LivePage(sys.stdout)
    context = load_context(flags, quiet=quiet, trust=given["trust"], page=page).with_chosen_model()
    if page is not None:
        context = replace(
            context, terminal=replace(context.terminal, before_exit=page.reset_terminal)
        )
    new_name = new_session_name(context.agent.folder)
    if no_session:
        state = ChatState(context, MemoryJournal(), new_name)
        sys.exit(asyncio.run(ChatSession(state, page).run_chat()))
    chatting = _chat_in_journal(context, page, new_name, session, latest=latest)
    sys.exit(asyncio.run(chatting))


async def _chat_in_journal(
    context: CommandContext,
    page: LivePage | None,
    new_name: str,
    session: str | None,
    *,
    latest: bool,
) -> int:
    async with context.open_journal() as journal:
        found = await choose_session(journal, context.agent.folder, session, latest=latest)
        state = ChatState(context, journal, found.session if found else new_name)
        if found is not None:
            await show_continued(state, found)
            if found.outcome is None:
                state.tasks.append(ResumeTask(consent=session is not None))
        return await ChatSession(state, page).run_chat()
