"""One broker, both worlds: clients of RocketMQ 4's protocol and of gRPC on one topic."""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

import pytest

from lockstep.client import (
    AdminClient,
    ConsumeFromWhere,
    ConsumeOrderlyContext,
    ConsumeOrderlyStatus,
    ConsumerConfig,
    Message,
    MessageExt,
    Producer,
    PullConsumerConfig,
    PushConsumer,
    SimpleConsumer,
)
from lockstep.protocol.bodies.client import POPS, ConsumerRunningInfo
from lockstep.protocol.bodies.locks import LockBatchBody
from lockstep.protocol.bodies.subscription_group import SubscriptionGroupConfig
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.grpc import messages as pb
from lockstep.protocol.headers.pop import AckRequestHeader, NotificationRequestHeader, NotificationResponseHeader
from lockstep.protocol.messages import properties as names
from lockstep.protocol.selector import queue_of_group
from lockstep.simulation import World
from tests.broker.cluster import Client, Served
from tests.broker.fronts.grpc.grpc_client import GrpcClient
from tests.broker.fronts.grpc.story import on_a_broker
from tests.broker.helpers import RecordingLog, queues_of, send_header

T = TypeVar("T")
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
KEYS, EACH = ("a", "b", "c", "d", "e"), 4


class Old:
    """A host with clients of RocketMQ 4's protocol."""

    def __init__(self, world: World, served: Served, name: str) -> None:
        self.runtime = world.host(name)
        self.given: dict[str, Any] = {
            "name_server": served.server.name_server_address,
            "runtime": self.runtime,
            "log": RecordingLog(),
        }

    async def run(self, work: Awaitable[T]) -> T:
        async def waits() -> T:
            return await work

        return await self.runtime.run(waits())

    async def started(self, client: Any) -> Any:
        await self.run(client.start())
        return client


def by_key(found: list[tuple[str, int]]) -> dict[str, list[int]]:
    """The numbers of each key, in the order in which they came."""
    return {key: [number for of, number in found if of == key] for key in KEYS}


IN_ORDER = {key: list(range(EACH)) for key in KEYS}


async def received(client: GrpcClient, found: list[tuple[str, int]]) -> None:
    """Receive and acknowledge until all of a story have come."""
    while len(found) < len(KEYS) * EACH:
        messages = await client.receive("G", batch=3)
        found += [(message.system_properties.message_group, int(message.body)) for message in messages]
        if messages:
            await client.ack("G", *messages)


def test_what_producers_of_4_send_comes_in_order_by_grpc() -> None:
    """Key by key, with properties, tag, keys and id."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        old = Old(world, served, "old")
        producer = await old.started(Producer("senders", **old.given))
        for number in range(EACH):
            for key in KEYS:
                message = Message("T", b"%d" % number, tags="red", keys=["k1", "k2"], properties={"colour": "blue"})
                result = await old.run(producer.send(message, sharding_key=key))
        await client.consume("G")
        found: list[tuple[str, int]] = []
        first = (await client.receive("G", batch=1))[0]
        system = first.system_properties
        assert (system.tag, list(system.keys), first.user_properties["colour"]) == ("red", ["k1", "k2"], "blue")
        assert (len(system.message_id), system.message_type) == (len(result.msg_id), pb.FIFO)
        assert system.born_host == old.runtime.address
        nack = pb.ChangeInvisibleDurationRequest(group=pb.Resource(name="G"), topic=pb.Resource(name="T"))
        nack.receipt_handle = system.receipt_handle
        await client.call("ChangeInvisibleDuration", nack)
        await received(client, found)
        assert by_key(found) == IN_ORDER
        await old.run(producer.shutdown())

    on_a_broker(story)


def test_what_grpc_sends_comes_in_order_to_a_consumer_with_locks() -> None:
    """Key by key, with properties, tag, keys and id; its owners are those of locks."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        old, got, done = Old(world, served, "old"), list[MessageExt](), asyncio.Event()

        async def listener(messages: list[MessageExt], _: ConsumeOrderlyContext) -> ConsumeOrderlyStatus:
            got.extend(messages)
            if len(got) == len(KEYS) * EACH:
                done.set()
            return ConsumeOrderlyStatus.SUCCESS

        for number in range(EACH):
            for key in KEYS:
                request = pb.SendMessageRequest()
                message = request.messages.add(topic=pb.Resource(name="T"), body=b"%d" % number)
                message.user_properties["colour"] = "blue"
                system = message.system_properties
                system.message_id, system.message_group, system.tag = f"id-{key}-{number}", key, "red"
                system.keys.extend(["k1", "k2"])
                system.born_host = "sender-1"
                await client.call("SendMessage", request)
        consumer = PushConsumer("G", listener=listener, config=ConsumerConfig(consume_from_where=FIRST), **old.given)
        consumer.subscribe("T", "red")
        await old.started(consumer)
        await done.wait()
        assert by_key([(one.properties[names.SHARDING_KEY], int(one.body)) for one in got]) == IN_ORDER
        one = got[0]
        assert (one.tags, one.keys, one.properties["colour"]) == ("red", "k1 k2", "blue")
        assert one.msg_id == f"id-{one.properties[names.SHARDING_KEY]}-0"
        await old.run(consumer.shutdown())

    on_a_broker(story)


@pytest.mark.parametrize("lock_mode", ["faithful", "fenced"])
def test_simple_consumers_of_both_worlds_share_a_group(lock_mode: str) -> None:
    """Each message comes once, in order of its key, whichever of them gets it; both say that they pop."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        for number in range(EACH):
            for key in KEYS:
                await client.send("T", b"%d" % number, group=key)
        await client.consume("G")
        old, found = Old(world, served, "old"), list[tuple[str, int]]()
        config = PullConsumerConfig(pull_suspend_ms=1000)
        ours = SimpleConsumer("G", in_order=True, consume_from_where=FIRST, config=config, **old.given)
        ours.subscribe("T")
        await old.started(ours)
        admin = await old.started(AdminClient(**old.given))
        told = await old.run(admin.running_infos("G", await old.run(admin.consumer_ids("G"))))
        infos = [one for one in told.values() if isinstance(one, ConsumerRunningInfo)]
        assert [(one.properties[POPS], one.orderly) for one in infos] == [("true", True)] * 2
        await old.run(admin.shutdown())
        by_ours = 0

        async def receive() -> None:
            nonlocal by_ours
            while len(found) < len(KEYS) * EACH:
                for delivery in await ours.receive(3):
                    found.append((delivery.message.properties[names.SHARDING_KEY], int(delivery.message.body)))
                    by_ours += 1
                    await ours.ack(delivery)

        await asyncio.gather(received(client, found), old.run(receive()))
        assert by_key(found) == IN_ORDER
        assert 0 < by_ours < len(found)
        await old.run(ours.shutdown())

    on_a_broker(story, lock_mode=lock_mode)


def test_what_the_other_world_does_not_know_is_translated() -> None:
    """A message of RocketMQ 4 without an id has that of its place; a delay has its type."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        broker = served.server.broker
        assert broker is not None
        broker.catalog.groups.put(SubscriptionGroupConfig("free"), world.now_ms)
        old = Client(world.host("c4"))

        async def sent(properties: str, body: bytes) -> None:
            header = send_header("T")._replace(properties=properties)
            assert (await old.call(served.address, RequestCode.SEND_MESSAGE_V2, header, body)).code == 0

        await sent("", b"bare")
        await sent("DELAY\x011", b"level")
        await sent("TIMER_DELAY_SEC\x012", b"timer")
        await client.consume("free")
        found: dict[bytes, pb.SystemProperties] = {}
        while len(found) < 3:
            for one in await client.receive("free"):
                found[one.body] = one.system_properties
                await client.ack("free", one)
        assert found[b"bare"].message_id.startswith("0A00")  # the address of the broker
        assert (found[b"bare"].message_type, found[b"bare"].message_group) == (pb.NORMAL, "")
        assert (found[b"level"].message_type, found[b"timer"].message_type) == (pb.DELAY, pb.DELAY)
        old.close()

    on_a_broker(story)


def test_a_message_of_grpc_is_found_by_id_and_key() -> None:
    """As administrators of RocketMQ 4 look for one."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        request = pb.SendMessageRequest()
        message = request.messages.add(topic=pb.Resource(name="T"), body=b"found")
        message.system_properties.message_id = "01ABCDEF0123456789ABCDEF0123456789"
        message.system_properties.keys.append("order-7")
        await client.call("SendMessage", request)
        old = Old(world, served, "old")
        admin = await old.started(AdminClient(**old.given))
        for key, unique in (("order-7", False), ("01ABCDEF0123456789ABCDEF0123456789", True)):
            (one,) = await old.run(admin.query_messages("T", key, unique=unique))
            assert (one.body, one.msg_id) == (b"found", "01ABCDEF0123456789ABCDEF0123456789")
        assert (await old.run(admin.view_message(one.offset_message_id))).body == b"found"
        await old.run(admin.shutdown())

    on_a_broker(story)


@pytest.mark.parametrize("lock_mode", ["faithful", "fenced"])
def test_a_queue_is_locked_or_popped(lock_mode: str) -> None:
    """With fenced locks it is never both at once: each waits for the other. RocketMQ gives one key to two members."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        fenced, key = lock_mode == "fenced", next(key for key in map(str, range(99)) if not queue_of_group(key, 4))
        old, queues = Client(world.host("old")), queues_of("T", 1)
        await client.consume("G")
        for number in range(3):
            await client.send("T", b"%d" % number, group=key)
        first = await client.receive("G", batch=1)
        assert await old.lock(served.address, "owner") == (() if fenced else queues)
        await client.ack("G", *first)
        assert await old.lock(served.address, "owner") == queues
        # Also who asks whether a pop may find something waits: else it would ask, and pop nothing, again and again.
        header = NotificationRequestHeader("G", "T", 0, 1000, world.now_ms, order=True)
        told = await old.call(served.address, RequestCode.NOTIFICATION, header)
        assert told.decode_header(NotificationResponseHeader).has_msg is not fenced
        assert [one.body for one in await client.receive("G", batch=1)] == ([] if fenced else [b"1"])
        # The locks of RocketMQ 4's clients are released at their next commit, or a second later.
        await old.call(served.address, RequestCode.UNLOCK_BATCH_MQ, None, LockBatchBody("G", "owner", queues))
        await asyncio.sleep(1.1)
        assert [one.body for one in await client.receive("G", batch=1)] == ([b"1"] if fenced else [])
        old.close()

    on_a_broker(story, lock_mode=lock_mode)


def test_a_grant_ends_what_was_delivered_before() -> None:
    """A late answer to a delivery neither moves the offset of an owner with a fenced lock nor holds its queue."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        broker, key = served.server.broker, next(key for key in map(str, range(99)) if not queue_of_group(key, 4))
        assert broker is not None
        old = Client(world.host("old"))
        await client.consume("G")
        await client.send("T", b"0", group=key)
        (one,) = await client.receive("G")
        receipt = one.system_properties.receipt_handle
        await asyncio.sleep(10.1)
        assert await old.lock(served.address, "owner") == queues_of("T", 1)
        header = AckRequestHeader("G", "T", 0, receipt, 0)
        await old.call(served.address, RequestCode.ACK_MESSAGE, header)
        assert broker.catalog.offsets.query("G", "T", 0) == 0
        old.close()

    on_a_broker(story, lock_mode="fenced")
