"""The files in `deploy/`: what they say must fit this version."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from deploy_files import DEPLOY, read_instructions, read_unit
from windlass.cli import main
from windlass.server.aiohttp_server import STOP_S
from windlass.server.limits import ServiceLimits

UNITS = ["windlass.service", "windlass-worker@.service"]
VARIABLE = re.compile(r"\$\{(\w+)[^}]*\}")


def parse_command(command: list[str]) -> dict[str, Any]:
    """Return the options of a command line, as the command itself reads them."""
    name, *arguments = (VARIABLE.sub("ai.example", word) for word in command)
    found = main.get_command(click.Context(main), name)
    assert found is not None, f"there is no windlass {name}"
    return found.make_context(name, arguments).params


def read_compose() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def is_plain_image(name: str) -> bool:
    """Return whether an image is named without the address of a registry."""
    first, slash, _ = name.partition("/")
    return not slash or not re.search(r"[.:]|^localhost$", first)


def test_images_are_names_and_not_addresses() -> None:
    images = [text.split()[0] for name, text in read_instructions() if name == "FROM"]
    services = read_compose()["services"].values()
    images += [service["image"] for service in services]
    assert all(map(is_plain_image, images))
    # Those of others are pinned to a version.
    assert all(":" in image for image in images if image != "windlass")
    assert not is_plain_image("registry.example/python:3.13")


@pytest.mark.parametrize("name", [path.name for path in DEPLOY.iterdir()])
def test_no_file_names_an_address_of_others(name: str) -> None:
    text = (DEPLOY / name).read_text()
    hosts = re.findall(r"https?://([^/\s'\"]+)", text)
    assert set(hosts) <= {"127.0.0.1:8420", "${PUBLIC_HOST}"}


def test_the_container_runs_as_nobody_in_particular_and_stops_by_a_signal() -> None:
    instructions = read_instructions()
    by_name = dict(instructions)
    assert by_name["USER"] == "10001"
    assert by_name["STOPSIGNAL"] == "SIGTERM"
    names = [name for name, _ in instructions]
    assert names.index("USER") > max(at for at, name in enumerate(names) if name == "RUN")
    entry = yaml.safe_load(by_name["ENTRYPOINT"])
    assert entry[-1] == "windlass"
    options = parse_command(yaml.safe_load(by_name["CMD"]))
    assert options["port"] == int(by_name["EXPOSE"])
    assert options["host"] == "0.0.0.0"
    assert not options["shows_login"]


def test_the_composed_service_leaves_runs_to_workers_and_waits_for_them() -> None:
    services = read_compose()["services"]
    served = parse_command(services["serve"]["command"])
    assert served["drives"] is False
    assert not served["shows_login"]
    assert served["hosts"] == ("ai.example",)
    worker = parse_command(services["worker"]["command"])
    assert worker["target"] == served["target"] == "app:agents"
    parse_command(services["migrate"]["command"])
    # Each part has time to release its runs before it is killed.
    for name, options in (("serve", served), ("worker", worker)):
        needed_s = options.get("drain_delay", 0) + options["drain"] + STOP_S
        assert int(services[name]["stop_grace_period"].rstrip("s")) > needed_s
    # Nothing but a proxy on this machine reaches the service, and nothing at all the database.
    assert all(port.startswith("127.0.0.1:") for port in services["serve"]["ports"])
    assert "ports" not in services["postgres"]


def test_the_composed_parts_share_a_journal_that_outlives_them() -> None:
    compose = read_compose()
    services = compose["services"]
    journals = {
        services[name]["environment"]["WINDLASS_JOURNAL"] for name in services if name != "postgres"
    }
    assert journals == {"postgresql://windlass@postgres/windlass"}
    [volume] = services["postgres"]["volumes"]
    assert volume.partition(":")[0] in compose["volumes"]
    assert services["migrate"]["depends_on"]["postgres"]["condition"] == "service_healthy"
    for name in ("serve", "worker"):
        ready = services[name]["depends_on"]["migrate"]["condition"]
        assert ready == "service_completed_successfully"
    # So do the keys of providers; passwords come from outside.
    assert all(services[name]["env_file"] == ".env" for name in services if name != "postgres")
    text = (DEPLOY / "compose.yaml").read_text()
    assert re.findall(r"PASSWORD: (.*)", text) == ["${POSTGRES_PASSWORD:?set it in .env}"] * 2


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_runs_a_command_of_this_version(name: str) -> None:
    unit = read_unit(name)
    service = unit["Service"]
    program, *command = shlex.split(service["ExecStart"])
    assert Path(program).name == "windlass"
    options = parse_command(command)
    assert options["target"] == "app:agents"
    assert service["User"] != "root"
    assert service["KillSignal"] == "SIGTERM"
    needed_s = options.get("drain_delay", 0) + options["drain"] + STOP_S
    assert int(service["TimeoutStopSec"]) > needed_s
    assert int(service["LimitNOFILE"]) > ServiceLimits().connections
    assert unit["Install"]["WantedBy"] == "multi-user.target"


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_leaves_the_sandbox_of_the_shell_tool_possible(name: str) -> None:
    """A namespace with a new /proc is refused where parts of the old one are covered."""
    service = read_unit(name)["Service"]
    covering = {"ProtectKernelTunables", "ProtectKernelLogs", "ProtectProc", "ProcSubset"}
    assert covering.isdisjoint(service)
    assert "RestrictNamespaces" not in service


@pytest.mark.slow
@pytest.mark.parametrize("name", UNITS)
def test_systemd_reads_a_unit_without_complaint(name: str, tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("there is no systemd here")
    copy = tmp_path / name.replace("@.", "@1.")
    copy.write_text((DEPLOY / name).read_text().replace("/opt/windlass/bin/windlass", "/bin/true"))
    command = [program, "verify", str(copy)]
    told = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (told.returncode, told.stderr) == (0, "")


def select_extras(*extras: str) -> "subprocess.CompletedProcess[str]":
    script = DEPLOY.parent / "tools" / "select_locked.py"
    command = [sys.executable, str(script), *extras]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_an_installation_takes_the_locked_packages_of_its_extras() -> None:
    few, more = (select_extras(*extras).stdout for extras in ([], ["postgres", "mcp", "serve"]))
    names = {line.partition("==")[0] for line in more.splitlines() if "==" in line}
    assert {"asyncpg", "mcp", "pydantic-core", "aiohttp", "multidict"} <= names
    assert names.isdisjoint({"hatchling", "pytest", "openai"})
    assert not {"asyncpg", "mcp", "aiohttp"} & {
        line.partition("==")[0] for line in few.splitlines()
    }
    # Without a hash, pip would refuse the whole list.
    entries = re.split(r"\n(?=\S)", more)
    assert all("--hash=sha256:" in entry for entry in entries)


def test_an_extra_that_does_not_exist_is_refused() -> None:
    refused = select_extras("postgress")
    assert refused.returncode == 1
    assert "there is no extra 'postgress'; there are " in refused.stderr
