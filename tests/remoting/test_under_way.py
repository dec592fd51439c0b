"""Requests that are answered later: a bound for one connection, and for all together."""

from lockstep.protocol.codes import RemotingFlag, RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.remoting.connections.byte_budget import ByteBudget, ConnectionBounds, Inbound
from lockstep.remoting.connections.endpoint import Endpoint
from lockstep.remoting.connections.under_way import UnderWay
from lockstep.remoting.limit_log import LimitLog
from tests.remoting.helpers import Peer, RecordingLog

LATER, AT_ONCE, SPARED = int(RequestCode.PULL_MESSAGE), int(RequestCode.GET_MAX_OFFSET), int(RequestCode.LOCK_BATCH_MQ)
BOTH = int(RequestCode.SEND_MESSAGE)  # answered late, but before its handler returns
OVERLOAD = "[OVERLOAD]system busy, start flow control for a while: "


def answer(endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand | None:
    if command.code == AT_ONCE:
        return command.reply(ResponseCode.SUCCESS)
    if command.code == BOTH:
        endpoint.reply(command.reply(ResponseCode.SUCCESS))
    return None


class Process:
    """Peers of one process that share their limits."""

    def __init__(self, all_max: int, one_max: int) -> None:
        self.log = RecordingLog()
        self.limits = LimitLog(self.log)
        self.under_way = UnderWay(all_max, one_max, {SPARED}, self.limits)

    def peer(self) -> Peer:
        budget = ByteBudget("inbound_bytes", 1 << 20, "frames", self.limits)
        bounds = ConnectionBounds(Inbound(budget, 60_000, self.log), budget, self.under_way)
        return Peer(answer, bounds=bounds)


def requests(code: int, count: int, *, first: int = 0, flag: int = 0) -> list[RemotingCommand]:
    return [RemotingCommand(code, opaque=first + number, flag=flag) for number in range(count)]


def codes(peer: Peer) -> list[int]:
    return [reply.code for reply in peer.received()]


async def test_one_connection_has_a_limit() -> None:
    """Above it a request is answered busy and not handled, in the same read too, until an earlier one is answered."""
    process = Process(0, 3)
    peer, other = process.peer(), process.peer()
    peer.send(*requests(LATER, 5))
    replies = peer.received()
    assert [(reply.opaque, reply.code) for reply in replies] == [(3, 2), (4, 2)]
    assert replies[0].remark == OVERLOAD + "requests_under_way_per_connection_max is 3"
    other.send(*requests(LATER, 3))
    assert codes(other) == []
    peer.endpoint.reply(requests(LATER, 1)[0].reply(ResponseCode.SUCCESS))
    peer.send(*requests(LATER, 2, first=10))
    assert [(reply.opaque, reply.code) for reply in peer.received()] == [(0, 0), (11, 2)]
    assert process.limits.counts == {"requests_under_way_per_connection_max": 3}
    assert [fields["peer"] for _, _, fields in process.log.events] == [peer.endpoint.address]


async def test_all_connections_have_a_limit() -> None:
    """A connection that has none under way is refused too; one that ends gives its room back."""
    process = Process(4, 0)
    peer, other = process.peer(), process.peer()
    peer.send(*requests(LATER, 4))
    other.send(*requests(LATER, 1), *requests(AT_ONCE, 1))
    assert codes(other) == [ResponseCode.SYSTEM_BUSY] * 2
    assert process.under_way.count == 4
    peer.lose()
    assert process.under_way.count == 0
    other.send(*requests(LATER, 4))
    assert codes(other) == []


async def test_answers_at_once_and_one_way_requests_do_not_count() -> None:
    """Nor those whose answer leaves before their handler returns."""
    process = Process(2, 2)
    peer = process.peer()
    for code, flag in ((AT_ONCE, 0), (BOTH, 0), (LATER, int(RemotingFlag.ONE_WAY))):
        peer.send(*requests(code, 9, flag=flag))
        assert process.under_way.count == peer.endpoint.late_count == 0
    assert set(codes(peer)) == {ResponseCode.SUCCESS}


async def test_one_way_requests_above_the_limit_are_dropped() -> None:
    """They are counted, and not answered."""
    process = Process(1, 0)
    peer = process.peer()
    peer.send(*requests(LATER, 1), *requests(LATER, 3, flag=int(RemotingFlag.ONE_WAY)))
    assert codes(peer) == []
    assert process.limits.counts == {"requests_under_way_max": 3}


async def test_spared_requests_have_room_above_the_limit() -> None:
    """As much again: renewals of locks are served while other requests are refused."""
    process = Process(0, 2)
    peer = process.peer()
    peer.send(*requests(LATER, 3), *requests(SPARED, 3, first=10))
    assert [reply.opaque for reply in peer.received()] == [2, 12]
    assert process.under_way.count == 4
