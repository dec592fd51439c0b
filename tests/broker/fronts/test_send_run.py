"""Sends of one read are stored with one write, and their answers are those of sends that come one by one."""

import errno
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lockstep.broker.config import BrokerConfig
from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.remoting.answers import answer_at_once, sends_together
from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.protocol.codes import RemotingFlag, RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import QueueRequestHeader
from lockstep.protocol.messages.batch import BatchRecord, encode_batch
from lockstep.store import AppendResult, Record, StoreFull
from tests.broker.helpers import NOW_MS, RecordingLog, over_the_wire, pull_header, send_header
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
    broker.topics.put(TopicConfig("T", 4, 4), NOW_MS)
    peer = helpers.Peer(partial(answer_at_once, broker), before_replies=sends_together(broker))
    return broker, peer


def stored(broker: Broker) -> list[bytes]:
    """The messages of each queue, in the stored layout."""
    return [broker.store.get(*key, 0, 100, None).body for key in sorted(broker.store.queue_keys())]


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
    assert together.store.max_offset("T", 0) == 9


async def test_a_read_that_ends_with_a_one_way_send_stores_it() -> None:
    """Also when no answer leaves."""
    broker, peer = in_memory()
    peer.send(send(1, flag=ONE_WAY), send(2, flag=ONE_WAY))
    assert broker.store.max_offset("T", 0) == 2
    assert not peer.transport.calls


async def test_sends_before_an_unreadable_frame_are_stored_and_answered() -> None:
    """The connection closes after their answers."""
    broker, peer = in_memory()
    good = b"".join(helpers.frame_of(send(number)) for number in (1, 2))
    peer.endpoint.data_received(good + b"\0\0\0\2" + bytes(20))
    assert [reply.opaque for reply in peer.received()] == [1, 2]
    assert broker.store.max_offset("T", 0) == 2
    assert peer.transport.ended == "abort"


async def test_large_sends_do_not_wait_for_more_than_a_read() -> None:
    """Above 256 KiB of bodies they are stored before the read ends."""
    broker, peer = in_memory()
    assert broker.send_run is not None
    waited = list[int]()
    put_all = broker.put_all

    def counted(records: list) -> list:  # type: ignore[type-arg]
        waited.append(sum(len(record.body) for record in records))
        return put_all(records)

    broker.send_run._put_all = counted  # type: ignore[assignment]
    peer.send(*[send(number, b"x" * 4096) for number in range(200)])
    assert broker.store.max_offset("T", 0) == 200
    assert max(waited) <= 256 * 1024 + 4096
    assert len(waited) >= 3


def of(opened: Kept) -> helpers.Peer:
    return helpers.Peer(opened.durable.answer, before_replies=sends_together(opened.broker))


async def answers(peer: helpers.Peer, count: int) -> list[RemotingCommand]:
    """The next `count` answers, which come late."""
    found = list[RemotingCommand]()

    def all_came() -> bool:
        found.extend(peer.received())
        return len(found) == count

    await until(all_came, f"{count} answers")
    return found


async def test_one_read_is_one_write(tmp_path: Path) -> None:
    """The log gets the messages of 20 sends at once."""
    async with kept(tmp_path / "data", flush_sync=False) as opened:
        peer = of(opened)
        peer.send(send(1))
        opened.disk.writes_left = 100
        peer.send(*[send(number) for number in range(2, 22)])
        assert opened.disk.writes_left == 99
        assert [reply.code for reply in peer.received()] == [ResponseCode.SUCCESS] * 21
        assert opened.bodies() == [b"x"] * 21


async def test_a_request_behind_sends_sees_their_messages_in_files_too(tmp_path: Path) -> None:
    """They are stored before it is handled, though they came with the same read."""
    async with kept(tmp_path / "data", flush_sync=False) as opened:
        peer = of(opened)
        peer.send(send(1), send(2), RemotingCommand(RequestCode.GET_MAX_OFFSET, QueueRequestHeader("T", 0), opaque=3))
        fields = peer.received()[-1].ext_fields
        assert fields is not None
        assert fields["offset"] == "2"


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


async def test_no_numbered_send_of_a_read_overtakes_one_that_the_store_refused() -> None:
    """A numbered send is stored before the next one is checked; the long one finds no room here, short ones do."""
    broker, peer = in_memory()
    append = broker.store.append

    def has_little_room(record: Record) -> AppendResult:
        if len(record.body) > 100:
            raise StoreFull("there is room for short messages only")
        return append(record)

    def has_no_room(records: Sequence[Record]) -> list[AppendResult]:
        raise StoreFull("there is no room for all of them")

    broker.store.append = has_little_room  # type: ignore[method-assign]
    broker.store.append_all = has_no_room  # type: ignore[method-assign]
    shared: dict[str, Any] = {"sender_id": "p", "send_generation": 0}
    bodies = [b"short", b"long" * 100, b"short"]
    peer.send(*[send(number, body, send_sequence=number, **shared) for number, body in enumerate(bodies)])
    assert [reply.code for reply in peer.received()] == [
        ResponseCode.SUCCESS,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SEND_OUT_OF_SEQUENCE,
    ]
    assert broker.store.max_offset("T", 0) == 1


async def test_a_run_that_fails_behind_its_write_is_not_stored_twice() -> None:
    """All sends are refused, since nobody knows which of them were stored; each is stored once at most."""
    broker, peer = in_memory()
    calls = 0

    def fails_once(*_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise MemoryError

    broker.on_stored = fails_once  # type: ignore[assignment]
    peer.send(*[send(number, body=b"%d" % number) for number in range(3)])
    assert {reply.code for reply in peer.received()} == {ResponseCode.SYSTEM_ERROR}
    assert calls == 2
    assert broker.store.max_offset("T", 0) == 3


async def test_a_write_that_fails_once_is_followed_by_a_write_of_each(tmp_path: Path) -> None:
    """A failed write of all is followed by a write of each."""
    async with kept(tmp_path / "data", flush_sync=False) as opened:
        peer = of(opened)
        peer.send(send(1))
        failures = [OSError(errno.EIO, "once")]
        append_run = opened.store.log.append_run

        def fails_once(records: bytes) -> None:
            if failures:
                raise failures.pop()
            append_run(records)

        opened.store.log.append_run = fails_once  # type: ignore[method-assign]
        peer.send(send(2), send(3))
        assert [reply.code for reply in peer.received()] == [ResponseCode.SUCCESS] * 3
        assert not failures
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


async def test_with_flush_sync_no_send_waits_for_others(tmp_path: Path) -> None:
    """Each answer waits for a sync there."""
    async with kept(tmp_path / "data", flush_sync=True) as opened:
        peer = of(opened)
        assert opened.broker.send_run is None
        peer.send(send(1), send(2))
        assert not peer.received()
        opened.flusher.check()
        replies = await answers(peer, 2)
        assert [over_the_wire(reply).code for reply in replies] == [ResponseCode.SUCCESS] * 2
