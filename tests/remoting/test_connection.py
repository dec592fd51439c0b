"""A connection without a socket: bytes go in, events and bytes to send come out, on a clock that is an argument."""

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.protocol.codes import FRAME_BYTES_MAX, ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import LocalProtocolError
from lockstep.remoting.connections.connection import Ended, EndpointSettings, RemotingConnection
from lockstep.remoting.connections.connection_states import Flow, Life, OurOffer, PeerOffer, Request
from lockstep.remoting.errors import ConnectionLost
from tests.remoting.helpers import ECHO

NOW_MS = 1_700_000_000_000
Connection = RemotingConnection[int]


def connection(*, server: bool = False, offer: SerializeType | None = None) -> Connection:
    made = Connection(EndpointSettings(server=server, offer=offer))
    made.connected("10.0.0.9:4711", NOW_MS)
    return made


def command(body: bytes = b"") -> RemotingCommand:
    return RemotingCommand(ECHO, body=body)


def deliver(data: tuple[bytes, ...], to: Connection) -> list[Any]:
    to.receive(b"".join(data), NOW_MS)
    return list(to.events())


def replied(request: RemotingCommand, by: Connection, body: bytes = b"") -> tuple[bytes, ...]:
    return by.reply(request.reply(ResponseCode.SUCCESS, body=body), NOW_MS)


@pytest.mark.parametrize("end", ["close", "peer_ended"])
def test_a_half_closed_connection_replies_and_handles_nothing_more(end: str) -> None:
    """Either end may have begun to close: replies leave still, later requests are not handed out."""
    client, server = connection(), connection(server=True)
    (request,) = deliver(client.request(command(), 3000, NOW_MS, 1), server)
    server.close("enough") if end == "close" else server.peer_ended()
    assert server.life is Life.HALF_CLOSED
    assert deliver(client.request(command(), 3000, NOW_MS, 2), server) == []
    assert [one.waiter for one in deliver(replied(request, server), client)] == [1]
    with pytest.raises(ConnectionLost):
        server.request(command(), 3000, NOW_MS, 3)


def test_a_request_over_the_limit_leaves_nothing_behind() -> None:
    """No request waits, and an offer is made with the next one."""
    client = connection(offer=SerializeType.MSGPACK)
    with pytest.raises(LocalProtocolError):
        client.request(command(bytes(FRAME_BYTES_MAX)), 3000, NOW_MS, 1)
    assert client.waiting_count == 0
    assert client.agreement.ours is OurOffer.DUE


def test_the_states_of_an_agreement() -> None:
    """Due, made, accepted at the client; none, received, accepted at the server."""
    client, server = connection(offer=SerializeType.MSGPACK), connection(server=True)
    assert client.agreement.ours is OurOffer.DUE
    (request,) = deliver(client.request(command(), 3000, NOW_MS, 1), server)
    assert (client.agreement.ours, server.agreement.peers) == (OurOffer.MADE, PeerOffer.RECEIVED)
    assert not server.agreement.agreed
    deliver(replied(request, server), client)
    assert (client.agreement.ours, server.agreement.peers) == (OurOffer.ACCEPTED, PeerOffer.ACCEPTED)
    assert client.agreement.agreed
    assert client.agreement.serialize_type == server.agreement.serialize_type == SerializeType.MSGPACK


def test_an_idle_connection_aborts_itself_once() -> None:
    """Traffic of either direction begins the time anew, and so does `mark_active`."""
    client = connection()
    client.one_way(command(), NOW_MS + 50_000)
    client.mark_active(NOW_MS + 60_000)
    assert client.next_deadline_ms() == NOW_MS + 180_000
    assert not client.abort_if_idle(NOW_MS + 179_999)
    assert client.abort_if_idle(NOW_MS + 180_000)
    assert client.life is Life.ABORTED
    assert not client.abort_if_idle(NOW_MS + 999_000)


def test_a_server_waits_for_its_turn_and_for_its_peer() -> None:
    """Frames stay where they are until both are over; none is lost."""
    client, server = connection(), connection(server=True)
    for number in range(3):
        server.receive(b"".join(client.request(command(), 3000, NOW_MS, number)), NOW_MS)
    opaques = []
    for event in server.events():
        opaques.append(event.opaque)  # type: ignore[union-attr]
        server.turn_ended()
        server.writes_full()
    assert opaques == [1]
    assert (server.pressure.flow, server.pressure.write_paused) == (Flow.WAITING_FOR_BOTH, True)
    server.turn_came()
    assert list(server.events()) == []
    server.writes_drained()
    assert [event.opaque for event in server.events()] == [2, 3]  # type: ignore[union-attr]


# Any interleaving --------------------------------------------------------------------------------------------


class World:
    """Two ends, the bytes on their way, and what became of every request."""

    def __init__(self) -> None:
        self.ends = (connection(offer=SerializeType.MSGPACK), connection(server=True))
        self.wires = (bytearray(), bytearray())  # towards the end with this number
        self.asked: tuple[list[RemotingCommand], list[RemotingCommand]] = ([], [])  # by the end that answers
        self.sent: list[tuple[int, int]] = []  # (end, waiter)
        self.ended: Counter[tuple[int, int]] = Counter()
        self.paused = [False, False]
        self.now_ms = NOW_MS

    def note(self, end: int, ended: Ended[int]) -> None:
        self.ended[end, ended.waiter] += 1
        if isinstance(ended.outcome, RemotingCommand):
            assert ended.state is Request.ANSWERED
            assert ended.outcome.body == b"%d/%d" % (end, ended.waiter), "the reply of another request"
        else:
            assert ended.state in (Request.TIMED_OUT, Request.LOST)

    def ask(self, end: int, timeout_ms: int) -> None:
        waiter = len(self.sent)
        request = command(b"%d/%d" % (end, waiter))
        try:
            data = self.ends[end].request(request, 1 + timeout_ms, self.now_ms, waiter)
        except ConnectionLost:
            return
        self.sent.append((end, waiter))
        self.wires[1 - end].extend(b"".join(data))

    def read(self, end: int, size: int) -> None:
        """Some of the bytes arrive; the handling may end before all events are taken."""
        data = bytes(self.wires[end][:size])
        del self.wires[end][:size]
        self.ends[end].receive(data, self.now_ms)
        for count, event in enumerate(self.ends[end].events()):
            if isinstance(event, Ended):
                self.note(end, event)
            else:
                self.asked[end].append(event)
            if count == size % 5:
                break

    def answer(self, end: int, which: int) -> None:
        """In any order; now and then twice, as no honest peer does."""
        if self.asked[end] and self.ends[end].life in (Life.OPEN, Life.HALF_CLOSED):
            request = self.asked[end][which % len(self.asked[end])]
            if which % 7:
                self.asked[end].remove(request)
            reply = request.reply(ResponseCode.SUCCESS, body=request.body)
            self.wires[1 - end].extend(b"".join(self.ends[end].reply(reply, self.now_ms)))

    def wait(self, end: int, duration_ms: int) -> None:
        self.now_ms += duration_ms
        for one in self.ends[end].on_time(self.now_ms):
            self.note(end, one)
        self.ends[end].abort_if_idle(self.now_ms)

    def press(self, end: int, _: int) -> None:
        """The transport's buffer fills, or it drains."""
        self.paused[end] = not self.paused[end]
        self.ends[end].writes_full() if self.paused[end] else self.ends[end].writes_drained()

    def turn(self, end: int, _: int) -> None:
        """A server's turn ends, or comes again."""
        if end == 1:
            self.ends[1].turn_came() if self.ends[1].pressure.waits_for_turn else self.ends[1].turn_ended()

    def close(self, end: int, how: int) -> None:
        if how == 13:  # not in every run
            self.ends[end].close("closed")
        elif how == 17:
            self.ends[end].abort("aborted")

    def lose(self) -> None:
        for end in (0, 1):
            for one in self.ends[end].lost("lost"):
                self.note(end, one)


STEPS = {World.ask: 8, World.read: 30, World.answer: 10, World.wait: 3, World.press: 2, World.turn: 2, World.close: 1}


@given(st.integers(0, 2**32 - 1), st.integers(0, 300))
def test_every_request_ends_exactly_once(seed: int, count: int) -> None:
    """Whatever the split of the bytes and the order of requests, replies, deadlines, pauses and ends."""
    world, rng = World(), random.Random(seed)
    for _ in range(count):
        (action,) = rng.choices(list(STEPS), list(STEPS.values()))
        action(world, rng.randrange(2), rng.randrange(300))
        assert all(times == 1 for times in world.ended.values())
    world.lose()
    assert world.ended == Counter(world.sent)


@given(st.data())
def test_any_split_of_the_bytes_gives_the_same_events(data: st.DataObject) -> None:
    """Requests and replies of one stream come out whole and in order, however the network cuts them."""
    client, server = connection(), connection(server=True)
    stream = b"".join(b"".join(client.request(command(b"%d" % number), 3000, NOW_MS, number)) for number in range(6))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    bodies, back = [], b""
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        server.receive(stream[start:end], NOW_MS)
        for event in server.events():
            assert isinstance(event, RemotingCommand)
            bodies.append(event.body)
            back += b"".join(replied(event, server, event.body))
    assert bodies == [b"%d" % number for number in range(6)]
    assert [one.waiter for one in deliver((back,), client)] == list(range(6))
