"""The mailbox side of a Postgres journal."""

import secrets
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from typing_extensions import override

from windlass.core.fold.control import mail_places
from windlass.core.mail import AnswerMail, Letter, Mail, MailLane, MailReceipt
from windlass.core.verdicts import QuestionRow
from windlass.journals.answer_proofs import check_answer_post, find_answer_problem, find_proven
from windlass.journals.mail_rules import MailLimits, encode_message, lane_name
from windlass.journals.postgres.config import PostgresConfig, PostgresConnection
from windlass.journals.postgres.history import describe_replication
from windlass.journals.postgres.loop_resources import ResourcesByLoop
from windlass.journals.postgres.mail import PostgresMail, ServerLetter
from windlass.journals.postgres.repeating import KeptChanges, KeptLetter
from windlass.journals.postgres.worker_rows import WorkerRows
from windlass.journals.service_keys import ServiceKeys
from windlass.journals.stored_journal import StoredJournal
from windlass.journals.wording import session_name_error
from windlass.ports.fleet import ClaimedWork, FleetRows, WorkLane, WorkShare, WorkWanted
from windlass.ports.records import ProvenAnswers

T = TypeVar("T")


class PostgresMailbox(StoredJournal):
    """Takes messages for the sessions of a schema."""

    def __init__(self, config: PostgresConfig, limits: MailLimits, keys: ServiceKeys) -> None:
        super().__init__(config.location)
        self._config = config
        self._keys = keys
        self._changes = KeptChanges()
        self._resources = ResourcesByLoop(config, self._repeat_changes)
        self._mail = PostgresMail(config, limits, keys)

    @property
    def is_signed(self) -> bool:
        """Whether answers and records count only if a service signed them: keys are given."""
        return self._keys.is_configured

    @override
    def _check_name(self, session: str) -> str:
        name = super()._check_name(session)
        if "\0" in name:
            raise session_name_error(session, "Postgres cannot store NUL characters")
        return name

    async def _run_query(self, work: Callable[[PostgresConnection], Awaitable[T]]) -> T:
        return await self._resources.for_running_loop().pool.run_on_connection(work)

    async def post_mail(
        self, session: str, message: Mail, *, by: str = "", key: str = ""
    ) -> MailReceipt:
        """Keep a message for a session, and return once it is durable.

        Raises NothingToDo if the session has no facts, unless the message is a prompt, ConfigError
        if the message cannot be kept or this process lacks the key to sign it, QuestionDecided,
        and MailboxFull.
        """
        if isinstance(message, AnswerMail):
            check_answer_post(self._keys, message, by)
        body = encode_message(message, by, key)
        name = self._check_name(session)
        letter = ServerLetter(name, message, body, by, key, secrets.token_hex(16))
        receipt, is_waited = await self._run_query(
            lambda server: self._mail.post_letter(server, letter)
        )
        news = self._resources.for_running_loop().news
        news.tell([lane_name(name, receipt.lane)], elsewhere=is_waited)
        self._changes.keep_letter(letter, receipt.lane, receipt.number)
        return receipt

    @abstractmethod
    async def _repeat_changes(self) -> None:
        """Do again what a failover may have undone."""

    async def _repeat_letter(self, kept: KeptLetter) -> None:
        """Post a message again that a failover lost, unless a fact names it."""
        letter = kept.letter
        places = (place for fact in await self.read(letter.session) for place in mail_places(fact))
        if (kept.lane, kept.number) in places:
            return
        receipt, is_waited = await self._run_query(
            lambda server: self._mail.post_letter(server, letter, kept.number)
        )
        news = self._resources.for_running_loop().news
        news.tell([lane_name(letter.session, receipt.lane)], elsewhere=is_waited)

    @override
    def find_letter_problem(self, session: str, letter: Letter) -> str | None:
        """Return why an answer does not count; None for other messages, and without keys."""
        return find_answer_problem(self._keys, session, letter)

    @override
    async def find_proven(self, session: str) -> ProvenAnswers | None:
        """Return what the signed answers of a session prove; None without keys."""
        if not self._keys.is_configured:
            return None
        return find_proven(self._keys, session, await self.read(session))

    async def read_mail(self, session: str, lane: MailLane, after: int = 0) -> Sequence[Letter]:
        """Return the messages of a lane after a number, in order."""
        name = self._check_name(session)
        return await self._run_query(
            lambda server: self._mail.read_letters(server, name, lane, after)
        )

    async def read_questions(self, session: str) -> Sequence[QuestionRow]:
        """Return the questions of a session that no fact has settled, decided or not."""
        name = self._check_name(session)
        return await self._run_query(lambda server: self._mail.read_questions(server, name))

    async def remove_mail(self, session: str, lane: MailLane, upto: int) -> None:
        """Forget the messages of a lane up to a number."""
        name = self._check_name(session)
        await self._run_query(lambda server: self._mail.remove_letters(server, name, lane, upto))

    async def wait_for_mail(self, session: str, lane: MailLane, after: int) -> None:
        """Return when the lane may have messages after a number.

        It also returns after a few seconds without any, because a notification may be lost.
        """
        name = self._check_name(session)

        async def is_there() -> bool:
            return await self._run_query(lambda it: self._mail.has_letters(it, name, lane, after))

        news = self._resources.for_running_loop().news
        await news.wait_for_news(name, lane_name(name, lane), is_there)

    async def list_mailed(self, limit: int = 100) -> Sequence[str]:
        """Return the sessions that have messages which were not taken yet, the oldest first."""
        return await self._run_query(lambda server: self._mail.list_mailed(server, limit))

    async def list_work(self, wanted: WorkWanted) -> Sequence[WorkLane]:
        """Return the lanes with sessions that need a driver and have none."""
        return await self._resources.for_running_loop().leases.list_work(wanted)

    async def claim_work(
        self, wanted: WorkWanted, shares: Sequence[WorkShare]
    ) -> Sequence[ClaimedWork]:
        """Lease some sessions of these lanes."""
        return await self._resources.for_running_loop().leases.claim_work(wanted, shares)

    def release_work(self, session: str) -> None:
        """Release a session that was claimed and is not driven."""
        self._resources.for_running_loop().leases.release_work(session)

    async def read_fleet(self) -> FleetRows:
        """Return the processes of the last hour, what each drives, and the prompts that wait."""
        at, workers = await self._run_query(WorkerRows(self._config).list_recent)
        queues = await self._run_query(self._mail.list_queues)
        history = self._resources.for_running_loop().pool.history
        failovers = await self._run_query(history.list_recent)
        replication = await self._run_query(describe_replication)
        return FleetRows(
            at=at, workers=workers, queues=queues, failovers=failovers, replication=replication
        )
