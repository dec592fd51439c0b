"""Plain sends are handled from their bytes: stored with one write a read, and answered as others (tests/fuzz)."""

import errno
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from lockstep.broker.config import BrokerConfig
from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.remoting import plain_sends
from lockstep.broker.fronts.remoting.answers import Answers
from lockstep.broker.fronts.remoting.plain_sends import PlainSendLane
from lockstep.broker.server import BrokerServer
from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.frame import encode_frame_head
from lockstep.protocol.headers.messaging import QueueRequestHeader
from lockstep.protocol.kernels import may_be_plain_send
from lockstep.remoting.host.runtime import AsyncioRuntime
from tests.broker.fronts.test_one_read import in_memory, send
from tests.broker.helpers import NOW_MS, RecordingLog, pull_header
from tests.broker.persistence.kept_broker import Kept, kept, until
from tests.protocol.recorded import CPP, GO, JAVA, NODE, frames_of
from tests.remoting import helpers


def peer_of(broker: Broker, answers: Answers) -> helpers.Peer:
    """A connection to a lane."""
    return helpers.Peer(answers.answer, on_bytes=PlainSendLane(broker, answers.stored_leave_now))


def with_lane(opened: Kept) -> helpers.Peer:
    """A connection to a lane; queue 0 of topic T has a message, so that later sends may be plain."""
    peer = peer_of(opened.broker, opened.answers)
    peer.send(send(1))
    assert codes(peer) == [ResponseCode.SUCCESS]
    rest(peer)
    return peer


def rest(peer: helpers.Peer) -> None:
    """After a look for nothing one read is not looked at; after the second, three."""
    peer.send(RemotingCommand(RequestCode.GET_MAX_OFFSET, QueueRequestHeader("T", 0)))
    peer.received()


def codes(peer: helpers.Peer) -> list[int]:
    return [reply.code for reply in peer.received()]


async def test_one_read_is_one_write(tmp_path: Path) -> None:
    """The log gets the messages of 20 sends at once, and answers them in their order."""
    async with kept(tmp_path / "data", flush_sync=False) as opened:
        peer = with_lane(opened)
        opened.disk.writes_left = 100
        peer.send(*[send(number) for number in range(2, 22)])
        assert opened.disk.writes_left == 99
        assert [(reply.opaque, reply.code) for reply in peer.received()] == [(number, 0) for number in range(2, 22)]
        assert opened.bodies() == [b"x"] * 21
        assert opened.broker.messages.plain_sends["taken"] == 20


async def test_a_read_of_many_sends_is_taken_some_at_a_time(tmp_path: Path) -> None:
    """200 sends are four writes of at most 64."""
    async with kept(tmp_path / "data", flush_sync=False) as opened:
        peer = with_lane(opened)
        opened.disk.writes_left = 100
        peer.send(*[send(number, b"") for number in range(200)])
        assert codes(peer) == [ResponseCode.SUCCESS] * 200
        assert opened.disk.writes_left == 96
        assert opened.broker.messages.plain_sends["taken"] == 200


async def test_a_write_that_fails_is_followed_by_a_write_of_each(tmp_path: Path) -> None:
    """Nothing of the failed one is stored."""
    async with kept(tmp_path / "data", flush_sync=False) as opened:
        peer = with_lane(opened)
        failures = [OSError(errno.EIO, "once")]
        append_run = opened.store.log.append_run

        def fails_once(records: bytes) -> None:
            if failures:
                raise failures.pop()
            append_run(records)

        opened.store.log.append_run = fails_once  # type: ignore[method-assign]
        peer.send(send(2), send(3))
        assert codes(peer) == [ResponseCode.SUCCESS] * 2
        assert not failures
        assert len(opened.bodies()) == 3
        assert opened.broker.messages.plain_sends["taken"] == 0


async def test_each_send_is_refused_while_the_disk_is_full(tmp_path: Path) -> None:
    """The usual way says why; the first stored one follows the last, and the log tells that writing works again."""
    async with kept(tmp_path / "data", flush_sync=False) as opened:
        peer = with_lane(opened)
        opened.disk.write_error = errno.ENOSPC
        peer.send(send(2), send(3))
        assert codes(peer) == [ResponseCode.SERVICE_NOT_AVAILABLE] * 2
        opened.disk.write_error = 0
        for _ in range(3):
            rest(peer)
        peer.send(send(4), send(5))
        assert codes(peer) == [ResponseCode.SUCCESS] * 2
        assert opened.broker.messages.plain_sends["taken"] == 2
        assert len(opened.bodies()) == 3
        assert opened.log.names()[-1] == "store_write_recovered"


async def test_no_send_is_plain_while_the_file_of_topics_is_written(tmp_path: Path) -> None:
    """Its topic may be the one that is not on the disk."""
    async with kept(tmp_path / "data", flush_sync=False) as opened:
        peer = with_lane(opened)
        opened.disk.slow_name = "topics"
        opened.broker.catalog.topics.put(TopicConfig("Other", 4, 4), NOW_MS)
        peer.send(send(2))
        at_once = peer.received()
        opened.disk.slow_name = ""
        assert not at_once
        assert opened.broker.messages.plain_sends == {"taken": 0, "refused": 2}
        await until(lambda: codes(peer) == [ResponseCode.SUCCESS], "the answer")


async def test_the_next_file_of_the_log_is_begun_the_usual_way(tmp_path: Path) -> None:
    """All sends are stored, most of them from their bytes."""
    async with kept(tmp_path / "data", flush_sync=False) as opened:
        peer = with_lane(opened)
        for number in range(200):
            peer.send(send(number, b"x" * 1000))
        assert codes(peer) == [ResponseCode.SUCCESS] * 200
        assert opened.store.max_offset("T", 0) == 201
        assert len(opened.store.log.segments.starts) > 1
        assert opened.broker.messages.plain_sends["taken"] > 100


class Panic(BaseException):
    """As Rust's, which is no Exception."""


@pytest.mark.parametrize("fault", [ZeroDivisionError("by chance"), Panic("index out of bounds")])
async def test_a_fault_of_a_kernel_ends_no_connection(fault: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sends go the usual way, and the log has the fault."""
    broker, _ = in_memory()
    assert isinstance(broker.log, RecordingLog)
    monkeypatch.setattr(plain_sends, "take_sends", Mock(side_effect=fault))
    peer = peer_of(broker, Answers(broker))
    peer.send(send(1), send(2))
    assert codes(peer) == [ResponseCode.SUCCESS] * 2
    assert broker.messages.plain_sends == {"taken": 0, "refused": 1}
    assert broker.log.names() == ["plain_sends_failed"]


async def test_a_pull_that_waits_gets_a_plain_send() -> None:
    """The pull came before it with the same connection."""
    broker, _ = in_memory()
    peer = peer_of(broker, Answers(broker))
    peer.send(send(1))
    rest(peer)
    waits = pull_header(1, sys_flag=6, suspend_timeout_millis=15_000)
    peer.send(RemotingCommand(RequestCode.PULL_MESSAGE, waits))
    peer.send(send(2))
    assert broker.messages.plain_sends["taken"] == 1
    assert broker.messages.hold.has_arrivals


async def test_a_peer_without_plain_sends_is_seldom_looked_at() -> None:
    """After each look for nothing more reads go the usual way: 1, 3, 7, at most 63."""
    broker, _ = in_memory()
    peer = peer_of(broker, Answers(broker))
    peer.send(send(0))  # it makes the queue
    for number in range(1, 200):
        peer.send(send(number, properties="DELAY\x013"))
    assert broker.messages.plain_sends == {"taken": 0, "refused": 8}
    assert codes(peer) == [ResponseCode.SUCCESS] * 200


def sends_of(client: str) -> list[bytes]:
    """The recorded sends of a client, as they came."""
    frames = [encode_frame_head(kind, header, len(body)) + body for _, (kind, header, body) in frames_of(client)]
    return [frame for frame in frames if may_be_plain_send(frame, 0)]


@pytest.mark.parametrize(("client", "plain"), [(JAVA, 5), (CPP, 5), (GO, 9), (NODE, 4)])
async def test_recorded_sends_are_taken(client: str, plain: int) -> None:
    """All but Java's one-way, delayed and sent back ones."""
    broker, _ = in_memory()
    for topic in ("OrderTopic", "T"):
        broker.catalog.topics.put(TopicConfig(topic, 16, 16), NOW_MS)
    taken = 0
    for frame in sends_of(client):
        for _ in range(2):  # the first one may make its queue
            before = broker.messages.plain_sends["taken"]
            peer = peer_of(broker, Answers(broker))
            peer.endpoint.data_received(frame)
        taken += broker.messages.plain_sends["taken"] - before
    assert taken == plain


@pytest.mark.parametrize(
    ("settings", "has_lane"),
    [({}, True), ({"requests_per_second_max": 100}, False), ({"flush_sync": True, "data_dir": "data"}, False)],
)
async def test_a_broker_that_looks_at_each_request_takes_none(
    settings: dict[str, Any], has_lane: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a limit of requests, and where an answer waits for the disk."""
    monkeypatch.chdir(tmp_path)
    server = BrokerServer(BrokerConfig(port=0, name_server_port=0, **settings), AsyncioRuntime(), RecordingLog())
    assert server.broker is not None
    assert (server._plain_sends(server.broker, Answers(server.broker)) is not None) is has_lane
    await server.shutdown()
