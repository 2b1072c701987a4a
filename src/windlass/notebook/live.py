"""A run in a cell: it is drawn again as it works, and its questions are asked below it.

A kernel delivers clicks only between cells, so no cell waits for a button. The run is suspended
instead, which loses nothing, and a click resumes it, in the output of the same cell.
"""

import asyncio
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from typing_extensions import Unpack

from windlass.agent.agent import Agent
from windlass.agent.options import PromptInput, RunOptions
from windlass.core.errors import WindlassError
from windlass.core.events import AttemptDiscarded, Event, RunEnded, TextDelta, ThinkingDelta
from windlass.core.messages import DisplayCard, Tone, render_html
from windlass.core.projection.entries import FailureEntry, PromptEntry, SteeringEntry
from windlass.core.projection.project import apply_event
from windlass.core.projection.view import CallView, Projection, ReplyEntry
from windlass.core.question import Question
from windlass.core.result import OutputT, RunResult
from windlass.core.verdicts import Allow, Deny

DRAWS_PER_S = 10
"""A notebook that is drawn for each fragment of text is slower than the model."""
PERSON = "notebook"
"""Who answered, for the record."""
REFUSAL = "The person said no."


async def show(
    agent: Agent[OutputT],
    prompt: PromptInput,
    *,
    session: str | None = None,
    buttons: bool | None = None,
    **options: Unpack[RunOptions],
) -> RunResult[OutputT]:
    """Run a prompt, and show the run in the output of the cell while it works.

    If the run asks a person, it is suspended. With `buttons`, this returns, and a click resumes the
    run where it is shown; without, the cell asks for a line of text. By default there are buttons
    if ipywidgets is installed. Outside a notebook, the text is printed. Raises RunFailed if the
    run fails.
    """
    canvas = RunCanvas()
    async with agent.stream(prompt, session=session, **options) as events:
        async for event in events:
            canvas.add_event(event)
    result = events.result
    canvas.draw()
    if buttons is None:
        buttons = canvas.is_live and _find_module("ipywidgets") is not None
    while result.questions and not buttons:
        result = await _answer_by_text(agent, result, canvas)
    if result.questions:
        QuestionButtons(agent, canvas).show(result.questions)
    return result


class RunCanvas:
    """One output of a cell, which shows a run as far as it has come."""

    def __init__(self) -> None:
        self._view = Projection()
        self._handle: Any = None
        self._drawn_at = 0.0
        self.is_live = False
        """Whether this is a notebook, which can draw an output again."""
        ipython = _find_module("IPython")
        if ipython is not None and ipython.get_ipython() is not None:
            self.is_live = True
            self._html: Callable[[str], object] = ipython.display.HTML
            self._handle = ipython.display.display(self._html(""), display_id=True)

    def add_event(self, event: Event) -> None:
        """Take an event of the run, and draw the run if it was not drawn just now."""
        self._view = apply_event(self._view, event)
        if not self.is_live:
            if isinstance(event, TextDelta):
                sys.stdout.write(event.text)
            elif isinstance(event, AttemptDiscarded):
                # What was printed stays there, so it is marked as taken back.
                sys.stdout.write("\n[the reply broke off, trying again]\n")
            elif isinstance(event, RunEnded):
                sys.stdout.write("\n")
            return
        now = asyncio.get_running_loop().time()
        is_fragment = isinstance(event, (TextDelta, ThinkingDelta))
        if not is_fragment or now - self._drawn_at >= 1 / DRAWS_PER_S:
            self._drawn_at = now
            self.draw()

    def draw(self) -> None:
        """Draw the run as it is now."""
        if self._handle is not None:
            self._handle.update(self._html("".join(map(render_html, run_cards(self._view)))))


def run_cards(view: Projection) -> Iterator[DisplayCard]:
    """Yield what people see of a session: prompts, replies, calls, failures, and how it ended."""
    for entry in view.entries:
        match entry:
            case PromptEntry() | SteeringEntry():
                yield DisplayCard("you", body=entry.text)
            case ReplyEntry():
                yield DisplayCard(
                    "assistant",
                    entry.model,
                    entry.text,
                    cards=tuple(map(_call_card, entry.calls)),
                )
            case FailureEntry():
                title = "trying again" if entry.retried else "failed"
                yield DisplayCard(title, entry.model, entry.fact.fault.message, tone="bad")
            case _:
                pass
    if view.reply is not None and view.reply.text:
        yield DisplayCard("assistant", f"{view.reply.model} is writing", view.reply.text)
    run = view.run
    if run is not None and run.outcome is not None:
        cost = "" if view.cost is None else f"${view.cost}"
        tone: Tone = "good" if run.outcome == "completed" else "bad"
        yield DisplayCard(run.outcome, cost, tone=tone)


def _call_card(call: CallView) -> DisplayCard:
    tones: dict[str, Tone] = {"done": "good", "asked": "asking", "running": "plain"}
    tone = tones.get(call.state, "plain" if call.is_open else "bad")
    result = call.result.text if call.result is not None else call.progress
    return DisplayCard(f"→ {call.name}", call.state, result, (("with", call.call.arguments),), tone)


async def _answer_by_text(
    agent: Agent[OutputT], result: RunResult[OutputT], canvas: RunCanvas
) -> RunResult[OutputT]:
    """Ask about the first question with a line of text, and continue."""
    question = result.questions[0]
    # A cell waits for its input; the run is suspended meanwhile, so nothing is held up.
    said = input(f"{question.tool} {question.arguments}: may it? [y/n] ")  # noqa: ASYNC250
    verdict = Allow() if said.strip().lower() in ("y", "yes") else Deny(REFUSAL)
    return await _go_on(agent, question, verdict, canvas)


async def _go_on(
    agent: Agent[OutputT],
    question: Question,
    verdict: Allow | Deny,
    canvas: RunCanvas,
) -> RunResult[OutputT]:
    """Answer a question of a run, and show how the run continues."""
    after = await agent.answer(
        question.session,
        question.call_id,
        verdict,
        digest=question.digest,
        by=PERSON,
        on_event=canvas.add_event,
    )
    canvas.draw()
    return after


class QuestionButtons:
    """The questions of a run with their buttons. A click answers one and resumes the run."""

    def __init__(self, agent: Agent[Any], canvas: RunCanvas) -> None:
        self._agent = agent
        self._canvas = canvas
        self._shown: set[str] = set()
        self._widgets: Any = importlib.import_module("ipywidgets")

    def show(self, questions: Sequence[Question]) -> None:
        """Show those questions that have no buttons yet."""
        display: Any = importlib.import_module("IPython").display.display
        for question in questions:
            if question.call_id not in self._shown:
                self._shown.add(question.call_id)
                display(self._make_box(question))

    def _make_box(self, question: Question) -> object:
        widgets = self._widgets
        allow = widgets.Button(description="Allow", button_style="success")
        deny = widgets.Button(description="Deny", button_style="danger")
        reason = widgets.Text(placeholder="why not")
        card = widgets.HTML(render_html(question.display_card()))
        box = widgets.VBox([card, widgets.HBox([allow, deny, reason])])

        def answer(button: object) -> None:
            # The buttons are gone at once, so that no second click counts.
            box.close()
            verdict = Allow() if button is allow else Deny(reason.value or REFUSAL)
            going_on = asyncio.ensure_future(self._answer(question, verdict))
            _going_on.add(going_on)
            going_on.add_done_callback(_going_on.discard)

        allow.on_click(answer)
        deny.on_click(answer)
        return box

    async def _answer(self, question: Question, verdict: Allow | Deny) -> None:
        try:
            result = await _go_on(self._agent, question, verdict, self._canvas)
        except WindlassError as error:
            # A click is not awaited, so the error is shown where its output goes.
            sys.stderr.write(f"{error}\n")
        else:
            self.show(result.questions)


_going_on: set[asyncio.Future[None]] = set()
"""The runs that continue after a click; asyncio itself would not keep them alive."""


def _find_module(name: str) -> Any:  # noqa: ANN401 - whatever the module has
    """Return a module if it is installed; None if it is not."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
