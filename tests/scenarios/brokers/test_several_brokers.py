"""Two brokers and one name server: each broker locks its own queues, and one of them may be away."""

from lockstep.client import MessageQueue
from tests.scenarios.cluster import BROKER, GROUP, TOPIC, Cluster
from tests.scenarios.scenario import scenario

OTHER = "second"
ROUND_MS, ROUTE_POLL_MS = 20_000, 30_000


async def _two_brokers(cluster: Cluster) -> None:
    await cluster.broker(queues=2)
    await cluster.broker(OTHER, queues=2)
    await cluster.world.sleep_ms(100)  # until the second has registered with the first one's name server


@scenario(also_fenced=True)
async def test_queues_of_both_are_shared(cluster: Cluster) -> None:
    """A topic has queues on both brokers; two consumers have two each and handle all keys in order."""
    await _two_brokers(cluster)
    await cluster.producer()
    c1 = await cluster.consumer("c1")
    c2 = await cluster.consumer("c2")
    await cluster.at(45_000)
    await cluster.send(100, keys=20)
    await cluster.all_seen()
    queues = [MessageQueue(TOPIC, broker, queue_id) for broker in (BROKER, OTHER) for queue_id in range(2)]
    owned = [queue for consumer in (c1, c2) for queue in consumer.assigned_queues if queue.topic == TOPIC]
    assert owned == queues
    assert {call.queue for call in cluster.seen.all} == set(queues)


@scenario(also_fenced=True)
async def test_each_broker_locks_its_own_queues(cluster: Cluster) -> None:
    """A broker's table has the locks of its own queues; a client that loses one broker keeps its locks on the other."""
    await _two_brokers(cluster)
    await cluster.consumer("c1")
    await cluster.at(22_000)
    for name in (BROKER, OTHER):
        assert {row.queue.broker_name for row in cluster.locks(name).values()} == {name}
        assert {row.queue.broker_name for row in cluster.locks(name, topic=f"%RETRY%{GROUP}").values()} == {name}
    cluster.world.partition("c1", OTHER)
    await cluster.at(82_000)
    assert {row.age_ms > 60_000 for row in cluster.locks(OTHER).values()} == {True}
    assert {row.age_ms <= ROUND_MS for row in cluster.locks(BROKER).values()} == {True}
    cluster.world.repair("c1", OTHER)
    await cluster.at(110_000)
    assert {row.age_ms <= ROUND_MS for row in cluster.locks(OTHER).values()} == {True}


@scenario(also_fenced=True)
async def test_one_away_does_not_stop_the_other(cluster: Cluster) -> None:
    """While one broker is away clients send to and consume from the other; when it is back, empty, they use it
    again."""
    await _two_brokers(cluster)
    await cluster.producer()
    await cluster.consumer("c1")
    await cluster.consumer("c2")
    await cluster.at(45_000)
    await cluster.send(40)
    await cluster.all_seen()
    await cluster.at(51_000)
    cluster.crash(OTHER)
    await cluster.at(55_000)
    await cluster.send(20, queue_id=1)  # of the first broker
    await cluster.all_seen(timeout_ms=1000)
    await cluster.at(51_000 + ROUTE_POLL_MS + 2 * ROUND_MS)
    await cluster.send(40)  # the producer's route has forgotten the queues of the one that is away
    await cluster.all_seen(timeout_ms=1000)
    assert {call.queue.broker_name for call in cluster.seen.of(since_ms=52_000)} == {BROKER}
    await cluster.broker(OTHER, queues=2)
    await cluster.world.sleep_ms(ROUTE_POLL_MS + 2 * ROUND_MS)
    began_ms = cluster.world.elapsed_ms
    await cluster.send(40)
    await cluster.all_seen()
    assert {call.queue.broker_name for call in cluster.seen.of(since_ms=began_ms)} == {BROKER, OTHER}
