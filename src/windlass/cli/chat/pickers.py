"""What a person chooses from a list in a chat: a model, or an earlier message to return to."""

from collections.abc import AsyncGenerator

from windlass.cli.chat.state import ChatState, RewindTask
from windlass.cli.session_picker import format_age
from windlass.cli.terminal import choose_from_list
from windlass.core.errors import ConfigError
from windlass.core.events import RunEnded, RunStarted
from windlass.core.phrases import join_texts
from windlass.core.text_clip import clip_line
from windlass.models.prices import list_models
from windlass.models.resolve import can_sign_in
from windlass.models.vendors import load_vendors
from windlass.project.agent_session import AgentSession
from windlass.project.file_edits import write_setting
from windlass.project.files import settings_files
from windlass.project.local_servers import DEFAULT_MODELS, find_servers
from windlass.project.trust import keep_trust

SAVE = "save"
"""`/model save` makes the model the default of the project."""
REWIND_KEYS = "c conversation   f files   b both   n neither"
ROW_CHARS = 200


async def pick_model(chat: ChatState) -> str | None:
    """The model that a person chooses: what is set, of servers here, of providers with a key."""
    rows = [row async for row in _list_models(chat)]
    chosen = await choose_from_list("Which model?", [f"{name}  {about}" for name, about in rows])
    return None if chosen is None else rows[chosen][0]


async def _list_models(chat: ChatState) -> AsyncGenerator[tuple[str, str]]:
    """Yield each model that can be used now, with what there is to know about it."""
    settings = chat.context.agent.settings
    environ = chat.context.agent.project.environ
    yield settings.model, "(in use)"
    for name in settings.fallbacks:
        yield name, "(fallback)"
    for server in await find_servers():
        for model in server.models:
            yield f"{server.vendor}:{model}", f"on this machine, port {server.port}"
    for vendor, config in load_vendors().items():
        has_key = bool(config.key_env and environ.get(config.key_env))
        if not has_key and not can_sign_in(vendor, environ):
            continue
        # The models that work with tools have a known window, and come before old ones.
        first = DEFAULT_MODELS.get(vendor, "")
        listed = sorted(list_models(vendor), key=lambda one: (one.name != first, not one.window))
        for known in listed:
            name = f"{vendor}:{known.name}"
            if known.deprecated or name == settings.model:
                continue
            window = f", {known.window:,} tokens" if known.window else ""
            yield name, f"${known.price.input:f} / ${known.price.output:f} per million{window}"


def save_model(chat: ChatState) -> None:
    """Make the model in use the default of the project."""
    model = chat.context.agent.settings.model
    *_, project_file = settings_files()
    with keep_trust(project_file):
        line = write_setting(project_file, "model", model)
    chat.show_note(f"{project_file}: {line}")


async def pick_rewind(chat: ChatState, _opened: AgentSession, _argument: str) -> None:
    """Choose an earlier message, and what returns to it: the conversation, the files, or both."""
    journal = chat.require_journal()
    facts = await journal.read(chat.session)
    starts: list[tuple[int, RunStarted]] = []
    last_end = 0
    for at, fact in enumerate(facts):
        # What precedes the start of a run since the end of the last one belongs to it.
        if isinstance(fact, RunEnded):
            last_end = at + 1
        if isinstance(fact, RunStarted) and join_texts(fact.prompt):
            starts.append((last_end, fact))
    if not starts:
        raise ConfigError("there is no earlier message to return to")
    starts.reverse()
    rows = [
        f"{clip_line(join_texts(fact.prompt), ROW_CHARS)}  ({format_age(fact.at)})"
        for _, fact in starts
    ]
    chosen = await choose_from_list("Return to before which message?", rows)
    asker = chat.context.terminal.question_prompt
    if chosen is None or asker is None:
        return
    key = await asker.choose_key(REWIND_KEYS, "cfbn")
    if key != "n":
        at, fact = starts[chosen]
        text = join_texts(fact.prompt)
        chat.tasks.append(
            RewindTask(at, fact.run, text, files=key in "fb", conversation=key in "cb")
        )
