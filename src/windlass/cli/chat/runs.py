"""The runs of a chat: driven at its terminal, with a prompt below that speaks to them."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from typing import Any

from windlass.agent.agent import Agent
from windlass.cli.chat.keys import strip_quotes
from windlass.cli.chat.prompt_line import PromptFrame, PromptLine
from windlass.cli.chat.references import expand_prompt
from windlass.cli.chat.state import ChatState, PromptTask
from windlass.cli.output import show_answer_commands, show_summary
from windlass.cli.undo import allow_undo, show_undo
from windlass.core.errors import NothingToDo, SessionBusy
from windlass.core.fold.run import fold
from windlass.core.result import RunResult
from windlass.environ import find_login_name
from windlass.ports import Watcher
from windlass.project.agent_session import AgentSession

SETTLE_TRIES = 20
SETTLE_S = 0.1
"""How often, and in which intervals, the end of a stopped run is looked for."""

RunWork = Callable[[Watcher], Awaitable[RunResult[Any]]]


class ChatRuns:
    """Drives the runs of a chat. `prompt` is None where nothing can be typed during a run."""

    def __init__(self, state: ChatState, prompt: PromptLine | None, frame: PromptFrame) -> None:
        self._chat = state
        self._prompt = prompt
        self._frame = frame
        self._was_stopped = False

    async def drive(self, opened: AgentSession, work: RunWork) -> RunResult[Any]:
        """Do a run, and take what is typed in the meantime."""
        chat = self._chat
        terminal = chat.context.terminal

        async def work_and_listen(watch: Watcher) -> RunResult[Any]:
            prompt = self._prompt
            if prompt is None:
                return await work(watch)
            self._frame.is_running = True
            listening = asyncio.create_task(self._listen(opened.agent, prompt))
            try:
                return await work(watch)
            finally:
                self._frame.is_running = False
                listening.cancel()
                await prompt.stop()
                with suppress(asyncio.CancelledError):
                    await listening

        result = await terminal.drive_run(
            opened.agent,
            chat.session,
            work_and_listen,
            is_kept=chat.journal.is_kept,
            is_chat=True,
        )
        chat.last_view = terminal.live.last_view
        # An undo has no reply: what it did is on the page, call by call.
        is_reply = result.completed and not result.is_undo
        terminal.live.ensure_reply_shown(result.text if is_reply else "")
        chat.usage.add_run(result)
        self._was_stopped = result.outcome == "cancelled"
        if result.outcome == "suspended":
            show_answer_commands(chat.screen, chat.session, result.questions)
        chat.screen.write_line()
        show_summary(chat.screen, result, show_session=False)
        chat.screen.write_line()
        return result

    async def resume(self, opened: AgentSession, *, consent: bool) -> None:
        chat = self._chat
        try:
            await self.drive(
                opened,
                lambda watch: opened.agent.resume(chat.session, consent=consent, on_event=watch),
            )
        except NothingToDo:
            chat.show_note(f"Session {chat.session} has no open run. Continue with a prompt.")

    async def undo_from(self, opened: AgentSession, run: int) -> None:
        """Undo what a run and the later ones did, the last one first, as far as it can be done."""
        last = fold(self._chat.session, await self._chat.journal.read(self._chat.session)).run
        for number in range(last.number if last is not None else 0, run - 1, -1):
            with suppress(NothingToDo):
                await self.undo(opened, number)

    async def undo(self, opened: AgentSession, run: int | None = None) -> None:
        """Undo what a run did, by default the last one that can be undone."""
        chat = self._chat
        person = find_login_name()
        asker = chat.context.terminal.question_prompt
        folder = chat.context.agent.folder
        await show_undo(chat.screen, chat.journal, chat.session, opened, folder, run)
        with asker.answer_by(allow_undo) if asker is not None else nullcontext():
            await self.drive(
                opened,
                lambda watch: opened.agent.undo(
                    chat.session, run=run, caller=person, on_event=watch
                ),
            )

    async def end_stopped_run(self, agent: Agent[Any]) -> None:
        """Make sure that the run that a person stopped has ended in the journal too.

        A stopped run releases the terminal at once. On a slow disk its end is recorded later.
        """
        chat = self._chat
        if not self._was_stopped:
            return
        self._was_stopped = False
        for _ in range(SETTLE_TRIES):
            if not fold(chat.session, await chat.journal.read(chat.session)).is_active:
                return
            await asyncio.sleep(SETTLE_S)
        with suppress(NothingToDo, SessionBusy):
            await agent.abandon(chat.session, "interrupted")

    async def _listen(self, agent: Agent[Any], prompt: PromptLine) -> None:
        """Take what is typed during a run: for the run itself, or for afterwards."""
        while True:
            typed = await prompt.read()
            text = strip_quotes(typed.text)
            if typed.action not in ("send", "queue") or not text.strip():
                continue
            if typed.action == "queue" or text[0] in "/!" or not await self._steer(agent, text):
                self._chat.tasks.append(PromptTask(text))

    async def _steer(self, agent: Agent[Any], text: str) -> bool:
        """Send a message to the run. Returns whether it was still running."""
        prompt = expand_prompt(text, self._chat.context.agent.folder, self._chat.notes)
        try:
            await agent.steer(self._chat.session, prompt.parts, by=find_login_name())
        except NothingToDo:
            return False
        self._chat.remember_typed(text)
        return True
