"""The commands of `windlass`, in the order of its help.

Invariant: a command's module is imported when the command is run, so that `--help` is quick. This
module holds only its name, its module and its line in the help.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from windlass.lazy_modules import LazyModules, lazy_attributes

if TYPE_CHECKING:
    from windlass.cli.acp import acp
    from windlass.cli.approve import approve, deny
    from windlass.cli.chat.command import chat
    from windlass.cli.completion import completion
    from windlass.cli.config import config
    from windlass.cli.control import cancel, pause, raise_, steer
    from windlass.cli.demo.command import demo
    from windlass.cli.doctor import doctor
    from windlass.cli.eval.command import eval_
    from windlass.cli.key import key
    from windlass.cli.mcp import mcp
    from windlass.cli.migrate import migrate
    from windlass.cli.models import models
    from windlass.cli.policy import policy
    from windlass.cli.quota import quota
    from windlass.cli.resume import resume, undo
    from windlass.cli.run import run
    from windlass.cli.schedule import schedule
    from windlass.cli.secrets import secrets
    from windlass.cli.serve import serve
    from windlass.cli.sessions import sessions, watch
    from windlass.cli.token import caller, token
    from windlass.cli.tools import tools
    from windlass.cli.trust import trust
    from windlass.cli.webhook import webhook
    from windlass.cli.worker import worker

__all__ = [
    "COMMANDS",
    "acp",
    "approve",
    "caller",
    "cancel",
    "chat",
    "completion",
    "config",
    "demo",
    "deny",
    "doctor",
    "eval_",
    "key",
    "mcp",
    "migrate",
    "models",
    "pause",
    "policy",
    "quota",
    "raise_",
    "resume",
    "run",
    "schedule",
    "secrets",
    "serve",
    "sessions",
    "steer",
    "token",
    "tools",
    "trust",
    "undo",
    "watch",
    "webhook",
    "worker",
]

COMMANDS: Mapping[str, str] = {
    "run": "Run a task to its end in this folder.",
    "chat": "Talk with an agent, prompt by prompt.",
    "resume": "Finish a run that was killed or waits.",
    "undo": "Undo what a run did: files, and whatever its tools can take back.",
    "approve": "Allow a call that waits, and resume the run.",
    "deny": "Deny a call that waits, and resume the run.",
    "steer": "Say something to a run while it works.",
    "pause": "Stop a run before its next request; resume it later.",
    "raise": "Raise the limits of a run.",
    "cancel": "End a run, whichever process drives it.",
    "watch": "Show a session while it runs, in whichever process.",
    "serve": "Serve agents over HTTP: runs, events, questions, a page.",
    "worker": "Drive runs that a service started, beside other workers.",
    "token": "Make, list and revoke tokens for the service.",
    "key": "Make the keys that a service signs with (Postgres).",
    "caller": "End a caller of the service, with all that acts for it.",
    "acp": "Serve an editor (Agent Client Protocol).",
    "tools": "List the tools that an agent would have here.",
    "models": "List providers, models and prices.",
    "mcp": "Add, list, remove and test MCP servers.",
    "trust": "Trust the settings of this project; list what is trusted.",
    "secrets": "Set, list and delete keys by name; nobody is shown their values.",
    "config": "Show the settings, and where each comes from.",
    "demo": "Watch an agent stall, be killed and finish. Needs no key.",
    "eval": "Evaluate an agent: run cases, compare reports, gate changes.",
    "doctor": "Show what this machine can do, and what is missing.",
    "policy": "Check a policy file, and what it decides about a call.",
    "schedule": "Start runs at certain times; list, pause and delete schedules.",
    "quota": "Limit what each caller of the service may use.",
    "webhook": "Send messages about questions, ends and failures.",
    "sessions": "List, show, watch, explain, check, copy and delete sessions.",
    "migrate": "Bring a journal of an older version up to date.",
    "completion": "Print the completion script for a shell.",
}
"""The line in the help of each command, by its name."""
LAZY_MODULES: LazyModules = {
    "acp": "windlass.cli.acp",
    "approve": "windlass.cli.approve",
    "caller": "windlass.cli.token",
    "cancel": "windlass.cli.control",
    "chat": "windlass.cli.chat.command",
    "completion": "windlass.cli.completion",
    "config": "windlass.cli.config",
    "demo": "windlass.cli.demo.command",
    "deny": "windlass.cli.approve",
    "doctor": "windlass.cli.doctor",
    "eval_": "windlass.cli.eval.command",
    "key": "windlass.cli.key",
    "mcp": "windlass.cli.mcp",
    "migrate": "windlass.cli.migrate",
    "models": "windlass.cli.models",
    "pause": "windlass.cli.control",
    "policy": "windlass.cli.policy",
    "quota": "windlass.cli.quota",
    "raise_": "windlass.cli.control",
    "resume": "windlass.cli.resume",
    "run": "windlass.cli.run",
    "schedule": "windlass.cli.schedule",
    "secrets": "windlass.cli.secrets",
    "serve": "windlass.cli.serve",
    "sessions": "windlass.cli.sessions",
    "steer": "windlass.cli.control",
    "token": "windlass.cli.token",
    "tools": "windlass.cli.tools",
    "trust": "windlass.cli.trust",
    "undo": "windlass.cli.resume",
    "watch": "windlass.cli.sessions",
    "webhook": "windlass.cli.webhook",
    "worker": "windlass.cli.worker",
}
if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__, LAZY_MODULES)
