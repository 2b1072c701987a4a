"""Commands in a container, or on another machine: two tiers besides bubblewrap.

Invariant: a tier is in force only if a command was seen to run in it. A container has no network,
no rights and no files but the workspace, with the same parts of it hidden as from bubblewrap. When
a command is ended, so is its container; on another machine, the connection is what keeps it alive.
Keys and variables of this machine reach neither.
"""

import os
import secrets
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, final

from windlass.core.errors import ConfigError
from windlass.tools.shell.mounts import MountPlan, reserve_private_files

ContainerEngine = Literal["podman", "docker"]

PROBE_S = 60.0
"""The first container of an image may have to unpack it."""
REMOTE_GRACE_S = 1
"""Between SIGTERM and SIGKILL on another machine, once the connection is gone."""
CONNECT_S = 10
FAULT_CHARS_MAX = 300
PROGRAM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ENGINES: tuple[ContainerEngine, ...] = ("podman", "docker")
_WRAPPER_VARIABLES = (
    *("HOME", "USER", "LOGNAME", "XDG_RUNTIME_DIR", "XDG_DATA_HOME", "XDG_CONFIG_HOME"),
    *("DOCKER_HOST", "DOCKER_CONFIG", "CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF"),
)
_SSH_VARIABLES = ("HOME", "USER", "LOGNAME", "SSH_AUTH_SOCK")
# The client is told to end and does so in its own time; the container must be gone with it.
_RUN_IN_CONTAINER = """\
{run} & child=$!
trap '{kill} >/dev/null 2>&1' TERM INT HUP
wait $child; code=$?
while kill -0 $child 2>/dev/null; do wait $child; code=$?; done
exit $code"""
# The connection is standard input: at its end, whoever closed it, the command is killed.
_RUN_REMOTELY = """\
cd {folder} || exit 126
{limits}exec 3<&0
setsid {command} </dev/null 3<&- & pid=$!
{{ cat <&3; kill -TERM -$pid; sleep {grace}; kill -KILL -$pid; }} >/dev/null 2>&1 & watch=$!
exec 3<&-
wait $pid; code=$?
kill -KILL -$pid 2>/dev/null
kill $watch 2>/dev/null
exit $code"""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """Runs commands in containers of an image, by the command line of podman or docker."""

    image: str
    engine: ContainerEngine | None = None
    """By default the first one that is installed, podman before docker."""
    engine_flags: tuple[str, ...] = ()
    """Flags before `run`, such as `--runtime=runc`."""
    run_flags: tuple[str, ...] = ()
    """Further flags of `run`, such as `--ulimit=nofile=1024`. They can weaken the sandbox."""
    shell: str = "/bin/sh"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteMachine:
    """Runs commands on another machine, by `ssh`. Its host key must be known already."""

    host: str
    """A name, `user@name`, or an entry of the user's SSH settings."""
    folder: str
    """The workspace there: the same files, mounted or kept in step by other means."""
    port: int | None = None
    identity: Path | None = None
    """A file with the private key; by default the user's own, or those of the agent."""
    known_hosts: Path | None = None
    shell: str = "/bin/sh"


@final
@dataclass(frozen=True, slots=True)
class ContainerRunner:
    """Builds the command lines of one kind of container."""

    settings: Container
    engine: str
    fault: str
    tier: Literal["container"] = "container"

    @property
    def name(self) -> str:
        return f"container {self.settings.image}"

    def wrap(
        self,
        argv: list[str],
        plan: MountPlan,
        env: Mapping[str, str],
        limits: Mapping[str, int],
    ) -> list[str]:
        """Return the command line that runs `argv` in a new container, and ends it when told."""
        reserve_private_files((plan.root, *plan.writable))
        name = f"windlass-{secrets.token_hex(8)}"
        is_podman = Path(self.engine).name == "podman"
        flags = [*_mount_flags(plan, is_podman=is_podman), "--workdir", str(plan.root)]
        for variable, value in env.items():
            flags += ["--env", f"{variable}={value}"]
        if memory := limits.get("memory_bytes"):
            flags += ["--memory", str(memory)]
        if seconds := limits.get("cpu_s"):
            flags += ["--ulimit", f"cpu={seconds}:{seconds}"]
        engine = [self.engine, *self.settings.engine_flags]
        run = [
            *engine,
            "run",
            "--name",
            name,
            *container_flags(self.settings, network=plan.network),
            *flags,
            self.settings.image,
            *argv,
        ]
        kill = shlex.join([*engine, "kill", "--signal", "KILL", name])
        script = _RUN_IN_CONTAINER.format(run=shlex.join(run), kill=kill.replace("'", "'\\''"))
        return ["/bin/sh", "-c", script]


def container_flags(settings: Container, *, network: bool) -> list[str]:
    """Return the flags that confine a container."""
    flags = ["--rm", "--pull=never", "--read-only", "--cap-drop=ALL"]
    flags += ["--security-opt=no-new-privileges", "--tmpfs=/tmp"]
    if not network:
        flags.append("--network=none")
    # Files that a command makes belong to the user who runs the agent.
    if settings.engine != "docker" and os.geteuid() != 0:
        flags.append("--userns=keep-id")
    else:
        flags.append(f"--user={os.geteuid()}:{os.getegid()}")
    return [*flags, *settings.run_flags]


def _mount_flags(plan: MountPlan, *, is_podman: bool) -> list[str]:
    """Return the mounts: the workspace at its own path, and what is hidden or protected in it."""
    flags: list[str] = []
    # Podman would copy into a new file system what it is to hide.
    empty = "ro,notmpcopyup" if is_podman else "ro"
    for kind, paths in (("ro", plan.readable), ("rw", (*plan.writable, plan.root))):
        for path in paths:
            flags += ["--volume", f"{path}:{path}:{kind}"]
    for path, mount in sorted(plan.list_guards().items(), key=lambda guard: len(guard[0].parts)):
        match mount:
            case "--tmpfs":
                flags += ["--tmpfs", f"{path}:{empty}"]
            case "--ro-bind":
                flags += ["--volume", f"{path}:{path}:ro"]
            case _:
                flags += ["--volume", f"/dev/null:{path}:ro"]
    return flags


def find_container(settings: Container) -> ContainerRunner:
    """Find an engine, and try a container of the image. It is tried once in a process."""
    return _probe_container(settings, os.geteuid())


@cache
def _probe_container(settings: Container, _user: int) -> ContainerRunner:
    wanted = (settings.engine,) if settings.engine else _ENGINES
    found = next(filter(None, (shutil.which(name, path=PROGRAM_PATH) for name in wanted)), None)
    if found is None:
        return ContainerRunner(settings, "", f"neither of {', '.join(wanted)} is installed")
    run = [found, *settings.engine_flags, "run", *container_flags(settings, network=False)]
    fault = _try_program([*run, settings.image, settings.shell, "-c", ":"], PROBE_S)
    name = Path(found).name
    return ContainerRunner(settings, found, fault and f"{name} cannot run the image: {fault}")


@final
@dataclass(frozen=True, slots=True)
class RemoteRunner:
    """Builds the command lines for one other machine."""

    settings: RemoteMachine
    program: str
    fault: str
    tier: Literal["ssh"] = "ssh"

    @property
    def name(self) -> str:
        return f"on {self.settings.host}"

    def wrap(
        self,
        argv: list[str],
        _plan: MountPlan,
        env: Mapping[str, str],
        limits: Mapping[str, int],
    ) -> list[str]:
        """Return the command line that runs `argv` there, until it or the connection ends."""
        variables = [f"{name}={value}" for name, value in env.items()]
        bounds = ""
        if memory := limits.get("memory_bytes"):
            bounds += f"ulimit -v {memory // 1024}\n"
        if seconds := limits.get("cpu_s"):
            bounds += f"ulimit -t {seconds}\n"
        script = _RUN_REMOTELY.format(
            folder=shlex.quote(self.settings.folder),
            limits=bounds,
            command=shlex.join(["env", *variables, *argv]),
            grace=REMOTE_GRACE_S,
        )
        return [self.program, *ssh_flags(self.settings), f"/bin/sh -c {shlex.quote(script)}"]


def ssh_flags(settings: RemoteMachine) -> list[str]:
    """Return the flags of `ssh`, the host at the end. Nothing is forwarded, and nobody is asked."""
    flags = ["-T", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes"]
    flags += ["-o", f"ConnectTimeout={CONNECT_S}", "-o", "ClearAllForwardings=yes"]
    flags += ["-o", "ForwardAgent=no", "-o", "ForwardX11=no", "-o", "PermitLocalCommand=no"]
    flags += ["-o", "ServerAliveInterval=15", "-o", "LogLevel=ERROR"]
    if settings.port is not None:
        flags += ["-p", str(settings.port)]
    if settings.identity is not None:
        flags += ["-i", str(settings.identity), "-o", "IdentitiesOnly=yes"]
    if settings.known_hosts is not None:
        flags += ["-o", f"UserKnownHostsFile={settings.known_hosts}"]
    return [*flags, "--", settings.host]


def find_remote(settings: RemoteMachine, environ: Mapping[str, str]) -> RemoteRunner:
    """Find `ssh`, and try a command on the machine. Raises ConfigError for an invalid host."""
    if settings.host.startswith("-") or not settings.host.strip():
        raise ConfigError(f"{settings.host!r} is not the name of a machine")
    program = shutil.which("ssh", path=PROGRAM_PATH)
    if program is None:
        return RemoteRunner(settings, "", "ssh is not installed")
    own = wrapper_environment(environ, _SSH_VARIABLES)
    fault = _try_program(
        [program, *ssh_flags(settings), f"cd {shlex.quote(settings.folder)}"], CONNECT_S * 2, own
    )
    reason = fault and f"{settings.host} cannot be used: {fault}"
    return RemoteRunner(settings, program, reason)


def find_runner(
    container: Container | None, remote: RemoteMachine | None, environ: Mapping[str, str]
) -> ContainerRunner | RemoteRunner | None:
    """Return what runs commands elsewhere. Raises ConfigError if it does not work."""
    if container is not None and remote is not None:
        raise ConfigError("commands run in a container or on another machine, not both")
    runner: ContainerRunner | RemoteRunner | None = None
    if container is not None:
        runner = find_container(container)
    elif remote is not None:
        runner = find_remote(remote, environ)
    if runner is not None and runner.fault:
        raise ConfigError(f"commands cannot run where they should: {runner.fault}")
    return runner


def wrapper_environment(
    environ: Mapping[str, str], names: Iterable[str] = (*_WRAPPER_VARIABLES, *_SSH_VARIABLES)
) -> dict[str, str]:
    """Return the environment of the engine or of `ssh`, which is not that of the command."""
    passed = {name: environ[name] for name in names if name in environ}
    return {"PATH": PROGRAM_PATH, "HOME": "/", **passed}


def _try_program(argv: list[str], seconds: float, env: Mapping[str, str] | None = None) -> str:
    """Run a program, and return why it failed; empty if it did not."""
    try:
        subprocess.run(  # noqa: S603 - the program that was found
            argv,
            check=True,
            capture_output=True,
            text=True,
            timeout=seconds,
            env=None if env is None else dict(env),
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError) as error:
        said: str = getattr(error, "stderr", None) or str(error)
        return said.strip()[-FAULT_CHARS_MAX:] or "it failed"
    return ""
