"""How many connections a process accepts, and its log of refused ones."""

from typing import cast

from lockstep.broker.connections import Connections
from lockstep.remoting.endpoint import Endpoint
from tests.broker.helpers import NOW_MS, FakeConnection, RecordingLog


def test_one_connection_too_many_is_closed_at_once() -> None:
    """The first refusal is logged, later ones are counted; when a connection ends another is accepted."""
    log = RecordingLog()
    connections = Connections(2, 1000, 1000, 60_000, log)
    peers = [FakeConnection(f"127.0.0.1:{port}") for port in range(5)]
    for peer in peers:
        connections.add(cast("Endpoint", peer))
    assert [bool(peer.aborted) for peer in peers] == [False, False, True, True, True]
    for peer in peers[1:]:
        connections.remove(cast("Endpoint", peer))
    connections.sweep(NOW_MS)
    connections.sweep(NOW_MS + 1000)
    assert log.events == [
        ("warning", "connections_full", {"limit": 2, "peer": "127.0.0.1:2"}),
        ("warning", "connections_refused", {"count": 3, "limit": 2, "open": 1}),
    ]
    again = FakeConnection()
    connections.add(cast("Endpoint", again))
    assert not again.aborted
    assert len(list(connections)) == len(connections) == 2
