"""`lockstep lock` sees queues change hands, with a lock life of 6 s; a foreign broker has no such call."""

import json
import os
import re
import signal
import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from lockstep.protocol.codes import RequestCode, SerializeType
from tests.commands import END_S, Lockstep, Running, running_broker

LIVE_MS = "6000"
TAKEN = {"acquired", "held"}  # held, where the consumer was quicker than the watch's first look


@pytest.fixture(scope="module")
def lockstep() -> Iterator[Lockstep]:
    """The command with a broker whose locks live for 6 s."""
    with running_broker("--lock-live-ms", LIVE_MS, "--topic", "orders:2", "--topic", "watched:2") as command:
        yield command


class Seen(NamedTuple):
    change: str
    queue_id: int
    owner: str
    previous_owner: str | None


def next_change(watch: Running, topic: str = "orders") -> Seen:
    """The next JSON line of the watch about a queue of the topic."""
    while (row := json.loads(watch.line()))["topic"] != topic:
        pass
    return Seen(row["change"], row["queue_id"], row["owner"], row["previous_owner"])


def test_watch_sees_a_killed_owners_queues_move_after_expiry(lockstep: Lockstep) -> None:
    """Acquired by the first, kept while it is alive, moved to the second once the killed owner's locks have run out."""
    consume = ("consume", "orders", "-g", "g", "--lock-live-ms", LIVE_MS)
    watch_locks = ("lock", "watch", "-g", "g", "-o", "json", "--interval", "0.1")
    with lockstep.start(*watch_locks) as watch, lockstep.start(*consume) as first:
        acquired = [next_change(watch), next_change(watch)]
        assert {seen.change for seen in acquired} <= TAKEN
        assert {seen.queue_id for seen in acquired} == {0, 1}
        (owner,) = {seen.owner for seen in acquired}
        first.popen.kill()
        with lockstep.start(*consume):
            changes = [next_change(watch)]
            while sum(seen.change == "moved" for seen in changes) < 2:
                changes.append(next_change(watch))
    moved = [seen for seen in changes if seen.change == "moved"]
    assert {seen.change for seen in changes} <= {"expired", "moved"}
    assert {(seen.queue_id, seen.previous_owner) for seen in moved} == {(0, owner), (1, owner)}
    assert {seen.owner for seen in moved}.isdisjoint({owner})


def test_watch_off_a_terminal_prints_a_line_a_change(lockstep: Lockstep) -> None:
    """Time, change, group, queue, owner; --count ends it by itself."""
    watch_locks = ("lock", "watch", "-g", "plain", "--interval", "0.1", "--count", "2")
    consume = ("consume", "watched", "-g", "plain", "--lock-live-ms", LIVE_MS)
    with lockstep.start(*watch_locks) as watch, lockstep.start(*consume):
        result = watch.ended()
    assert result.status == 0
    assert len(result.out.splitlines()) == 2
    for line in result.out.splitlines():
        assert re.fullmatch(
            r"\d\d:\d\d:\d\d  (acquired|held    )  plain  \S+@broker-a:\d  127\.0\.0\.1@\d+#\d+( .*)?", line
        )


def test_renewals_are_told_on_request(lockstep: Lockstep) -> None:
    """With --renewals each refresh of a lock is a line."""
    watch_locks = ("lock", "watch", "-g", "renewing", "--renewals", "-o", "json", "--interval", "0.1")
    with (
        lockstep.start(*watch_locks) as watch,
        lockstep.start("consume", "watched", "-g", "renewing", "--lock-live-ms", LIVE_MS),
    ):
        changes = [next_change(watch, "watched") for _ in range(4)]
    assert {seen.change for seen in changes[:2]} <= TAKEN
    assert [seen.change for seen in changes[2:]] == ["renewed", "renewed"]


def test_watch_ends_after_its_seconds_and_on_ctrl_c(lockstep: Lockstep) -> None:
    """--seconds with status 0, Ctrl-C with 130, and neither with a word."""
    assert lockstep("lock", "watch", "-g", "nobody", "--seconds", "200ms", "--interval", "0.1s") == (0, "", "")
    with (
        lockstep.start("consume", "watched", "-g", "held", "--lock-live-ms", LIVE_MS),
        lockstep.start("lock", "watch", "-g", "held", "--interval", "0.1") as watch,
    ):
        assert "held" in watch.line()
        assert watch.stop(signal.SIGINT).status == 130


def test_watch_on_a_terminal_draws_a_table(lockstep: Lockstep) -> None:
    """On a terminal the table is live: its header, the queues, the owner."""
    primary, secondary = os.openpty()
    with lockstep.start("consume", "watched", "-g", "drawn", "-v", "--lock-live-ms", LIVE_MS) as consumer:
        assert consumer.popen.stderr is not None
        while b"queue_acquired queue=watched@broker-a:1" not in (said := consumer.popen.stderr.readline()):
            assert said
        with Running(
            lockstep.command("lock", "watch", "-g", "drawn", "--seconds", "0.3", "--interval", "0.1"),
            {**lockstep.environment, "COLUMNS": "140", "TERM": "xterm"},
            stdout=secondary,
        ) as watch:
            os.close(secondary)
            screen = b""
            while b"watched@broker-a:1" not in screen:
                screen += os.read(primary, 65536)
            assert watch.popen.wait(END_S) == 0
    os.close(primary)
    assert b"owner" in screen
    assert b"127.0.0.1@" in screen


def test_watch_outlives_a_broker_that_goes_away() -> None:
    """It says so once and goes on asking; a broker that was never there is an error at once."""
    with ExitStack() as broker_life, ExitStack() as lives:
        lockstep = broker_life.enter_context(running_broker("--topic", "orders:1"))
        watch = lives.enter_context(lockstep.start("lock", "watch", "--interval", "0.1"))
        consumer = lives.enter_context(lockstep.start("consume", "orders", "-g", "g"))
        assert watch.line().split()[1] in TAKEN
        assert consumer.stop(signal.SIGINT).status == 130
        broker_life.close()
        assert watch.popen.stderr is not None
        assert b"asking again" in watch.popen.stderr.readline()
        assert watch.stop(signal.SIGINT).status == 130


class ForeignBroker(socketserver.ThreadingTCPServer):
    """A name server and broker in one that answers as Apache RocketMQ does: JSON headers, no agreement, no 30001."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), ForeignConnection)
        self.codes: list[int] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def answer(self, code: int) -> tuple[dict[str, object], bytes]:
        self.codes.append(code)
        if code == RequestCode.GET_BROKER_CLUSTER_INFO:
            broker = {"brokerAddrs": {"0": self.address}, "brokerName": "broker-a", "cluster": "DefaultCluster"}
            table = {"brokerAddrTable": {"broker-a": broker}, "clusterAddrTable": {"DefaultCluster": ["broker-a"]}}
            return {"code": 0}, json.dumps(table).encode()
        if code == RequestCode.GET_CONSUMER_LIST_BY_GROUP:
            return {"code": 1, "remark": "no consumer for this group"}, b""
        return {"code": 3, "remark": f" request type {code} not supported"}, b""


class ForeignConnection(socketserver.StreamRequestHandler):
    server: ForeignBroker

    def handle(self) -> None:
        while prefix := self.rfile.read(8):
            total, header_bytes = struct.unpack(">II", prefix)
            assert header_bytes >> 24 == SerializeType.JSON, "a private encoding before anybody agreed to it"
            request = json.loads(self.rfile.read(header_bytes))
            self.rfile.read(total - 4 - header_bytes)
            fields, body = self.server.answer(request["code"])
            fields |= {"flag": 1, "opaque": request["opaque"], "language": "JAVA", "version": 401}
            header = json.dumps(fields).encode()
            self.wfile.write(struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body)


@pytest.fixture
def foreign() -> Iterator[ForeignBroker]:
    """A broker that is not ours, on a thread of the test."""
    with ForeignBroker() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("arguments", ["lock list", "lock watch", "lock list -g g -o json", "group deliveries g"])
def test_a_broker_without_the_call_is_told_in_one_line(foreign: ForeignBroker, arguments: str) -> None:
    """Apache RocketMQ has no such lists: one line says so, and no request of ours alone ever reached it."""
    result = Lockstep(foreign.address)(*arguments.split())
    assert (result.status, result.out) == (1, "")
    assert result.err == f"lockstep: the broker at {foreign.address} is not a Lockstep broker and has no such call\n"
    assert RequestCode.GET_BROKER_CLUSTER_INFO in foreign.codes
    assert all(code < 30_000 for code in foreign.codes)
