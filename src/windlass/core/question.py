"""A question to a person: one shape in results, views, events, facts and the service."""

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
from typing_extensions import override

from windlass.core.json_form import JsonForm
from windlass.core.messages import DisplayCard, RichDisplay
from windlass.core.suggestions import ForeignNames
from windlass.core.verdicts import Approval, CallPreview


class Question(RichDisplay, JsonForm, ForeignNames, msgspec.Struct, frozen=True, gc=False):
    """A call that waits for a person's answer, here or in a sub-agent."""

    foreign_names: ClassVar[Mapping[str, str]] = {
        "call": "question.call_id and question.tool",
        "id": "question.call_id",
        "tool_call_id": "question.call_id",
        "tool_name": "question.tool",
        "args": "question.arguments",
        "agents": "question.chain",
    }

    session: str
    """The session that asks: that of the run, or of a sub-agent."""
    call_id: str
    tool: str
    arguments: dict[str, Any]
    """What would run if the answer is yes."""
    question: str
    digest: str
    """Of the arguments. An answer is bound to it."""
    rule: str = ""
    """The rule that asks."""
    expires_at: float | None = None
    """Seconds since the epoch after which only a denial is accepted; None: never."""
    chain: tuple[str, ...] = ()
    """Who works for whom, the outermost first, if a sub-agent asks: it is the last one."""
    preview: CallPreview | None = None
    """What the call would change, in a list of questions; None if it was not computed."""
    approvals: tuple[Approval, ...] = ()
    """Who has to agree, on the page of a service; all of these. Empty: anyone who may answer."""
    agreed: tuple[str, ...] = ()
    """The people who agreed so far, if others have to agree too."""
    form: Mapping[str, Any] | None = None
    """A JSON Schema, if values are asked for instead of a yes: `Modify(values, …)` gives them, and
    `Allow` gives those in `arguments`."""
    is_live: bool = False
    """A call that runs asks for it. It cannot wait for long, so no answer counts as a no."""

    @override
    def display_card(self) -> DisplayCard:
        """Return what is shown of this question in a notebook: the whole call."""
        rows = tuple((name, str(value)) for name, value in self.arguments.items())
        return DisplayCard(f"May {self.tool} run?", self.rule, self.question, rows, "asking")
