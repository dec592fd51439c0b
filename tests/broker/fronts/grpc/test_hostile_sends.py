"""Messages that would cost, or reach, more than a sender may: refused with a code, and nothing is stored."""

import zlib
from collections.abc import Callable

from lockstep.protocol.grpc import messages as pb
from lockstep.simulation import World
from lockstep.store import StoreFull
from tests.broker.cluster import Served
from tests.broker.fronts.grpc.grpc_client import GrpcClient, topic_of
from tests.broker.fronts.grpc.story import on_a_broker
from tests.rows import each_row

MIB = 1024 * 1024


def request_of(count: int = 1, body: bytes = b"x", **system: object) -> pb.SendMessageRequest:
    request = pb.SendMessageRequest()
    for number in range(count):
        one = request.messages.add(topic=topic_of("T"), body=body)
        one.system_properties.message_id = f"id{number}"
        one.system_properties.MergeFrom(pb.SystemProperties(**system))  # type: ignore[arg-type]
    return request


def gzip_of(body: bytes) -> bytes:
    pack = zlib.compressobj(wbits=31)
    return pack.compress(body) + pack.flush()


def zipped(body: bytes, count: int = 1) -> pb.SendMessageRequest:
    return request_of(count, body, body_encoding=pb.GZIP)


REFUSED: dict[str, tuple[Callable[[], pb.SendMessageRequest], int]] = {
    "a message over the count": (lambda: request_of(101), pb.BAD_REQUEST),
    "more keys than bytes": (lambda: request_of(keys=[""] * 16_385), pb.MESSAGE_PROPERTIES_TOO_LARGE),
    "200,000 keys, which are not decoded": (
        lambda: request_of(keys=[""] * 200_000, message_id=""),
        pb.MESSAGE_PROPERTIES_TOO_LARGE,
    ),
    "2 bodies of 3 MiB, zipped": (lambda: zipped(gzip_of(bytes(3 * MIB)), 2), pb.MESSAGE_BODY_TOO_LARGE),
    "a body over 4 MiB, zipped": (lambda: zipped(gzip_of(bytes(4 * MIB + 1))), pb.MESSAGE_BODY_TOO_LARGE),
    "a cut gzip": (lambda: zipped(gzip_of(b"x" * 100)[:-1]), pb.MESSAGE_CORRUPTED),
    "a gzip and more": (lambda: zipped(gzip_of(b"x" * 100) + b"more"), pb.MESSAGE_CORRUPTED),
    "no gzip": (lambda: zipped(b"x"), pb.MESSAGE_CORRUPTED),
    "an empty gzip": (lambda: zipped(b""), pb.MESSAGE_BODY_EMPTY),
    "delayed together": (lambda: request_of(2, delivery_timestamp=pb.Timestamp(seconds=1)), pb.BAD_REQUEST),
    "half together": (lambda: request_of(2, message_type=pb.TRANSACTION), pb.BAD_REQUEST),
    "property in an id": (lambda: request_of(message_id="a\x02TRAN_MSG\x01true"), pb.ILLEGAL_MESSAGE_ID),
    "property in a host": (lambda: request_of(born_host="a\x02TRAN_MSG\x01true"), pb.BAD_REQUEST),
    "property in a trace": (lambda: request_of(trace_context="a\x02TRAN_MSG\x01true"), pb.BAD_REQUEST),
    "long ids together": (lambda: request_of(2, message_id="i" * 40_000), pb.ILLEGAL_MESSAGE_ID),
}


def test_a_send_that_may_not_be_is_refused() -> None:
    async def story(world: World, served: Served, client: GrpcClient) -> None:
        with each_row() as row:
            for name, (make, code) in REFUSED.items():
                with row(name):
                    answer = await client.call("SendMessage", make())
                    assert answer.status.code == code, answer.status.message
        assert await client.receive("free") == []

    on_a_broker(story, batch_messages_max=100)


def test_messages_are_counted_before_they_are_decoded() -> None:
    """What stands behind the last one that may be is not read: here it could not be."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        statuses = []
        for count in (100, 101):
            call = client.begin("SendMessage", pb.SendMessageResponse)
            client.write(call.stream_id, b"\x0a\0" * (count - 1) + b"\xff\xff", end=True)
            await call.ended
            statuses.append((call.status[0], [one.status.code for one in call.messages]))
        assert statuses == [("13", []), ("0", [pb.BAD_REQUEST])]

    on_a_broker(story, batch_messages_max=100)


def test_the_largest_bodies_pass() -> None:
    """4 MiB zipped, and a birth at the end of time."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        sent = await client.call("SendMessage", zipped(gzip_of(bytes(4 * MIB))))
        assert sent.status.code == pb.OK
        (one,) = await client.receive("free")
        assert one.body == bytes(4 * MIB)
        await client.ack("free", one)
        for seconds in (2**62, -(2**62)):
            sent = await client.call("SendMessage", request_of(born_timestamp=pb.Timestamp(seconds=seconds)))
            assert sent.status.code == pb.OK
            (one,) = await client.receive("free")
            assert abs(one.system_properties.born_timestamp.seconds) >= 2**63 // 1000 - 1
            await client.ack("free", one)

    on_a_broker(story)


def test_a_transaction_is_ended_under_its_topic_and_again_when_the_store_was_full() -> None:
    """Accounts may write to some topics only: a request that names another topic ends nothing."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        broker = served.server.broker
        assert broker is not None
        await client.send("T", b"half", message_type=pb.TRANSACTION)
        end = pb.EndTransactionRequest(topic=topic_of("T2"), resolution=pb.COMMIT, transaction_id="half")
        assert (await client.call("EndTransaction", end)).status.code == pb.INTERNAL_SERVER_ERROR
        end.topic.name = "T"
        put_all = broker.messages.put_all

        def full(*_: object) -> None:
            raise StoreFull("full")

        broker.messages.put_all = full  # type: ignore[method-assign,assignment]
        assert (await client.call("EndTransaction", end)).status.code == pb.INTERNAL_SERVER_ERROR
        broker.messages.put_all = put_all  # type: ignore[method-assign]
        assert (await client.call("EndTransaction", end)).status.code == pb.OK
        assert [one.body for one in await client.receive("free")] == [b"half"]

    on_a_broker(story)
