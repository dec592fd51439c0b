"""A wheel holds the whole product: installed away from the tree, it serves, sends and consumes."""

import os
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.commands import TIMEOUT_S, Running
from tests.installed import installed
from tests.tidy.source import pyproject

pytestmark = pytest.mark.long


def test_a_wheel_works_in_an_unrelated_folder(tmp_path: Path) -> None:
    """It has every package and command, and its programs import nothing of ours from elsewhere.

    All goes on without the extra `grpc`; its port says what to install.
    """
    site, folder, others = installed(tmp_path), tmp_path / "elsewhere", tmp_path / "others"
    others.mkdir()
    for found in Path(sysconfig.get_path("purelib")).iterdir():
        if found.name not in ("h2", "google"):
            (others / found.name).symlink_to(found)
    folder.mkdir()
    for package in pyproject()["tool"]["setuptools"]["packages"]:
        assert (site / package.replace(".", "/") / "__init__.py").is_file(), package
    # -S: no .pth file is read, by which Python would find the tree that is installed for editing.
    path = os.pathsep.join([str(site), str(others)])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"}

    def command(name: str, *arguments: str) -> list[str]:
        return [sys.executable, "-S", str(site / "bin" / name), *arguments]

    def run(name: str, *arguments: str, stdin: str = "") -> str:
        done = subprocess.run(
            command(name, *arguments),
            input=stdin, capture_output=True, text=True, check=False, timeout=TIMEOUT_S, cwd=folder, env=environment,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = "import lockstep.client; print(lockstep.client.__file__)"
    shown = subprocess.run([sys.executable, "-S", "-c", where], capture_output=True, text=True, env=environment)
    assert Path(shown.stdout.strip()).is_relative_to(site), shown.stderr
    for name in pyproject()["project"]["scripts"]:
        assert "usage:" in run(name, "--help").lower()
    ports = ("--port", "0", "--name-server-port", "0")
    serve = command("lockstep-broker", *ports, "--topic", "orders:2")
    refused = subprocess.run(
        [*serve, "--grpc-port", "0"], capture_output=True, text=True, check=False, timeout=TIMEOUT_S, env=environment
    )
    assert refused.returncode == 1
    assert refused.stderr == "lockstep-broker: --grpc-port: needs h2; install it: pip install 'lockstep-mq[grpc]'\n"
    with Running(serve, environment, starter=subprocess.Popen) as broker:
        name_server = broker.line().rpartition("=")[2].strip()
        run("lockstep", "produce", "orders", "--text", "-k", "k", "-n", name_server, stdin="a\nb\n")
        consume = ("consume", "orders", "-g", "audit", "--count", "2", "-f", "%s\n", "-n", name_server)
        assert run("lockstep", *consume).splitlines() == ["a", "b"]
        assert broker.stop(signal.SIGTERM).status == 0
