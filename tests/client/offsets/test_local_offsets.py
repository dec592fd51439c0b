"""Offsets of a broadcasting consumer, in a file of its own (wire.md 12.9)."""

import errno
from pathlib import Path

import pytest

from lockstep.client import ConsumerError
from lockstep.client.consumer.offsets.local_file import LocalFileOffsetStore, LocalOffsets, offset_folder
from lockstep.client.consumer.offsets.store import NO_OFFSET, OffsetStore, ReadOffsetType, RemoteBrokerOffsetStore
from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.codes import RequestCode, SerializeType
from lockstep.protocol.headers.messaging import OffsetResponseHeader
from lockstep.protocol.model import MessageQueue
from tests.client.stage import TOPIC, Stage, on_stage, queue_at

GROUP, FOLDER, CLIENT_ID = "tower", "/users/me/.rocketmq_offsets", "10.0.0.1@DEFAULT"
PATH = f"{FOLDER}/{CLIENT_ID}/{GROUP}/offsets.json"
RECORDED = (Path(__file__).parents[2] / "vectors" / "offsets-4.9.8.json").read_bytes()
MEMORY, STORE, MEMORY_FIRST = ReadOffsetType


def store_on(stage: Stage) -> LocalFileOffsetStore:
    return LocalFileOffsetStore(stage.client, FOLDER, CLIENT_ID, GROUP, stage.log)


async def loaded(stage: Stage) -> LocalFileOffsetStore:
    store = store_on(stage)
    await store.load()
    return store


def write(stage: Stage, path: str, content: bytes) -> None:
    stage.client.disk.write(path, 0, content)


def written(stage: Stage, path: str = PATH) -> dict[MessageQueue, int]:
    return dict(decode_body(LocalOffsets, stage.client.disk.read(path), SerializeType.JSON).offset_table)


def keep(store: OffsetStore, offsets: dict[int, int]) -> list[tuple[MessageQueue, int]]:
    """Update and persist; what was announced."""
    told: dict[MessageQueue, int] = {}
    for queue_id, offset in offsets.items():
        store.update(queue_at(queue_id), offset)
    store.persist(map(queue_at, offsets), told.update)
    return list(told.items())


# Writing -----------------------------------------------------------------------------------------------------


@on_stage
async def test_the_next_start_goes_on_where_this_one_ended(stage: Stage) -> None:
    """What was persisted is what another process of the same client id and group reads, and nothing else is."""
    store = await loaded(stage)
    assert await store.read(queue_at(0)) == NO_OFFSET
    assert keep(store, {0: 41, 1: 7}) == [(queue_at(0), 41), (queue_at(1), 7)]
    store.update(queue_at(0), 50)
    await store.close()
    after = await loaded(stage)
    assert await after.read(queue_at(0)) == 41
    assert after.in_memory(queue_at(0)) == 41
    assert await after.read(queue_at(2)) == NO_OFFSET
    await after.close()


@on_stage
async def test_the_file_is_the_one_java_writes(stage: Stage) -> None:
    """Read as rocketmq-client 4.9.8 wrote it; and what we write has the same members, names that are objects."""
    write(stage, PATH, RECORDED)
    store = await loaded(stage)
    assert [await store.read(queue_at(i)) for i in (0, 1)] == [5, 70_000_000_000]
    keep(store, {0: 6, 1: 70_000_000_000})
    await store.close()
    text = stage.client.disk.read(PATH).decode()
    theirs = RECORDED.decode().translate({ord(c): None for c in "\n\t"})
    entries = theirs.removeprefix('{"offsetTable":{').removesuffix("}}").split(",{")
    assert text == '{"offsetTable":{' + "{" + entries[1].removesuffix("5") + "6," + entries[0] + "}}"
    assert stage.client.disk.read(PATH + ".bak") == RECORDED


@on_stage
async def test_only_what_changed_is_written(stage: Stage) -> None:
    """A round in which nothing was consumed leaves the disk alone, and calls nothing committed."""
    store = await loaded(stage)
    keep(store, {0: 41})
    await stage.world.sleep_ms(100)
    stage.client.disk.fail("open_file", errno.EIO)
    assert keep(store, {0: 41}) == []
    await stage.world.sleep_ms(100)
    assert stage.events("error") == []
    stage.client.disk.heal()
    await store.close()


@on_stage
async def test_queues_that_left_stay_in_the_file(stage: Stage) -> None:
    """A queue that comes back goes on; in memory it may be forgotten meanwhile."""
    store = await loaded(stage)
    keep(store, {0: 41})
    store.forget(queue_at(0))
    keep(store, {1: 7})
    assert store.in_memory(queue_at(0)) == NO_OFFSET
    assert await store.read(queue_at(0)) == 41
    await store.close()
    assert written(stage) == {queue_at(0): 41, queue_at(1): 7}


@on_stage
async def test_a_full_disk(stage: Stage) -> None:
    """An error that names the file; the old content stays whole, and the next round writes what this one could not."""
    store = await loaded(stage)
    keep(store, {0: 41})
    await stage.world.sleep_ms(100)
    stage.client.disk.fail("write_at", errno.ENOSPC)
    keep(store, {0: 42})
    await stage.world.sleep_ms(100)
    assert written(stage) == {queue_at(0): 41}
    [(_, event, fields)] = stage.log.events
    assert (event, fields["path"]) == ("offsets_not_written", PATH)
    stage.client.disk.heal()
    keep(store, {0: 42})
    await store.close()
    assert written(stage) == {queue_at(0): 42}


@on_stage
async def test_a_caller_may_wait_for_the_disk(stage: Stage) -> None:
    """Without closing; what the disk refuses is not passed off as kept."""
    store = await loaded(stage)
    await store.flush()
    keep(store, {0: 5})
    await store.flush()
    assert written(stage) == {queue_at(0): 5}
    stage.client.disk.fail("write_at", errno.ENOSPC)
    keep(store, {0: 6})
    with pytest.raises(ConsumerError, match="are not written"):
        await store.flush()
    await store.close()


@on_stage
async def test_what_comes_while_it_writes_is_written_too(stage: Stage) -> None:
    """Two rounds at once make one more write, and the last one wins."""
    store = await loaded(stage)
    keep(store, {0: 41})
    keep(store, {0: 42})
    keep(store, {1: 1})
    await store.close()
    assert written(stage) == {queue_at(0): 42, queue_at(1): 1}


# Reading -----------------------------------------------------------------------------------------------------


@on_stage
async def test_a_damaged_file(stage: Stage) -> None:
    """The older copy serves, with an error in the log."""
    write(stage, PATH, b'{"offsetTable":{{"brokerName":')
    write(stage, PATH + ".bak", RECORDED)
    store = await loaded(stage)
    assert await store.read(queue_at(0)) == 5
    assert stage.events("error") == ["offsets_unreadable"]
    await store.close()


@on_stage
async def test_two_damaged_files(stage: Stage) -> None:
    """The consumer does not start, for it would begin anew without a word; the error names what to mend."""
    write(stage, PATH, b"[]")
    write(stage, PATH + ".bak", b"nonsense")
    store = store_on(stage)
    with pytest.raises(ConsumerError, match=r"repair or delete them: .*offsets\.json: .*offsets\.json\.bak: "):
        await store.load()
    await store.close()


@on_stage
async def test_a_file_that_was_never_written(stage: Stage) -> None:
    """An empty one is none, as in RocketMQ: a crash may leave it."""
    write(stage, PATH, b"")
    store = await loaded(stage)
    assert await store.read(queue_at(0)) == NO_OFFSET
    await store.close()


@on_stage
async def test_another_process_has_it(stage: Stage) -> None:
    """Two that write one file would undo each other's progress: the second is refused, until the first has ended."""
    first = await loaded(stage)
    second = store_on(stage)
    with pytest.raises(ConsumerError, match=r"another process uses the offsets of group 'tower' .* instance_name"):
        await second.load()
    await second.close()
    await first.close()
    third = await loaded(stage)
    await third.close()


@on_stage
async def test_a_folder_that_cannot_be_used(stage: Stage) -> None:
    """Refused at the start, not found out at the first commit."""
    stage.client.disk.fail("lock", errno.EACCES)
    store = store_on(stage)
    with pytest.raises(ConsumerError, match=rf"cannot be stored in {PATH}: .*Permission denied"):
        await store.load()
    await store.close()


def test_the_folder_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tilde before the first slash is the home; nothing else is changed."""
    monkeypatch.setenv("HOME", "/users/me")
    assert offset_folder("~/.rocketmq_offsets") == "/users/me/.rocketmq_offsets"
    assert [offset_folder(path) for path in ("/srv/~/x", "~x/y", "here")] == ["/srv/~/x", "~x/y", "here"]


# Which offset is meant ---------------------------------------------------------------------------------------


async def read_each_way(store: OffsetStore) -> list[int]:
    """In this order: memory, memory first, store, and memory again."""
    return [await store.read(queue_at(0), kind) for kind in (MEMORY, MEMORY_FIRST, STORE, MEMORY)]


@on_stage
async def test_read_offset_types_of_the_file(stage: Stage) -> None:
    """Memory is memory; the store's answer becomes memory; memory comes first where it is asked to."""
    write(stage, PATH, RECORDED)
    store = await loaded(stage)
    assert await store.read(queue_at(0), MEMORY) == NO_OFFSET
    assert await store.read(queue_at(0), MEMORY_FIRST) == 5
    store.update(queue_at(0), 8)
    assert await read_each_way(store) == [8, 8, 5, 5]
    await store.close()


@on_stage
async def test_read_offset_types_of_the_broker(stage: Stage) -> None:
    """Likewise, and the broker is asked only where it must be."""
    broker = await stage.broker(queues=4)
    instance = stage.instance()
    await instance.routes.fetch(TOPIC)
    store = RemoteBrokerOffsetStore(instance, GROUP)
    broker.answers(RequestCode.QUERY_CONSUMER_OFFSET, OffsetResponseHeader(5))
    assert await store.read(queue_at(0), MEMORY) == NO_OFFSET
    assert await store.read(queue_at(0), MEMORY_FIRST) == 5
    store.update(queue_at(0), 8)
    assert await read_each_way(store) == [8, 8, 5, 5]
    assert len(broker.requests(RequestCode.QUERY_CONSUMER_OFFSET)) == 2


@on_stage
async def test_increase_only(stage: Stage) -> None:
    """A lower offset changes nothing then; without it, it does."""
    store = await loaded(stage)
    for offset, increase_only, expected in ((5, True, 5), (4, True, 5), (6, True, 6), (3, False, 3), (3, True, 3)):
        store.update(queue_at(0), offset, increase_only=increase_only)
        assert store.in_memory(queue_at(0)) == expected
    await store.close()
