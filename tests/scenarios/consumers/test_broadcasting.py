"""Broadcasting: every member handles every message, and keeps its offsets in a file of its own (wire.md 12.3, 12.9)."""

from collections.abc import Sequence
from typing import Any

from lockstep.client import MessageExt, MessageModel, PushConsumer, SerializeType
from lockstep.client.consumer.offsets.local_file import LocalOffsets
from lockstep.protocol.bodies.codec import decode_body
from tests.scenarios.cluster import GROUP, TOPIC, Cluster
from tests.scenarios.scenario import INSTANT, scenario

FOLDER = "/offsets"
START_MS, PERSIST_FIRST_MS, PERSIST_MS = 500, 10_000, 5_000
CLUSTERED = ("LOCK_BATCH_MQ", "UNLOCK_BATCH_MQ", "UPDATE_CONSUMER_OFFSET", "QUERY_CONSUMER_OFFSET")


class Members:
    """Members of the broadcasting group by host; `texts(host)` is what each handled, in order."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._seen: dict[str, list[tuple[int, str]]] = {}

    async def join(self, host: str, **settings: Any) -> PushConsumer:
        seen = self._seen.setdefault(host, [])

        def listen(messages: list[MessageExt], _context: Any) -> None:
            seen.extend((message.queue_id, message.body.decode()) for message in messages)

        settings["local_offset_folder"] = FOLDER
        model = MessageModel.BROADCASTING
        return await self._cluster.own_consumer(host, GROUP, listen, settings=settings, message_model=model)

    def texts(self, host: str, queue_id: int | None = None) -> list[str]:
        return [text for of_queue, text in self._seen[host] if queue_id in (None, of_queue)]

    def kept(self, host: str) -> dict[int, int]:
        """Queue id -> offset in the member's file."""
        name = f"{FOLDER}/{self._cluster.world.host(host).address}@DEFAULT/{GROUP}/offsets.json"
        disk = self._cluster.world.disk(host)
        if name not in disk.paths():
            return {}
        body = decode_body(LocalOffsets, disk.read(name), SerializeType.JSON)
        return {queue.queue_id: offset for queue, offset in body.offset_table.items()}

    async def have(self, texts: Sequence[str], *hosts: str) -> None:
        """Wait until these members have handled all of it."""
        await self._cluster.world.until(
            lambda: all(set(texts) <= set(self.texts(host)) for host in hosts), timeout_ms=60_000, poll_ms=100
        )


async def _members(cluster: Cluster, *hosts: str, queues: int = 4) -> Members:
    await cluster.broker_and_producer(queues=queues)
    members = Members(cluster)
    for host in hosts:
        await members.join(host)
    await cluster.world.sleep_ms(1_000)
    return members


@scenario()
async def test_every_member_handles_every_message(cluster: Cluster) -> None:
    """Each member owns all queues at once, handles them in order, and asks the broker for no lock and for no offset."""
    members = await _members(cluster, "c1", "c2", "c3")
    await cluster.send(40)
    await members.have(cluster.sent, "c1", "c2", "c3")
    for host in ("c1", "c2", "c3"):
        assert sorted(members.texts(host)) == sorted(cluster.sent)
        for queue_id in range(4):
            stored = [message.body.decode() for message in cluster.stored(queue_id)]
            assert members.texts(host, queue_id) == stored
        client = cluster.client(host)
        assert isinstance(client, PushConsumer)
        assert [queue.topic for queue in client.assigned_queues] == [TOPIC] * 4, "no retry topic"
    await cluster.world.sleep_ms(30_000)
    assert {request.name for request in cluster.request_log.all}.isdisjoint({*CLUSTERED, "GET_CONSUMER_LIST_BY_GROUP"})
    assert cluster.group(GROUP).message_model is MessageModel.BROADCASTING
    assert [cluster.committed(queue_id) for queue_id in range(4)] == [-1] * 4
    await cluster.end(judge=False)


@scenario()
async def test_a_member_begins_at_the_end(cluster: Cluster) -> None:
    """It begins at the end of a young topic too: the rule that the broker answers 0 is not used, because the broker is
    not asked."""
    members = await _members(cluster)
    await cluster.send(8)
    before = list(cluster.sent)
    await members.join("c1")
    await cluster.world.sleep_ms(1_000)
    await cluster.send(8)
    after = cluster.sent[len(before) :]
    await members.have(after, "c1")
    assert sorted(members.texts("c1")) == sorted(after)
    await cluster.end(judge=False)


@scenario()
async def test_a_member_goes_on_where_it_ended(cluster: Cluster) -> None:
    """After a shutdown no message is missing and none is repeated; each member has its own progress."""
    members = await _members(cluster, "c1", "c2", queues=1)
    await cluster.send(10, queue_id=0)
    await members.have(cluster.sent, "c1", "c2")
    await cluster.leave("c1")
    assert members.kept("c1") == {0: 10}
    await cluster.send(10, queue_id=0)
    await members.have(cluster.sent, "c2")
    await members.join("c1")
    await members.have(cluster.sent, "c1")
    assert [int(text) for text in members.texts("c1")] == list(range(20))
    await cluster.leave("c2")
    assert members.kept("c2") == {0: 20}
    await cluster.end(judge=False)


@scenario(INSTANT)
async def test_the_file_is_written_after_10_s_and_then_each_5_s(cluster: Cluster) -> None:
    """The file is not written a millisecond earlier, and once more when the consumer shuts down."""
    await cluster.broker_and_producer(queues=1)
    members = Members(cluster)
    await cluster.at(START_MS)
    await members.join("c1")
    write_ms = 5  # a thread's work takes its time on the simulated disk

    async def kept_at(elapsed_ms: int) -> dict[int, int]:
        await cluster.at(elapsed_ms)
        return members.kept("c1")

    await cluster.at(START_MS + 1_000)
    await cluster.send(1, queue_id=0)
    first_ms = START_MS + PERSIST_FIRST_MS
    assert await kept_at(first_ms - 1) == {}
    assert await kept_at(first_ms + write_ms) == {0: 1}
    await cluster.send(1, queue_id=0)
    assert await kept_at(first_ms + PERSIST_MS - 1) == {0: 1}
    assert await kept_at(first_ms + PERSIST_MS + write_ms) == {0: 2}
    await cluster.send(1, queue_id=0)
    await cluster.world.sleep_ms(10)
    await cluster.leave("c1")
    assert members.kept("c1") == {0: 3}
    await cluster.end(judge=False)


@scenario()
async def test_a_member_that_died_repeats_5_s_at_most(cluster: Cluster) -> None:
    """A member that is killed between two writes handles again what it handled after the last write, and loses
    nothing."""
    members = await _members(cluster, "c1", queues=1)
    for _ in range(28):
        await cluster.send(1, queue_id=0)
        await cluster.world.sleep_ms(1_000)
    await members.have(cluster.sent, "c1")
    [kept] = members.kept("c1").values()
    cluster.crash("c1")
    await cluster.send(3, queue_id=0)
    await members.join("c1")
    await members.have(cluster.sent, "c1")
    assert [int(text) for text in members.texts("c1")] == [*range(28), *range(kept, 31)]
    assert 28 - 6 <= kept < 28
    await cluster.end(judge=False)


@scenario()
async def test_a_machine_that_loses_its_power_has_the_offsets(cluster: Cluster) -> None:
    """After a power cut the file holds the old content or the new, never a mixture."""
    members = await _members(cluster, "c1", queues=1)
    await cluster.send(5, queue_id=0)
    await cluster.world.sleep_ms(12_000)
    assert members.kept("c1") == {0: 5}
    cluster.world.power_cut("c1")
    await members.join("c1")
    await cluster.send(1, queue_id=0)
    await members.have(["5"], "c1")
    assert [int(text) for text in members.texts("c1")] == [*range(5), 5]
    await cluster.end(judge=False)
