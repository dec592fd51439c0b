"""Peers that are slow, greedy or many: the broker's memory stays bounded and other clients are served.

Memory is that of a process. What such peers are answered is seen on the simulated network too.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from lockstep.client import Message, MessageQueue, Producer, ProducerConfig
from lockstep.protocol.codes import FRAME_BYTES_MAX, PullSysFlag, RequestCode, ResponseCode
from lockstep.protocol.command import decode_command
from lockstep.protocol.frame import FrameDecoder
from lockstep.protocol.headers.messaging import PullMessageRequestHeader
from lockstep.testing.peer import ONE_WAY, frame, json_request, msgpack_request
from tests.integration.harness.attacked import BOTH_PORTS, Attack, Attacked, InProcess, admin_of, limits_met
from tests.integration.harness.bystander import BYSTANDER_TOPIC, Bystander, bystander
from tests.integration.harness.processes import ANSWER_MS, PATIENT, Broker, Processes, rss_bytes, until
from tests.integration.harness.raw import raw_peer

MIB = 1024 * 1024
TOPIC = "large"
OPTIONS = ("--topic", f"{TOPIC}:1", "--topic", f"{BYSTANDER_TOPIC}:1")
PULLS = 400
GROWTH_BYTES_MAX = 48 * MIB  # of 400 MiB that were asked for
ROUNDS = 20

HELD_PULL = {
    "consumerGroup": "greedy", "topic": TOPIC, "queueId": 0, "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 6,
    "commitOffset": 0, "suspendTimeoutMillis": 1, "subVersion": 0, "subscription": "*",
}  # fmt: skip
SEND = {
    "producerGroup": "shop", "topic": TOPIC, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 0,
    "sysFlag": 0, "bornTimestamp": 0, "flag": 0,
}  # fmt: skip
HEARTBEAT = (
    b'{"clientID":"%s","consumerDataSet":[{"groupName":"g","consumeType":"CONSUME_PASSIVELY","messageModel":'
    b'"CLUSTERING","consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","subscriptionDataSet":[]}]}'
)


def pulls_of_large_messages(count: int, offset: int, hold: bool = False) -> bytes:
    """`count` pulls, each answered with one message of 1 MiB; the opaque counts them."""
    flags = PullSysFlag.SUBSCRIPTION | (PullSysFlag.SUSPEND if hold else 0)
    header = PullMessageRequestHeader("greedy", TOPIC, 0, offset, 1, int(flags), 0, 60_000, 0, "*")
    return b"".join(msgpack_request(RequestCode.PULL_MESSAGE, list(header), opaque=i) for i in range(count))


async def store_large_messages(broker: Broker, count: int) -> None:
    config = ProducerConfig(compress_msg_body_over_howmuch=0, send_timeout_ms=ANSWER_MS, **PATIENT)
    async with Producer("shop", name_server=broker.name_server, config=config) as producer:
        for _ in range(count):
            await producer.send(Message(TOPIC, bytes(MIB)), queue=MessageQueue(TOPIC, "broker-a", 0))


@contextlib.asynccontextmanager
async def greedy_peer(broker: Broker, asks: bytes) -> AsyncIterator[socket.socket]:
    """A peer with a small window that has asked, and does not read."""
    with socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        peer.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(peer, ("127.0.0.1", broker.port))
        await loop.sock_sendall(peer, asks)
        yield peer


async def highest_rss(broker: Broker, other: Bystander) -> int:
    """While the other client is served a few times."""
    highest = 0
    for _ in range(ROUNDS):
        await other.is_served()
        highest = max(highest, rss_bytes(broker.pid))
    return highest


async def read_replies(peer: socket.socket, count: int) -> list[int]:
    """The opaques of the next replies, as they come."""
    decoder, opaques, loop = FrameDecoder(), list[int](), asyncio.get_running_loop()
    async with asyncio.timeout(120):
        while len(opaques) < count:
            data = await loop.sock_recv(peer, MIB)
            assert data, f"the connection ended after {len(opaques)} replies"
            decoder.feed(data)
            while (found := decoder.next_frame()) is not None:
                opaques.append(decode_command(found).opaque)
    return opaques


@pytest.mark.long
async def test_pulls_that_nobody_reads_cost_bounded_memory(processes: Processes) -> None:
    """A peer asks for 400 MiB and does not read: only a small part is in memory, and others are served. When it reads
    at last it gets all of it."""
    broker = await processes.broker(*OPTIONS)
    await store_large_messages(broker, 1)
    async with bystander(InProcess(broker)) as other:
        before = rss_bytes(broker.pid)
        async with greedy_peer(broker, pulls_of_large_messages(PULLS, 0)) as peer:
            assert await highest_rss(broker, other) - before < GROWTH_BYTES_MAX
            assert await read_replies(peer, PULLS) == list(range(PULLS))
            assert rss_bytes(broker.pid) - before < GROWTH_BYTES_MAX


@pytest.mark.long
async def test_pulls_that_wait_and_are_never_read_cost_bounded_memory(processes: Processes) -> None:
    """The same for pulls that waited when the message arrived: the broker answers only as many as the peer reads."""
    broker = await processes.broker(*OPTIONS)
    async with bystander(InProcess(broker)) as other, greedy_peer(broker, pulls_of_large_messages(PULLS, 0, hold=True)):
        await other.is_served()
        before = rss_bytes(broker.pid)
        await store_large_messages(broker, 3)
        assert await highest_rss(broker, other) - before < GROWTH_BYTES_MAX


@pytest.mark.long
async def test_many_greedy_peers_and_their_sudden_end(processes: Processes) -> None:
    """Twenty peers ask, do not read and disconnect: the broker frees their memory and logs no error."""
    broker = await processes.broker(*OPTIONS)
    await store_large_messages(broker, 1)
    async with bystander(InProcess(broker)) as other:
        before = rss_bytes(broker.pid)
        async with contextlib.AsyncExitStack() as peers:
            for _ in range(20):
                await peers.enter_async_context(greedy_peer(broker, pulls_of_large_messages(50, 0)))
            assert await highest_rss(broker, other) - before < 20 * 4 * MIB + GROWTH_BYTES_MAX
        await until(lambda: rss_bytes(broker.pid) - before < GROWTH_BYTES_MAX, "their memory is given back")


def open_files(broker: Broker) -> int:
    """Where the system tells; else 0, and only memory and service are looked at."""
    folder = Path(f"/proc/{broker.pid}/fd")
    return len(list(folder.iterdir())) if folder.exists() else 0


@pytest.mark.long
@pytest.mark.parametrize("port", BOTH_PORTS)
async def test_thousands_of_connections_come_and_go(processes: Processes, port: str) -> None:
    """Of 3,000 connections some ask, some stop in the middle of a frame, and some are reset: nothing of them
    remains."""
    broker = await processes.broker(*OPTIONS)
    address = ("127.0.0.1", broker.port if port == "broker" else broker.name_server_port)
    whole = json_request(9999)
    async with bystander(InProcess(broker)) as other:
        await other.is_served()
        files, before = open_files(broker), rss_bytes(broker.pid)
        for _ in range(15):
            with contextlib.ExitStack() as peers:
                for number in range(200):
                    peer = peers.enter_context(socket.create_connection(address, timeout=60))
                    peer.sendall((whole, whole[: number % len(whole)], b"")[number % 3])
                    if number % 2:
                        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                await other.is_served()
        await until(lambda: open_files(broker) <= files, "their sockets are closed")
        assert rss_bytes(broker.pid) - before < 16 * MIB


@pytest.mark.long
async def test_slow_talkers_hold_nobody_up(processes: Processes) -> None:
    """200 peers announce a frame of 16 MiB and send a byte of it now and then: the broker reserves no memory for it."""
    broker = await processes.broker(*OPTIONS)
    announced = struct.pack(">I", FRAME_BYTES_MAX) + frame(0, bytes(100))[4:]
    async with bystander(InProcess(broker)) as other, contextlib.AsyncExitStack() as peers:
        before = rss_bytes(broker.pid)
        talkers = [await peers.enter_async_context(raw_peer(broker.port)) for _ in range(200)]
        for place in range(ROUNDS):
            for talker in talkers:
                talker.write(announced[place : place + 1])
            await other.is_served()
        assert rss_bytes(broker.pid) - before < 16 * MIB


def unfinished(total: int, sent: int) -> bytes:
    """The start of a frame of `total` bytes, `sent` of them."""
    return struct.pack(">II", total, 2) + bytes(sent)


async def most_were_closed(target: Attacked) -> bool:
    return (await limits_met(target)).get("inbound_bytes_max", 0) >= 10


@pytest.mark.long
async def test_unfinished_frames_have_a_common_limit(processes: Processes) -> None:
    """Twelve peers begin frames of 8 MiB and finish none: memory stays within the limit, and the broker counts the
    closed ones and logs the first. Others are served, also with a message of 1 MiB."""
    broker = await processes.broker(*OPTIONS, "-D", f"inbound_bytes_max={12 * MIB}")
    async with bystander(InProcess(broker)) as other:
        before = rss_bytes(broker.pid)
        async with contextlib.AsyncExitStack() as stack:
            peers = [await stack.enter_async_context(raw_peer(broker.port)) for _ in range(12)]
            for peer in peers:
                peer.write(unfinished(8 * MIB, 7 * MIB))
            await until(partial(most_were_closed, InProcess(broker)), "most were closed")
            await store_large_messages(broker, 1)
            assert await highest_rss(broker, other) - before < GROWTH_BYTES_MAX
    (line,) = broker.events("limit_met")
    assert (line["setting"], line["maximum"], line["times"]) == ("inbound_bytes_max", 12 * MIB, 1)


# What they are answered --------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_one_way_requests_are_never_answered(attack: Attack) -> None:
    """This holds for good and bad ones, for sends that are stored or refused, and for a pull that would wait: the next
    answer belongs to the next two-way request."""
    requests: list[tuple[int, dict[str, object], bytes]] = [
        (RequestCode.PULL_MESSAGE, HELD_PULL, b""),
        (RequestCode.SEND_MESSAGE, SEND, b"body"),
        (RequestCode.SEND_MESSAGE, SEND | {"topic": "or ders"}, b"body"),
        (RequestCode.SEND_MESSAGE, {}, b""),
        (RequestCode.LOCK_BATCH_MQ, {}, b"{"),
        (RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC}, b""),
        (RequestCode.GET_ROUTEINFO_BY_TOPIC, {"lockstep.serialize": "MSGPACK"}, b""),
        (9999, {}, b""),
    ]

    async def story(target: Attacked) -> None:
        async with bystander(target) as other:
            for port in BOTH_PORTS:
                async with target.peer(port) as peer:
                    for code, fields, body in requests:
                        peer.write(json_request(code, fields, body, flag=ONE_WAY, opaque=1))
                        peer.write(msgpack_request(code, list(fields.values()), body, flag=ONE_WAY, opaque=2))
                    await other.is_served()
                    reply = await peer.ask(json_request(9999, opaque=3))
                    assert (reply.code, reply.opaque) == (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, 3)
            async with admin_of(target) as admin:
                assert await admin.max_offset(MessageQueue(TOPIC, "broker-a", 0)) == 2

    attack(story, *OPTIONS)


def test_an_encoding_that_was_not_agreed_is_answered_in_kind(attack: Attack) -> None:
    """A MSGPACK request is answered in MSGPACK; the broker's own requests to that peer stay JSON until it agrees."""

    async def story(target: Attacked) -> None:
        async with bystander(target), target.peer() as peer, target.peer() as joining:
            answer = await peer.ask(msgpack_request(9999, opaque=5))
            assert (answer.serialize_type, answer.code) == (2, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
            peer.write(json_request(RequestCode.HEART_BEAT, {}, HEARTBEAT % b"one"))
            notice = await peer.read()
            assert (notice.serialize_type, notice.code) == (0, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
            assert (await peer.read()).code == ResponseCode.SUCCESS
            agreed = await peer.ask(json_request(9999, {"lockstep.serialize": "MSGPACK"}, opaque=6))
            accepted = agreed.ext_fields or {}
            assert (agreed.serialize_type, set(accepted)) == (0, {"lockstep.serialize", "lockstep.run"})
            assert accepted["lockstep.serialize"] == "MSGPACK"
            await joining.ask(json_request(RequestCode.HEART_BEAT, {}, HEARTBEAT % b"two"))
            notice = await peer.read()
            assert (notice.serialize_type, notice.code) == (2, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
            refused = await peer.ask(json_request(9999, {"lockstep.serialize": "PICKLE"}, opaque=8))
            assert "lockstep.serialize" not in (refused.ext_fields or {})

    attack(story, *OPTIONS)


def test_a_silent_connection_is_closed(attack: Attack) -> None:
    """The broker closes a connection without traffic after the idle time, 120 s by default and 20 s here; a connection
    with traffic stays open."""

    async def story(target: Attacked) -> None:
        async with target.peer() as silent, target.peer() as talking:
            closed = target.runtime.create_task(silent.is_closed(), name="the silent one")
            while not closed.done():
                assert (await talking.ask(json_request(9999))).opaque == 7
                await asyncio.sleep(0.1)
            assert await closed
            assert (await talking.ask(json_request(9999))).opaque == 7
        assert len(target.events("connection_idle")) == 1

    attack(story, *OPTIONS, "-D", "idle_close_ms=20000")


@pytest.mark.parametrize("port", BOTH_PORTS)
def test_a_frame_that_is_never_finished_ends_its_connection(attack: Attack, port: str) -> None:
    """The peer sends a byte now and then, so it is never idle. It is closed after the time limit of a frame, with a log
    event."""

    async def story(target: Attacked) -> None:
        async with bystander(target), target.peer(port) as peer:
            peer.write(unfinished(1000, 1))

            def is_closed() -> bool:
                peer.write(b"x")
                return bool(target.events("frame_timeout"))

            await until(is_closed, "the slow frame is too late")
            assert await peer.is_closed()

    attack(story, *OPTIONS, "-D", "frame_timeout_ms=200")


def test_a_structured_body_has_a_limit(attack: Attack) -> None:
    """The sender of a too large body gets the limit in the error and is served further; so is the sender of a long body
    that is no strict JSON."""

    async def story(target: Attacked) -> None:
        async with bystander(target), target.peer() as peer:
            reply = await peer.ask(json_request(RequestCode.HEART_BEAT, {}, b"[" + b"0," * MIB + b"0]"))
            assert (reply.code, reply.remark) == (
                ResponseCode.SYSTEM_ERROR,
                "HEART_BEAT (34): the body has 2097155 bytes; at most 1048576 are allowed (structured_body_bytes_max)",
            )
            reply = await peer.ask(json_request(RequestCode.HEART_BEAT, {}, b"[" + b"{a:1}," * 20_000 + b"]"))
            assert reply.code == ResponseCode.SYSTEM_ERROR
            assert "its 120002 bytes are over the limit of 32768 for such a text" in (reply.remark or "")
            reply = await peer.ask(json_request(RequestCode.HEART_BEAT, {}, HEARTBEAT % b"one"))
            assert reply.code == ResponseCode.SUCCESS

    attack(story, *OPTIONS)
