"""Global order: a topic of one queue, in which all messages of all keys come in the order in which they were sent."""

from itertools import pairwise

from lockstep.order import Cause
from tests.scenarios.cluster import Cluster
from tests.scenarios.scenario import scenario

LOCK_LIFE_MS, ROUND_MS = 60_000, 20_000


def _numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


@scenario(also_fenced=True)
async def test_one_queue_is_in_global_order(cluster: Cluster) -> None:
    """One producer, one queue, three consumers: one of them has the queue and the others wait. One listener at a time
    handles all messages in the order of the sends, over all keys."""
    await cluster.broker_and_producer(queues=1)
    for name in ("c1", "c2", "c3"):
        await cluster.consumer(name, work_ms=20)
    await cluster.at(30_000)
    await cluster.send(200, keys=50)
    await cluster.all_seen()
    assert cluster.seen.texts() == _numbers(200)
    assert len(cluster.seen.owners(0)) == 1
    assert [message.body.decode() for message in cluster.stored()] == _numbers(200)
    begins = [call.begin_ms for call in cluster.seen.all]
    assert all(later - earlier >= 20 for earlier, later in pairwise(begins))


@scenario()
async def test_global_order_survives_its_owner(cluster: Cluster) -> None:
    """The owner is killed. When its lock has expired another member begins at the committed offset, and each message is
    first handled in the order of the sends."""
    cluster.expected.duplicates = {Cause.TAKEOVER}
    await cluster.broker_and_producer(queues=1)
    await cluster.consumer("c1", work_ms=50)
    await cluster.consumer("c2", work_ms=50)
    await cluster.at(10_000)
    await cluster.send(300, keys=50)
    await cluster.world.until(lambda: len(cluster.seen.all) >= 130)
    owner = "c1" if cluster.seen.of(cluster.seen.all[0].process) == cluster.seen.of("c1") else "c2"
    killed_ms = cluster.world.elapsed_ms
    cluster.crash(owner)
    await cluster.all_seen(timeout_ms=LOCK_LIFE_MS + 2 * ROUND_MS + 60_000)
    assert list(dict.fromkeys(cluster.seen.texts())) == _numbers(300)
    assert len(cluster.seen.owners(0)) == 2
    heir = next(name for name in ("c1", "c2") if name != owner)
    first = cluster.seen.of(heir)[0]
    assert first.begin_ms - killed_ms > LOCK_LIFE_MS - ROUND_MS  # the lock was renewed at most 20 s before
    assert int(first.text) <= 130  # a suffix of what was handled comes again, nothing is passed over
