"""Questions as the page asks them: exactly what will happen, who asks and why, what was allowed.

Invariant: everything that a person decides about is in the question, from the record and not from
the words of a model; the answer is bound to the digest of the arguments that are shown.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.messages import Label, ToolSpec
from windlass.core.projection.view import CallView, Projection, ReplyEntry
from windlass.core.question import Question
from windlass.core.state import State
from windlass.core.verdicts import (
    Allow,
    CallPreview,
    Deny,
    GivenAnswer,
    Modify,
    find_disqualification,
    terms_of,
)
from windlass.gates.globs import MatchResult
from windlass.gates.grants import make_grant
from windlass.gates.patterns import PreparedCall, parse_pattern
from windlass.server.access import Caller
from windlass.server.errors import ApiError
from windlass.server.owned_reading import read_state
from windlass.server.service import Service
from windlass.server.session_directory import OwnedSession

ANSWERS_MAX = 20
OTHERS_MAX = 12
STATES_KEPT = 64
SHELL_TOOL = "bash"


class EarlierAnswer(msgspec.Struct, frozen=True):
    """What a person decided about another call of the same tool in the session."""

    at: float
    by: str
    arguments: str
    pattern: str
    decision: str


class PageQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A question with all that a person must know to answer it."""

    session: str
    root: str
    """The session at the top, which the person started."""
    call_id: str
    tool: str
    arguments: Mapping[str, Any]
    question: str
    digest: str
    rule: str
    expires_at: float | None
    chain: Sequence[str]
    """Who works for whom, the agent at the top first; empty if that one asks itself."""
    asked_at: float
    agent: str
    title: str
    effect: str
    labels: Sequence[Label]
    """Of the tool: what it brings in, and whether it sends out."""
    held_labels: Sequence[Label]
    """What the session has read so far."""
    notice: str
    sandbox: str
    """Whether a command is confined; empty for other tools."""
    pattern: str
    """What could be allowed for the rest of the session."""
    allowed_before: Sequence[EarlierAnswer]
    preview: CallPreview | None
    """What the call would change as things are now; None if this is not known."""
    needs: Sequence[str]
    """Who has to agree, in words; empty if anyone who may answer does."""
    agreed: Sequence[str]
    """Who agreed so far."""
    cannot: str
    """Why this person may not answer it; empty if they may."""


class PatternVerdict(msgspec.Struct, frozen=True):
    """What a pattern would allow."""

    covers: bool
    words: str
    others: Sequence[str] = ()
    """Other calls of this session that it covers."""


class QuestionReader:
    """Reads the open questions of a caller."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._states: dict[tuple[str, int], State] = {}

    async def read(self, caller: Caller) -> list[PageQuestion]:
        """Return all questions that wait for this caller."""
        found, _ = await self._service.list_questions(caller)
        described: list[PageQuestion] = []
        for question in found:
            try:
                described.append(await self._describe(caller, question))
            except ApiError:
                continue  # Its session was deleted meanwhile.
        return described

    async def _describe(self, caller: Caller, question: Question) -> PageQuestion:
        session = await self._service.find_session(caller, question.session, "answer")
        root = await self._service.find_root(session)
        view = session.view
        call = _find_call(view, question.call_id)
        state = await self._read_state(session)
        spec = find_spec(state, question.tool)
        return PageQuestion(
            session=question.session,
            root=root.name,
            call_id=question.call_id,
            tool=question.tool,
            arguments=question.arguments,
            question=question.question,
            digest=question.digest,
            rule=question.rule,
            expires_at=question.expires_at,
            chain=question.chain,
            asked_at=call.asked_at or view.at if call is not None else view.at,
            agent=session.summary.agent,
            title=root.summary.title,
            effect=spec.effect if spec is not None else "write",
            labels=spec.labels if spec is not None else (),
            held_labels=tuple(sorted(state.labels)),
            notice=spec.notice if spec is not None else "",
            sandbox=describe_sandbox(spec),
            pattern=propose_pattern(spec, question.arguments) if spec is not None else "",
            allowed_before=list(_earlier_answers(view, state, question)),
            preview=question.preview,
            needs=[one.describe() for one in question.approvals],
            agreed=question.agreed,
            cannot=await self._find_obstacle(caller, root, call),
        )

    async def _find_obstacle(
        self, caller: Caller, root: OwnedSession, call: CallView | None
    ) -> str:
        """Return why a person may not answer a question, in words; empty if they may."""
        if call is None or call.question is None or not call.question.approvals:
            return ""
        person = await self._service.people.verify(caller, root.summary.agent)
        given = GivenAnswer("allow", caller.author, time.time(), person)
        return find_disqualification(terms_of(call.question, ""), given)

    async def _read_state(self, session: OwnedSession) -> State:
        key = (session.name, session.view.seq)
        state = self._states.get(key)
        if state is None:
            state = await read_state(self._service.journal, session)
            if len(self._states) >= STATES_KEPT:
                self._states.clear()
            self._states[key] = state
        return state


def find_spec(state: State, tool: str) -> ToolSpec | None:
    """Return the tool that a session was set up with: who is asked about a call must know it."""
    return state.setup.find_tool(tool) if state.setup is not None else None


def describe_sandbox(spec: ToolSpec | None) -> str:
    """Say whether a command is confined, in a word or two."""
    if spec is None or spec.name != SHELL_TOOL:
        return ""
    if spec.notice.startswith("It runs in a sandbox"):
        return "sandboxed"
    return "not sandboxed"


def propose_pattern(spec: ToolSpec, arguments: Mapping[str, Any]) -> str:
    """Return a pattern that covers a call and calls like it; empty if there is none for certain.

    For a command that is its program and its first word, as in `bash(git status *)`.
    """
    call = PreparedCall(spec, arguments)
    value = arguments.get(call.main_argument or "")
    if not isinstance(value, str) or not value.strip():
        return ""
    words = value.split()
    shorter = [" ".join(words[:count]) + " *" for count in (2, 1) if len(words) > count]
    if "/" in value and len(words) == 1:
        shorter = [f"{value.rpartition('/')[0]}/*"]
    for text in (*shorter, value):
        pattern = f"{spec.name}({text})"
        if check_pattern(spec, arguments, pattern) is None:
            return pattern
    return ""


def check_pattern(spec: ToolSpec, arguments: Mapping[str, Any], pattern: str) -> str | None:
    """Return why a pattern cannot be allowed for a call; None if it can."""
    try:
        make_grant(spec, arguments, pattern, ())
    except ConfigError as error:
        return str(error)
    return None


async def try_pattern(
    service: Service, caller: Caller, session: str, call_id: str, pattern: str
) -> PatternVerdict:
    """Return what a pattern would allow for a question. Raises ApiError 404."""
    found = await service.find_session(caller, session, "answer")
    view = found.view
    call = _find_call(view, call_id)
    if call is None or call.question is None:
        raise ApiError(
            404, "question_not_found", "This question is not open any more.", "Reload the list."
        )
    spec = find_spec(await read_state(service.journal, found), call.name)
    if spec is None:
        raise ApiError(
            404, "tool_not_found", f"There is no tool {call.name!r} here.", "Allow it once."
        )
    if not pattern.strip():
        return PatternVerdict(covers=True, words="Only exactly this call is not asked about again.")
    wrong = check_pattern(spec, call.decoded_arguments, pattern.strip())
    if wrong is not None:
        return PatternVerdict(covers=False, words=wrong)
    others = list(_matching_calls(view, spec, pattern.strip(), call_id))
    words = "Calls that match are not asked about again in this session."
    if others:
        words += f" It also covers these calls, which were made before ({len(others)}):"
    return PatternVerdict(covers=True, words=words, others=others[:OTHERS_MAX])


def _matching_calls(view: Projection, spec: ToolSpec, pattern: str, call_id: str) -> Iterable[str]:
    parsed = parse_pattern(pattern)
    seen: set[str] = set()
    for call in _calls_of(view, spec.name):
        arguments = call.arguments
        if call.id == call_id or arguments is None or arguments in seen:
            continue
        seen.add(arguments)
        prepared = PreparedCall(spec, call.decoded_arguments)
        if all(parsed.match(prepared, piece) is MatchResult.YES for piece in prepared.pieces):
            main = call.decoded_arguments.get(prepared.main_argument or "")
            yield main if isinstance(main, str) else arguments


def _calls_of(view: Projection, tool: str) -> Iterable[CallView]:
    for entry in view.entries:
        if isinstance(entry, ReplyEntry):
            yield from (call for call in entry.calls if call.name == tool)


def _find_call(view: Projection, call_id: str) -> CallView | None:
    return view.find_call(call_id)


def _earlier_answers(view: Projection, state: State, question: Question) -> Iterable[EarlierAnswer]:
    for grant in state.grants:
        if grant.tool == question.tool and grant.pattern:
            yield EarlierAnswer(0.0, "", "", grant.pattern, "allow")
    answered = [call for call in _calls_of(view, question.tool) if call.answer is not None]
    for call in answered[-ANSWERS_MAX:][::-1]:
        match call.answer:
            case Deny():
                decision = "deny"
            case Allow() | Modify() | None:
                decision = "allow"
        at = call.answered_at or 0.0
        yield EarlierAnswer(at, call.answered_by, call.arguments or "", "", decision)
