"""What a projection shows about a run: its figures, what it waits for, and what it asks."""

from typing import Any, Literal

import msgspec

from windlass.core.errors import Fault, Outcome
from windlass.core.events import RunPaused
from windlass.core.limits import RaisedLimits
from windlass.core.messages import Ledger
from windlass.core.verdicts import Approval, CallPreview


class RunView(msgspec.Struct, frozen=True, gc=False):
    """One run: from a prompt to its end."""

    number: int = 0
    first_entry: int = 0
    """The index of its prompt among the entries."""
    started_at: float = 0.0
    ended_at: float | None = None
    caller: str = ""
    agent: str = ""
    """The name of the agent, if it has one."""
    model: str = ""
    """The model that was asked last."""
    steps: int = 0
    """Complete replies."""
    requests: int = 0
    """Attempts, also those that failed and those for summaries."""
    failures: int = 0
    """Attempts that failed."""
    stalls: int = 0
    """Attempts that were given up because the model was silent."""
    fallbacks: int = 0
    compactions: int = 0
    repairs: int = 0
    """Calls whose arguments had to be repaired."""
    text: str = ""
    """The last reply with words in it: the result of the run, if it completes."""
    partial: str = ""
    """What had come of a reply that broke off."""
    ledger: Ledger = Ledger()
    pause: RunPaused | None = None
    """Set while the run is paused, or will be as soon as the open step is over."""
    queued: bool = False
    """It was accepted, and waits for its first driver."""
    released: bool = False
    """Its driver released it, and no other has taken it over yet."""
    raised: RaisedLimits = RaisedLimits()
    """The limits that were raised in this run, above those of its configuration."""
    outcome: Outcome | None = None
    """How it ended; None while it is open."""
    reason: str = ""
    fault: Fault | None = None

    @property
    def is_open(self) -> bool:
        """Whether the run has not ended yet."""
        return self.outcome is None


class RunStatus(msgspec.Struct, frozen=True, gc=False):
    """What a session waits for now."""

    waits_for: Literal[
        "prompt", "runtime", "model", "retry", "tools", "person", "continue", "driver"
    ]
    """`continue`: it is paused. `driver`: any process can begin it, or resume it.

    `runtime`: nothing outside; the next fact follows at once, or the driver has died.
    """
    since: float = 0.0
    until: float | None = None
    """When the next attempt is made, if it waits to retry."""
    tools: tuple[str, ...] = ()
    """The names of the tools that run."""


class OpenQuestion(msgspec.Struct, frozen=True, gc=False):
    """A call that waits for a person's answer, here or in a sub-agent."""

    session: str
    call_id: str
    tool: str
    arguments: dict[str, Any]
    """What would run if the answer is yes."""
    question: str
    digest: str
    """Of the arguments. An answer is bound to it."""
    rule: str = ""
    expires_at: float | None = None
    chain: tuple[str, ...] = ()
    """The agents that work for one another, from the top down to the one that asks."""
    preview: CallPreview | None = None
    """What the call would change, in a list of questions; None if it was not computed."""
    approvals: tuple[Approval, ...] = ()
    """Who has to agree; all of these. Empty: anyone who may answer."""
    agreed: tuple[str, ...] = ()
    """The people who agreed so far, if others have to agree too."""
