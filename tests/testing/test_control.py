"""The fault API: the clock is moved, requests fail on demand, and received requests are listed."""

import asyncio
import json
from typing import Any

import pytest

from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.codes import RequestCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.messages.message import decode_messages
from lockstep.testing.control_port.calls import CallError
from lockstep.testing.control_port.codes import code_of
from lockstep.testing.control_port.faults import REQUESTS_KEPT_MAX, Faults, PushedError
from lockstep.testing.control_port.server import ControlServer
from tests.broker.helpers import (
    ENCODINGS,
    consumer,
    heartbeat_of,
    over_the_wire,
    pull_header,
    send_header,
)
from tests.rows import by_row
from tests.simulation.peers import Recorder
from tests.testing.controlled import Stage, on_stage

R = RequestCode
WAITING = 6  # subscription in the request, may be suspended

# What is kept, and what fails ----------------------------------------------------------------------------------


def test_errors_are_given_in_order_to_the_requests_they_are_for() -> None:
    """The first that names the request's code, as often as it says; others pass."""
    faults = Faults()
    first, second = PushedError((10, 310), times=2), PushedError((310,))
    faults.errors += [first, second]
    codes = [34, 310, 10, 10, 310, 310]
    given = [faults.on_request("peer", RemotingCommand(code), 1) for code in codes]
    assert given == [None, first, first, None, second, None]
    assert faults.errors == []


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_requests_are_told_by_the_names_of_their_fields(encoding: SerializeType) -> None:
    """In every encoding: as on the wire, and typed with the names of our headers."""
    faults = Faults()
    command = RemotingCommand(R.SEND_MESSAGE_V2, send_header("T", queue_id=3), b"12345", serialize_type=encoding)
    faults.on_request("1.2.3.4:5", over_the_wire(command), 99)
    (arrival,) = faults.arrivals(0)
    told = json.loads(json.dumps(arrival.to_wire()))
    assert (told["code"], told["name"], told["bodyBytes"], told["atMs"], told["peer"]) == (
        310,
        "SEND_MESSAGE_V2",
        5,
        99,
        "1.2.3.4:5",
    )
    assert told["extFields"]["b"] == "T"
    assert str(told["extFields"]["e"]) == "3"
    assert (told["header"]["topic"], told["header"]["queue_id"]) == ("T", 3)


def test_a_request_with_a_bad_header_is_told_all_the_same() -> None:
    """Without its typed header; an unknown code has no name either."""
    faults = Faults()
    faults.on_request("p", RemotingCommand(R.PULL_MESSAGE, ext_fields={"queueId": "x"}), 1)
    faults.on_request("p", RemotingCommand(9999, ext_fields={"a": "b"}), 1)
    bad, unknown = [arrival.to_wire() for arrival in faults.arrivals(0)]
    assert (bad["extFields"], bad["header"]) == ({"queueId": "x"}, {})
    assert (unknown["name"], unknown["extFields"]) == ("", {"a": "b"})


def test_only_the_latest_requests_are_kept() -> None:
    """Asking for more than that is an error, and not a shorter list; those of one's own test are there."""
    faults = Faults()
    for code in range(REQUESTS_KEPT_MAX + 5):
        faults.on_request("p", RemotingCommand(code), 1)
    with pytest.raises(ValueError, match=f"the last {REQUESTS_KEPT_MAX} are kept"):
        faults.arrivals(4)
    assert len(faults.arrivals(5)) == REQUESTS_KEPT_MAX
    assert [arrival.code for arrival in faults.arrivals(faults.last_serial - 2)] == [10_003, 10_004]
    assert [arrival.serial for arrival in faults.arrivals(5, [34, 35])] == [35, 36]


def test_codes_have_rocketmqs_names() -> None:
    """A number is allowed too; an unknown name is an error."""
    assert (code_of(41), code_of("LOCK_BATCH_MQ"), code_of(77_777)) == (41, 41, 77_777)
    with pytest.raises(ValueError, match="unknown request 'LOCK'"):
        code_of("LOCK")


# Time ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_lock_expires_when_the_clock_is_moved(encoding: SerializeType) -> None:
    """Not at 60 s, but past them; then another client has the queue."""

    async def story(stage: Stage) -> None:
        address = stage.server.broker_address
        assert len(await stage.client.lock(address, "first")) == 1
        await stage.call("advance", seconds=59)
        assert await stage.client.lock(address, "second") == ()
        (row,) = await stage.call("locks", group="G")
        assert (row["clientId"], row["messageQueue"]["topic"], row["remainingMs"] > 0) == ("first", "T", True)
        await stage.call("advance", seconds=2)
        (row,) = await stage.call("locks")
        assert (row["clientId"], row["remainingMs"] < 0) == ("first", True)
        assert len(await stage.client.lock(address, "second")) == 1

    on_stage(story, encoding)


def test_a_held_pull_ends_when_the_clock_is_moved() -> None:
    """It waits 15 s, or a moment and a move of 20 s."""

    async def story(stage: Stage) -> None:
        await stage.ask(R.SEND_MESSAGE_V2, send_header("T"), b"x")
        pull = asyncio.ensure_future(stage.ask(R.PULL_MESSAGE, pull_header(1, sys_flag=WAITING)))
        await stage.world.sleep_ms(100)
        assert not pull.done()
        await stage.call("advance", seconds=20)
        before_ms = stage.world.now_ms
        assert (await pull).code == 19
        assert stage.world.now_ms - before_ms < 1000

    on_stage(story)


def test_a_delayed_message_comes_when_the_clock_is_moved() -> None:
    """The longest level, two hours: a pull that waits for it gets it."""

    async def story(stage: Stage) -> None:
        await stage.call("create_topic", topic="T", queues=1)
        assert (await stage.ask(R.SEND_MESSAGE_V2, send_header("T", properties="DELAY\x0118"), b"later")).code == 0
        assert (await stage.ask(R.PULL_MESSAGE, pull_header(0))).code != 0
        await stage.call("advance", seconds=7199, heartbeats=True)
        assert (await stage.ask(R.PULL_MESSAGE, pull_header(0))).code != 0
        await stage.call("advance", seconds=2, heartbeats=True)
        reply = await stage.ask(R.PULL_MESSAGE, pull_header(0))
        assert [message.body for message in decode_messages(reply.body)] == [b"later"]

    on_stage(story)


@pytest.mark.parametrize("heartbeats", [False, True])
def test_silent_clients_are_dropped_unless_they_count_as_heard(heartbeats: bool) -> None:
    """After 300 s of silence a channel has expired and its connection is closed; with heartbeats it is as before."""

    async def story(stage: Stage) -> None:
        body = heartbeat_of("c1", consumer("G", SubscriptionData.parse("T", "*")))
        await stage.ask(R.HEART_BEAT, None, body)
        assert stage.server.broker is not None
        await stage.call("advance", seconds=300, heartbeats=heartbeats)
        await stage.world.sleep_ms(100)
        assert ("G" in stage.server.broker.members.consumers.groups) == heartbeats
        assert (stage.client.dialer.open_endpoint(stage.server.broker_address) is not None) == heartbeats

    on_stage(story)


def test_a_minute_leaves_live_clients_alone() -> None:
    """The last heartbeats are at most 30 s old: a move of 61 s drops no client."""

    async def story(stage: Stage) -> None:
        body = heartbeat_of("c1", consumer("G", SubscriptionData.parse("T", "*")))
        await stage.ask(R.HEART_BEAT, None, body)
        await stage.world.sleep_ms(30_000)
        await stage.call("advance", seconds=61)
        assert stage.server.broker is not None
        assert "G" in stage.server.broker.members.consumers.groups
        assert stage.client.dialer.open_endpoint(stage.server.broker_address) is not None

    on_stage(story)


def test_a_round_trip_can_be_made_long() -> None:
    """Each request is answered 200 ms later, in order, and at once again after that."""

    async def story(stage: Stage) -> None:
        await stage.ask(R.SEND_MESSAGE_V2, send_header("T"), b"0")
        before_ms = stage.world.now_ms
        await stage.call("set_rtt", ms=200)
        asked = [asyncio.ensure_future(stage.ask(R.SEND_MESSAGE_V2, send_header("T"), b"x")) for _ in range(3)]
        replies = [await reply for reply in asked]
        assert [reply.code for reply in replies] == [0, 0, 0]
        assert 200 <= stage.world.now_ms - before_ms < 400
        await stage.call("reset")
        before_ms = stage.world.now_ms
        await stage.ask(R.SEND_MESSAGE_V2, send_header("T"), b"0")
        assert stage.world.now_ms - before_ms < 200

    on_stage(story)


def test_a_pushed_error_is_the_answer() -> None:
    """Its code and remark, once. The request is only handled with `executeFirst`; or its connection closes."""

    async def story(stage: Stage) -> None:
        await stage.call("push_error", codes=["SEND_MESSAGE_V2"], responseCode="SYSTEM_BUSY", remark="too much")
        reply = await stage.ask(R.SEND_MESSAGE_V2, send_header("T"), b"refused")
        assert (reply.code, reply.remark) == (2, "too much")
        await stage.call("push_error", codes=[310], executeFirst=True)
        assert (await stage.ask(R.SEND_MESSAGE_V2, send_header("T"), b"carried out")).code == 1
        pulled = await stage.ask(R.PULL_MESSAGE, pull_header(0))
        assert [message.body for message in decode_messages(pulled.body)] == [b"carried out"]
        await stage.call("push_error", codes=[310], dropConnection=True)
        with pytest.raises(Exception, match="connection"):
            await stage.ask(R.SEND_MESSAGE_V2, send_header("T"), b"dropped")
        requests = await stage.call("requests", codes=[310])
        assert [request["bodyBytes"] for request in requests] == [7, 11, 7]

    on_stage(story)


def test_a_long_answer_that_is_not_read_stops_the_reading() -> None:
    """Also when no line waits behind it: those that come then stay in the peer's buffer, and are answered later."""

    async def story(stage: Stage) -> None:
        host, line = stage.world.host("broker"), b'{"call": "status"}\n'
        server = ControlServer(stage.broker, host)
        await server.start(9000)
        for code in range(REQUESTS_KEPT_MAX):
            stage.faults.on_request("peer", RemotingCommand(code), 1)
        _, peer = await host.create_connection(Recorder, "127.0.0.1", 9000)
        assert isinstance(peer, Recorder)
        peer.transport.pause_reading()
        peer.transport.write(b'{"call": "requests"}\n')
        await stage.world.sleep_ms(1000)
        peer.transport.write(line * 20_000)
        await stage.world.sleep_ms(1000)
        assert peer.transport.get_write_buffer_size() > 200_000
        peer.transport.resume_reading()
        await stage.world.until(lambda: peer.received.count(b"\n") == 20_001)
        server.close()

    on_stage(story)


@by_row(
    "name, arguments, words",
    [
        ("adv", {}, "unknown call 'adv'; the calls are advance, "),
        ("advance", {"second": 1}, "advance takes heartbeats, seconds, not second"),
        ("advance", {}, "seconds must be a number from 0"),
        ("advance", {"seconds": -1}, "must be a number from 0 to"),
        ("advance", {"seconds": True}, "seconds must be a number"),
        ("set_rtt", {"ms": -1}, "ms must be 0 to"),
        ("push_error", {}, "at least one request code"),
        ("push_error", {"codes": [10], "times": 0}, "times of at least 1"),
        ("push_error", {"codes": [None]}, "request codes or their names"),
        ("push_error", {"codes": [10], "responseCode": "BAD"}, "unknown response 'BAD'"),
        ("push_error", {"codes": [10], "responseCode": 1 << 15}, "responseCode must be 0 to 32767"),
        ("push_error", {"codes": [10], "remark": "x" * 1001}, "remark must have at most 1000 characters"),
        ("requests", {"codes": ["BAD"]}, "unknown request 'BAD'"),
        ("create_topic", {"topic": "a b"}, "may hold only the characters"),
        ("create_topic", {"topic": "a", "queues": 0}, "queues must be at least 1"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(name: str, arguments: dict[str, Any], words: str) -> None:
    """In one line, and nothing has changed."""

    async def story(stage: Stage) -> None:
        with pytest.raises(CallError, match=words):
            await stage.call(name, **arguments)
        assert stage.runtime.advanced_ms == 0
        assert stage.faults.errors == []

    on_stage(story)
