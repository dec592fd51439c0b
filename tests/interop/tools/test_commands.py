"""The commands that look at messages, offsets and groups, on either broker."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from lockstep.client import Message, Producer
from tests.commands import Lockstep
from tests.integration.harness.processes import PATIENT_PRODUCER
from tests.interop.harness.servers import Server
from tests.interop.harness.table import RowMaker

pytestmark = pytest.mark.timeout(540)
Fresh = Callable[[], str]


async def produce(server: Server, topic: str) -> None:
    async with Producer("commands", name_server=server.name_server, config=PATIENT_PRODUCER) as producer:
        for number in range(12):
            body, tag = f"b{number}".encode(), "odd" if number % 2 else "even"
            await producer.send(
                Message(topic, body, tags=tag, keys=["all", f"k{number}"]), sharding_key=str(number % 3)
            )
    await server.settle()  # queues and keys


async def test_messages_offsets_and_groups(
    either: Server, fresh_topic: Fresh, fresh_group: Fresh, interop_row: RowMaker
) -> None:
    """Found by key, id and place; tailed; a group reset while offline and online, described and deleted."""
    row = interop_row("Lockstep", "0.1.0", f"commands -> {either.name} {either.version}", "message, offset, group")
    topic, group = await either.create_topic(fresh_topic(), 2), fresh_group()
    await produce(either, topic)
    lockstep = Lockstep(either.name_server)

    def tell() -> None:
        messages(lockstep, topic, group)
        groups(lockstep, topic, group)

    await asyncio.to_thread(tell)
    row.messages = 12


def messages(lockstep: Lockstep, topic: str, group: str) -> None:
    (found,) = ok(lockstep, "message", "find", "-t", topic, "--keys", "k7", "-o", "json")
    assert (found["body"], found["tags"], found["keys"]) == ("b7", "odd", "all k7")
    assert len(ok(lockstep, "message", "find", "-t", topic, "--keys", "all", "-o", "json")) == 12
    place = f"{found['broker']}:{found['queue_id']}"
    (same,) = ok(lockstep, "message", "find", "-t", topic, "-q", place, "--offset", str(found["offset"]), "-o", "json")
    assert same == found
    assert lockstep("consume", topic, "-g", group, "-e", "-f", "%s ").status == 0
    for words in ([found["msg_id"], "-t", topic], [found["offset_message_id"]]):
        (got,) = ok(lockstep, "message", "get", *words, "-o", "json")
        assert {**got, "consumed_by": None} == {**found, "consumed_by": None}
        assert got["consumed_by"] == [{"group": group, "state": "NOT_ONLINE"}]
    odd = ok(lockstep, "message", "tail", "-t", topic, "--tag", "odd", "-c", "6", "-o", "json")
    assert sorted(line["body"] for line in odd) == sorted(f"b{number}" for number in range(1, 12, 2))
    assert len(ok(lockstep, "message", "tail", "-t", topic, "--from", "first", "-o", "json")) == 12
    refused = lockstep("message", "get", found["offset_message_id"][:-16] + f"{2**40:016X}")
    assert (refused.status, refused.err.count("\n")) == (1, 1)


def groups(lockstep: Lockstep, topic: str, group: str) -> None:
    assert group in [row["group"] for row in ok(lockstep, "group", "list", "-o", "json")]
    moved = ok(lockstep, "offset", "reset", group, "-t", topic, "--to-time", "earliest", "-o", "json")
    assert [row["after"] for row in moved] == [0, 0]
    stats = ok(lockstep, "topic", "stats", topic, "-o", "json")
    assert sum(row["messages"] for row in stats) == 12
    with lockstep.start("consume", topic, "-g", group, "-f", "%s\n") as running:
        assert len({running.line() for _ in range(12)}) == 12
        described = ok(lockstep, "group", "describe", group, "-t", topic, "-o", "json")[0]
        (member,) = described["members"]
        assert (member["orderly"], member["message_model"]) == (True, "CLUSTERING")
        assert {row["owner"] for row in described["queues"]} == {member["client_id"]}
        assert [row["topic"] for row in described["statistics"]] == [topic]
        told = lockstep("offset", "reset", group, "-t", topic, "--to-time", "1h ago")
        assert told.status == 0, told.err
        assert "the brokers notified the members" in told.err
        assert len({running.line() for _ in range(12)}) == 12
        running.popen.terminate()
    (seen,) = ok(lockstep, "offset", "seek", group, "-t", topic, "-q", "0", "--offset", "1", "--force", "-o", "json")
    assert seen["after"] == 1
    assert lockstep("group", "delete", group, "--topics").status == 0
    assert group not in [row["group"] for row in ok(lockstep, "group", "list", "-o", "json")]


def ok(lockstep: Lockstep, *arguments: str) -> list[dict[str, Any]]:
    result = lockstep(*arguments)
    assert result.status == 0, result.err
    return result.rows
