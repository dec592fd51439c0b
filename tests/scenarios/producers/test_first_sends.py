"""Sends to one queue keep call order from the first one, also before the producer knows the route."""

import asyncio

from lockstep.client import ConsumeFromWhere
from tests.scenarios.cluster import PRODUCER, Cluster
from tests.scenarios.scenario import INSTANT, scenario

SENDS = 200


async def _send_on_the_way(cluster: Cluster, gap_ms: float) -> None:
    """Call after call, some at once and some a little later, while the first ones still ask for the route."""
    sends = []
    for number in range(SENDS):
        sends.append(asyncio.create_task(cluster.send_one(keys=1)))
        if number % 3 == 0:
            await asyncio.sleep(gap_ms / 1000)
    await asyncio.gather(*sends)


@scenario()
async def test_sends_called_while_the_route_is_asked_for_keep_their_order(cluster: Cluster) -> None:
    """A later call is stored later, although the route arrives between two calls."""
    await _first_sends(cluster, gap_ms=0.2)


@scenario(INSTANT)
async def test_sends_called_in_one_instant_with_the_route_keep_their_order(cluster: Cluster) -> None:
    """A new call does not overtake the calls that waited for the route while these go on one after the other."""
    await _first_sends(cluster, gap_ms=0)


async def _first_sends(cluster: Cluster, gap_ms: float) -> None:
    await cluster.broker_and_producer(queues=1)
    await cluster.world.host(PRODUCER).run(_send_on_the_way(cluster, gap_ms))
    assert [int(message.body) for message in cluster.stored()] == list(range(SENDS))
    await cluster.consumer("c1", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    await cluster.all_seen()


@scenario()
async def test_sends_called_while_nobody_knows_the_topic_fail_together(cluster: Cluster) -> None:
    """All waiting calls share one request to a name server that does not answer; they do not ask one after the
    other."""
    await cluster.broker_and_producer(queues=1)
    cluster.crash("broker", silently=True)
    begin_ms = cluster.world.elapsed_ms

    async def send_all() -> list[object]:
        return list(await asyncio.gather(*[cluster.send_one(keys=1) for _ in range(10)], return_exceptions=True))

    results = await cluster.world.host(PRODUCER).run(send_all())
    assert {type(result).__name__ for result in results} == {"NoRouteError"}
    assert cluster.world.elapsed_ms - begin_ms < 10_000
