"""Clients that know nothing of fencing, at a broker with fenced locks: Java's frames, and Lockstep's own consumers."""

import json

from lockstep.order import Cause
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.admin import ResetOffsetRequestHeader
from lockstep.protocol.headers.messaging import PullMessageResponseHeader
from lockstep.remoting.connections.dialer import Dialer, DialerCallbacks
from tests.broker.fronts.java_frames import commit_fields, heartbeat_body, lock_body, pull_fields
from tests.scenarios.cluster import BROKER, GROUP, TOPIC, Cluster
from tests.scenarios.scenario import INSTANT, scenario

LEASE_MS, HELD_MS = 60_000, 20_000  # a held pull: 15 s, and up to 5 s until the broker looks


class Java:
    """A consumer on a host of its own, with one connection at a time."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._runtime = cluster.world.host(name)
        self._address = f"{cluster.world.host(BROKER).address}:10911"
        self.client_id = f"{self._runtime.address}@1"
        self._dialer = Dialer(self._runtime, DialerCallbacks(lambda *_: None), cluster.log_of(name))

    async def ask(self, code: int, fields: dict[str, str], body: bytes = b"") -> RemotingCommand:
        async def run() -> RemotingCommand:
            endpoint = await self._dialer.endpoint(self._address)
            return await endpoint.request(RemotingCommand(code, None, body, ext_fields=fields, language=0), 60_000)

        return await self._runtime.run(run())

    async def heartbeat(self) -> None:
        assert (await self.ask(RequestCode.HEART_BEAT, {}, heartbeat_body(self.client_id, (GROUP,), TOPIC))).code == 0

    async def lock(self) -> bool:
        body = lock_body(self.client_id, GROUP, TOPIC, broker_name=BROKER)
        reply = await self.ask(RequestCode.LOCK_BATCH_MQ, {}, body)
        return bool(json.loads(reply.body)["lockOKMQSet"])

    async def commit(self, offset: int) -> None:
        """One-way, and a request after it whose answer shows that it arrived."""

        async def run() -> None:
            endpoint = await self._dialer.endpoint(self._address)
            fields = commit_fields(GROUP, TOPIC, offset)
            endpoint.send_one_way(RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=fields))

        await self._runtime.run(run())
        await self.ask(RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"})

    async def pull(self, offset: int, commit: int | None = None) -> tuple[int, int]:
        """Code and next offset."""
        reply = await self.ask(RequestCode.PULL_MESSAGE, pull_fields(GROUP, TOPIC, offset, commit))
        return reply.code, reply.decode_header(PullMessageResponseHeader).next_begin_offset

    def close(self) -> None:
        self._dialer.close()


def refusals(cluster: Cluster) -> dict[str, int]:
    return dict(cluster.core().ownership.denials.rows())


async def reset(cluster: Cluster) -> None:
    """To the first message. The broker stores it before a member writes its record."""
    cluster.witness("reset", group=GROUP, offset=0, topic=TOPIC, broker=BROKER, queue_id=0)
    header = ResetOffsetRequestHeader(TOPIC, GROUP, 0, True)
    reply = await cluster.call("admin", RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
    assert reply.code == ResponseCode.SUCCESS
    assert cluster.committed() == 0


async def stopped_owner(cluster: Cluster, ms: int) -> tuple[Java, Java]:
    """An owner that is stopped in a held pull, and wakes up when another one owns its queue."""
    await cluster.broker_and_producer(queues=1, lock_mode="fenced")
    await cluster.send(5)
    stopped, owner = Java(cluster, "stopped"), Java(cluster, "owner")
    await stopped.heartbeat()
    assert await stopped.lock()
    assert await stopped.pull(0, commit=1) == (ResponseCode.SUCCESS, 5)
    cluster.world.pause("stopped")
    begun_ms = cluster.world.elapsed_ms
    while not await owner.lock():
        await cluster.world.sleep_ms(20_000)
        await owner.heartbeat()
    assert cluster.world.elapsed_ms - begun_ms <= LEASE_MS + 20_000
    assert await owner.pull(1) == (ResponseCode.SUCCESS, 5)
    await owner.commit(5)
    while cluster.world.elapsed_ms < begun_ms + ms:
        await cluster.world.sleep_ms(10_000)
        await owner.heartbeat()
        assert await owner.lock()
    cluster.world.resume("stopped")
    return stopped, owner


@scenario(INSTANT)
async def test_an_owner_stopped_for_70_s_moves_no_offset_and_gets_no_message(cluster: Cluster) -> None:
    """Its connection is kept. What it commits then, alone and with a pull, is not stored; its pull ends with its own
    offset after its suspend time, although messages are there and arrive; the next owner notices nothing."""
    stopped, owner = await stopped_owner(cluster, 70_000)
    await stopped.commit(3)
    assert cluster.committed() == 5
    await cluster.send(5)
    begun_ms = cluster.world.elapsed_ms
    assert await stopped.pull(2, commit=4) == (ResponseCode.PULL_NOT_FOUND, 2)
    assert 15_000 <= cluster.world.elapsed_ms - begun_ms <= HELD_MS
    assert not await stopped.lock()
    assert await owner.pull(5, commit=5) == (ResponseCode.SUCCESS, 10)
    assert cluster.committed() == 5
    assert refusals(cluster) == {"refused.commit.other_owner": 1, "refused.pull.other_owner": 1}
    stopped.close()
    owner.close()
    await cluster.end(judge=False)  # they write no traces


@scenario(INSTANT)
async def test_an_owner_stopped_for_150_s_is_no_owner_on_its_next_connection(cluster: Cluster) -> None:
    """The broker has closed its connection meanwhile. On the next one it commits and pulls before its heartbeat."""
    stopped, owner = await stopped_owner(cluster, 150_000)
    await cluster.world.sleep_ms(1000)
    await stopped.commit(3)
    assert await stopped.pull(2, commit=4) == (ResponseCode.PULL_NOT_FOUND, 2)
    await stopped.heartbeat()
    await stopped.commit(3)
    assert cluster.committed() == 5
    stopped.close()
    owner.close()
    await cluster.end(judge=False)  # they write no traces


@scenario()
async def test_unmodified_consumers_are_refused_nothing_in_an_ordinary_life(cluster: Cluster) -> None:
    """They join, handle messages, give queues to each other and leave: no pull and no commit is refused."""
    await cluster.broker_and_producer(queues=4, lock_mode="fenced")
    await cluster.consumer("c1", work_ms=20)
    await cluster.send(200)
    await cluster.all_seen()
    await cluster.consumer("c2", work_ms=20)
    await cluster.at(60_000)
    await cluster.send(200)
    await cluster.all_seen()
    await cluster.leave("c1")
    await cluster.at(120_000)
    await cluster.send(200)
    await cluster.all_seen()
    await cluster.leave("c2")
    assert refusals(cluster) == {}


@scenario()
async def test_a_stopped_consumer_takes_nothing_back(cluster: Cluster) -> None:
    """Lockstep's own consumer without fencing, stopped between two calls for 70 s. The next owner goes on from the last
    commit; the offsets never go back."""
    cluster.expected.possible = {Cause.TAKEOVER}
    await cluster.broker_and_producer(queues=1, lock_mode="fenced")
    await cluster.consumer("c1")
    await cluster.send(50)
    await cluster.all_seen()
    await cluster.consumer("c2")
    await cluster.at(30_000)
    (owner,) = {str(cluster.owner())}
    stopped = "c1" if owner == cluster.world.host("c1").address else "c2"
    cluster.world.pause(stopped)
    await cluster.send(50)
    await cluster.at(180_000)
    cluster.world.resume(stopped)
    await cluster.all_seen()
    stored = [line.fields["offset"] for line in cluster.events("offset stored", queue=f"{TOPIC}@{BROKER}:0")]
    assert stored == sorted(stored)


@scenario()
async def test_a_reset_of_unmodified_owners_is_stored_by_the_broker(cluster: Cluster) -> None:
    """At once, and what the owner commits until it has heard of it is not stored over it."""
    cluster.expected.duplicates = {Cause.RESET}
    await cluster.broker_and_producer(queues=1, lock_mode="fenced")
    await cluster.consumer("c1")
    await cluster.send(50)
    await cluster.all_seen()
    await cluster.at(20_000)
    await reset(cluster)
    await cluster.world.until(lambda: len(cluster.seen.all) == 100)
    await cluster.at(60_000)
    assert cluster.committed() == 50


@scenario()
async def test_a_group_of_both_kinds_shares_its_queues(cluster: Cluster) -> None:
    """One member presents epochs and the other does not; queues go both ways, and no request is refused."""
    await cluster.broker_and_producer(queues=4, lock_mode="fenced")
    await cluster.consumer("c1", work_ms=5)
    await cluster.send(100)
    await cluster.all_seen()
    await cluster.consumer("c2", work_ms=5, fenced=True)
    await cluster.at(60_000)
    await cluster.send(100)
    await cluster.all_seen()
    assert len({call.process for call in cluster.seen.of(since_ms=60_000)}) == 2
    await cluster.leave("c2")
    await cluster.at(120_000)
    await cluster.send(100)
    await cluster.all_seen()
    assert refusals(cluster) == {}


@scenario()
async def test_a_reset_of_an_owner_with_epochs_begins_a_new_one(cluster: Cluster) -> None:
    """The broker stores the offset, and its owner answers the notice with a request of its own."""
    cluster.expected.duplicates = {Cause.RESET}
    await cluster.broker_and_producer(queues=1, lock_mode="fenced")
    await cluster.consumer("c1", fenced=True)
    await cluster.send(50)
    await cluster.all_seen()
    await cluster.at(20_000)
    before = cluster.locks()[0].epoch
    await reset(cluster)
    await cluster.world.until(lambda: len(cluster.seen.all) == 100)
    await cluster.at(60_000)
    assert cluster.committed() == 50
    after = cluster.locks()[0].epoch
    assert before is not None
    assert after is not None
    assert after > before
