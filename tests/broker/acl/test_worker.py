"""Rules are read and changed on a thread: requests are served meanwhile, and changes stay in order."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from lockstep.broker.acl import files as files_module
from lockstep.broker.acl.rules import AclFile, parse_file
from lockstep.broker.config import BrokerConfig
from lockstep.broker.server import BrokerServer
from lockstep.protocol.codes import RequestCode as R
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.acl import CreateAccessConfigRequestHeader, DeleteAccessConfigRequestHeader
from lockstep.protocol.signature import Credentials
from lockstep.remoting.connections.dialer import Dialer, DialerCallbacks, DialerSettings
from lockstep.remoting.host.os_storage import OsStorage
from lockstep.remoting.host.runtime import AsyncioRuntime
from tests.broker.acl.accounts import ACCOUNT, ADMIN, RULES, files, rules_file
from tests.remoting.helpers import RecordingLog, until

Ask = Callable[..., Awaitable[RemotingCommand]]
Access = CreateAccessConfigRequestHeader
NEW = Credentials("account9", "secret-9999")


class SlowDisk(OsStorage):
    """Stops between the write of a file and the end of the change, while `free` is not set."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.free.set()
        self.stopped = 0

    def sync_dir(self, path: str) -> None:
        super().sync_dir(path)
        self.stopped += not self.free.is_set()
        assert self.free.wait(60)


@asynccontextmanager
async def broker(folder: Path, disk: SlowDisk) -> AsyncIterator[Callable[[Credentials], Ask]]:
    """A broker on this disk. What it yields makes a function that asks for an account, on its own connection."""
    runtime = AsyncioRuntime(seed=1)
    runtime.storage = disk
    config = BrokerConfig(
        port=0, name_server_port=0, vip_channel=False, acl_enable=True, acl_file=str(rules_file(folder))
    )
    server = BrokerServer(config, runtime, RecordingLog())
    await server.start()
    dialers: list[Dialer] = []

    def asks_as(account: Credentials) -> Ask:
        callbacks = DialerCallbacks(lambda endpoint, command: None)
        dialers.append(Dialer(runtime, callbacks, RecordingLog(), DialerSettings(credentials=account)))

        async def ask(code: int, header: Any = None, dialer: Dialer = dialers[-1]) -> RemotingCommand:
            endpoint = await dialer.endpoint(server.broker_address)
            return await endpoint.request(RemotingCommand(code, header), 60_000)

        return ask

    try:
        yield asks_as
    finally:
        disk.free.set()
        for dialer in dialers:
            dialer.close()
        await server.shutdown()


async def test_requests_are_served_while_rules_change(tmp_path: Path) -> None:
    """The new account is not known before the change is done; all others are served without waiting for it."""
    disk = SlowDisk()
    async with broker(tmp_path, disk) as asks_as:
        admin, other, new = asks_as(ADMIN), asks_as(ACCOUNT), asks_as(NEW)
        assert (await other(R.GET_BROKER_CONFIG)).code == 0
        disk.free.clear()
        change = asyncio.ensure_future(admin(R.UPDATE_AND_CREATE_ACL_CONFIG, Access("account9", "secret-9999")))
        await until(lambda: disk.stopped == 1)
        for _ in range(3):
            assert (await other(R.GET_BROKER_CONFIG)).code == 0
            assert "No acl config for account9" in str((await new(R.GET_BROKER_CONFIG)).remark)
            assert (await admin(R.GET_BROKER_CLUSTER_ACL_INFO)).code == 0
        assert not change.done()
        disk.free.set()
        assert (await change).code == 0
        assert (await new(R.GET_BROKER_CONFIG)).code == 0


async def test_changes_at_once_keep_their_order(tmp_path: Path) -> None:
    """Of one administrator and of two: none overwrites another, and the last one counts."""
    disk = SlowDisk()
    async with broker(tmp_path, disk) as asks_as:
        first, second = asks_as(ADMIN), asks_as(ADMIN)
        for ask in (first, second):
            await ask(R.GET_BROKER_CONFIG)
        disk.free.clear()
        put, delete = R.UPDATE_AND_CREATE_ACL_CONFIG, R.DELETE_ACL_CONFIG
        changes = [asyncio.ensure_future(first(put, Access("account9", "secret-9999")))]
        await until(lambda: disk.stopped == 1)
        changes += [
            asyncio.ensure_future(second(put, Access("account8", "secret-8888"))),
            asyncio.ensure_future(first(put, Access("account9", "secret-0000"))),
            asyncio.ensure_future(first(delete, DeleteAccessConfigRequestHeader("account1"))),
        ]
        await second(R.GET_BROKER_CLUSTER_ACL_INFO)
        await first(R.GET_BROKER_CLUSTER_ACL_INFO)
        disk.free.set()
        assert [(await change).code for change in changes] == [0, 0, 0, 0]
        found = files_module.AclFiles(OsStorage(), str(tmp_path / "plain_acl.yml"), RecordingLog()).rules
        assert sorted(found.accounts) == ["account8", "account9", "adminadmin"]
        assert found.accounts["account9"].secret_key == "secret-0000"
        assert found.files[str(tmp_path / "plain_acl.yml")].counter == 4


def test_files_that_stay_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of one file reads no other again, and a change by an administrator reads what it wrote once."""
    (tmp_path / "acl").mkdir()
    for number in range(5):
        (tmp_path / "acl" / f"{number}.yml").write_text(RULES.replace("account1", f"account-of-{number}"))
    found = files(tmp_path)
    read: list[bytes] = []

    def parse(content: bytes) -> AclFile:
        read.append(content)
        return parse_file(content)

    monkeypatch.setattr(files_module, "parse_file", parse)
    (tmp_path / "acl" / "3.yml").write_text(RULES.replace("account1", "account-of-9"))
    assert found.look()
    assert len(read) == 1
    found.write(found.path, found.document(found.path), 1234)
    assert len(read) == 2
    assert len(found.rules.accounts) == 7
