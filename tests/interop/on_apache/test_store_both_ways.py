"""One folder, two brokers: what ours wrote Apache's reads, and the other way round."""

import contextlib
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from lockstep.remoting.host.os_storage import OsStorage
from lockstep.store.check.store import StoreCheck
from tests.interop.harness.drivers import Driver, Drivers, Event
from tests.interop.harness.servers import Server, apache_server, lockstep_server
from tests.interop.harness.table import RowMaker

pytestmark = pytest.mark.timeout(720)

FIRST, LATER, DELAYED = 40, 10, 4  # read and committed; sent behind that; still waiting when the broker stops
SAME = ("seq", "key", "keys", "tags", "bodyBytes", "bodyCrc32", "msgId", "queueId", "queueOffset", "storeTimestamp")
FILES = {
    "mappedFileSizeCommitLog": 131_072,
    "mappedFileSizeConsumeQueue": 400,
    "maxHashSlotNum": 50,
    "maxIndexNum": 20,
    "maxMessageSize": 65_536,
}


def lockstep_on(folder: Path) -> AbstractContextManager[Server]:
    options = [word for name, value in FILES.items() for word in ("-D", f"{name}={value}")]
    return lockstep_server(folder, "--data-dir", str(folder / "store"), *options)


def apache_on(folder: Path) -> AbstractContextManager[Server]:
    return apache_server(folder, FILES)


BROKERS: dict[str, Callable[[Path], AbstractContextManager[Server]]] = {"lockstep": lockstep_on, "apache": apache_on}


class Client:
    """Java's client on the broker that has the folder open."""

    def __init__(self, server: Server, drivers: Drivers) -> None:
        self._server = server
        self._drivers = drivers

    def start(self, name: str, **arguments: Any) -> Driver:
        return self._drivers.java(name, name_server=self._server.name_server, **arguments)

    async def run(self, name: str, **arguments: Any) -> Driver:
        driver = self.start(name, **arguments)
        assert await driver.ended(60) == 0, driver.tail()
        return driver

    async def read(self, topic: str, group: str) -> list[Event]:
        events = (await self.run("PullConsumer", topic=topic, group=group)).of("handled")
        return sorted(events, key=lambda event: (event["queueId"], event["queueOffset"]))


@pytest.mark.parametrize(("writer", "reader"), [("lockstep", "apache"), ("apache", "lockstep")])
async def test_a_folder_goes_over(
    tmp_path: Path, drivers: Drivers, interop_row: RowMaker, writer: str, reader: str
) -> None:
    """Messages, offsets, keys and delayed messages that one broker stored are there for a Java client of the other:
    a group goes on where it was, what was waiting comes when it is due, and new messages follow the old."""
    with BROKERS[writer](tmp_path) as server:
        client, wrote = Client(server, drivers), server.name
        await server.create_topic("Orders")
        await server.create_topic("Reminders", 1)
        await client.run("OrderedProducer", topic="Orders", group="P", messages=FIRST, keys=8, body_bytes=3000)
        await client.run("PullConsumer", topic="Orders", group="shipping")
        await client.run("OrderedProducer", topic="Orders", group="P", messages=LATER, keys=8, first=FIRST)
        before = await client.read("Orders", "witness")
        await client.run("SendKinds", topic="Reminders", group="P", messages=DELAYED, delay_level=4)
        async with server.admin() as admin:
            assert await admin.max_offset((await admin.route("Reminders")).readable_queues("Reminders")[0]) == 0
    assert len(before) == FIRST + LATER
    assert list(StoreCheck(OsStorage(), str(tmp_path / "store")).run()) == []
    with BROKERS[reader](tmp_path) as server:
        client = Client(server, drivers)
        row = interop_row("Java", "4.9.8", f"{wrote} -> folder -> {server.name}", "messages, offsets, keys, delays")
        after = await client.read("Orders", "another")
        assert [{name: event[name] for name in SAME} for event in after] == [
            {name: event[name] for name in SAME} for event in before
        ]
        consumer = client.start("OrderlyConsumer", topic="Orders", group="shipping")
        await consumer.until(lambda: len(consumer.of("handled")) >= LATER, "it goes on where it was", 60)
        query = await client.run("QueryMessages", topic="Orders", group="P", keys=["key-3"], ids=[before[7]["msgId"]])
        reminders = client.start("ConcurrentConsumer", topic="Reminders", group="clock")
        await reminders.until(lambda: len(reminders.of("handled")) >= DELAYED, "delayed messages come", 90)
        sent = await client.run("OrderedProducer", topic="Orders", group="P", messages=8, keys=8, first=FIRST + LATER)
        await consumer.until(lambda: len(consumer.of("handled")) >= LATER + 8, "new messages follow", 60)
        handled = consumer.of("handled")
        assert [event["seq"] for event in sorted(handled, key=lambda event: event["seq"])] == list(
            range(FIRST, FIRST + LATER + 8)
        )
        assert {event["seq"] for event in query.of("queried")} == {3} | {
            event["seq"] for event in before if "key-3" in (event["keys"] or "").split()
        }
        assert [event["msgId"] for event in query.of("viewed")] == [before[7]["msgId"]]
        assert sorted(event["seq"] for event in reminders.of("handled")) == list(range(DELAYED))
        ends = {(event["queueId"], event["queueOffset"]) for event in before}
        assert not ends & {(event["queueId"], event["queueOffset"]) for event in sent.of("sent")}
        row.messages, row.duplicates = len(after) + len(handled) + DELAYED, 0
        by_key: dict[str, list[int]] = {}
        for event in handled:
            by_key.setdefault(event["key"], []).append(event["seq"])
        row.order_kept = all(seqs == sorted(seqs) for seqs in by_key.values())
        assert row.order_kept


def copy_what_is_there(source: str, target: str) -> None:
    """The broker may put a new table in the place of an old one meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        shutil.copy2(source, target)


@pytest.mark.parametrize(("writer", "reader"), [("lockstep", "apache"), ("apache", "lockstep")])
async def test_the_folder_of_a_killed_broker_goes_over(
    tmp_path: Path, drivers: Drivers, interop_row: RowMaker, writer: str, reader: str
) -> None:
    """What a SIGKILL leaves, which is what stands in the folder at any moment of a broker's life: the other one
    recovers it, and every message is there under its offset and by its key."""
    with BROKERS[writer](tmp_path) as server:
        client, wrote = Client(server, drivers), server.name
        await server.create_topic("Orders")
        await client.run("OrderedProducer", topic="Orders", group="P", messages=FIRST, keys=8, body_bytes=3000)
        before = await client.read("Orders", "witness")
        shutil.copytree(tmp_path / "store", tmp_path / "killed" / "store", copy_function=copy_what_is_there)
    assert (tmp_path / "killed" / "store" / "abort").exists()
    with BROKERS[reader](tmp_path / "killed") as server:
        client = Client(server, drivers)
        row = interop_row("Java", "4.9.8", f"{wrote}, killed -> folder -> {server.name}", "messages, keys")
        after = await client.read("Orders", "another")
        query = await client.run("QueryMessages", topic="Orders", group="P", keys=["key-3"], ids=[before[7]["msgId"]])
    assert [{name: event[name] for name in SAME} for event in after] == [
        {name: event[name] for name in SAME} for event in before
    ]
    assert len(before) == FIRST
    assert {event["seq"] for event in query.of("queried")} >= {3}
    assert [event["msgId"] for event in query.of("viewed")] == [before[7]["msgId"]]
    row.messages, row.duplicates, row.order_kept = len(after), 0, True
