"""A topic that is deleted and created again, in a broker with files; and copies of its folder, as crashes leave it."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.headers.admin import DeleteTopicRequestHeader
from lockstep.protocol.headers.messaging import EndTransactionRequestHeader
from lockstep.protocol.names import HALF_TOPIC
from tests.broker.helpers import NOW_MS
from tests.broker.persistence.kept_broker import Kept, kept, until
from tests.store.stores import record

__all__ = [
    "LATER_MS",
    "NEW",
    "copied",
    "copy",
    "create",
    "delayed",
    "delete",
    "disk_is_idle",
    "max_offsets",
    "put",
    "send_half",
]

NEW = "Again"
LATER_MS = NOW_MS + 1000


def create(opened: Kept, topic: str = NEW, queues: int = 2) -> None:
    opened.broker.catalog.topics.put(TopicConfig(topic, queues, queues), LATER_MS)


def delete(opened: Kept, topic: str = NEW) -> None:
    reply = opened.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic))
    assert reply is None or reply.code == ResponseCode.SUCCESS


def put(opened: Kept, *bodies: bytes, queue_id: int = 0, topic: str = NEW) -> None:
    for body in bodies:
        opened.broker.messages.put(record(body, queue_id, topic=topic))


def max_offsets(opened: Kept, topic: str = NEW, queues: int = 2) -> list[int]:
    return [opened.store.max_offset(topic, queue_id) for queue_id in range(queues)]


async def disk_is_idle(opened: Kept, folder: Path) -> None:
    """All that was stored is on the disk, and a checkpoint says so."""
    await opened.writers.flush()
    end = opened.store.max_commit_log_offset
    await until(lambda: opened.store.data_dir.read_checkpoint().log_offset == end, "a checkpoint of all")
    await opened.writers.flush()


def copy(folder: Path, to: Path) -> None:
    """The folder as it is now, but for files that are being written beside their place."""
    shutil.copytree(folder, to, ignore=shutil.ignore_patterns("*.tmp"))


@asynccontextmanager
async def copied(folder: Path, to: Path, **settings: Any) -> AsyncIterator[Kept]:
    """A broker that finds the folder as it is now, as after a crash at this moment."""
    copy(folder, to)
    (to / "abort").touch()
    async with kept(to, **settings) as again:
        yield again


def delayed(opened: Kept, body: bytes, topic: str = NEW) -> None:
    opened.send(body, topic=topic, properties="DELAY\x011")


async def send_half(opened: Kept) -> EndTransactionRequestHeader:
    """Send a half message. Returns what commits it."""
    opened.send(b"half", topic=NEW, properties="TRAN_MSG\x01true\x02PGROUP\x01PG\x02UNIQ_KEY\x01u", sys_flag=4)
    await opened.writers.flush()
    offset = opened.store.max_offset(HALF_TOPIC, 0) - 1
    (entry,) = opened.store.entries(HALF_TOPIC, 0, offset, 1)
    return EndTransactionRequestHeader("PG", offset, entry.commit_log_offset, 8, "u")
