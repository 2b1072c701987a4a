"""What a projection shows about a run: its figures, and what it waits for."""

from typing import Literal

import msgspec

from windlass.core.errors import Fault, Outcome
from windlass.core.events import BudgetAwaited, RunPaused
from windlass.core.limits import RaisedLimits
from windlass.core.messages import Ledger


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
    budget_wait: BudgetAwaited | None = None
    """Set while the run waits for what other runs hold of a shared budget."""
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
        "prompt", "runtime", "model", "retry", "tools", "person", "continue", "driver", "budget"
    ]
    """`continue`: it is paused. `driver`: any process can begin it, or resume it. `budget`: other
    runs hold what is left of a shared budget.

    `runtime`: nothing outside; the next fact follows at once, or the driver has died.
    """
    since: float = 0.0
    until: float | None = None
    """When the next attempt is made, or a budget is asked again, if it waits for that."""
    tools: tuple[str, ...] = ()
    """The names of the tools that run."""
