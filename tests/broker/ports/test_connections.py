"""How many connections a process accepts, from one address and in all, and its log of refused ones."""

from typing import Any, cast

import pytest

from lockstep.broker.config import BrokerConfig
from lockstep.broker.limits.connections import Connections
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.command import RemotingCommand
from lockstep.remoting.connections.endpoint import Endpoint
from lockstep.remoting.limit_log import LimitLog
from tests.broker.helpers import NOW_MS, FakeConnection, RecordingLog


class Accepted(FakeConnection):
    """A connection as `Connections` sees it."""

    def __init__(self, host: str = "127.0.0.1", *, is_local: bool = True) -> None:
        super().__init__(f"{host}:1")
        self.host = host
        self.is_local = is_local
        self.read_at_ms = NOW_MS


def add(connections: Connections, *peers: Accepted) -> list[bool]:
    """Which of them are accepted."""
    for peer in peers:
        connections.add(cast("Endpoint", peer), NOW_MS)
    return [not peer.aborted for peer in peers]


def new_connections(**settings: Any) -> tuple[Connections, LimitLog, RecordingLog]:
    log = RecordingLog()
    limits = LimitLog(log)
    return Connections(BrokerConfig(**settings), limits, log), limits, log


def test_one_connection_too_many_is_closed_at_once() -> None:
    """The first refusal is logged, all are counted; when a connection ends another is accepted."""
    connections, limits, log = new_connections(connections_max=2)
    peers = [Accepted() for _ in range(5)]
    assert add(connections, *peers) == [True, True, False, False, False]
    assert limits.used["connections_max"]() == 5, "the closed ones are not gone yet"
    for peer in peers[1:]:
        connections.remove(cast("Endpoint", peer))
    facts = {"setting": "connections_max", "maximum": 2, "peer": "127.0.0.1:1", "times": 1, "open": 3}
    assert log.events == [("warning", "limit_met", facts)]
    assert limits.counts == {"connections_max": 3}
    assert add(connections, Accepted()) == [True]
    assert len(list(connections)) == len(connections) == limits.used["connections_max"]() == 2


def test_operators_have_reserved_connections() -> None:
    """Strangers leave a tenth free: for peers on this machine, and for the addresses of operators."""
    connections, limits, _ = new_connections(connections_max=20, operator_addresses="10.0.0.{7,8}")
    assert add(connections, *[Accepted("10.0.0.9", is_local=False) for _ in range(19)]) == [True] * 18 + [False]
    connections.remove(list(connections)[-1])
    assert add(connections, Accepted("10.0.0.7", is_local=False), Accepted()) == [True, True]
    assert add(connections, Accepted("10.0.0.8", is_local=False)) == [False]
    assert limits.counts == {"connections_max": 2}


def test_an_address_has_a_limit() -> None:
    """Others are not concerned, ended connections count no more, and operators have no such limit."""
    connections, limits, log = new_connections(connections_per_peer_max=2, operator_addresses="10.0.0.7")
    first = [Accepted("10.0.0.1", is_local=False) for _ in range(3)]
    assert add(connections, *first) == [True, True, False]
    assert add(connections, Accepted("10.0.0.2", is_local=False)) == [True]
    assert add(connections, *[Accepted("10.0.0.7", is_local=False) for _ in range(5)]) == [True] * 5
    for peer in first[1:]:
        connections.remove(cast("Endpoint", peer))
        connections.remove(cast("Endpoint", peer))
    assert add(connections, *[Accepted("10.0.0.1", is_local=False) for _ in range(2)]) == [True, False]
    assert limits.counts == {"connections_per_peer_max": 2}
    assert [fields["setting"] for _, _, fields in log.events] == ["connections_per_peer_max"]


@pytest.mark.parametrize("code", [RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.COMMIT_TOGETHER])
def test_commits_are_spared_alone_and_together(code: RequestCode) -> None:
    """They are one-way, so a refusal would be lost; a flood of other requests refuses none of them."""
    connections, limits, _ = new_connections(requests_per_second_max=1)
    served = list[int]()
    handle = connections.before(lambda _, command: served.append(command.code))
    peer = Accepted("10.0.0.1", is_local=False)
    for asked in (RequestCode.GET_MAX_OFFSET, RequestCode.GET_MAX_OFFSET, code):
        handle(cast("Endpoint", peer), RemotingCommand(asked))
    assert served == [RequestCode.GET_MAX_OFFSET, code]
    assert limits.counts == {"requests_per_second_max": 1}
