"""Answers that peers do not read: a bound for one connection, and for all together."""

from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.remoting.connections.byte_budget import ByteBudget, ConnectionBounds, Inbound
from lockstep.remoting.connections.endpoint import Endpoint
from lockstep.remoting.limit_log import LimitLog
from tests.remoting.helpers import ECHO, Peer, RecordingLog

HIGH_WATER = 1000


def new_budget(bytes_max: int = 10_000, one_max: int = 0) -> tuple[ByteBudget, RecordingLog]:
    log = RecordingLog()
    return ByteBudget("outbound_bytes", bytes_max, "answers that it does not read", LimitLog(log), one_max), log


def late(_: Endpoint, __: RemotingCommand) -> None:
    """Who is asked answers later, as a broker that passes a question on to a consumer."""


def asked(budget: ByteBudget, count: int) -> tuple[Peer, list[RemotingCommand]]:
    """A peer that has asked so often and takes nothing, and its answers of 3,000 bytes."""
    inbound = ByteBudget("inbound_bytes", 1 << 20, "frames", LimitLog(RecordingLog()))
    bounds = ConnectionBounds(Inbound(inbound, 60_000, RecordingLog()), budget)
    peer = Peer(late, bounds=bounds, write_high_water_bytes=HIGH_WATER)
    peer.transport.stuck = True
    requests = [RemotingCommand(ECHO, opaque=number) for number in range(count)]
    peer.send(*requests)
    return peer, [request.reply(ResponseCode.SUCCESS, body=b"x" * 3000) for request in requests]


async def test_answers_that_come_late_count_though_their_peer_reads_nothing() -> None:
    """Requests it sent before it stopped reading are answered until all answers together are too many."""
    budget, log = new_budget()
    greedy, answers = asked(budget, 9)
    modest, few = asked(budget, 1)
    modest.endpoint.reply(few[0])
    sent = 0
    while not greedy.transport.ended:
        greedy.endpoint.reply(answers[sent])
        sent += 1
    assert sent == 3
    assert not modest.transport.ended
    (line,) = log.events
    assert line[:2] == ("warning", "limit_met")
    assert (line[2]["setting"], line[2]["maximum"]) == ("outbound_bytes_max", 10_000)
    assert line[2]["connections"] == 2
    assert budget.bytes == modest.transport.buffered


async def test_what_was_read_counts_no_more() -> None:
    """A peer that reads again, or goes, gives its bytes back."""
    budget, log = new_budget()
    for _ in range(5):
        peer, answers = asked(budget, 2)
        for answer in answers:
            peer.endpoint.reply(answer)
        assert budget.bytes == peer.transport.buffered > 6000
        peer.transport.drain()
        assert budget.bytes == 0
    peer, answers = asked(budget, 1)
    peer.endpoint.reply(answers[0])
    assert budget.bytes > 0
    peer.endpoint.connection_lost(None)
    assert budget.bytes == 0
    assert log.events == []


async def test_one_connection_has_a_limit_of_its_own() -> None:
    """It ends although all together are far below theirs; the line has its bytes and the setting."""
    budget, log = new_budget(1_000_000, one_max=5000)
    greedy, answers = asked(budget, 2)
    modest, few = asked(budget, 1)
    modest.endpoint.reply(few[0])
    greedy.endpoint.reply(answers[0])
    ended = [greedy.transport.ended]
    greedy.endpoint.reply(answers[1])
    assert [*ended, greedy.transport.ended, modest.transport.ended] == ["", "abort", ""]
    ((_, event, fields),) = log.events
    assert (event, fields["setting"]) == ("limit_met", "outbound_bytes_per_connection_max")
    assert fields["peer_bytes"] > fields["maximum"] == 5000
    assert budget.bytes == modest.transport.buffered
