"""Where a new group begins: every ConsumeFromWhere, and queues that are too young for it (wire.md 8.1, 12.3)."""

from typing import Any

from lockstep.client import ConsumeFromWhere, MessageExt
from tests.scenarios.cluster import PRODUCER, TOPIC, Cluster
from tests.scenarios.scenario import INSTANT, scenario

_W = ConsumeFromWhere
SMALL: dict[str, Any] = {"max_message_bytes": 16 * 1024, "memory_limit_bytes": 128 * 1024}
PADDING_BYTES = 4_000  # less than what is compressed
MINUTE_MS = 60_000


class NewGroups:
    """A consumer in a group of its own for each where; `seen[where]` are the offsets it handled.

    They write no traces, so there is nothing to judge but what they saw.
    """

    def __init__(self, cluster: Cluster, prefix: str = "") -> None:
        self._cluster = cluster
        self._prefix = prefix
        self.seen: dict[ConsumeFromWhere, list[int]] = {}

    async def start(self, where: ConsumeFromWhere, **settings: Any) -> None:
        offsets = self.seen[where] = []

        def listen(messages: list[MessageExt], _context: Any) -> None:
            offsets.append(messages[0].queue_offset)

        settings["consume_from_where"] = where
        name = self._prefix + where.name
        await self._cluster.own_consumer(name, name, listen, settings=settings)

    async def firsts(self) -> dict[ConsumeFromWhere, int]:
        """The first offset each handled, when all have settled and another message has come."""
        await self._cluster.world.sleep_ms(MINUTE_MS)
        await self._cluster.send(1, queue_id=0)
        await self._cluster.world.sleep_ms(MINUTE_MS)
        return {where: offsets[0] for where, offsets in self.seen.items()}


async def _old_queue(cluster: Cluster) -> tuple[int, int]:
    """A queue that has lost its first messages; its least and next offset. The messages are 2 minutes apart, the last
    one is new."""
    await cluster.broker_and_producer(queues=1, **SMALL)
    for _ in range(50):
        await cluster.world.sleep_ms(2 * MINUTE_MS)
        await cluster.world.host(PRODUCER).run(cluster.send_one(queue_id=0, padding_bytes=PADDING_BYTES))
    store = cluster.store()
    assert 0 < store.min_offset(TOPIC, 0) < store.max_offset(TOPIC, 0) - 4
    return store.min_offset(TOPIC, 0), store.max_offset(TOPIC, 0)


@scenario(INSTANT, also_fenced=True)
async def test_a_young_queue_is_begun_at_0(cluster: Cluster) -> None:
    """While no message of the queue has expired the broker answers 0 for "no offset", and ConsumeFromWhere is not
    used."""
    await cluster.broker_and_producer(queues=1)
    await cluster.send(3, queue_id=0)
    groups = NewGroups(cluster)
    for where in ConsumeFromWhere:
        await groups.start(where, consume_timestamp_ms=cluster.world.now_ms + 1)
    assert await groups.firsts() == dict.fromkeys(ConsumeFromWhere, 0)
    heard = {request.name for request in cluster.request_log.all}
    assert "QUERY_CONSUMER_OFFSET" in heard
    assert heard.isdisjoint({"GET_MAX_OFFSET", "SEARCH_OFFSET_BY_TIMESTAMP"})
    await cluster.end(judge=False)


@scenario(INSTANT, also_fenced=True)
async def test_first_is_the_least_offset_of_an_old_queue(cluster: Cluster) -> None:
    """The client pulls at 0, the broker answers with the queue's first offset, and 10 s later the client begins
    there."""
    min_offset, max_offset = await _old_queue(cluster)
    groups = NewGroups(cluster)
    await groups.start(_W.CONSUME_FROM_FIRST_OFFSET)
    await groups.firsts()
    assert groups.seen[_W.CONSUME_FROM_FIRST_OFFSET] == list(range(min_offset, max_offset + 1))
    await cluster.end(judge=False)


@scenario(INSTANT, also_fenced=True)
async def test_a_given_time_of_an_old_queue(cluster: Cluster) -> None:
    """Between two messages the later one is chosen, though brokers answer with the nearer; after the last the end."""
    _, max_offset = await _old_queue(cluster)
    groups = NewGroups(cluster)
    stored_ms = cluster.world.now_ms - 4 * MINUTE_MS  # of the last but two
    await groups.start(_W.CONSUME_FROM_TIMESTAMP, consume_timestamp_ms=stored_ms + MINUTE_MS - 1)
    assert (await groups.firsts())[_W.CONSUME_FROM_TIMESTAMP] == max_offset - 2
    later = NewGroups(cluster, "LATER")
    await later.start(_W.CONSUME_FROM_TIMESTAMP, consume_timestamp_ms=cluster.world.now_ms + 1)
    assert (await later.firsts())[_W.CONSUME_FROM_TIMESTAMP] == max_offset + 1
    await cluster.end(judge=False)
