"""Shell commands that only look at the workspace, for gates that would ask about them.

Invariant: in doubt, it is not such a command. Each program has to be in the table below, each of
its words has to be known before bash runs, no option of it may run or write something, and no path
may lead out of the folder, also not by a link. A program that is called by its path is not in the
table, and neither is `cd`, after which paths would mean something else.
"""

import posixpath
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from windlass.core.verdicts import Allow, Ask, Deny, Verdict
from windlass.gates.globs import HOLE
from windlass.gates.shell_reader import FileRedirection, UnreadableCommand, read_shell_command
from windlass.ports import Gate, GateRequest

SHELL_TOOL = "bash"
FREE_ARGUMENTS = frozenset(("command", "timeout_s"))
"""The arguments of the tool that a safe command may have."""
NULL_DEVICE = "/dev/null"
PLAIN_PROGRAMS = frozenset(
    (
        "basename",
        "cat",
        "cmp",
        "comm",
        "cut",
        "df",
        "dirname",
        "du",
        "false",
        "head",
        "id",
        "ls",
        "nl",
        "pwd",
        "stat",
        "tail",
        "tr",
        "true",
        "uname",
        "wc",
        "which",
        "whoami",
    )
)
"""Programs without an option that runs or writes something."""
BAD_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "date": ("-s", "--set"),
    "diff": (),
    "file": ("-C", "--compile"),
    "egrep": ("-R", "--dereference-recursive"),
    "fgrep": ("-R", "--dereference-recursive"),
    "find": ("-L", "-follow", "-exec", "-ok", "-delete", "-fprint", "-fls", "-files0-from"),
    "grep": ("-R", "--dereference-recursive"),
    "rg": ("-L", "--follow", "--pre", "--hostname-bin"),
    "sort": ("-o", "--output", "--compress-program", "-T", "--temporary-directory"),
    "tree": ("-o", "-l"),
}
"""The options that run or write something, or follow links out of the folder."""
GIT_LOOKS = frozenset(
    ("blame", "describe", "diff", "log", "ls-files", "rev-parse", "shortlog", "show", "status")
)
"""Commands of git that only look."""
GIT_BAD_OPTIONS = ("--output", "--ext-diff", "--textconv", "--no-index", "--open-files-in-pager")
GIT_BRANCH_OPTIONS = frozenset(("-a", "-r", "-v", "-vv", "--all", "--list", "--show-current"))


class SafeCommandGate:
    """A gate that allows commands that only look, where another gate would ask about them.

    `root` is the folder that they run in. `denied_too`: also where the other gate denies them, as a
    mode does in which nothing changes.
    """

    def __init__(self, gate: Gate, root: Path, *, denied_too: bool = False) -> None:
        self.gate = gate
        self._root = root.resolve()
        self._lifted = (Ask, Deny) if denied_too else (Ask,)

    @property
    def name(self) -> str:
        """The name of the inner gate: a run that it judged can be resumed under this one."""
        return self.gate.name

    @property
    def judges_replies(self) -> bool:
        return self.gate.judges_replies

    async def judge(self, request: GateRequest) -> Verdict:
        verdict = await self.gate.judge(request)
        if not isinstance(verdict, self._lifted) or request.tool.name != SHELL_TOOL:
            return verdict
        if not FREE_ARGUMENTS.issuperset(request.arguments):
            return verdict
        command = request.arguments.get("command")
        root = Path(request.folder) if request.folder else self._root
        if isinstance(command, str) and is_safe_command(command, root):
            return Allow(f"{self.name}: the command only looks")
        return verdict

    async def judge_reply(self, session: str, text: str) -> Allow | Deny:
        return await self.gate.judge_reply(session, text)


def is_safe_command(command: str, root: Path) -> bool:
    """Whether a command line certainly does nothing but look at files of its folder `root`."""
    try:
        items = read_shell_command(command)
    except UnreadableCommand:
        return False
    for item in items:
        if isinstance(item, FileRedirection):
            if item.target != NULL_DEVICE:
                return False
        elif not _is_safe_call([word.text for word in item.words], root):
            return False
    return bool(items)


def _is_safe_call(words: Sequence[str], root: Path) -> bool:
    if not words or any(HOLE in word for word in words):
        return False
    program, *arguments = words
    if program == "echo":
        return True
    if any(_leads_out(argument, root) for argument in arguments):
        return False
    if program in PLAIN_PROGRAMS:
        return True
    if program in BAD_OPTIONS:
        return not _has_option(arguments, BAD_OPTIONS[program])
    check = _CHECKS.get(program)
    return check is not None and check(arguments)


def _leads_out(argument: str, root: Path) -> bool:
    """Whether a word, or the value of an option, may be a path out of the folder."""
    for text in (argument, argument.rpartition("=")[2]):
        names = text.lstrip("-").split("/")
        if posixpath.isabs(text) or ".." in names or text.startswith("~"):
            return True
        if not _stays_within(root, text):
            return True
    # The value of a short option may follow it without a space.
    return argument.startswith("-") and "/" in argument and "=" not in argument


def _stays_within(root: Path, text: str) -> bool:
    """Whether a word, if it names a file at all, names one of the folder."""
    try:
        return (root / text).resolve().is_relative_to(root)
    except (OSError, ValueError, RuntimeError):
        return False


def _has_option(arguments: Sequence[str], bad: Sequence[str]) -> bool:
    for argument in arguments:
        name = argument.partition("=")[0]
        for option in bad:
            # Long options may be shortened, and short ones may be joined.
            if name.startswith(option) or (name.startswith("--") and option.startswith(name)):
                return True
            is_short = len(option) == 2 and argument[:1] == "-" and argument[:2] != "--"  # noqa: PLR2004
            if is_short and option[1] in argument:
                return True
    return False


def _is_safe_uniq(arguments: Sequence[str]) -> bool:
    # A second file would be written.
    return sum(not argument.startswith("-") for argument in arguments) <= 1


def _is_safe_git(arguments: Sequence[str]) -> bool:
    words = list(arguments)
    if words[:1] == ["--no-pager"]:
        words = words[1:]
    if not words:
        return False
    name, *rest = words
    if name == "branch":
        return GIT_BRANCH_OPTIONS.issuperset(rest)
    if name == "remote":
        return rest in ([], ["-v"])
    if name == "stash":
        return rest == ["list"]
    return name in GIT_LOOKS and not _has_option(rest, GIT_BAD_OPTIONS)


_CHECKS: Mapping[str, Callable[[Sequence[str]], bool]] = {
    "git": _is_safe_git,
    "uniq": _is_safe_uniq,
}
