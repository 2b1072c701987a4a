"""The conformance suite for journals that take messages for their sessions.

A subclass opens its journal with `self.mail_limits`, so that the bounds can be tested quickly.
"""

import asyncio
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from windlass.core.errors import ConfigError, MailboxFull, NothingToDo
from windlass.core.events import Fact, MailRefused
from windlass.core.limits import RaisedLimits
from windlass.core.mail import (
    AnswerMail,
    CancelMail,
    ContinueMail,
    Mail,
    MailLane,
    PauseMail,
    PromptMail,
    RaiseLimitsMail,
    ReleaseMail,
    SteerMail,
)
from windlass.core.messages import ImagePart, TextPart
from windlass.core.verdicts import Allow
from windlass.journals.archive import export_session, import_session
from windlass.journals.forking import fork
from windlass.journals.mail_rules import MailLimits
from windlass.ports import Journal
from windlass.testing.journals import SESSION, append_facts, error_of, on_a_journal, on_two_journals
from windlass.testing.leases import PATIENCE_S
from windlass.testing.questions import AnswerConformance
from windlass.testing.samples import facts_of_every_kind, note_facts

LANES: tuple[MailLane, MailLane] = ("control", "prompts")


def _message(lane: MailLane, text: str = "go on") -> Mail:
    if lane == "prompts":
        return PromptMail(prompt=(TextPart(text),))
    return SteerMail(run=1, prompt=(TextPart(text),))


async def _numbers(journal: Journal, lane: MailLane, after: int = 0) -> list[int]:
    return [letter.number for letter in await journal.read_mail(SESSION, lane, after)]


def _refusals(first: int, count: int, seq: int, lane: MailLane = "control") -> list[Fact]:
    """Facts that take messages: refusing one is legal in every state of a session."""
    return [
        MailRefused(
            mail=first + nth, kind="cancel", reason="no run", lane=lane, seq=seq + nth, at=1.0
        )
        for nth in range(count)
    ]


class MailboxConformance(AnswerConformance):
    """A message is durable, numbered, kept in order, and given out again until it is removed."""

    mail_limits = MailLimits(control=30, prompts=10)

    @on_two_journals
    async def test_each_message_comes_back_as_it_was_posted(
        self, one: Journal, two: Journal
    ) -> None:
        """D4: with its author, its key and the time at which the store accepted it."""
        await append_facts(one, SESSION, note_facts(1, 1))
        messages: list[Mail] = [
            SteerMail(run=1, prompt=(TextPart("look"), ImagePart("image/png", b"\x89PNG"))),
            CancelMail(run=1, reason="not needed"),
            PauseMail(run=2, reason="lunch"),
            ContinueMail(run=2),
            ReleaseMail(run=2, opening=7, reason="drain"),
            RaiseLimitsMail(run=3, limits=RaisedLimits(usd="0.10", steps=9)),
        ]
        for nth, message in enumerate(messages, 1):
            receipt = await one.post_mail(SESSION, message, by="ann", key=f"k{nth}")
            assert (receipt.session, receipt.lane, receipt.number) == (SESSION, "control", nth)
            (letter,) = await two.read_mail(SESSION, "control", nth - 1)
            assert (letter.message, letter.by, letter.key) == (message, "ann", f"k{nth}")
            assert (letter.number, letter.at) == (nth, receipt.at)
        prompt = PromptMail(
            prompt=(TextPart("begin"),), key="mine", context={"a": [1, None]}, pinned=True
        )
        receipt = await two.post_mail(SESSION, prompt)
        assert (receipt.lane, receipt.number) == ("prompts", 1)
        assert [one.message for one in await one.read_mail(SESSION, "prompts")] == [prompt]

    @on_two_journals
    async def test_numbers_have_no_gaps_and_are_never_used_again(
        self, one: Journal, two: Journal
    ) -> None:
        """D4: in each lane from 1, also after messages were removed, the last one too."""
        await append_facts(one, SESSION, note_facts(1, 1))
        for lane in LANES:
            for nth in range(1, 7):
                journal = one if nth % 2 else two
                assert (await journal.post_mail(SESSION, _message(lane))).number == nth
            assert await _numbers(one, lane) == [1, 2, 3, 4, 5, 6]
            assert await _numbers(two, lane, 4) == [5, 6]
            await two.remove_mail(SESSION, lane, 4)
            assert await _numbers(one, lane) == [5, 6]
            await one.remove_mail(SESSION, lane, 6)
            await one.remove_mail(SESSION, lane, 6)
            assert await _numbers(two, lane) == []
            assert [(await two.post_mail(SESSION, _message(lane))).number] == [7]
            assert await _numbers(one, lane) == [7]

    @on_two_journals
    async def test_many_post_at_once(self, one: Journal, two: Journal) -> None:
        """D4: every post has its own number, and a reader never sees a gap."""
        await append_facts(one, SESSION, note_facts(1, 1))
        posts = [
            (one, two)[nth % 2].post_mail(SESSION, _message("control", str(nth)))
            for nth in range(20)
        ]

        async def read_along() -> None:
            seen: list[int] = []
            async with asyncio.timeout(PATIENCE_S):
                while len(seen) < len(posts):
                    await two.wait_for_mail(SESSION, "control", len(seen))
                    seen += await _numbers(two, "control", len(seen))
                    assert seen == list(range(1, len(seen) + 1))

        reading = asyncio.create_task(read_along())
        receipts = await asyncio.gather(*posts)
        assert sorted(receipt.number for receipt in receipts) == list(range(1, 21))
        await reading

    @on_two_journals
    async def test_a_key_is_accepted_once(self, one: Journal, two: Journal) -> None:
        """D4: who posts again gets the first receipt, also after the message was removed."""
        await append_facts(one, SESSION, note_facts(1, 1))
        for lane in LANES:
            first = await one.post_mail(SESSION, _message(lane), key="again")
            other = await one.post_mail(SESSION, _message(lane), key="other")
            assert (first.number, other.number) == (1, 2)
            assert await two.post_mail(SESSION, _message(lane, "changed"), key="again") == first
            assert await _numbers(two, lane) == [1, 2]
            await two.remove_mail(SESSION, lane, 2)
            assert await one.post_mail(SESSION, _message(lane), key="again") == first
            assert await _numbers(one, lane) == []
            assert [(await one.post_mail(SESSION, _message(lane))).number] == [3]
        both = [
            journal.post_mail(SESSION, _message("control"), key="race") for journal in (one, two)
        ]
        receipts = await asyncio.gather(*both)
        assert receipts[0] == receipts[1]

    @on_a_journal
    async def test_an_unknown_session_gets_only_a_prompt(self, journal: Journal) -> None:
        """D4: a message names its run, and this session has none."""
        assert isinstance(
            await error_of(journal.post_mail(SESSION, CancelMail(run=1))), NothingToDo
        )
        assert await _numbers(journal, "control") == []
        assert (await journal.post_mail(SESSION, _message("prompts"))).number == 1
        assert list(await journal.read(SESSION)) == []
        if self.lists:
            assert await journal.sessions() == []
        assert isinstance(
            await error_of(journal.post_mail(SESSION, CancelMail(run=1))), NothingToDo
        )
        await append_facts(journal, SESSION, note_facts(1, 1))
        assert (await journal.post_mail(SESSION, CancelMail(run=1))).number == 1
        assert await _numbers(journal, "prompts") == [1]

    @on_a_journal
    async def test_a_message_that_cannot_be_used_is_refused(self, journal: Journal) -> None:
        """D4: nothing is kept of it."""
        await append_facts(journal, SESSION, note_facts(1, 1))
        wrong: list[tuple[Mail, dict[str, str]]] = [
            (CancelMail(run=0), {}),
            (CancelMail(run=cast("Any", "one")), {}),
            (SteerMail(run=1, prompt=()), {}),
            (PromptMail(prompt=()), {}),
            (PromptMail(prompt=(TextPart("go"),), context={"a": object()}), {}),
            (SteerMail(run=1, prompt=(TextPart("\ud800"),)), {}),
            (AnswerMail(run=1, call_id="", digest="d", verdict=Allow("a person")), {}),
            (AnswerMail(run=1, call_id="c", digest="", verdict=Allow("a person")), {}),
            (CancelMail(run=1), {"by": "\ud800"}),
            (CancelMail(run=1), {"key": "k" * 501}),
            (CancelMail(run=1), {"key": "a\0b"}),
        ]
        for message, names in wrong:
            assert isinstance(
                await error_of(journal.post_mail(SESSION, message, **names)), ConfigError
            )
        for lane in LANES:
            assert await _numbers(journal, lane) == []
            assert (await journal.post_mail(SESSION, _message(lane))).number == 1

    @on_two_journals
    async def test_a_full_lane_takes_no_more(self, one: Journal, two: Journal) -> None:
        """D4: untaken messages are bounded; the other lane and other sessions still accept mail."""
        await append_facts(one, SESSION, note_facts(1, 1))
        await append_facts(one, "another", note_facts(1, 1))
        for lane in LANES:
            limit = self.mail_limits.of_lane(lane)
            for nth in range(limit):
                await (one, two)[nth % 2].post_mail(SESSION, _message(lane), key=f"{nth}")
            error = await error_of(two.post_mail(SESSION, _message(lane)))
            assert isinstance(error, MailboxFull)
            assert f"{limit}" in str(error)
            assert (await one.post_mail(SESSION, _message(lane), key="0")).number == 1
            assert (await two.post_mail("another", _message(lane))).number == 1
            await one.remove_mail(SESSION, lane, 1)
            assert (await two.post_mail(SESSION, _message(lane))).number == limit + 1

    @on_two_journals
    async def test_a_post_wakes_who_waits(self, one: Journal, two: Journal) -> None:
        """D3: in this process and in another; each lane by itself."""
        await append_facts(one, SESSION, note_facts(1, 1))
        for nth, (writer, reader) in enumerate(((one, one), (one, two), (two, one)), 1):
            for lane in LANES:
                waiting = asyncio.create_task(reader.wait_for_mail(SESSION, lane, nth - 1))
                await asyncio.sleep(0.01)  # The driver should be waiting before the post.
                await writer.post_mail(SESSION, _message(lane))
                async with asyncio.timeout(PATIENCE_S):
                    while await _numbers(reader, lane, nth - 1) != [nth]:
                        await waiting
                        waiting = asyncio.create_task(reader.wait_for_mail(SESSION, lane, nth - 1))
                    await waiting
                    # What is there already is news at once.
                    await reader.wait_for_mail(SESSION, lane, 0)

    @on_two_journals
    async def test_no_wake_up_is_missed(self, one: Journal, two: Journal) -> None:
        """D3: however waiting and posting fall together."""
        await append_facts(one, SESSION, note_facts(1, 1))
        last = 25

        async def follow(journal: Journal) -> list[int]:
            seen: list[int] = []
            while len(seen) < last:
                await journal.wait_for_mail(SESSION, "control", len(seen))
                seen += await _numbers(journal, "control", len(seen))
            return seen

        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            followers = [group.create_task(follow(journal)) for journal in (one, two, two)]
            for nth in range(last):
                await one.post_mail(SESSION, _message("control"))
                await asyncio.sleep(0.002 if nth % 7 else 0)
        assert [task.result() for task in followers] == [list(range(1, last + 1))] * 3

    @on_two_journals
    async def test_sessions_with_mail_are_listed_the_oldest_first(
        self, one: Journal, two: Journal
    ) -> None:
        """D3: until a fact carries the message, whether or not it was removed."""
        if not self.lists:
            return
        for name in ("first", "second", SESSION):
            await append_facts(one, name, note_facts(1, 1))
        assert list(await two.list_mailed()) == []
        await one.post_mail("second", _message("control"))
        self.moment += 1
        await two.post_mail("first", _message("prompts"))
        self.moment += 1
        await one.post_mail(SESSION, _message("control"))
        for journal in (one, two):
            assert list(await journal.list_mailed()) == ["second", "first", SESSION]
            assert list(await journal.list_mailed(2)) == ["second", "first"]
        await append_facts(one, SESSION, _refusals(1, 1, 2))
        await append_facts(two, "first", _refusals(1, 1, 2, "prompts"))
        for journal in (one, two):
            assert list(await journal.list_mailed()) == ["second"]
        await one.post_mail(SESSION, _message("control"))
        await two.remove_mail("second", "control", 1)
        assert list(await two.list_mailed()) == [SESSION]

    @on_two_journals
    async def test_the_prompts_of_each_caller_are_counted(self, one: Journal, two: Journal) -> None:
        """F7: the longest wait comes first."""
        if not self.lists:
            return
        queued = [("alpha", f"alpha {at}") for at in range(4)]
        for caller, name in (*queued, ("beta", "beta 0"), ("", "nobody"), ("beta", "beta 1")):
            self.moment += 1
            await one.post_mail(name, PromptMail(prompt=(TextPart("Go."),), caller=caller))
        for journal in (one, two):
            queues = (await journal.read_fleet()).queues
            counts = [(queue.caller, queue.prompts) for queue in queues]
            assert counts == [("alpha", len(queued)), ("beta", 2), ("", 1)]

    @on_two_journals
    async def test_mail_that_facts_carry_is_not_in_the_way(
        self, one: Journal, two: Journal
    ) -> None:
        """D4: a driver that died before it removed what it took leaves no full lane behind."""
        await append_facts(one, SESSION, note_facts(1, 1))
        limit = self.mail_limits.control
        for _ in range(limit):
            await one.post_mail(SESSION, _message("control"))
        await append_facts(two, SESSION, _refusals(1, limit, 2))
        assert (await one.post_mail(SESSION, _message("control"))).number == limit + 1

    @on_two_journals
    async def test_a_deleted_session_has_no_mail(self, one: Journal, two: Journal) -> None:
        """D9: also one that has nothing but mail; a new one of that name begins empty."""
        if not self.lists:
            return
        await append_facts(one, SESSION, note_facts(1, 1))
        for lane in LANES:
            await one.post_mail(SESSION, _message(lane), key="k")
        assert await two.delete(SESSION)
        for lane in LANES:
            assert await _numbers(one, lane) == []
        assert list(await one.list_mailed()) == []
        assert (await two.post_mail(SESSION, _message("prompts", "new"), key="k")).number == 1
        (letter,) = await one.read_mail(SESSION, "prompts")
        assert letter.message == _message("prompts", "new")
        assert await one.delete(SESSION)
        assert not await two.delete(SESSION)
        assert await _numbers(two, "prompts") == []

    @on_two_journals
    async def test_a_fork_begins_with_an_empty_mailbox(self, one: Journal, two: Journal) -> None:
        """D4: its numbers come after those of the facts that it copied, so that none is refused."""
        await self._fill(one)
        name = await fork(two, SESSION, 3)
        await self._check_empty_after(one, two, name)

    @on_two_journals
    async def test_an_import_begins_with_an_empty_mailbox(self, one: Journal, two: Journal) -> None:
        """D4: as a fork does."""
        await self._fill(one)
        file = io.BytesIO()
        await export_session(one, SESSION, file.write)
        name = await import_session(two, file, into="copy")
        await self._check_empty_after(one, two, name)

    @on_a_journal
    async def test_a_name_with_waiting_prompts_is_taken(self, journal: Journal) -> None:
        """D4: a fork or an import under that name would swallow them."""
        await self._fill(journal)
        await journal.post_mail("next", _message("prompts"))
        file = io.BytesIO()
        await export_session(journal, SESSION, file.write)
        assert isinstance(await error_of(fork(journal, SESSION, 2, into="next")), ConfigError)
        assert isinstance(await error_of(import_session(journal, file, into="next")), ConfigError)
        assert list(await journal.read("next")) == []
        assert len(await journal.read_mail("next", "prompts")) == 1

    async def _fill(self, journal: Journal) -> None:
        """Give the session facts that carry messages, and messages that wait."""
        start = facts_of_every_kind()[0]
        facts: Sequence[Fact] = (start, *_refusals(4, 2, 2), *_refusals(2, 1, 4, "prompts"))
        await append_facts(journal, SESSION, facts)
        for lane in LANES:
            await journal.post_mail(SESSION, _message(lane), key="k")

    async def _check_empty_after(self, one: Journal, two: Journal, name: str) -> None:
        for lane in LANES:
            assert [*await one.read_mail(name, lane)] == []
        if self.lists:
            assert name not in await two.list_mailed()
        receipt = await two.post_mail(name, _message("control"), key="k")
        assert [receipt.number] == [6]
        await one.wait_for_mail(name, "control", 5)
        if self.lists:
            assert name in await one.list_mailed()
        # The mailbox of the first session is as it was.
        assert await _numbers(two, "control") == [6]
        assert await _numbers(two, "prompts") == [3]

    def test_mail_outlives_its_journal(self, tmp_path: Path) -> None:
        """D4: what one process posted, the next one takes."""
        if not self.durable:
            return

        async def post(journal: Journal) -> None:
            await append_facts(journal, SESSION, note_facts(1, 1))
            for lane in LANES:
                await journal.post_mail(SESSION, _message(lane), by="ann", key="k")
            await journal.remove_mail(SESSION, "prompts", 1)

        async def take(journal: Journal) -> None:
            (letter,) = await journal.read_mail(SESSION, "control")
            assert (letter.number, letter.by) == (1, "ann")
            for lane in LANES:
                assert (await journal.post_mail(SESSION, _message(lane), key="k")).number == 1
                assert [(await journal.post_mail(SESSION, _message(lane))).number] == [2]

        self.run_scenario(tmp_path, post)
        self.run_scenario(tmp_path, take)
