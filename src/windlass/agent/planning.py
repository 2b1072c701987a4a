"""What a run is for: its prompt, session and options, checked before anything is written."""

from collections.abc import Sequence

from windlass.agent.build import AgentParts, check_budgets, unpriced_models
from windlass.agent.earlier_messages import read_messages
from windlass.agent.observers import KnowsTrace
from windlass.agent.openings import RunTask, add_budgets
from windlass.agent.options import (
    EarlierMessage,
    PromptInput,
    RunOptions,
    check_prompt,
    check_run_options,
    choose_session,
    name_session,
)
from windlass.core.errors import ConfigError
from windlass.core.messages import ContentPart, Message, UserMessage
from windlass.core.session_summary import check_text
from windlass.ports import RefusesContent


class RunPlanner:
    """Checks what is asked of one agent."""

    def __init__(self, parts: AgentParts) -> None:
        self._parts = parts
        self._main_model = parts.world.models[parts.setup.model.name]

    def plan_run(
        self, prompt: PromptInput, session: str | None, options: RunOptions
    ) -> tuple[str, RunTask]:
        """Return the session of a run, and what the run is for. Raises ConfigError."""
        checked = check_run_options(options)
        observer = self._parts.observer
        if not checked["trace"] and isinstance(observer, KnowsTrace):
            checked["trace"] = observer.current_trace()
        self._check_limits(options)
        if checked["budgets"]:
            budgeted = add_budgets(self._parts.setup, checked["budgets"])
            check_budgets(budgeted, self._parts.world.journal)
        earlier = self._read_earlier(options.get("messages"))
        task = RunTask(prompt=self.check_prompt(prompt), earlier=earlier, **checked)
        return self.name_session(session, options), task

    def name_session(self, session: str | None, options: RunOptions) -> str:
        """Return the session of a run: as given, as its key says, or a new one."""
        key = options.get("key", "")
        if session is None and key:
            caller = check_text("caller", str(options.get("caller", "")))
            return name_session(self._parts.world.agent, caller, check_text("key", key))
        return choose_session(session)

    def check_prompt(self, prompt: PromptInput) -> tuple[ContentPart, ...]:
        """Return the parts of a prompt. Raises ConfigError if the model cannot take them."""
        parts = check_prompt(prompt)
        self._refuse_content(parts)
        return parts

    def _read_earlier(self, messages: Sequence[EarlierMessage] | None) -> tuple[Message, ...]:
        if messages is None:
            return ()
        earlier = read_messages(messages, self._parts.setup, self._parts.mask)
        for message in earlier:
            if isinstance(message, UserMessage):
                self._refuse_content(message.parts)
        return earlier

    def _check_limits(self, options: RunOptions) -> None:
        """Raise ConfigError for a limit of money that could not be held."""
        limits = options.get("limits")
        unpriced = unpriced_models(self._parts.setup)
        if limits is not None and limits.usd is not None and unpriced:
            raise ConfigError(
                f"Limits(usd=…): the price of {unpriced[0]} is not known, so its cost cannot be "
                "limited. Give the model a price, or limit tokens."
            )

    def _refuse_content(self, parts: tuple[ContentPart, ...]) -> None:
        """Raise ConfigError for an image or a file that the model cannot take."""
        if isinstance(self._main_model, RefusesContent):
            refusal = self._main_model.content_refusal(parts)
            if refusal is not None:
                raise ConfigError(refusal)
