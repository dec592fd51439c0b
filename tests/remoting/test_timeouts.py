"""Deadlines of requests and the idle close, on a clock that the test moves."""

import asyncio
from collections.abc import Callable

import pytest

from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.remoting.errors import RequestTimeout
from tests.remoting.helpers import ECHO, Peer


async def test_a_request_times_out_at_its_deadline() -> None:
    """Not a millisecond before; the error names the call, the peer and the limit."""
    peer = Peer(server=False)
    future = peer.endpoint.request_nowait(RemotingCommand(ECHO), 3000)
    peer.runtime.advance(2999)
    assert not future.done()
    peer.runtime.advance(1)
    with pytest.raises(RequestTimeout, match=r"no reply to GET_MAX_OFFSET \(30\) from 10.0.0.9:4711 within 3000 ms"):
        await future


async def test_the_connection_outlives_a_timeout() -> None:
    """Unlike Java's client, ours does not fail everything else in flight; and a late reply is ignored."""
    peer = Peer(server=False)
    slow = peer.endpoint.request_nowait(RemotingCommand(ECHO), 100)
    quick = peer.endpoint.request_nowait(RemotingCommand(ECHO), 5000)
    first, second = peer.received()
    peer.runtime.advance(100)
    assert isinstance(slow.exception(), RequestTimeout)
    peer.send(first.reply(ResponseCode.SUCCESS, remark="late"), second.reply(ResponseCode.SUCCESS, remark="in time"))
    assert (await quick).remark == "in time"
    assert not peer.transport.is_closing()


async def test_each_request_keeps_its_own_deadline() -> None:
    """Whatever the order of calls and limits, each one ends at its own millisecond."""
    limits = [3000, 30_000, 1000, 1000, 15_000, 1, 2999]
    peer = Peer(server=False)
    start_ms = peer.runtime.now_ms()
    ended: dict[int, int] = {}
    for i, limit in enumerate(limits):
        future = peer.endpoint.request_nowait(RemotingCommand(ECHO), limit)
        future.add_done_callback(lambda done, i=i: ended.update({i: peer.runtime.now_ms() - start_ms}))  # type: ignore[misc]
    for _ in range(max(limits)):
        peer.runtime.advance(1)
        if any(entry.due_ms <= peer.runtime.now_ms() for entry in peer.runtime.live_timers()):
            raise AssertionError("a timer that is due was not run")
        await asyncio.sleep(0)
    assert ended == dict(enumerate(limits))
    assert len(peer.runtime.live_timers()) == 1  # the idle one


async def test_answered_requests_leave_few_timers() -> None:
    """A thousand calls, each answered at once, never hold more than one deadline timer."""
    peer = Peer(server=False)
    for _ in range(1000):
        future = peer.endpoint.request_nowait(RemotingCommand(ECHO), 3000)
        (request,) = peer.received()
        peer.send(request.reply(ResponseCode.SUCCESS))
        await future
    assert len(peer.runtime.live_timers()) <= 2


async def test_a_cancelled_caller_leaves_nothing_behind() -> None:
    """Its reply is ignored, and its deadline passes without a word."""
    peer = Peer(server=False)
    future = peer.endpoint.request_nowait(RemotingCommand(ECHO), 100)
    (request,) = peer.received()
    future.cancel()
    peer.send(request.reply(ResponseCode.SUCCESS))
    other = peer.endpoint.request_nowait(RemotingCommand(ECHO), 100)
    other.cancel()
    peer.runtime.advance(100)
    assert peer.endpoint._connection.waiting_count == 0
    assert len(peer.runtime.live_timers()) == 1, "the idle one"
    assert peer.log.events == []


# Idle --------------------------------------------------------------------------------------------------------


async def test_an_idle_connection_is_closed() -> None:
    """After 120 s without traffic either way (wire.md 1.1), with a line in the log."""
    peer = Peer()
    peer.runtime.advance(119_999)
    assert not peer.transport.is_closing()
    peer.runtime.advance(1)
    assert peer.transport.ended == "abort"
    assert peer.log.events == [
        ("info", "connection_idle", {"peer": "10.0.0.9:4711", "idle_ms": 120_000}),
    ]


@pytest.mark.parametrize("traffic", ["read", "request", "one way", "reply"])
async def test_traffic_either_way_keeps_a_connection(traffic: str) -> None:
    """A read or a write of any kind starts the 120 s anew."""
    peer = Peer(lambda *_: None)
    actions: dict[str, Callable[[], object]] = {
        "read": lambda: peer.send(RemotingCommand(ECHO)),
        "request": lambda: peer.endpoint.request_nowait(RemotingCommand(ECHO), 10_000_000).cancel(),
        "one way": lambda: peer.endpoint.send_one_way(RemotingCommand(ECHO)),
        "reply": lambda: peer.endpoint.reply(RemotingCommand(0, flag=1)),
    }
    for _ in range(5):
        peer.runtime.advance(119_999)
        actions[traffic]()
    peer.runtime.advance(119_999)
    assert not peer.transport.is_closing()
    peer.runtime.advance(1)
    assert peer.transport.ended == "abort"
