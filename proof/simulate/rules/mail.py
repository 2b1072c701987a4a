"""Rules for control from outside: each message counts once, in order, and a pause holds."""

from proof.simulate.play import PlayedSession
from proof.simulate.rules.broken import require
from windlass.core.events import (
    AttemptStarted,
    CallAnswered,
    CallStarted,
    Fact,
    LimitsRaised,
    RunContinued,
    RunEnded,
    RunPaused,
    RunReleased,
    SteeringGiven,
)
from windlass.core.fold.control import mail_places
from windlass.core.mail import SteerMail
from windlass.core.messages import TextPart
from windlass.core.verdicts import classify_answer


def check_mail(played: PlayedSession) -> None:
    """D2, D4, D5: messages, pauses and releases."""
    _check_letters(played)
    _check_decisions(played)
    _check_pauses(played.facts)
    for facts in played.inner.values():
        _check_pauses(facts)
    _check_releases(played.facts)


def _check_letters(played: PlayedSession) -> None:
    """D4: each message led to one fact, in the order of the mailbox."""
    facts = (*played.facts, *played.undo_facts)
    places = [(lane, number, fact) for fact in facts for lane, number in mail_places(fact)]
    taken = [(number, fact) for lane, number, fact in places if lane == "control"]
    numbers = [number for number, _ in taken]
    posted = sorted(played.outside.posted)
    require(numbers == posted, f"D4: {posted} were posted, and {numbers} became facts")
    begun = [number for lane, number, _ in places if lane == "prompts"]
    queued = sorted(played.outside.queued)
    require(begun == queued, f"D7: {queued} were queued, and {begun} began runs")
    for number, fact in taken:
        message = played.outside.posted[number].message
        if isinstance(fact, SteeringGiven) and isinstance(message, SteerMail):
            texts = [
                "".join(part.text for part in prompt if isinstance(part, TextPart))
                for prompt in (fact.prompt, message.prompt)
            ]
            require(texts[0] == texts[1], f"D4: letter {number} became {texts[0]!r}")


def _check_decisions(played: PlayedSession) -> None:
    """G6: whoever answered second was told of the decision that the journal has."""
    sessions = {played.plan.session: played.facts, **played.inner}
    for session, call_id, decision in played.outside.told:
        answers = [
            classify_answer(fact.verdict)
            for fact in sessions.get(session, [])
            if isinstance(fact, CallAnswered) and fact.call_id == call_id
        ]
        # The run may have been cancelled before its driver took the answer.
        message = f"G6: {call_id} was said to be decided as {decision.answer}: {answers}"
        require(not answers or decision.answer in answers, message)


def _check_pauses(facts: list[Fact]) -> None:
    """D5: between a pause that took effect and its end, nobody asks a model or runs a call."""
    cause = ""
    is_paused = False
    for fact in facts:
        match fact:
            case RunPaused():
                cause = fact.cause
            case LimitsRaised() if cause != "budget":
                pass
            case RunContinued() | RunEnded() | LimitsRaised():
                cause = ""
                is_paused = False
            case RunReleased():
                is_paused = bool(cause)
            case AttemptStarted() | CallStarted():
                require(not is_paused, f"D5: {fact} in a paused run")
            case _:
                pass


def _check_releases(facts: list[Fact]) -> None:
    """D2: a release settles the attempt in flight, so that it is not charged by its reservation."""
    is_open = False
    for fact in facts:
        if isinstance(fact, AttemptStarted):
            is_open = True
        elif isinstance(fact, RunReleased):
            require(is_open or fact.charge is None, f"D2: {fact} charges nothing that was open")
            is_open = False
        elif getattr(fact, "charge", None) is not None or isinstance(fact, RunEnded):
            is_open = False
