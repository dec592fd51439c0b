"""A broker with a limit of requests a second: what it refuses costs no order, no lock and no message."""

import asyncio
from typing import Any

from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.headers.messaging import QueueRequestHeader
from tests.broker.cluster import Client
from tests.scenarios.cluster import BROKER, TOPIC, Cluster
from tests.scenarios.scenario import scenario

QUEUES = 4


async def _all_are_stored_in_order(cluster: Cluster, **settings: Any) -> None:
    """300 keyed sends in 0.6 s, and 30 requests a second: all are stored once, those of each queue in call order."""
    await cluster.broker(queues=QUEUES, requests_per_second_max=30)
    await cluster.consumer("c1")
    await cluster.producer(retry_keyed=True, send_timeout_ms=60_000, **settings)
    sends = []
    for number in range(60):
        sends.append(cluster.world.start(cluster.send(5), name=f"sends {number}"))
        await cluster.world.sleep_ms(10)
    await asyncio.gather(*sends)
    assert cluster.core(BROKER).limits.counts["requests_per_second_max"] > 5
    stored = [[int(message.body) for message in cluster.stored(queue_id)] for queue_id in range(QUEUES)]
    assert sorted(number for of_queue in stored for number in of_queue) == list(range(300))
    assert all(of_queue == sorted(of_queue) for of_queue in stored)
    await cluster.world.until(lambda: cluster.not_committed() == {}, timeout_ms=60_000)


@scenario(also_fenced=True)
async def test_sends_above_the_limit_keep_their_order(cluster: Cluster) -> None:
    """Each in a frame of its own: the broker refuses some, and all that follow these."""
    await _all_are_stored_in_order(cluster, send_together_max=1)


@scenario(also_fenced=True)
async def test_frames_above_the_limit_keep_their_order(cluster: Cluster) -> None:
    """With several sends in a frame: it is refused as a whole, and each of them waits in its place."""
    await _all_are_stored_in_order(cluster)


@scenario(also_fenced=True)
async def test_a_flood_takes_no_lock_from_its_own_address(cluster: Cluster) -> None:
    """For 75 s a program beside a consumer sends four times what it may: renewals, heartbeats and commits are served,
    and the consumer's messages are handled, though its pulls are refused now and then."""
    await cluster.broker(queues=QUEUES, requests_per_second_max=10)
    await cluster.consumer("c1")
    await cluster.producer()
    host = cluster.world.host("c1")
    flood, address = Client(host, cluster.serialize_type), f"{cluster.world.host(BROKER).address}:10911"
    header = QueueRequestHeader(TOPIC, 0)
    codes = []
    for tenth in range(1, 751):
        asks = [flood.call(address, RequestCode.GET_MAX_OFFSET, header) for _ in range(4)]
        codes += [reply.code for reply in await asyncio.gather(*asks)]
        if tenth % 100 == 0:
            await cluster.send(4)
        await cluster.at(tenth * 100)
    assert codes.count(ResponseCode.SYSTEM_BUSY) > 2000
    await cluster.world.until(lambda: cluster.not_committed() == {}, timeout_ms=60_000)
    losses = ("lock_lost", "lock_ended", "lock_request_failed", "consumer_left")
    assert not [line for line in cluster.log if line.event in losses]
    met = cluster.events("limit_met", host=BROKER)
    assert len(met) == 2, "one line a minute"
    assert met[-1].fields["times"] > 1500
    flood.close()
