"""The commands of `windlass`, in the order of its help.

Invariant: a command's module is imported when the command is run, so that `--help` is quick. This
module holds only its name, its module and its line in the help.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from windlass.lazy_modules import LazyModules, lazy_attributes

if TYPE_CHECKING:
    from windlass.cli.acp import acp as acp
    from windlass.cli.approve import approve as approve, deny as deny
    from windlass.cli.backup import backup as backup, restore as restore
    from windlass.cli.chat.command import chat as chat
    from windlass.cli.completion import completion as completion
    from windlass.cli.config import config as config
    from windlass.cli.control import (
        cancel as cancel,
        pause as pause,
        raise_ as raise_,
        steer as steer,
    )
    from windlass.cli.demo.command import demo as demo
    from windlass.cli.doctor import doctor as doctor
    from windlass.cli.eval.command import eval_ as eval_
    from windlass.cli.fleet import fleet as fleet
    from windlass.cli.key import key as key
    from windlass.cli.mcp import mcp as mcp
    from windlass.cli.migrate import migrate as migrate
    from windlass.cli.models import models as models
    from windlass.cli.new import new as new
    from windlass.cli.notes import notes as notes
    from windlass.cli.people import audit as audit, group as group, person as person
    from windlass.cli.policy import policy as policy
    from windlass.cli.quota import quota as quota
    from windlass.cli.resume import resume as resume
    from windlass.cli.run import run as run
    from windlass.cli.schedule import schedule as schedule
    from windlass.cli.secrets import secrets as secrets
    from windlass.cli.serve import serve as serve
    from windlass.cli.sessions import sessions as sessions, watch as watch
    from windlass.cli.token import caller as caller, token as token
    from windlass.cli.tools import tools as tools
    from windlass.cli.trust import trust as trust
    from windlass.cli.undo import undo as undo
    from windlass.cli.webhook import webhook as webhook
    from windlass.cli.worker import worker as worker

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
    "fleet": "Show the workers of a journal, its paused runs, and who waits.",
    "token": "Make, list and revoke tokens for the service.",
    "key": "Make the keys that a service signs with (Postgres).",
    "person": "Put people into groups, and say who stands in for them.",
    "group": "Say what the people of a group may do.",
    "audit": "Write down who asked, answered and changed what, in a period.",
    "caller": "End, export and erase callers of the service.",
    "acp": "Serve an editor (Agent Client Protocol).",
    "tools": "List the tools that an agent would have here.",
    "models": "List providers, models and prices.",
    "mcp": "Add, list, remove and test MCP servers.",
    "trust": "Trust the settings of this project; list what is trusted.",
    "secrets": "Set, list and delete keys by name; nobody is shown their values.",
    "config": "Show the settings, and where each comes from.",
    "new": "Make a project: an agent, a policy, tests, a service.",
    "demo": "Watch an agent stall, be killed and finish. Needs no key.",
    "eval": "Evaluate an agent: run cases, compare reports, gate changes.",
    "doctor": "Show what this machine can do, and what is missing.",
    "policy": "Check a policy file, and what it decides about a call.",
    "schedule": "Start runs at certain times; list, pause and delete schedules.",
    "quota": "Limit what each caller of the service may use.",
    "webhook": "Send messages about questions, ends and failures.",
    "notes": "List, search, correct and delete what agents have noted.",
    "sessions": "List, show, watch, explain, check, copy and delete sessions.",
    "backup": "Save a journal while it is in use, and check it.",
    "restore": "Put a backup in the place of a journal.",
    "migrate": "Bring a journal of an older version up to date.",
    "completion": "Print the completion script for a shell.",
}
"""The line in the help of each command, by its name."""
LAZY_MODULES: LazyModules = {
    "windlass.cli.acp": "acp",
    "windlass.cli.approve": "approve deny",
    "windlass.cli.backup": "backup restore",
    "windlass.cli.chat.command": "chat",
    "windlass.cli.completion": "completion",
    "windlass.cli.config": "config",
    "windlass.cli.control": "cancel pause raise_ steer",
    "windlass.cli.demo.command": "demo",
    "windlass.cli.doctor": "doctor",
    "windlass.cli.eval.command": "eval_",
    "windlass.cli.fleet": "fleet",
    "windlass.cli.key": "key",
    "windlass.cli.mcp": "mcp",
    "windlass.cli.migrate": "migrate",
    "windlass.cli.models": "models",
    "windlass.cli.new": "new",
    "windlass.cli.notes": "notes",
    "windlass.cli.people": "audit group person",
    "windlass.cli.policy": "policy",
    "windlass.cli.quota": "quota",
    "windlass.cli.resume": "resume",
    "windlass.cli.run": "run",
    "windlass.cli.schedule": "schedule",
    "windlass.cli.secrets": "secrets",
    "windlass.cli.serve": "serve",
    "windlass.cli.sessions": "sessions watch",
    "windlass.cli.token": "caller token",
    "windlass.cli.tools": "tools",
    "windlass.cli.trust": "trust",
    "windlass.cli.undo": "undo",
    "windlass.cli.webhook": "webhook",
    "windlass.cli.worker": "worker",
}
if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__, LAZY_MODULES)
