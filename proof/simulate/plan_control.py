"""The part of a plan that says who speaks to a session from outside, and when drivers let go."""

from dataclasses import dataclass
from random import Random
from typing import Literal

LetterKind = Literal["steer", "pause", "resume", "cancel", "raise", "release", "stale"]
COMMON_KINDS: tuple[LetterKind, ...] = ("steer", "pause", "resume")
KINDS: tuple[LetterKind, ...] = (*COMMON_KINDS * 4, "cancel", "raise", "release", "stale")


@dataclass(frozen=True, slots=True)
class PlannedLetter:
    """A message that somebody posts."""

    process: int
    """Beside which process, counted from 1."""
    after_s: float
    kind: LetterKind
    is_repeated: bool
    """The poster dies after the store has accepted it, and posts it again."""


@dataclass(frozen=True, slots=True)
class PlannedRelease:
    """A driver that lets go of its run."""

    process: int
    after_s: float
    grace_s: float


@dataclass(frozen=True, slots=True)
class PlannedRival:
    """A second sweep that drives the session at the same time as a process."""

    process: int
    after_s: float


@dataclass(frozen=True, slots=True)
class ControlPlan:
    """Who speaks to a session from outside, and when."""

    letters: tuple[PlannedLetter, ...] = ()
    releases: tuple[PlannedRelease, ...] = ()
    answers_by_mail: bool = False
    queued_after_s: float | None = None
    """When the prompt of the second run is put into the queue, beside the first process."""
    is_queued_again: bool = False
    """The poster of that prompt dies after the store has accepted it, and posts it again."""
    rivals: tuple[PlannedRival, ...] = ()

    @property
    def changes_outcome(self) -> bool:
        """Whether the messages change what happens, and not only when."""
        return any(letter.kind in ("steer", "cancel", "raise") for letter in self.letters)


LEFT_ALONE = ControlPlan()
"""Nobody speaks to the session."""


def draw_control(random: Random) -> ControlPlan:
    """Draw who speaks to a session. Two of three sessions are left alone."""
    if random.random() < 0.67:  # noqa: PLR2004 - as above
        return LEFT_ALONE
    letters = tuple(
        PlannedLetter(
            random.choice((1, 1, 1, 2, 2, 3)),
            round(random.uniform(0.0, 4.0), 3),
            random.choice(KINDS),
            random.random() < 0.2,  # noqa: PLR2004 - a few
        )
        for _ in range(random.choice((0, 1, 1, 2, 3, 5)))
    )
    releases = tuple(
        PlannedRelease(
            random.choice((1, 1, 2, 3)),
            round(random.uniform(0.0, 4.0), 3),
            random.choice((0.0, 0.02, 1.0, 30.0)),
        )
        for _ in range(random.choice((0, 0, 1, 2)))
    )
    answers_by_mail = random.random() < 0.5  # noqa: PLR2004 - half of them
    queued_after_s = random.choice((None, 0.0, round(random.uniform(0.0, 3.0), 3)))
    rivals = tuple(
        PlannedRival(process, random.choice((0.0, 0.001, round(random.uniform(0.0, 0.05), 4))))
        for process in (2, 3, 4)
        if random.random() < 0.5  # noqa: PLR2004 - half of them
    )
    return ControlPlan(
        letters,
        releases,
        answers_by_mail,
        queued_after_s,
        is_queued_again=random.random() < 0.3,  # noqa: PLR2004 - some
        rivals=rivals,
    )
