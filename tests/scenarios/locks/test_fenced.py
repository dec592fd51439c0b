"""Consumers with fenced locks at a broker with `--lock-mode fenced` (docs/fencing.md, docs/order.md 6)."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Any

from lockstep.broker.fronts.remoting.notices import connection_of
from lockstep.client import LockLostError, MessageQueue
from lockstep.order import Cause
from lockstep.protocol.bodies.codec import encode_body
from lockstep.protocol.bodies.locks import LocksReleasedBody
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.command import RemotingCommand
from tests.scenarios.cluster import BROKER, TOPIC, Cluster, take_all
from tests.scenarios.scenario import scenario

FENCED: Any = {"lock_mode": "fenced"}
LEASE_MS, DELAY_MS = 60_000, 3_000
RESTART_MS = 1_000  # after the broker listens
QUEUE = f"{TOPIC}@{BROKER}:0"
PLANNED_MS = 250  # with a network of at most 2 ms each way


async def _two(cluster: Cluster, *, queues: int = 1, **first: Any) -> None:
    """A fenced broker and producer, and c1, which wants all queues; c2 may follow."""
    await cluster.broker_and_producer(queues=queues, **FENCED)
    await cluster.consumer("c1", fenced=True, **{"strategy": take_all, **first})


def _the_newest(
    _group: str, client: str, queues: Collection[MessageQueue], clients: Sequence[str]
) -> list[MessageQueue]:
    """All queues for the member with the highest address, which started last."""
    return list(queues) if client == max(clients) else []


@scenario()
async def test_a_planned_handover_is_quick_and_repeats_nothing(cluster: Cluster) -> None:
    """A member joins while all queues are busy, then the first one leaves: each message is handled once, and a queue
    rests for milliseconds."""
    await cluster.broker_and_producer(queues=4, **FENCED)
    await cluster.consumer("c1", fenced=True, work_ms=5)
    await cluster.send(400)
    await cluster.consumer("c2", fenced=True, work_ms=5)
    await cluster.world.sleep_ms(300)
    assert len({call.process for call in cluster.seen.all[-8:]}) == 2
    await cluster.leave("c1")
    await cluster.all_seen()
    report = await cluster.end()
    assert report.duplicates == {}
    waits = [handover.duration_ms for handover in report.handovers]
    assert waits
    assert max(waits) <= PLANNED_MS, waits


@scenario()
async def test_a_handover_waits_for_the_running_call(cluster: Cluster) -> None:
    """However long it runs, its lease is renewed; the next owner begins behind it."""
    await cluster.broker_and_producer(queues=1, **FENCED)
    await cluster.consumer("c1", fenced=True, works_ms={"0": 90_000}, strategy=_the_newest)
    await cluster.send(3, keys=1)
    await cluster.at(2_000)
    await cluster.consumer("c2", fenced=True, strategy=_the_newest)
    await cluster.all_seen()
    assert cluster.seen.owners(0) == ["c1", "c2"]
    assert cluster.seen.texts() == ["0", "1", "2"]


@scenario()
async def test_a_killed_owner_is_succeeded_after_the_lock_delay(cluster: Cluster) -> None:
    """Not after the life of its lock."""
    cluster.expected.possible = {Cause.TAKEOVER}
    await _two(cluster)
    await cluster.at(5_000)
    await cluster.consumer("c2", fenced=True, strategy=take_all)
    await cluster.at(8_000)
    cluster.crash("c1")
    await cluster.send(3, keys=1)
    await cluster.all_seen()
    assert 8_000 + DELAY_MS <= cluster.seen.all[0].begin_ms <= 8_000 + DELAY_MS + 300


@scenario()
async def test_a_stalled_owner_is_fenced_and_its_call_cancelled(cluster: Cluster) -> None:
    """It stands still for 70 s inside a call, with its connection. The next owner handles the message meanwhile; the
    first one's call is cancelled, its commit refused, and the offset stays."""
    cluster.expected.possible = {Cause.TAKEOVER}
    lost: list[tuple[int, int, str]] = []
    ends: list[str] = []

    async def listen(messages: list[Any], context: Any) -> None:
        try:
            await asyncio.sleep(30 if messages[0].body == b"1" else 0)
        except asyncio.CancelledError:
            ends.append("cancelled")
            try:
                context.check()
            except LockLostError:
                ends.append("lock lost")
            raise

    def on_lost(queue: MessageQueue, epoch: int, why: str) -> None:
        if queue.topic == TOPIC:
            lost.append((queue.queue_id, epoch, why))

    await _two(cluster, listener=listen, on_lost=on_lost)
    await cluster.send(2, keys=1)
    await cluster.at(15_000)
    await cluster.consumer("c2", fenced=True, strategy=take_all)
    await cluster.at(20_000)
    cluster.world.stall("c1", 70_000)
    await cluster.at(20_000 + 70_000 + 2_000)
    assert ends == ["cancelled", "lock lost"]
    assert len(lost) == 1
    assert lost[0][1] > 0
    assert cluster.owner() == cluster.world.host("c2").address
    assert cluster.committed() == 2
    assert cluster.seen.texts("c2")[-1] == "1"
    assert len(cluster.events("lock_lost", host="c1", queue=QUEUE)) == 1
    [refused] = cluster.events("offset_not_stored", host="c1", queue=QUEUE)
    assert "FENCED" in refused.fields["error"] or "30011" in refused.fields["error"]


@scenario()
async def test_a_call_that_finishes_late_moves_no_offset(cluster: Cluster) -> None:
    """With on_lock_lost="finish" the call of the stalled owner ends as if nothing had happened. Its record says that it
    outlived its lease, and its commit is refused. The two calls run at once: the fence keeps the effects of the late
    one out, and does not prevent the call. So it is no violation."""
    cluster.expected.duplicates = {Cause.TAKEOVER}
    cluster.expected.overlaps = 1
    await _two(cluster, works_ms={"1": 75_000}, on_lock_lost="finish")
    await cluster.send(2, keys=1)
    await cluster.at(15_000)
    await cluster.consumer("c2", fenced=True, strategy=take_all)
    await cluster.at(20_000)
    cluster.world.stall("c1", 70_000)
    await cluster.all_seen()
    await cluster.at(20_000 + 90_000)
    assert cluster.committed() == 2
    late = [record for record in cluster.records("c1") if record["event"] == "handled" and "outlived_ms" in record]
    assert [record["offset"] for record in late] == [1]
    stored = cluster.events("offset stored", host=BROKER, queue=QUEUE)
    assert [line.fields["offset"] for line in stored][-1] == 2


@scenario()
async def test_a_dead_machine_is_missed_when_its_lease_ends(cluster: Cluster) -> None:
    """A machine that vanishes sends no FIN. RocketMQ keeps its member for 120 s; here the others get its queues when
    its last lease ends."""
    cluster.expected.duplicates = {Cause.TAKEOVER}
    await cluster.broker_and_producer(queues=2, **FENCED)
    for name in ("c1", "c2"):
        await cluster.consumer(name, fenced=True, work_ms=100)
    await cluster.at(45_000)
    await cluster.send(100)
    await cluster.at(47_000)
    cluster.crash("c1", silently=True)
    await cluster.all_seen(timeout_ms=200_000)
    taken = cluster.events("lock_taken_over", host=BROKER)
    assert taken
    assert min(line.at_ms for line in taken) > 47_000 + 40_000
    assert max(line.at_ms for line in taken) <= 47_000 + 60_000 + 1000


@scenario()
async def test_order_by_key_is_handed_over_too(cluster: Cluster) -> None:
    """All running calls end first, and nothing is handled twice."""
    await cluster.broker_and_producer(queues=2, **FENCED)
    await cluster.consumer("c1", fenced=True, work_ms=20, ordering="key")
    await cluster.send(400, keys=40)
    await cluster.consumer("c2", fenced=True, work_ms=20, ordering="key")
    await cluster.world.sleep_ms(100)
    await cluster.leave("c1")
    await cluster.all_seen()


@scenario()
async def test_a_broker_that_restarts_keeps_its_owners(cluster: Cluster) -> None:
    """With a data directory: nobody else gets a queue, epochs stay, and consumption goes on within a second."""
    await cluster.broker_and_producer(queues=2, data_dir="data", **FENCED)
    await cluster.consumer("c1", fenced=True)
    await cluster.consumer("c2", fenced=True)
    await cluster.send(8)
    await cluster.all_seen()
    await cluster.at(20_000)
    before = {queue_id: (row.client_id, row.epoch) for queue_id, row in cluster.locks().items()}
    assert len({client for client, _ in before.values()}) == 2
    cluster.crash(BROKER)
    await cluster.at(23_000)
    await cluster.broker(queues=2, data_dir="data", **FENCED)
    began_ms = cluster.world.elapsed_ms
    await cluster.send(8)
    await cluster.all_seen()
    assert {queue_id: (row.client_id, row.epoch) for queue_id, row in cluster.locks().items()} == before
    assert max(call.begin_ms for call in cluster.seen.all) - began_ms <= RESTART_MS
    assert not cluster.events("lock_lost")


@scenario()
async def test_a_machine_that_slept_begins_no_call(cluster: Cluster) -> None:
    """It slept beyond its lease; awake again, it gives its period up, and takes part again."""
    cluster.expected.possible = {Cause.TAKEOVER}
    await _two(cluster)
    await cluster.at(5_000)
    await cluster.consumer("c2", fenced=True, strategy=take_all)
    await cluster.at(10_000)
    cluster.world.suspend("c1")
    await cluster.send(5, keys=1)
    await cluster.all_seen()
    await cluster.at(10_000 + 2 * LEASE_MS)
    cluster.world.wake("c1")
    woke_ms = cluster.world.elapsed_ms
    await cluster.at(woke_ms + 30_000)
    assert not cluster.seen.of("c1", since_ms=woke_ms)
    assert len(cluster.events("lock_lost", host="c1", queue=QUEUE)) == 1
    await cluster.leave("c2")
    await cluster.send(1, keys=1)
    await cluster.all_seen()
    assert cluster.seen.texts("c1") == ["5"]


async def _cut_and_goes_on(cluster: Cluster, cut: Callable[[], int]) -> None:
    await _two(cluster)
    await cluster.consumer("c2", fenced=True, strategy=take_all)
    await cluster.at(10_000)
    epoch = cluster.locks()[0].epoch
    assert cut()
    await cluster.send(5, keys=1)
    await cluster.all_seen()
    assert cluster.seen.owners(0) == ["c1"]
    assert cluster.locks()[0].epoch == epoch


@scenario()
async def test_a_connection_that_is_cut_stops_calls_until_it_is_back(cluster: Cluster) -> None:
    """A reset connection: the client connects again, renews under its epoch within the lock delay, and goes on."""
    await _cut_and_goes_on(cluster, lambda: cluster.world.cut("c1", BROKER))


@scenario()
async def test_an_end_that_the_broker_alone_hears_of(cluster: Cluster) -> None:
    """The broker's ends are reset, the owner's stay open and silent. After the lock delay another member has the queue
    while the owner still trusts its lease: what it does then is fenced, and the offsets stay the new owner's."""
    cluster.expected.possible = {Cause.TAKEOVER}
    await _two(cluster)
    await cluster.at(5_000)
    await cluster.consumer("c2", fenced=True, strategy=take_all)
    await cluster.at(10_000)
    assert cluster.world.cut_one_side(BROKER, "c1")
    await cluster.send(5, keys=1)
    await cluster.all_seen()
    assert cluster.seen.owners(0) == ["c2"]
    assert 10_000 + DELAY_MS <= cluster.seen.all[0].begin_ms <= 10_000 + DELAY_MS + 500
    await cluster.at(10_000 + 2 * LEASE_MS)
    assert len(cluster.events("lock_lost", host="c1", queue=QUEUE)) == 1
    assert cluster.committed() == 5


@scenario()
async def test_an_end_that_the_owner_alone_hears_of(cluster: Cluster) -> None:
    """It begins no call until a renewal is answered on a new connection, and keeps its queue and its epoch."""
    await _cut_and_goes_on(cluster, lambda: cluster.world.cut_one_side("c1", BROKER))


@scenario()
async def test_a_partition_that_outlasts_the_lease(cluster: Cluster) -> None:
    """No packet passes: the owner stops by its own clock before the broker gives the queue to another."""
    cluster.expected.possible = {Cause.TAKEOVER}
    await _two(cluster, work_ms=100)
    await cluster.consumer("c2", fenced=True, strategy=take_all)
    await cluster.send(5, keys=1)
    await cluster.at(10_000)
    cluster.world.partition("c1", BROKER)
    await cluster.send(5, keys=1)
    await cluster.all_seen()
    cluster.world.repair("c1", BROKER)
    await cluster.at(cluster.world.elapsed_ms + 40_000)
    assert len(cluster.events("lock_lost", host="c1", queue=QUEUE)) == 1


@scenario()
async def test_a_faithful_broker_if_the_broker_can(cluster: Cluster) -> None:
    """It is used with its locks, and the log says so once."""
    await cluster.broker_and_producer(queues=2)
    await cluster.consumer("c1", fenced="if the broker can")
    await cluster.send(8)
    await cluster.all_seen()
    await cluster.at(45_000)
    [line] = cluster.events("fencing_not_supported", host="c1")
    assert (line.level, line.fields["broker"]) == ("warning", BROKER)
    assert {row.epoch for row in cluster.locks().values()} == {None}


@scenario()
async def test_the_user_is_called_before_and_after_a_period(cluster: Cluster) -> None:
    """on_acquired before the first call, again after an error or a cancelled future; on_lost after the last one."""
    order: list[str] = []

    async def listen(messages: list[Any], context: Any) -> None:
        order.append(f"call {messages[0].body.decode()} {context.lock_epoch}")

    async def on_acquired(queue: MessageQueue, epoch: int) -> None:
        if queue.topic == TOPIC:
            await asyncio.sleep(0.5)
            order.append(f"acquired {epoch}")
            if len(order) < 3:
                raise (OSError("the database is away"), asyncio.CancelledError())[len(order) - 1]

    async def on_lost(queue: MessageQueue, epoch: int, why: str) -> None:
        if queue.topic == TOPIC:
            order.append(f"lost {epoch} {why}")

    await cluster.broker_and_producer(queues=1, **FENCED)
    await cluster.send(1, keys=1)
    await cluster.consumer("c1", fenced=True, listener=listen, on_acquired=on_acquired, on_lost=on_lost)
    await cluster.at(10_000)
    epoch = cluster.locks()[0].epoch
    await cluster.leave("c1")
    assert order == [*[f"acquired {epoch}"] * 3, f"call 0 {epoch}", f"lost {epoch} shutdown"]
    assert len(cluster.events("on_acquired_failed", host="c1")) == 2


@scenario()
async def test_a_shutdown_waits_for_on_acquired(cluster: Cluster) -> None:
    """A function that ends in time is awaited, and no call follows it; one that does not is cancelled after 10 s, and
    one that fails is not called again."""
    ends: list[str] = []

    async def on_acquired(queue: MessageQueue, _epoch: int) -> None:
        try:
            await asyncio.sleep({0: 2, 1: 60}.get(queue.queue_id, 2) if queue.topic == TOPIC else 0)
            ends.append(f"{queue.topic}:{queue.queue_id} returned")
            if queue.queue_id == 2:
                raise OSError("the database is away")
        except asyncio.CancelledError:
            ends.append(f"{queue.topic}:{queue.queue_id} cancelled")
            raise

    await cluster.broker_and_producer(queues=3, **FENCED)
    await cluster.send(3, keys=3)
    await cluster.consumer("c1", fenced=True, on_acquired=on_acquired)
    await cluster.at(1_000)
    await cluster.leave("c1")
    assert [one for one in ends if one.startswith(TOPIC)] == [
        f"{TOPIC}:0 returned",
        f"{TOPIC}:2 returned",
        f"{TOPIC}:1 cancelled",
    ]
    assert 11_000 <= cluster.world.elapsed_ms < 12_000
    assert cluster.seen.texts("c1") == []
    cluster.expected.violations = {}
    await cluster.end(judge=False)


@scenario()
async def test_a_notice_of_another_group_is_ignored(cluster: Cluster) -> None:
    """A member asks for nothing when LOCKS_RELEASED names another group, or a queue that it owns."""
    await cluster.broker_and_producer(queues=1, **FENCED)
    consumer = await cluster.consumer("c1", fenced=True, strategy=take_all)
    await cluster.at(5_000)
    asked = len(cluster.request_log.of("c1", "LOCK_BATCH_MQ"))
    [queue] = [queue for queue in consumer.assigned_queues if queue.topic == TOPIC]
    [peer] = cluster.core().members.consumers.groups["tower"].channels
    endpoint = connection_of(peer)
    for group in ("other", "tower"):
        body = encode_body(LocksReleasedBody(group, (queue,)), endpoint.serialize_type)
        endpoint.send_one_way(RemotingCommand(RequestCode.LOCKS_RELEASED, body=body))
    await cluster.at(6_000)
    assert len(cluster.request_log.of("c1", "LOCK_BATCH_MQ")) == asked
    assert not cluster.events("task_failed", host="c1")
