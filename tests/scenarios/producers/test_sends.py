"""A connection is cut while keyed sends are in flight: which are stored, in which order, and what the sender knows."""

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import chain

from lockstep.client import SendError, SendOutcome, SendResult
from tests.scenarios.cluster import BROKER, PRODUCER, Cluster
from tests.scenarios.scenario import scenario

QUEUES = 4
Heard = list[SendResult | SendError]


async def _sends(cluster: Cluster, count: int, *, then: Callable[[], None] = lambda: None) -> Heard:
    """Keyed sends, all at once; what each one heard, in call order. `then` happens before any of them is under way."""

    async def all_at_once() -> Heard:
        sends = asyncio.gather(*[cluster.send_one() for _ in range(count)], return_exceptions=True)
        then()
        heard = await sends
        return [result for result in heard if isinstance(result, SendResult | SendError)]

    heard = await cluster.world.host(PRODUCER).run(all_at_once())
    assert len(heard) == count
    return heard


async def _64_in_flight(cluster: Cluster) -> "tuple[asyncio.Task[Heard], asyncio.Task[Heard]]":
    """32 are stored and their answers held back, 32 have not arrived; the connection has carried 8 before."""
    world = cluster.world
    await _sends(cluster, 8)
    world.hold(BROKER, PRODUCER)
    stored = world.start(_sends(cluster, 32), name="the first 32")
    await world.until(lambda: sum(len(cluster.stored(queue_id)) for queue_id in range(QUEUES)) == 40)
    world.hold(PRODUCER, BROKER)
    under_way = world.start(_sends(cluster, 32), name="the other 32")
    await world.sleep_ms(5)
    return stored, under_way


def _cut(cluster: Cluster) -> None:
    assert cluster.world.cut(PRODUCER, BROKER) == 2  # to the broker and to the name server
    cluster.world.release(PRODUCER, BROKER)
    cluster.world.release(BROKER, PRODUCER)


def _outcomes(heard: Heard) -> Counter[SendOutcome | None]:
    return Counter(result.outcome if isinstance(result, SendError) else None for result in heard)


def _stored_numbers(cluster: Cluster) -> list[list[int]]:
    return [[int(message.body) for message in cluster.stored(queue_id)] for queue_id in range(QUEUES)]


@scenario()
async def test_a_cut_leaves_a_prefix_of_each_queue(cluster: Cluster) -> None:
    """Of 64 keyed sends in flight each queue stores the first ones in call order, and all report an unknown outcome.
    Sends called before the failure was known do not overtake them; later sends are stored after them."""
    await cluster.broker_and_producer(queues=QUEUES)
    first, second = await _64_in_flight(cluster)
    third = await _sends(cluster, 8, then=lambda: _cut(cluster))
    assert _outcomes(await first) == {SendOutcome.UNKNOWN: 32}
    assert _outcomes(await second) == {SendOutcome.UNKNOWN: 32}
    assert _outcomes(third) == {SendOutcome.NOT_SENT: 8}
    assert _outcomes(await _sends(cluster, 16)) == {None: 16}
    called = [*range(40), *range(80, 96)]
    assert sorted(chain(*_stored_numbers(cluster))) == called
    assert all(queue == sorted(queue) for queue in _stored_numbers(cluster))
    await cluster.consumer("c1")
    await cluster.world.until(lambda: len(cluster.seen.all) == len(called))
    report = await cluster.end()
    assert report.send_failures == {"unknown": 64, "not_sent": 8}


@scenario()
async def test_retried_sends_stay_in_order(cluster: Cluster) -> None:
    """With retry_keyed all 64 are stored in call order, once: the producer asks for those that had no answer before it
    repeats them. Sends called meanwhile wait."""
    await cluster.broker(queues=QUEUES)
    await cluster.producer(retry_keyed=True)
    first, second = await _64_in_flight(cluster)
    third = await _sends(cluster, 8, then=lambda: _cut(cluster))
    assert _outcomes([*await first, *await second, *third]) == {None: 72}
    queues = _stored_numbers(cluster)
    assert all(queue == sorted(queue) for queue in queues)
    assert sorted(chain(*queues)) == list(range(80))
    await cluster.consumer("c1")
    await cluster.all_seen()


@scenario()
async def test_a_broker_that_loses_its_power_stores_retried_sends_once(cluster: Cluster) -> None:
    """Some sends in flight are in its files and some are not: it finds the first, and stores the others."""
    await cluster.broker(queues=QUEUES, data_dir="store", flush_sync=True)
    producer = await cluster.producer(retry_keyed=True, retry_times=20, send_timeout_ms=60_000)
    heard = await _sends(cluster, 8)
    for _ in range(5):
        burst = cluster.world.start(_sends(cluster, 64), name="burst")
        await asyncio.sleep(cluster.world.rng.uniform(0, 0.02))
        cluster.power_cut()
        await cluster.world.sleep_ms(500)
        await cluster.broker(queues=QUEUES, data_dir="store", flush_sync=True)
        heard += await burst
    assert _outcomes(heard) == {None: 328}
    queues = _stored_numbers(cluster)
    assert all(queue == sorted(queue) for queue in queues)
    assert sorted(chain(*queues)) == list(range(328))
    await producer.shutdown()
    await cluster.consumer("c1")
    await cluster.all_seen()


async def _one_too_large(cluster: Cluster, *, retry_keyed: bool) -> Heard:
    """16 sends of one key in flight, after one that opened the way; the fifth is larger than the broker takes."""
    await cluster.broker(queues=1, max_message_bytes=100)
    await cluster.producer(retry_keyed=retry_keyed)
    await cluster.send(1, keys=1)

    async def all_at_once() -> list[SendResult | BaseException]:
        sends = [cluster.send_one(keys=1, padding_bytes=200 if number == 4 else 0) for number in range(16)]
        return list(await asyncio.gather(*sends, return_exceptions=True))

    heard = await cluster.world.host(PRODUCER).run(all_at_once())
    await cluster.consumer("c1")
    await cluster.all_seen()
    return [result for result in heard if isinstance(result, SendResult | SendError)]


@scenario()
async def test_a_refused_send_is_not_overtaken(cluster: Cluster) -> None:
    """The broker also refuses the sends after a refused one on this connection, and stores only those before it."""
    heard = await _one_too_large(cluster, retry_keyed=False)
    assert _outcomes(heard) == {None: 4, SendOutcome.REFUSED: 12}
    assert _stored_numbers(cluster)[0] == list(range(5))


@scenario()
async def test_what_follows_a_refused_send_may_be_repeated(cluster: Cluster) -> None:
    """With retry_keyed only the message that can never be stored fails; later ones are stored in order."""
    heard = await _one_too_large(cluster, retry_keyed=True)
    assert _outcomes(heard) == {None: 15, SendOutcome.REFUSED: 1}
    assert _stored_numbers(cluster)[0] == [*range(5), *range(6, 17)]


@scenario()
async def test_a_late_arrival_does_not_overtake(cluster: Cluster) -> None:
    """A partition of 5 s delays sends past their timeout. They are stored when it ends, before sends that were called
    later."""
    await cluster.broker_and_producer(queues=QUEUES)
    await _sends(cluster, 8)
    cluster.world.partition(PRODUCER, BROKER)
    late = cluster.world.start(_sends(cluster, 16), name="late")
    await cluster.world.sleep_ms(5000)
    assert _outcomes(await late) == {SendOutcome.UNKNOWN: 16}
    cluster.world.repair(PRODUCER, BROKER)
    assert _outcomes(await _sends(cluster, 16)) == {None: 16}
    assert sorted(chain(*_stored_numbers(cluster))) == list(range(40))
    assert all(queue == sorted(queue) for queue in _stored_numbers(cluster))
    await cluster.consumer("c1")
    await cluster.all_seen()


@scenario()
async def test_cuts_at_any_moment_keep_each_queue_in_order(cluster: Cluster) -> None:
    """Ten bursts of 64 sends, each cut at a random moment: each queue stores the acknowledged sends and the first of
    those with an unknown outcome, and never one that was not sent."""
    await cluster.broker_and_producer(queues=QUEUES)
    heard = await _sends(cluster, 64)
    for _ in range(10):
        burst = cluster.world.start(_sends(cluster, 64), name="burst")
        await asyncio.sleep(cluster.world.rng.uniform(0, 0.006))
        cluster.world.cut(PRODUCER, BROKER)
        heard += await burst
    assert {SendOutcome.UNKNOWN, None} <= set(_outcomes(heard))
    queues = _stored_numbers(cluster)
    assert all(queue == sorted(set(queue)) for queue in queues)
    stored = set(chain(*queues))
    for number, result in enumerate(heard):
        if isinstance(result, SendError):
            assert number not in stored or result.outcome is SendOutcome.UNKNOWN
        else:
            assert number in stored
    await cluster.consumer("c1")
    await cluster.all_seen()
    queue_of_key = {number % 8: queue_id for queue_id, queue in enumerate(queues) for number in queue}
    for number in range(0, 11 * 64, 64):  # within a burst, nothing is stored behind a hole
        for queue_id in range(QUEUES):
            fates = [n in stored for n in range(number, number + 64) if queue_of_key[n % 8] == queue_id]
            assert fates == sorted(fates, reverse=True)
