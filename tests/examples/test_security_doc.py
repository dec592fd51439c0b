"""What docs/security.md shows runs as it stands, but for addresses: accounts in ten lines, a broker with TLS."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from lockstep.testing.process import BrokerProcess
from tests.commands import SCRIPTS, TIMEOUT_S, Lockstep
from tests.examples.documents import ROOT, blocks

TEXT = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
(RULES,) = blocks(TEXT, "yaml")
SERVED, CALLED, OVER_TLS = blocks(TEXT, "")
HOST = "10.0.0.5"
pytestmark = pytest.mark.long
SENT = {"order": 1}


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page names files without a folder."""
    monkeypatch.chdir(tmp_path)


def broker(line: str) -> BrokerProcess:
    """Of the page's command line, on free ports of this machine."""
    command, *options = shlex.split(line.replace(HOST, "127.0.0.1"))
    assert command == "lockstep-broker"
    return BrokerProcess(*options)


def in_a_shell(script: str, server: BrokerProcess) -> str:
    """What the page's commands print, with the project's own on the path."""
    environment = Lockstep(server.name_server).environment | {"NAMESRV_ADDR": server.name_server}
    environment["PATH"] = f"{SCRIPTS}:{environment['PATH']}"
    script = "set -e\n" + script.replace(f"{HOST}:9876", server.name_server)
    done = subprocess.run(
        ["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_accounts_in_ten_lines(tmp_path: Path) -> None:
    """A message is sent and consumed under the account, whose rules suffice for strict checks."""
    (tmp_path / "plain_acl.yml").write_text(RULES, encoding="utf-8")
    protect, serve = SERVED.splitlines()
    subprocess.run(shlex.split(protect), check=True)
    assert "--acl-checks strict" in serve
    with broker(serve) as server:
        (consumed,) = in_a_shell(CALLED, server).splitlines()
    assert json.loads(json.loads(consumed)["body"]) == SENT


@pytest.mark.parametrize(("group", "status"), [("order-senders", 0), ("p", 1)])
def test_the_python_of_the_page(tmp_path: Path, group: str, status: int) -> None:
    """Its producer may send under strict checks, as its group is in the rules; one of another group may not."""
    (tmp_path / "plain_acl.yml").write_text(RULES, encoding="utf-8")
    (made,) = re.findall(r"`(Producer\(.*?\)\))`", TEXT)
    with broker(SERVED.splitlines()[1]) as server:
        made = made.replace(f"{HOST}:9876", server.name_server).replace("order-senders", group)
        program = (
            "import asyncio\n"
            "from lockstep.client import Credentials, Message, Producer\n"
            "async def main():\n"
            f"    async with {made} as producer:\n"
            '        await producer.send(Message("orders", b"x"))\n'
            "asyncio.run(main())\n"
        )
        done = subprocess.run([SCRIPTS / "python", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    assert ("No default permission for group:p" in done.stderr) is bool(status)


def test_a_broker_with_tls() -> None:
    """A command that trusts the certificate made for tests is served."""
    serve, call = OVER_TLS.splitlines()
    with broker(serve) as server:
        assert "TOPIC" in in_a_shell(call, server)
