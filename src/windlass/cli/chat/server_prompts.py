"""The prompts of MCP servers as commands of a chat: `/server:prompt argument …`.

Invariant: a person chooses a prompt, and the server writes it. So it is labelled like any other
text from outside, and no file that it names and no command in it counts as named by the person.
"""

import shlex
from collections.abc import Sequence

from windlass.cli.chat.references import OUTSIDE_LABELS, ExpandedPrompt
from windlass.cli.chat.state import ChatState, ServerPromptTask
from windlass.core.errors import ConfigError
from windlass.core.messages import TextPart
from windlass.core.suggestions import suggest_names
from windlass.core.text_clip import reveal_line
from windlass.project.agent_session import AgentSession
from windlass.tools import McpPrompt, McpServers


def prompt_commands(servers: McpServers) -> dict[str, str]:
    """What each prompt of the servers is called in a chat, and the line in the help about it."""
    commands: dict[str, str] = {}
    for server in servers.servers.values():
        for prompt in server.prompts:
            name = _command_name(prompt)
            # A name with a space in it could not be typed.
            if name.isprintable() and " " not in name:
                commands[name] = reveal_line(_describe_prompt(prompt))
    return commands


def _command_name(prompt: McpPrompt) -> str:
    return f"{prompt.server}:{prompt.name}"


def _describe_prompt(prompt: McpPrompt) -> str:
    words = [word if word in prompt.required else f"[{word}]" for word in prompt.arguments]
    return ": ".join(part for part in (" ".join(words), prompt.description) if part)


async def choose_prompt(chat: ChatState, opened: AgentSession, name: str, argument: str) -> None:
    """Get a prompt from its server, for the next run. Raises ConfigError if it is not available."""
    prompts = {
        _command_name(prompt): prompt
        for server in opened.servers.servers.values()
        for prompt in server.prompts
    }
    prompt = prompts.get(name)
    if prompt is None:
        raise ConfigError(f"there is no prompt /{name}.{suggest_names(name, prompts)}")
    arguments = read_arguments(prompt, argument)
    try:
        parts = await opened.servers.servers[prompt.server].get_prompt(prompt.name, arguments)
    except Exception as error:
        raise ConfigError(f"the server did not return this prompt: {error}") from error
    for part in parts:
        if isinstance(part, TextPart):
            chat.show_note(reveal_line(part.text)[:200])
    chat.tasks.appendleft(ServerPromptTask(ExpandedPrompt(parts, OUTSIDE_LABELS)))


def read_arguments(prompt: McpPrompt, typed: str) -> dict[str, str]:
    """The arguments of a prompt, from the words behind its command; the last takes the rest.

    Raises ConfigError if one is missing, or if there are too many.
    """
    try:
        words: Sequence[str] = shlex.split(typed)
    except ValueError as error:
        raise ConfigError(f"{typed}: {error}") from None
    names = prompt.arguments
    if len(words) > len(names) > 0:
        words = [*words[: len(names) - 1], " ".join(words[len(names) - 1 :])]
    if len(words) > len(names):
        raise ConfigError(f"/{_command_name(prompt)} takes no arguments")
    arguments = dict(zip(names, words, strict=False))
    missing = [name for name in names if name in prompt.required and name not in arguments]
    if missing:
        usage = f"/{_command_name(prompt)} {_describe_prompt(prompt)}"
        raise ConfigError(f"{missing[0]} is missing: {reveal_line(usage)}")
    return arguments
