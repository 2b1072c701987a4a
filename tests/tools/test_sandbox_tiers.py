"""One suite for each place where commands run: what it keeps them from, and that it ends them.

What an attacker would run runs inside of bubblewrap or a container. On a machine by SSH nothing is
kept from a command, and the tests say so.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_tiers import require_container, serving_ssh
from shells import comes_true, require_tier, sleeping_pids, unique_sleep_for_test
from windlass import ConfigError
from windlass.tools import Container, RemoteMachine, Sandbox
from windlass.tools.run_context import RunContext
from windlass.tools.shell.mounts import MountPlan
from windlass.tools.shell.sandbox import SandboxTier, activate_sandbox
from windlass.tools.shell.shell_tools import WorkspaceShell, open_shell
from windlass.tools.shell.tiers import ContainerRunner

pytestmark = [pytest.mark.slow, pytest.mark.realtime, pytest.mark.contract("T13")]

TIERS: tuple[SandboxTier, ...] = ("bubblewrap", "container", "ssh")
CONFINED: tuple[SandboxTier, ...] = ("bubblewrap", "container")

nap = pytest.fixture(unique_sleep_for_test)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace, beside a home with a secret in it."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "key").write_text("hunter2")
    (tmp_path / "work" / "inner").mkdir(parents=True)
    (tmp_path / "work" / "own").write_text("mine")
    (tmp_path / "work" / "rules").write_text("strict")
    (tmp_path / "work" / "inner" / "token").write_text("sk-456")
    return tmp_path / "work"


@pytest.fixture
def sandbox(request: pytest.FixtureRequest, root: Path, tmp_path: Path) -> Iterator[Sandbox]:
    """A tier that is tested, with a part of the workspace hidden and one protected."""
    hidden, protected = (root / "inner",), (root / "rules",)
    match request.param:
        case "bubblewrap":
            require_tier("bubblewrap")
            yield Sandbox(require="bubblewrap", hidden=hidden, protected=protected)
        case "container":
            yield Sandbox(
                require="container",
                container=require_container(),
                hidden=hidden,
                protected=protected,
            )
        case _:
            keys = tmp_path / "keys"
            keys.mkdir()
            with serving_ssh(keys, root) as remote:
                yield Sandbox(require="ssh", remote=remote)


def open_here(root: Path, sandbox: Sandbox) -> WorkspaceShell:
    environ = {"HOME": str(root.parent / "home"), "API_KEY": "sk-123"}
    return open_shell(root, sandbox=sandbox, environ=environ)


async def run(root: Path, sandbox: Sandbox, command: str, timeout_s: float | None = None) -> str:
    shell = open_here(root, sandbox)
    try:
        return (await shell.tools[0](RunContext(deps=None), command, timeout_s)).text
    finally:
        shell.close()


every_tier = pytest.mark.parametrize("sandbox", TIERS, indirect=True)
each_confined = pytest.mark.parametrize("sandbox", CONFINED, indirect=True)


@every_tier
async def test_a_command_works_in_the_workspace_and_its_end_is_told(
    root: Path, sandbox: Sandbox
) -> None:
    said = await run(root, sandbox, "cat own; echo new > made; echo \"it's\" 'a $word'; exit 3")
    assert said.startswith("mineit's a $word\n[exit code 3; ")
    assert (root / "made").read_text() == "new\n"


@every_tier
async def test_no_variable_of_the_runtime_reaches_a_command(root: Path, sandbox: Sandbox) -> None:
    said = await run(root, sandbox, "env; cat /proc/self/environ")
    assert "sk-123" not in said
    assert "PAGER=cat" in said


@each_confined
@pytest.mark.parametrize(
    "attempt",
    [
        "touch {outside}",
        "ln -s {outside} link && echo x > link",
        "mkdir -p /etc/x && touch /etc/x/y && echo got-out",
        "cat {secret}",
        "cat {root}/inner/token",
        "ls {root}/inner/token",
        "echo weak > rules",
        "rm -f rules && echo weak > rules",
        "mount -t tmpfs none /mnt && echo got-out",
        "unshare -r -m sh -c 'mount -t tmpfs none /tmp && cat {secret}'",
        "cat /proc/1/environ | tail -c 0 && ls /proc/*/root{secret}",
        "chmod 4755 /bin/sh && echo got-out",
        "echo x > /proc/sys/kernel/hostname && echo got-out",
    ],
)
async def test_there_is_no_way_out(root: Path, sandbox: Sandbox, attempt: str) -> None:
    """T13: neither by a path, nor by a link, nor by a mount, nor through another process."""
    outside = root.parent / "outside"
    secret = root.parent / "home" / "key"
    said = await run(root, sandbox, attempt.format(outside=outside, secret=secret, root=root))
    assert not outside.exists()
    assert not any(word in said.partition("\n[")[0] for word in ("hunter2", "sk-456", "got-out"))
    assert (root / "rules").read_text() == "strict"


@each_confined
async def test_there_is_no_network(root: Path, sandbox: Sandbox) -> None:
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        command = f"(echo > /dev/tcp/127.0.0.1/{port} || nc -w 2 127.0.0.1 {port}) && echo through"
        said = await run(root, sandbox, command)
    assert "through\n[" not in said
    assert "network off]" in said


@every_tier
@pytest.mark.contract("T14")
async def test_a_command_that_takes_too_long_is_ended_with_all_it_started(
    root: Path, sandbox: Sandbox, nap: str
) -> None:
    """T14: and so are the processes that it leaves when it ends by itself."""
    said = await run(root, sandbox, f"sleep {nap} & sleep {nap}", 2.0)
    assert "timed out" in said
    assert comes_true(lambda: not sleeping_pids(nap))
    await run(root, sandbox, f"nohup sleep {nap} >/dev/null 2>&1 & echo over")
    assert comes_true(lambda: not sleeping_pids(nap))


@every_tier
@pytest.mark.contract("T14")
async def test_a_background_command_is_ended_with_the_shell(
    root: Path, sandbox: Sandbox, nap: str
) -> None:
    shell = open_here(root, sandbox)
    bash, _, _ = shell.tools
    await bash(RunContext(deps=None), f"sleep {nap}", background=True)
    assert comes_true(lambda: sleeping_pids(nap))
    await asyncio.to_thread(shell.close)
    assert comes_true(lambda: not sleeping_pids(nap))


def test_a_tier_that_is_demanded_must_be_in_force(root: Path) -> None:
    """T13: a policy names the tiers that it accepts, and nothing starts without one of them."""
    with pytest.raises(ConfigError, match="must be container or ssh"):
        activate_sandbox(root, Sandbox(require=("container", "ssh")))
    assert activate_sandbox(root, Sandbox(require=("process",))).tier == "process"


@pytest.mark.parametrize(
    ("sandbox", "problem"),
    [
        (
            Sandbox(container=Container(image="localhost/there-is-none:1")),
            "cannot run|not installed|is installed",
        ),
        (Sandbox(remote=RemoteMachine(host="127.0.0.1", folder="/", port=1)), "cannot be used"),
        (Sandbox(remote=RemoteMachine(host="-oProxyCommand=id", folder="/")), "not the name"),
        (
            Sandbox(container=Container(image="x"), remote=RemoteMachine(host="h", folder="/")),
            "not both",
        ),
    ],
)
def test_what_does_not_work_is_an_error_at_the_start(
    root: Path, sandbox: Sandbox, problem: str
) -> None:
    """T13: and never a command that runs somewhere else."""
    with pytest.raises(ConfigError, match=problem):
        activate_sandbox(root, sandbox)


@pytest.mark.parametrize("sandbox", ["ssh"], indirect=True)
async def test_a_machine_by_ssh_is_described_as_it_is(root: Path, sandbox: Sandbox) -> None:
    """G7: what runs there can reach a network, so its calls are external and untrusted."""
    shell = open_here(root, sandbox)
    assert shell.tools[0].spec.labels == ("untrusted", "external")
    assert "with all rights of the account there" in shell.sandbox.notice
    assert shell.sandbox.short_text == f"on {sandbox.remote and sandbox.remote.host}, network on"
    shell.close()


def test_what_is_hidden_in_the_workspace_is_not_copied_into_a_container(root: Path) -> None:
    """T13: podman copies into an empty file system unless it is told not to; docker does not."""
    plan = MountPlan(root=root, hidden=(root / "inner",), protected=(root / "rules",))
    for engine, option in (("podman", "ro,notmpcopyup"), ("docker", "ro")):
        runner = ContainerRunner(Container(image="x"), f"/usr/bin/{engine}", "")
        words = runner.wrap(["sh", "-c", ":"], plan, {}, {})[-1].split()
        assert f"{root}/inner:{option}" in words
        assert f"{root}/rules:{root}/rules:ro" in words
        assert "--network=none" in words
        assert {"--read-only", "--cap-drop=ALL", "--pull=never"} <= set(words)
