"""Client: the same as AsyncClient, for programs that do not await.

Its requests run on the event loop of `run_sync`, in its own thread, so it also works inside of
a running loop, such as that of a notebook.
"""

from collections.abc import AsyncGenerator, Collection, Coroutine, Iterator, Mapping
from typing import Any, Self, TypeVar

from windlass.agent.options import OnBusy
from windlass.agent.sync import BackgroundLoop
from windlass.client.async_client import AsyncClient, Prompt, SchedulePage
from windlass.core.events import Event
from windlass.core.session_summary import SessionState
from windlass.core.verdicts import PersonAnswer
from windlass.server.api.controls import ControlReply, QuestionsReply
from windlass.server.api.runs import ConversationReply, RunCaps, SessionListReply, StartedReply
from windlass.server.schedules.schedule_routes import ScheduleBody, ScheduleReply
from windlass.server.sse import Snapshot

T = TypeVar("T")


class Client:
    """A caller of one service. Each method does what that of AsyncClient does."""

    def __init__(
        self, url: str, token: str, *, timeout_s: float = 30.0, retry_s: float = 60.0
    ) -> None:
        """Make a client, with the same settings as AsyncClient."""
        self._client = AsyncClient(url, token, timeout_s=timeout_s, retry_s=retry_s)
        self._loop = BackgroundLoop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the thread of this client."""
        self._loop.stop()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.submit(work).result()

    def start(
        self,
        prompt: Prompt,
        *,
        session: str = "",
        agent: str = "",
        on_busy: OnBusy = "refuse",
        limits: RunCaps | None = None,
        tags: Mapping[str, str] | None = None,
        key: str = "",
    ) -> StartedReply:
        """Start a run, and return once it is durable."""
        return self._run(
            self._client.start(
                prompt,
                session=session,
                agent=agent,
                on_busy=on_busy,
                limits=limits,
                tags=tags,
                key=key,
            )
        )

    def watch(
        self, session: str, *, after: int = 0, follow: bool = False
    ) -> Iterator[Event | Snapshot]:
        """Yield the events of a session after a fact, also over broken connections."""
        events = self._client.watch(session, after=after, follow=follow)
        try:
            while (event := self._run(_next_event(events))) is not None:
                yield event
        finally:
            self._run(events.aclose())

    def wait(self, session: str) -> ConversationReply:
        """Return a session once its runs have ended."""
        return self._run(self._client.wait(session))

    def read_session(self, session: str) -> ConversationReply:
        """Return a session as people see it."""
        return self._run(self._client.read_session(session))

    def list_sessions(
        self,
        *,
        text: str = "",
        state: Collection[SessionState] = (),
        agent: str | None = None,
        tags: Mapping[str, str] | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> SessionListReply:
        """Return a page of sessions, the latest first."""
        return self._run(
            self._client.list_sessions(
                text=text, state=state, agent=agent, tags=tags, limit=limit, cursor=cursor
            )
        )

    def steer(self, session: str, prompt: str) -> ControlReply:
        """Say something to a run before its next step."""
        return self._run(self._client.steer(session, prompt))

    def cancel(self, session: str, reason: str = "") -> ControlReply:
        """Cancel the run of a session."""
        return self._run(self._client.cancel(session, reason))

    def pause(self, session: str, reason: str = "") -> ControlReply:
        """Pause a run after its current step."""
        return self._run(self._client.pause(session, reason))

    def resume(self, session: str, *, consent: bool = False) -> ControlReply:
        """Resume a paused run."""
        return self._run(self._client.resume(session, consent=consent))

    def list_questions(self, *, limit: int = 50, cursor: str | None = None) -> QuestionsReply:
        """Return the questions that wait for a person."""
        return self._run(self._client.list_questions(limit=limit, cursor=cursor))

    def answer(
        self, session: str, call_id: str, answer: PersonAnswer, *, digest: str | None = None
    ) -> QuestionsReply:
        """Answer a question, and return those that are left."""
        return self._run(self._client.answer(session, call_id, answer, digest=digest))

    def create_schedule(self, schedule: ScheduleBody) -> ScheduleReply:
        """Make a schedule, which starts runs at certain times."""
        return self._run(self._client.create_schedule(schedule))

    def list_schedules(self, *, limit: int = 50, cursor: str | None = None) -> SchedulePage:
        """Return a page of schedules by name."""
        return self._run(self._client.list_schedules(limit=limit, cursor=cursor))

    def read_schedule(self, name: str) -> ScheduleReply:
        """Return a schedule."""
        return self._run(self._client.read_schedule(name))

    def pause_schedule(self, name: str, reason: str = "") -> ScheduleReply:
        """Let a schedule start no runs until it is resumed."""
        return self._run(self._client.pause_schedule(name, reason))

    def resume_schedule(self, name: str) -> ScheduleReply:
        """Resume a schedule."""
        return self._run(self._client.resume_schedule(name))

    def delete_schedule(self, name: str) -> None:
        """Delete a schedule."""
        self._run(self._client.delete_schedule(name))


async def _next_event(events: AsyncGenerator[Event | Snapshot]) -> Event | Snapshot | None:
    return await anext(events, None)
