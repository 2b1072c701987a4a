"""A real nginx on loopback, as an unprivileged process of its own in the foreground."""

import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

CONFIGURATION = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        {locations}
    }}
}}
"""


def find_nginx() -> str:
    """Return the path of nginx. Skips a test where there is none, but not in CI."""
    found = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found:
        return found
    if os.environ.get("CI"):
        pytest.fail("there is no nginx: make proxies")
    pytest.skip("there is no nginx here: make proxies")


@contextmanager
def run_nginx(folder: Path, port: int, locations: str) -> Iterator[str]:
    """Run nginx with these locations until the block ends. Yields its address."""
    file = folder / "nginx.conf"
    file.write_text(CONFIGURATION.format(folder=folder, port=port, locations=locations))
    command = [find_nginx(), "-p", str(folder), "-c", str(file), "-e", "stderr"]
    with (folder / "nginx.log").open("ab") as log:
        process = subprocess.Popen(command, stderr=log)
    try:
        _wait_until_open(process, port, folder / "nginx.log")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def _wait_until_open(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    while True:
        assert process.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=20):
                return
        except urllib.error.HTTPError as error:
            error.close()
            return
        except OSError:
            time.sleep(0.02)
