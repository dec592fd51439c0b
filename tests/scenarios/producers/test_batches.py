"""Keyed sends in RocketMQ's batches, while connections are cut: which are stored, in which order (docs/order.md 2).

The broker does not take Lockstep's offer, so that its clients treat it as one of RocketMQ's.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import chain

from lockstep.client import SendError, SendOutcome, SendResult
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.messages.batch import decode_batch
from lockstep.remoting.connections.endpoint import Endpoint, RequestHandler
from tests.scenarios.cluster import BROKER, PRODUCER, Cluster
from tests.scenarios.scenario import scenario

QUEUES = 2
KEYS = 8
Ends = list[SendResult | SendError]
NOT_SENT, UNKNOWN = SendOutcome.NOT_SENT, SendOutcome.UNKNOWN


class Stranger:
    """A broker that agrees on nothing.

    Attributes:
        batches: How many messages each batch had.
        on_arrival: Called with the code of each request.
    """

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.on_arrival: Callable[[int], object] = lambda _: None

    def delay(self, factory: Callable[[], Endpoint]) -> Callable[[], Endpoint]:
        return factory

    def intercept(self, on_request: RequestHandler) -> RequestHandler:
        def seen(endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand | None:
            endpoint._connection.agreement.ignore()
            self.on_arrival(command.code)
            if command.code == RequestCode.SEND_BATCH_MESSAGE:
                self.batches.append(len(decode_batch(command.body)))
            return on_request(endpoint, command)

        return seen


async def _stranger(cluster: Cluster, *, queues: int = 1, retry_keyed: bool = False) -> Stranger:
    """A broker and a producer that has sent a message to each queue."""
    stranger = Stranger()
    cluster._tap = lambda _: stranger
    await cluster.broker(queues=queues)
    await cluster.producer(auto_batch=True, retry_keyed=retry_keyed)
    await _sends(cluster, KEYS)
    stranger.batches.clear()
    return stranger


async def _sends(cluster: Cluster, count: int, *, then: Callable[[], object] = lambda: None) -> Ends:
    """Keyed sends, all at once; the end of each, in call order. `then` happens before any of them is under way."""

    async def all_at_once() -> Ends:
        sends = asyncio.gather(*[cluster.send_one(keys=KEYS) for _ in range(count)], return_exceptions=True)
        then()
        return [end for end in await sends if isinstance(end, SendResult | SendError)]

    ends = await cluster.world.host(PRODUCER).run(all_at_once())
    assert len(ends) == count
    return ends


def _outcomes(ends: Ends) -> Counter[SendOutcome | None]:
    return Counter(end.outcome if isinstance(end, SendError) else None for end in ends)


def _stored_numbers(cluster: Cluster) -> list[list[int]]:
    return [[int(message.body) for message in cluster.stored(queue_id)] for queue_id in range(QUEUES)]


async def _all_handled(cluster: Cluster) -> None:
    await cluster.consumer("c1")
    await cluster.world.until(lambda: len(cluster.seen.all) == len(list(chain(*_stored_numbers(cluster)))))


@scenario()
async def test_batches_keep_call_order(cluster: Cluster) -> None:
    """Of 64 sends two leave by themselves, one a queue, and the others in two batches; each result is its place."""
    stranger = await _stranger(cluster, queues=QUEUES)
    ends = await _sends(cluster, 64)
    assert (len(stranger.batches), sum(stranger.batches)) == (QUEUES, 64 - QUEUES)
    queues = _stored_numbers(cluster)
    assert all(queue == sorted(queue) for queue in queues)
    for number, end in enumerate(ends, KEYS):
        assert isinstance(end, SendResult)
        message = cluster.stored(end.queue_id)[end.queue_offset]
        assert (int(message.body), message.msg_id, message.offset_message_id) == (number, end.msg_id, end.offset_msg_id)
    await _all_handled(cluster)


@scenario()
async def test_a_late_batch_does_not_overtake(cluster: Cluster) -> None:
    """A batch is on its way for longer than its timeout. It is stored before sends that were called later."""
    stranger = await _stranger(cluster)
    stranger.on_arrival = lambda _: cluster.world.hold(PRODUCER, BROKER)
    burst = await _sends(cluster, 64)
    stranger.on_arrival = lambda _: None
    assert (_outcomes(burst), stranger.batches) == ({None: 1, UNKNOWN: 63}, [])
    later = cluster.world.start(_sends(cluster, 16), name="later")
    await cluster.world.sleep_ms(100)
    cluster.world.release(PRODUCER, BROKER)
    assert _outcomes(await later) == {None: 16}
    assert stranger.batches == [63, 15]
    assert _stored_numbers(cluster)[0] == list(range(KEYS + 80))
    await _all_handled(cluster)


@scenario()
async def test_cuts_at_any_moment_keep_batches_in_order(cluster: Cluster) -> None:
    """Twenty bursts of 64 sends, each cut at a random moment: each queue stores the acknowledged sends and some of
    those with an unknown outcome, never one that was not sent, and nothing behind a hole of its burst."""
    stranger = await _stranger(cluster, queues=QUEUES)
    ends = list[SendResult | SendError]()
    for _ in range(20):
        burst = cluster.world.start(_sends(cluster, 64), name="burst")
        await asyncio.sleep(cluster.world.rng.uniform(0, 0.012))
        cluster.world.cut(PRODUCER, BROKER)
        ends += await burst
    assert {UNKNOWN, NOT_SENT, None} <= set(_outcomes(ends))
    assert stranger.batches
    queues = _stored_numbers(cluster)
    assert all(queue == sorted(set(queue)) for queue in queues)
    stored = set(chain(*queues))
    for number, end in enumerate(ends, KEYS):
        if isinstance(end, SendError):
            assert number not in stored or end.outcome is UNKNOWN
        else:
            assert number in stored
    queue_of_key = {number % KEYS: queue_id for queue_id, queue in enumerate(queues) for number in queue}
    for first in range(KEYS, KEYS + len(ends), 64):
        for queue_id in range(QUEUES):
            fates = [n in stored for n in range(first, first + 64) if queue_of_key[n % KEYS] == queue_id]
            assert fates == sorted(fates, reverse=True)
    await _all_handled(cluster)
