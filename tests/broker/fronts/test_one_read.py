"""Requests of one read are handled as if each came by itself."""

import errno
import random
from pathlib import Path

from lockstep.broker.config import BrokerConfig
from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.remoting.answers import Answers
from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.protocol.codes import RemotingFlag, RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import QueueRequestHeader
from lockstep.protocol.messages.batch import BatchRecord, encode_batch
from tests.broker.helpers import NOW_MS, RecordingLog, pull_header, send_header
from tests.broker.persistence.kept_broker import Kept, kept, until
from tests.remoting import helpers

SEND, BATCH = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE
ONE_WAY = int(RemotingFlag.ONE_WAY)
BATCHED = encode_batch([BatchRecord(0, b"one", ""), BatchRecord(0, b"two", "")])
HALF = "TRAN_MSG\x01true\x02PGROUP\x01PG\x02UNIQ_KEY\x01k"


def send(opaque: int, body: bytes = b"x", flag: int = 0, **fields: object) -> RemotingCommand:
    header = send_header(**{"properties": f"UNIQ_KEY\x01{opaque}\x02WAIT\x01true", **fields})  # type: ignore[arg-type]
    return RemotingCommand(SEND, header, body, opaque=opaque, flag=flag)


def requests() -> list[RemotingCommand]:
    """What may come between two sends: each must see those before it, and those behind must not overtake it."""
    return [
        send(1, queue_id=1),
        send(2),
        send(3, b"y" * 5000),  # refused: too long
        send(4, queue_id=9),  # refused: there is no such queue
        send(5, flag=ONE_WAY),
        RemotingCommand(RequestCode.PULL_MESSAGE, pull_header(0), opaque=6),
        send(7, properties="DELAY\x013"),
        send(8),
        send(9, properties=HALF, sys_flag=4),
        send(10, topic="MadeNow", default_topic="TBW102"),
        RemotingCommand(BATCH, send_header(batch=True), BATCHED, opaque=11),
        send(12, properties="TAGS\x01a\x02CLUSTER\x01other"),
        RemotingCommand(SEND, send_header(batch=True), BATCHED, opaque=17),  # a batch that says so in a field alone
        RemotingCommand(RequestCode.GET_MAX_OFFSET, QueueRequestHeader("T", 0), opaque=13),
        send(14, b"z" * 4000, queue_id=3),
        RemotingCommand(99_999, opaque=15),
        send(16),
    ]


def in_memory() -> tuple[Broker, helpers.Peer]:
    log = RecordingLog()
    broker = Broker(BrokerConfig(max_message_bytes=4096), random.Random(7), log, NOW_MS)
    broker.catalog.topics.put(TopicConfig("T", 4, 4), NOW_MS)
    peer = helpers.Peer(Answers(broker).answer)
    return broker, peer


def stored(broker: Broker) -> list[bytes]:
    """The messages of each queue, in the stored layout."""
    return [broker.messages.store.get(*key, 0, 100, None).body for key in sorted(broker.messages.store.queue_keys())]


async def test_one_read_is_as_many_reads() -> None:
    """The answers and the stored messages are equal, byte by byte."""
    apart, peer_apart = in_memory()
    for command in requests():
        peer_apart.send(command)
    together, peer = in_memory()
    peer.send(*requests())
    assert peer.transport.sent == peer_apart.transport.sent
    assert len(peer.received()) == 16
    assert len(peer.transport.calls) < len(peer_apart.transport.calls)
    assert stored(together) == stored(apart)
    assert together.messages.store.max_offset("T", 0) == 9


async def test_sends_before_an_unreadable_frame_are_stored_and_answered() -> None:
    """The connection closes after their answers."""
    broker, peer = in_memory()
    good = b"".join(helpers.frame_of(send(number)) for number in (1, 2))
    peer.endpoint.data_received(good + b"\0\0\0\2" + bytes(20))
    assert [reply.opaque for reply in peer.received()] == [1, 2]
    assert broker.messages.store.max_offset("T", 0) == 2
    assert peer.transport.ended == "abort"


def of(opened: Kept) -> helpers.Peer:
    return helpers.Peer(opened.answers.answer)


async def answers(peer: helpers.Peer, count: int) -> list[RemotingCommand]:
    """The next `count` answers, which come late."""
    found = list[RemotingCommand]()

    def all_came() -> bool:
        found.extend(peer.received())
        return len(found) == count

    await until(all_came, f"{count} answers")
    return found


async def test_each_send_is_refused_while_the_disk_is_full(tmp_path: Path) -> None:
    """The next read finds the disk well again, and its messages follow the last stored one."""
    async with kept(tmp_path / "data", flush_sync=False) as opened:
        peer = of(opened)
        peer.send(send(1))
        opened.disk.write_error = errno.ENOSPC
        peer.send(send(2), send(3, flag=ONE_WAY), send(4))
        opened.disk.write_error = 0
        peer.send(send(5), send(6))
        replies = peer.received()
        assert [(reply.opaque, reply.code) for reply in replies] == [
            (1, ResponseCode.SUCCESS),
            (2, ResponseCode.SERVICE_NOT_AVAILABLE),
            (4, ResponseCode.SERVICE_NOT_AVAILABLE),
            (5, ResponseCode.SUCCESS),
            (6, ResponseCode.SUCCESS),
        ]
        assert "No space left" in (replies[1].remark or "")
        assert replies[1].ext_fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
        assert [reply.ext_fields["queueOffset"] for reply in replies if not reply.code] == ["0", "1", "2"]  # type: ignore[index]
        assert opened.log.names().count("send_refused") == 3
        assert len(opened.bodies()) == 3


async def test_a_send_that_makes_its_topic_waits_alone(tmp_path: Path) -> None:
    """It is answered when the topic is on the disk; a send that came before it is answered at once."""
    async with kept(tmp_path / "data", flush_sync=False) as opened:
        peer = of(opened)
        opened.disk.slow_name = "topics"
        peer.send(send(1), send(2, topic="MadeNow"), send(3))
        at_once = [reply.opaque for reply in peer.received()]
        assert at_once == [1]
        opened.disk.slow_name = ""
        later = await answers(peer, 2)
        assert {reply.opaque: reply.code for reply in later} == {2: ResponseCode.SUCCESS, 3: ResponseCode.SUCCESS}
        assert opened.store.max_offset("T", 0) == 2
