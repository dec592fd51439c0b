"""Sessions: what each call answers, in order and not, on virtual time."""

import asyncio
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockstep.broker.fronts.grpc import receiving
from lockstep.protocol.bodies.subscription_group import GroupRetryPolicy, SubscriptionGroupConfig
from lockstep.protocol.codes import RequestCode, SysFlag
from lockstep.protocol.grpc import messages as pb
from lockstep.protocol.headers.messaging import GetConsumerListByGroupRequestHeader
from lockstep.protocol.messages.message import decode_messages
from lockstep.simulation import World
from lockstep.store import StoreFull
from lockstep.store.durability.flusher import StoreFlusher
from tests.broker.cluster import Client, Served
from tests.broker.fronts.grpc.grpc_client import GrpcClient, topic_of
from tests.broker.fronts.grpc.story import on_a_broker
from tests.broker.helpers import send_header
from tests.rows import each_row


def bodies(messages: list[pb.Message]) -> list[bytes]:
    return [one.body for one in messages]


def raises(error: Exception) -> Callable[..., None]:
    def fails(*_: object) -> None:
        raise error

    return fails


def stored(served: Served, topic: str) -> list[bytes]:
    """The messages of a topic with one queue."""
    broker = served.server.broker
    assert broker is not None
    return [one.body for one in decode_messages(broker.messages.store.get(topic, 0, 0, 32, None).body)]


def test_messages_of_a_group_come_in_order() -> None:
    """FIFO sends of one group go to one queue, come in order, and the next comes when they are acknowledged."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        for number in range(3):
            sent = await client.send("T", b"%d" % number, group="key")
            assert (sent.status.code, sent.entries[0].offset) == (pb.OK, number)
        await client.consume("G")
        first = await client.receive("G", batch=2)
        assert bodies(first) == [b"0", b"1"]
        assert [one.system_properties.delivery_attempt for one in first] == [1, 1]
        # Nothing else of the queue while these are out: the wait ends without a message.
        call = client.receiving("G")
        await call.ended
        assert [one.WhichOneof("content") for one in call.messages] == ["status", "delivery_timestamp"]
        assert call.messages[0].status.code == pb.MESSAGE_NOT_FOUND
        acked = await client.ack("G", *first)
        assert acked.status.code == pb.OK
        assert bodies(await client.receive("G")) == [b"2"]

    on_a_broker(story)


def test_a_call_that_waits_gets_what_is_sent() -> None:
    """Also when the message before it is acknowledged, and when that one's time is over."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        await client.consume("G")
        waits = client.receiving("G")
        await client.send("T", b"0", group="key")
        await waits.message(1)
        (first,) = [one.message for one in waits.messages if one.HasField("message")]
        waits = client.receiving("G")
        await client.send("T", b"1", group="key")
        await client.ack("G", first)
        assert (await waits.message(1)).message.body == b"1"
        began_ms = world.now_ms
        # Nobody acknowledges: it comes again after its 10 s.
        again = await client.receive("G", long_polling_timeout=pb.Duration(seconds=15), timeout_ms=20_000)
        assert (bodies(again), again[0].system_properties.delivery_attempt) == ([b"1"], 2)
        assert 9_900 <= world.now_ms - began_ms <= 10_100

    on_a_broker(story)


def test_the_last_delivery_is_followed_by_a_dead_letter() -> None:
    """After 2 retries the message leaves for the dead letters, and the next one comes."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        await client.send("T", b"bad", group="key")
        await client.send("T", b"good", group="key")
        await client.consume("G")
        for attempt in (1, 2, 3):
            (one,) = await client.receive("G", batch=1)
            assert (one.body, one.system_properties.delivery_attempt) == (b"bad", attempt)
            request = pb.ChangeInvisibleDurationRequest(group=topic_of("G"), topic=topic_of("T"))
            request.receipt_handle = one.system_properties.receipt_handle
            assert (await client.call("ChangeInvisibleDuration", request)).status.code == pb.OK
        assert await client.receive("G", batch=1) == []
        assert bodies(await client.receive("G", batch=1)) == [b"good"]
        assert stored(served, "%DLQ%G") == [b"bad"]

    on_a_broker(story)


@pytest.mark.parametrize("held", [False, True])
def test_a_full_store_leaves_a_dead_letter_out(held: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The receive finds no message, and the connection lives on: the message comes again."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        await client.send("T", b"bad", group="key")
        await client.consume("G")
        nack = pb.ChangeInvisibleDurationRequest(group=topic_of("G"), topic=topic_of("T"))
        for number in range(3):
            (one,) = await client.receive("G", invisible_duration=pb.Duration(seconds=10))
            nack.receipt_handle = one.system_properties.receipt_handle
            nack.invisible_duration.seconds = 2 if held and number == 2 else 0
            await client.call("ChangeInvisibleDuration", nack)
        with monkeypatch.context() as patched:
            patched.setattr(receiving, "send_back", raises(StoreFull("full")))
            assert await client.receive("G") == []
        assert not client.lost
        assert "dead_letter_failed" in served.log.names("warning")
        await asyncio.sleep(11)
        assert await client.receive("G") == []
        assert stored(served, "%DLQ%G") == [b"bad"]

    on_a_broker(story)


def test_a_delivery_that_is_over_is_not_renewed() -> None:
    """An operator moved the group on: the broker sees it at the first renewal, and lets go."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        await client.send("T", b"0")
        await client.consume("free", push=True)
        (one,) = await client.receive("free", auto_renew=True)
        assert served.server.broker is not None
        served.server.broker.messages.pops.checkpoints.reset("T", "free", one.system_properties.queue_id)
        for _ in range(30):
            await asyncio.sleep(10)
            await client.call("Heartbeat", pb.HeartbeatRequest(group=topic_of("free"), client_type=pb.PUSH_CONSUMER))
        assert served.log.names("info").count("pop_answer_late") == 1

    on_a_broker(story)


def test_the_waits_are_the_groups() -> None:
    """A consumer's settings are answered with the back-off of its group, whatever it wishes."""
    settings = pb.Settings(client_type=pb.PUSH_CONSUMER)
    settings.subscription.group.name = "E"
    settings.subscription.subscriptions.add().topic.MergeFrom(pb.Resource(resource_namespace="ns", name="T"))
    settings.backoff_policy.customized_backoff.next.add().seconds = 7

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        assert served.server.broker is not None
        groups = served.server.broker.catalog.groups
        for policy in (GroupRetryPolicy(True, None, 1000, 60_000, 3), GroupRetryPolicy(False, (100, 2500))):
            groups.put(SubscriptionGroupConfig("E", retry_max_times=4, retry_policy=policy), world.now_ms)
            answered = (await client.telemetry(settings)).messages[0].settings.backoff_policy
            assert answered.max_attempts == 5
            if policy.is_exponential:
                backoff = answered.exponential_backoff
                assert (backoff.initial.seconds, backoff.max.seconds, backoff.multiplier) == (1, 60, 3)
            else:
                nexts = [one.seconds * 1000 + one.nanos // 1_000_000 for one in answered.customized_backoff.next]
                assert nexts == [100, 2500]
        (member,) = served.server.broker.members.consumers.groups["E"].subscriptions
        assert member == "ns%T"

    on_a_broker(story)


def test_more_renewals_than_one_turn_makes() -> None:
    """500 messages of a push consumer end at the same time: all are renewed, in several turns."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        for start in range(0, 500, 100):
            await client.send("T", *(b"%d" % number for number in range(start, start + 100)))
        await client.consume("free", push=True)
        taken = 0
        while taken < 500:
            taken += len(await client.receive("free", auto_renew=True))
        for _ in range(12):
            await asyncio.sleep(10)
            await client.call("Heartbeat", pb.HeartbeatRequest(group=topic_of("free"), client_type=pb.PUSH_CONSUMER))
        assert await client.receive("free", auto_renew=True) == []

    on_a_broker(story)


def test_a_client_gives_a_message_up() -> None:
    """It becomes a dead letter and is acknowledged; with a handle that has expired neither happens."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        await client.send("T", b"bad", group="key")
        await client.consume("G")
        (one,) = await client.receive("G")
        request = pb.ForwardMessageToDeadLetterQueueRequest(group=topic_of("G"), topic=topic_of("T"))
        request.receipt_handle = one.system_properties.receipt_handle
        await asyncio.sleep(11)
        assert (await client.call("ForwardMessageToDeadLetterQueue", request)).status.code == pb.INVALID_RECEIPT_HANDLE
        (one,) = await client.receive("G")
        request.receipt_handle = one.system_properties.receipt_handle
        assert (await client.call("ForwardMessageToDeadLetterQueue", request)).status.code == pb.OK
        await asyncio.sleep(11)
        assert await client.receive("G") == []
        assert stored(served, "%DLQ%G") == [b"bad"]

    on_a_broker(story)


def test_a_receive_gives_32_messages_at_most() -> None:
    """As RocketMQ's proxy does, whatever batch its client asks for."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        for number in range(34):
            await client.send("T", b"%d" % number, group="key")
        await client.consume("G")
        assert [int(one.body) for one in await client.receive("G", batch=33)] == list(range(32))

    on_a_broker(story)


def test_a_group_without_order_gets_messages_again() -> None:
    """Others are not held up; what is not acknowledged comes again with its next attempt."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        await client.send("T", b"0")
        await client.send("T", b"1")
        await client.consume("free")
        (first,) = await client.receive("free", batch=1)
        (second,) = await client.receive("free", batch=1)
        assert {first.body, second.body} == {b"0", b"1"}
        await client.ack("free", second)
        await asyncio.sleep(11)
        (again,) = await client.receive("free")
        assert (again.body, again.topic.name) == (first.body, "T")
        assert again.system_properties.delivery_attempt == 2
        assert (await client.ack("free", again)).status.code == pb.OK

    on_a_broker(story)


@pytest.mark.parametrize("push", [True, False])
@pytest.mark.parametrize("group", ["G", "free"])
def test_a_client_that_ended_gets_nothing_more(group: str, push: bool) -> None:
    """Its call that waits ends with its goodbye; the next message is another's."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        await client.consume(group, push=push)
        waits = client.receiving(group, auto_renew=push)
        await asyncio.sleep(1)
        began_ms = world.now_ms
        await client.call("NotifyClientTermination", pb.NotifyClientTerminationRequest(group=topic_of(group)))
        await waits.ended
        assert (waits.messages[0].status.code, len(waits.messages)) == (pb.MESSAGE_NOT_FOUND, 2)
        assert world.now_ms - began_ms < 100
        await client.send("T", b"0", group="key")
        client.client_id = "c2"
        await client.consume(group, push=push)
        assert bodies(await client.receive(group, auto_renew=push)) == [b"0"]

    on_a_broker(story)


def test_what_was_on_its_way_to_the_disk_goes_to_others(tmp_path: Path) -> None:
    """The client ended between the delivery and its sync."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        await client.send("T", b"0", group="key")
        await client.consume("G", push=True)
        client.is_corked = True
        waits = client.receiving("G", auto_renew=True)
        client.start("NotifyClientTermination", pb.NotifyClientTerminationRequest(group=topic_of("G")))
        client.is_corked = False
        client.flush()
        await waits.ended
        assert waits.messages[0].status.code == pb.MESSAGE_NOT_FOUND
        client.client_id = "c2"
        await client.consume("G", push=True)
        (one,) = await client.receive("G", auto_renew=True)
        assert (one.body, one.system_properties.delivery_attempt) == (b"0", 2)

    on_a_broker(story, data_dir=str(tmp_path / "data"), flush_sync=True, lock_mode="fenced")


@pytest.mark.parametrize("method", ["ChangeInvisibleDuration", "ForwardMessageToDeadLetterQueue", "EndTransaction"])
def test_it_is_answered_when_it_is_on_the_disk(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart would deliver a message earlier, or bring it back."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        await client.send("T", b"0", group="key")
        await client.consume("G")
        (one,) = await client.receive("G")
        handle = one.system_properties.receipt_handle
        sent = await client.send("T", b"1", message_type=pb.TRANSACTION)
        request: Any
        match method:
            case "ChangeInvisibleDuration":
                request = pb.ChangeInvisibleDurationRequest(group=topic_of("G"), receipt_handle=handle)
                request.invisible_duration.seconds = 30
            case "ForwardMessageToDeadLetterQueue":
                request = pb.ForwardMessageToDeadLetterQueueRequest(group=topic_of("G"), receipt_handle=handle)
            case _:
                request = pb.EndTransactionRequest(resolution=pb.COMMIT)
                request.transaction_id = sent.entries[0].transaction_id
        request.topic.name = "T"
        waiting = list[Callable[[str], None]]()
        with monkeypatch.context() as patched:
            patched.setattr(StoreFlusher, "when_safe", lambda _, then: waiting.append(then))
            call = client.start(method, request)
            await asyncio.sleep(1)
        assert not call.messages
        (then,) = waiting
        then("")
        assert (await call.message()).status.code == pb.OK

    on_a_broker(story, data_dir=str(tmp_path / "data"), flush_sync=True, lock_mode="fenced")


def test_calls_that_ended_take_no_room() -> None:
    """Cancelled receives leave the table at once, also those behind one that waits for the same."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        await client.consume("G")
        client.receiving("G")
        waits = [client.receiving("G") for _ in range(3)]
        await asyncio.sleep(0.1)
        for one in waits:
            one.cancel()
        await asyncio.sleep(0.1)
        assert served.server.broker is not None
        assert len(served.server.broker.messages.pops.held) == 1

    on_a_broker(story)


def test_a_client_ends_all_at_once() -> None:
    """It says so, ends its streams and says goodbye in one write, as Java's does: nothing of ours fails."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        telemetry = await client.consume("G")
        waits = client.receiving("G")
        await asyncio.sleep(1)
        client.is_corked = True
        client.start("NotifyClientTermination", pb.NotifyClientTerminationRequest(group=topic_of("G")))
        telemetry.cancel()
        waits.cancel()
        client.h2.close_connection()
        client.is_corked = False
        client.flush()
        await asyncio.sleep(1)
        assert client.lost
        assert served.server.broker is not None
        assert not served.server.broker.members.consumers.groups
        assert not len(served.server.broker.messages.pops.held)

    on_a_broker(story)


def test_clients_are_heard_where_the_clock_is_moved() -> None:
    """Those that are connected; what a dead one held comes to others."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        await client.send("T", b"0", group="key")
        await client.consume("G", push=True)
        await client.receive("G", auto_renew=True)
        other = await GrpcClient.connect(world.host("c2"), served.server.grpc_address, "c2")
        telemetry = await other.consume("G", push=True)
        assert client.transport is not None
        client.transport.abort()
        for _ in range(5):
            await asyncio.sleep(30)
            served.server.refresh_heartbeats(world.now_ms)
        (one,) = await other.receive("G", auto_renew=True)
        assert one.body == b"0"
        assert not telemetry.ended.done()

    on_a_broker(story)


def test_a_transaction_is_decided_by_its_producer() -> None:
    """Committed: it is read. Undecided: the producer is asked, and its answer counts. An unknown id is refused."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        settings = pb.Settings(client_type=pb.PRODUCER)
        settings.publishing.topics.add().name = "T"
        telemetry = await client.telemetry(settings)
        await client.consume("free")
        client.client_id = "c1"
        sent = await client.send("T", b"first", message_type=pb.TRANSACTION)
        end = pb.EndTransactionRequest(topic=topic_of("T"), resolution=pb.COMMIT)
        end.message_id = end.transaction_id = sent.entries[0].transaction_id
        assert await client.receive("free") == []
        assert (await client.call("EndTransaction", end)).status.code == pb.OK
        (first,) = await client.receive("free")
        assert first.body == b"first"
        await client.ack("free", first)
        assert (await client.call("EndTransaction", end)).status.code == pb.INTERNAL_SERVER_ERROR
        telemetry = await client.telemetry(settings)
        await client.send("T", b"second", message_type=pb.TRANSACTION)
        asked = (await telemetry.message(1)).recover_orphaned_transaction_command
        assert asked.message.body == b"second"
        end.message_id = end.transaction_id = asked.transaction_id
        assert (await client.call("EndTransaction", end)).status.code == pb.OK
        assert bodies(await client.receive("free")) == [b"second"]

    on_a_broker(story)


def message(**system: object) -> pb.SendMessageRequest:
    request = pb.SendMessageRequest()
    one = request.messages.add(topic=topic_of("T"), body=b"x")
    one.system_properties.MergeFrom(pb.SystemProperties(**{"message_id": "id", **system}))  # type: ignore[arg-type]
    return request


def with_properties(properties: dict[str, str]) -> pb.SendMessageRequest:
    request = message()
    request.messages[0].user_properties.update(properties)
    return request


def receive_of(**fields: object) -> pb.ReceiveMessageRequest:
    request = pb.ReceiveMessageRequest(group=topic_of("G"), batch_size=1, invisible_duration=pb.Duration(seconds=10))
    request.message_queue.topic.name = "T"
    request.MergeFrom(pb.ReceiveMessageRequest(**fields))  # type: ignore[arg-type]
    return request


def acks_of(handle: str) -> pb.AckMessageRequest:
    request = pb.AckMessageRequest(group=topic_of("G"), topic=topic_of("T"))
    request.entries.add(receipt_handle=handle)
    return request


TWO_TOPICS = message()
TWO_TOPICS.messages.add(topic=topic_of("T2"), body=b"x").system_properties.message_id = "id"
EMPTY = message()
EMPTY.messages[0].body = b""
REFUSED: dict[str, tuple[Any, int]] = {
    "blank topic": (pb.QueryRouteRequest(), pb.ILLEGAL_TOPIC),
    "illegal topic": (pb.QueryRouteRequest(topic=topic_of("a b")), pb.ILLEGAL_TOPIC),
    "long topic": (pb.QueryRouteRequest(topic=topic_of("t" * 128)), pb.ILLEGAL_TOPIC),
    "system topic": (pb.QueryRouteRequest(topic=topic_of("TBW102")), pb.ILLEGAL_TOPIC),
    "absent topic": (pb.QueryRouteRequest(topic=topic_of("absent")), pb.TOPIC_NOT_FOUND),
    "blank group": (pb.QueryAssignmentRequest(topic=topic_of("T")), pb.ILLEGAL_CONSUMER_GROUP),
    "no settings": (pb.HeartbeatRequest(), pb.UNRECOGNIZED_CLIENT_TYPE),
    "no message": (pb.SendMessageRequest(), pb.MESSAGE_CORRUPTED),
    "two topics": (TWO_TOPICS, pb.MESSAGE_CORRUPTED),
    "empty body": (EMPTY, pb.MESSAGE_BODY_EMPTY),
    "no message id": (message(message_id=" "), pb.ILLEGAL_MESSAGE_ID),
    "blank tag": (message(tag=" "), pb.ILLEGAL_MESSAGE_TAG),
    "tag of two": (message(tag="a|b"), pb.ILLEGAL_MESSAGE_TAG),
    "control in a key": (message(keys=["a\x01"]), pb.ILLEGAL_MESSAGE_KEY),
    "long message group": (message(message_group="g" * 64), pb.ILLEGAL_MESSAGE_GROUP),
    "reserved property": (with_properties({"KEYS": "a"}), pb.ILLEGAL_MESSAGE_PROPERTY_KEY),
    "129 properties": (with_properties({str(one): "a" for one in range(129)}), pb.MESSAGE_PROPERTIES_TOO_LARGE),
    "16 KiB of properties": (with_properties({"a": "a" * 16_384}), pb.MESSAGE_PROPERTIES_TOO_LARGE),
    "short invisible time": (receive_of(invisible_duration=pb.Duration(seconds=-1)), pb.ILLEGAL_INVISIBLE_TIME),
    "no match": (receive_of(filter_expression=pb.FilterExpression(type=pb.SQL, expression="(")), 50001),
    "push without settings": (receive_of(auto_renew=True), pb.UNRECOGNIZED_CLIENT_TYPE),
    "deadline": (receive_of(), pb.ILLEGAL_POLLING_TIME),
    "unreadable handle": (acks_of("x"), pb.INVALID_RECEIPT_HANDLE),
    "expired handle": (acks_of("0 1 1 999 0 broker-a 0 0"), pb.INVALID_RECEIPT_HANDLE),
    "other broker": (acks_of("0 1 9999999999999 999 0 zz 0 0"), pb.INVALID_RECEIPT_HANDLE),
    "no entries": (pb.AckMessageRequest(group=topic_of("G"), topic=topic_of("T")), pb.INTERNAL_SERVER_ERROR),
    "no transaction": (pb.EndTransactionRequest(topic=topic_of("T")), pb.INVALID_TRANSACTION_ID),
}


def test_what_cannot_be_is_refused() -> None:
    """A row a refusal: its code is in the answer, and the call ends in order."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        with each_row() as row:
            for name, (request, code) in REFUSED.items():
                with row(name):
                    method = type(request).DESCRIPTOR.name.removesuffix("Request")
                    call = client.start(method, request, 3000 if name == "deadline" else 6000)
                    await call.ended
                    answer, *rest = call.messages
                    assert answer.status.code == code, answer.status.message
                    # Each receive ends with its time.
                    assert len(rest) == (method == "ReceiveMessage")

    on_a_broker(story)


def test_settings_are_answered() -> None:
    """With the group's order and retries, whatever the client wishes; what cannot be ends the stream."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        telemetry = await client.consume("G")
        settings = (await telemetry.message()).settings
        assert (settings.subscription.fifo, settings.backoff_policy.max_attempts) == (True, 3)
        assert settings.subscription.long_polling_timeout.seconds == 20
        for wrong, status in ((pb.Settings(), "3"), (pb.Settings(subscription=pb.Subscription()), "13")):
            call = client.begin("Telemetry", pb.TelemetryCommand, None)
            call.send(pb.TelemetryCommand(settings=wrong))
            await call.ended
            assert call.status[0] == status
        client.client_id = ""
        call = client.begin("Telemetry", pb.TelemetryCommand, None)
        call.send(pb.TelemetryCommand(settings=pb.Settings()))
        await call.ended
        assert call.messages[0].status.code == pb.CLIENT_ID_REQUIRED

    on_a_broker(story)


def test_a_delayed_message_comes_at_its_time_or_is_recalled() -> None:
    async def story(world: World, served: Served, client: GrpcClient) -> None:
        await client.consume("free")
        at_s = world.now_ms // 1000 + 4
        when = pb.Timestamp(seconds=at_s)
        kept = await client.send("T", b"kept", delivery_timestamp=when)
        recalled = await client.send("T", b"recalled", delivery_timestamp=when)
        request = pb.RecallMessageRequest(topic=topic_of("T"), recall_handle=recalled.entries[0].recall_handle)
        assert (await client.call("RecallMessage", request)).message_id == "recalled"
        (one,) = await client.receive("free")
        assert (one.body, one.system_properties.delivery_timestamp) == (b"kept", when)
        assert 0 <= world.now_ms - at_s * 1000 <= 100
        assert kept.entries[0].recall_handle
        assert await client.receive("free") == []

    on_a_broker(story)


def test_a_body_is_unpacked_up_to_the_largest_that_may_be_sent() -> None:
    """A few kilobytes that stand for more do not fill the broker."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        other = Client(world.host("c4"))
        await client.consume("G")
        for size_bytes in (4 * 1024 * 1024, 4 * 1024 * 1024 + 1):
            packed = zlib.compress(bytes(size_bytes))
            header = send_header("T")._replace(sys_flag=int(SysFlag.COMPRESSED), properties="__SHARDINGKEY\x01key")
            assert (await other.call(served.address, RequestCode.SEND_MESSAGE_V2, header, packed)).code == 0
            (one,) = await client.receive("G")
            await client.ack("G", one)
            assert one.body == (packed if size_bytes > 4 * 1024 * 1024 else bytes(size_bytes))
        other.close()

    on_a_broker(story)


def test_both_worlds_share_a_topic() -> None:
    """A message that a client of RocketMQ 4 sent under a sharding key is read in order here."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        other = Client(world.host("c4"))
        header = send_header("T")._replace(properties="__SHARDINGKEY\x01key\x02UNIQ_KEY\x01ID")
        assert (await other.call(served.address, RequestCode.SEND_MESSAGE_V2, header, b"old")).code == 0
        await client.consume("G")
        (one,) = await client.receive("G")
        system = one.system_properties
        assert (one.body, system.message_group, system.message_id) == (b"old", "key", "ID")
        listed = await other.call(
            served.address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupRequestHeader("G")
        )
        assert listed.code == 0
        other.close()

    on_a_broker(story)


def test_what_an_expired_client_held_wakes_others() -> None:
    """Also where nobody says anything in the meantime: the timer is armed when the client is given up."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        began_ms = world.now_ms
        await client.consume("G", push=True)
        await client.send("T", b"0", group="key")
        await client.receive("G", auto_renew=True)
        await asyncio.sleep(119)
        other = await GrpcClient.connect(world.host("c2"), served.server.grpc_address, "c2")
        await other.consume("G", push=True)
        waiting = pb.Duration(seconds=20)
        (one,) = await other.receive("G", auto_renew=True, long_polling_timeout=waiting, timeout_ms=30_000)
        assert (one.body, 120_000 < world.now_ms - began_ms < 130_000) == (b"0", True)
        other.close()

    on_a_broker(story)
