"""The questions of a run, asked in the editor.

Invariant: a question may be answered anywhere, and the first answer counts. A question that was
answered elsewhere is taken back in the editor. An answer is bound to the digest of the arguments
that were shown; the run continues in the process that drives it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Protocol

from acp import RequestError
from acp.helpers import text_block, tool_content
from acp.schema import (
    AllowedOutcome,
    PermissionOption,
    RequestPermissionResponse,
    ToolCallUpdate,
)

from windlass.agent.answering import answer
from windlass.core.errors import ConfigError, ForOperator, NothingToDo
from windlass.core.question import Question
from windlass.core.verdicts import Allow, AllowAlways, CallPreview, Deny, PersonAnswer
from windlass.logs import get_logger
from windlass.ports import Journal
from windlass.server.acp.tool_calls import (
    CallContent,
    ReadText,
    find_kind,
    find_locations,
    make_diffs,
    make_title,
)

_log = get_logger(__name__)
RULE = "person"
ALLOW_ONCE = "allow_once"
ALLOW_CALL = "allow_always"
ALLOW_TOOL = "allow_tool"
DENY = "reject_once"

QuestionKey = tuple[str, str, str]
"""Session, call and digest: what an answer is bound to."""


class PermissionClient(Protocol):
    """The editor, as far as questions go."""

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption]
    ) -> RequestPermissionResponse: ...

    async def withdraw_question(self, session: str, tool_call: str) -> None: ...


PreviewQuestion = Callable[[Question], Awaitable[CallPreview | None]]
"""Says what the call of a question would change; None if this is not known."""


class PermissionRequests:
    """The questions of one session that are open in the editor."""

    def __init__(
        self,
        client: PermissionClient,
        journal: Journal,
        session: str,
        folder: Path,
        *,
        by: str,
        read_text: ReadText,
        preview: PreviewQuestion,
        on_postponed: Callable[[], None],
    ) -> None:
        """Make an empty set. `on_postponed` is called if the person answers neither yes nor no."""
        self._client = client
        self._journal = journal
        self._session = session
        self._folder = folder
        self._by = by
        self._read_text = read_text
        self._preview = preview
        self._on_postponed = on_postponed
        self._asking: dict[QuestionKey, asyncio.Task[None]] = {}
        self._answered: set[QuestionKey] = set()

    def follow(self, questions: Iterable[Question]) -> None:
        """Ask the questions that are new, and take back those that are no longer open."""
        still_open = {_key_of(question): question for question in questions}
        for key, task in tuple(self._asking.items()):
            if key not in still_open:
                task.cancel()
                del self._asking[key]
        for key, question in still_open.items():
            if key not in self._asking and key not in self._answered:
                self._asking[key] = asyncio.create_task(self._ask(question))

    async def close(self) -> None:
        """Take back all questions. They stay open in the session, and are asked again later."""
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._asking.clear()
        self._answered.clear()

    async def _ask(self, question: Question) -> None:
        shown = await self._show_question(question)
        try:
            response = await self._client.request_permission(
                self._session, shown, make_options(question)
            )
        except asyncio.CancelledError:
            # The caller does not wait for this: the editor may be gone already.
            await self._withdraw(shown.tool_call_id)
            raise
        except (RequestError, OSError) as error:
            _log.warning("the editor did not take a question: %s", error)
            self._on_postponed()
            return
        outcome = response.outcome
        if not isinstance(outcome, AllowedOutcome):
            self._on_postponed()
            return
        self._answered.add(_key_of(question))
        await self._post_answer(question, read_answer(question, outcome.option_id))

    async def _withdraw(self, tool_call: str) -> None:
        try:
            await asyncio.shield(self._client.withdraw_question(self._session, tool_call))
        except (OSError, asyncio.CancelledError):
            return

    async def _post_answer(self, question: Question, reply: PersonAnswer) -> None:
        try:
            await self._write_answer(question, reply)
        except NothingToDo:
            _log.info("call %s was answered elsewhere first", question.call_id)
        except ConfigError as error:
            # A yes for all such calls is not possible for each of them. It is still a yes to this
            # one.
            _log.warning("call %s is only allowed once: %s", question.call_id, error)
            reply = Allow(RULE) if isinstance(reply, AllowAlways) else Deny(str(error), RULE)
            try:
                await self._write_answer(question, reply)
            except ForOperator as again:
                _log.warning("call %s was not answered: %s", question.call_id, again)
                self._answered.discard(_key_of(question))
                self._on_postponed()

    async def _write_answer(self, question: Question, reply: PersonAnswer) -> None:
        await answer(
            self._journal,
            question.session,
            question.call_id,
            reply,
            digest=question.digest,
            by=self._by,
        )

    async def _show_question(self, question: Question) -> ToolCallUpdate:
        """Return exactly what would happen: arguments, command or diff, who asks and why."""
        is_nested = question.session != self._session
        tool_call = f"{question.session}/{question.call_id}" if is_nested else question.call_id
        lines = [question.question]
        if question.chain:
            lines.append(f"Asked by {' > '.join(question.chain)}.")
        if question.rule:
            lines.append(f"Rule: {question.rule}.")
        arguments = question.arguments
        # A sub-agent may work in another folder, where the editor's own view does not help.
        diffs: list[CallContent] = []
        if not question.chain:
            diffs = make_diffs(question.tool, arguments, self._folder, self._read_text)
        preview = await self._preview(question) if not diffs else None
        if preview is not None:
            lines += ["As things are now:", preview.note, preview.diff]
        content: list[CallContent] = [*diffs, tool_content(text_block("\n".join(lines)))]
        return ToolCallUpdate(
            tool_call_id=tool_call,
            title=make_title(question.tool, arguments),
            kind=find_kind(question.tool),
            status="pending",
            content=content,
            locations=find_locations(question.tool, arguments, self._folder),
            raw_input=arguments,
        )


def make_options(question: Question) -> list[PermissionOption]:
    """Return the answers that a person may choose from."""
    once = PermissionOption(option_id=ALLOW_ONCE, name="Allow", kind="allow_once")
    deny = PermissionOption(option_id=DENY, name="Deny", kind="reject_once")
    if question.rule == "interrupted":
        # It is about one call that a crash left open: there are no later ones like it.
        return [once, deny]
    tool = question.tool
    same_call = PermissionOption(
        option_id=ALLOW_CALL,
        name="Always allow exactly this call in this session",
        kind="allow_always",
    )
    same_tool = PermissionOption(
        option_id=ALLOW_TOOL, name=f"Always allow {tool} in this session", kind="allow_always"
    )
    return [once, same_call, same_tool, deny]


def read_answer(question: Question, option: str) -> PersonAnswer:
    """Return the answer that a person chose. What is not known is a no."""
    match option:
        case "allow_once":
            return Allow(RULE)
        case "allow_always":
            return AllowAlways(rule=RULE)
        case "allow_tool":
            return AllowAlways(question.tool, RULE)
        case "reject_once":
            return Deny("The user said no.", RULE)
        case _:
            return Deny(f"The editor answered {option!r}, which was not offered.", RULE)


def _key_of(question: Question) -> QuestionKey:
    return question.session, question.call_id, question.digest
