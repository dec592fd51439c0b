"""What only fenced mode keeps: batches of a message group, the queue that a push consumer names, late answers."""

import asyncio

from lockstep.protocol.grpc import messages as pb
from lockstep.simulation import World
from tests.broker.cluster import Served
from tests.broker.fronts.grpc.grpc_client import GrpcClient, topic_of
from tests.broker.fronts.grpc.story import on_a_broker


def queue_of(queue_id: int) -> pb.MessageQueue:
    """As an assignment names it."""
    return pb.MessageQueue(id=queue_id, broker=pb.Broker(name="broker-a"))


def test_batches_of_a_group_go_to_its_queue() -> None:
    """In order with its other messages; a batch of two groups, or of one and none, is refused."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        for bodies in ((b"0",), (b"1", b"2"), (b"3", b"4"), (b"5",)):
            assert (await client.send("T", *bodies, group="key")).status.code == pb.OK
        mixed = pb.SendMessageRequest()
        for group in ("key", "other"):
            message = mixed.messages.add(topic=topic_of("T"), body=b"x")
            message.system_properties.message_id, message.system_properties.message_group = "id", group
        assert (await client.call("SendMessage", mixed)).status.code == pb.BAD_REQUEST
        mixed.messages[1].system_properties.ClearField("message_group")
        assert (await client.call("SendMessage", mixed)).status.code == pb.BAD_REQUEST
        await client.consume("G")
        assert [one.body for one in await client.receive("G")] == [b"0", b"1", b"2", b"3", b"4", b"5"]

    on_a_broker(story, lock_mode="fenced")


def test_a_push_consumer_reads_the_queue_that_it_names() -> None:
    """Each of its calls gets messages of its own queue, also one that waited."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        await client.consume("G", push=True)
        waits = [client.receiving("G", auto_renew=True, message_queue=queue_of(queue_id)) for queue_id in range(4)]
        for number in range(8):
            await client.send("T", b"%d" % number, group=f"order-{number}")
        seen = set[int]()
        for queue_id, call in enumerate(waits):
            await call.ended
            found = [one.message.system_properties.queue_id for one in call.messages if one.HasField("message")]
            assert set(found) <= {queue_id}
            seen.update(found)
        assert seen == {0, 1, 2, 3}

    on_a_broker(story, lock_mode="fenced")


def test_a_queue_that_is_not_there_is_refused() -> None:
    async def story(world: World, served: Served, client: GrpcClient) -> None:
        await client.consume("G", push=True)
        call = client.receiving("G", auto_renew=True, message_queue=queue_of(4))
        await call.ended
        assert call.messages[0].status.code == pb.INTERNAL_SERVER_ERROR

    on_a_broker(story, lock_mode="fenced")


def test_a_late_ack_counts_until_others_have_the_message() -> None:
    """With fences: a renewed message holds its key, so the earlier one of the same delivery is still its client's."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        await client.send("T", b"0", group="key")
        await client.send("T", b"1", group="key")
        await client.consume("G")
        first, second = await client.receive("G")
        change = pb.ChangeInvisibleDurationRequest(group=topic_of("G"), topic=topic_of("T"))
        change.receipt_handle = second.system_properties.receipt_handle
        change.invisible_duration.seconds = 60
        answer = await client.call("ChangeInvisibleDuration", change)
        second.system_properties.receipt_handle = answer.receipt_handle
        await asyncio.sleep(12)
        assert (await client.ack("G", first)).status.code == pb.OK
        assert (await client.ack("G", second)).status.code == pb.OK
        assert await client.receive("G") == []

    on_a_broker(story, lock_mode="fenced")


def test_what_a_stream_that_is_reset_has_not_brought_goes_to_others() -> None:
    """A client resets its receive inside a batch, and lives on: nobody renews for it what it never got."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        for number in range(3):
            await client.send("T", f"{number}".encode() * 300, group=f"key {number}")
        slow = await GrpcClient.connect(world.host("c2"), served.server.grpc_address, "c2", window=1000)
        await slow.consume("G", push=True)
        slow.grants_windows = False
        call = slow.receiving("G", auto_renew=True)
        first = (await call.message(1)).message
        call.cancel()
        await client.consume("G")
        others = await client.receive("G")
        assert len(others) == 2
        assert first.body not in [one.body for one in others]
        assert {one.system_properties.delivery_attempt for one in others} == {2}
        # What it got stays its own.
        assert await client.receive("G") == []
        assert (await slow.ack("G", first)).status.code == pb.OK

    on_a_broker(story, lock_mode="fenced")


def test_who_lost_a_message_makes_no_dead_letter_of_it() -> None:
    """Another client has consumed it; who repeats its own call gets the same answer, and one dead letter is there."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        await client.consume("G")
        await client.send("T", b"0", group="key")
        (lost,) = await client.receive("G")
        await asyncio.sleep(12)
        (again,) = await client.receive("G")
        for one, codes, count in ((lost, [pb.INVALID_RECEIPT_HANDLE], 0), (again, [pb.OK, pb.OK], 1)):
            request = pb.ForwardMessageToDeadLetterQueueRequest(group=topic_of("G"), topic=topic_of("T"))
            request.receipt_handle = one.system_properties.receipt_handle
            for code in codes:
                assert (await client.call("ForwardMessageToDeadLetterQueue", request)).status.code == code
            assert served.server.broker is not None
            assert served.server.broker.messages.store.max_offset("%DLQ%G", 0) == count

    on_a_broker(story, lock_mode="fenced")
