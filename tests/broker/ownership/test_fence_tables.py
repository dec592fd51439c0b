"""The tables of the fence: clients of a connection, marks of resets, counters; and a faithful broker beside it."""

import pytest

from lockstep.broker.ownership.denial import Act, Denials, Reason
from lockstep.broker.ownership.fenced import checks
from lockstep.broker.ownership.fenced.checks import BoundClients, ResetMarks
from lockstep.protocol.codes import RequestCode, ResponseCode, SerializeType
from lockstep.protocol.headers.messaging import ResetOwnOffsetRequestHeader, UpdateConsumerOffsetRequestHeader
from lockstep.remoting.limit_log import EventThrottle
from tests.broker.helpers import FakeConnection, Peer, pull_header

C = ResponseCode


def test_a_connection_has_the_clients_that_it_named() -> None:
    """In their groups; another connection has none of them, nor has this one when it was closed."""
    clients, one, other = BoundClients(), FakeConnection(), FakeConnection()
    assert clients.bind(one, "G", "a")
    assert not clients.bind(one, "G", "a")
    assert clients.bind(one, "G", "b")
    assert [clients.has(one, "G", name) for name in ("a", "b", "c")] == [True, True, False]
    assert not clients.has(one, "H", "a")
    assert not clients.has(other, "G", "a")
    clients.on_closed(one)
    assert not clients.has(one, "G", "a")


def test_a_connection_that_names_very_many_keeps_those_it_names_again() -> None:
    """The pair that was named longest ago is forgotten first."""
    clients, connection = BoundClients(), FakeConnection()
    for number in range(5000):
        clients.bind(connection, "G", f"client {number}")
        clients.bind(connection, "G", "steady")
    assert clients.has(connection, "G", "steady")
    assert clients.has(connection, "G", "client 4999")
    assert not clients.has(connection, "G", "client 0")


def test_a_mark_forbids_other_offsets_for_30_s() -> None:
    """Of its queue alone; a later reset replaces it."""
    marks, queue = ResetMarks(), ("G", "T", 0)
    marks.mark(queue, 5, now_ms=1000)
    assert not marks.forbids(queue, 5, 1000)
    assert marks.forbids(queue, 6, 30_999)
    assert not marks.forbids(queue, 6, 31_000)
    assert not marks.forbids(("G", "T", 1), 6, 1000)
    marks.mark(queue, 6, now_ms=2000)
    assert marks.forbids(queue, 5, 2000)
    marks.end(queue)
    assert not marks.forbids(queue, 5, 2000)


def test_marks_whose_time_is_over_are_removed() -> None:
    """The table does not grow with resets that nobody confirmed."""
    marks = ResetMarks()
    marks.mark(("G", "T", 0), 5, now_ms=0)
    marks.mark(("G", "T", 1), 5, now_ms=1)
    marks.expire(30_000)
    assert len(marks) == 1


def test_counters_are_rows_without_zeros() -> None:
    """Sorted within their kind."""
    denials = Denials()
    denials.refused[Act.PULL, Reason.STALE] += 2
    denials.refused[Act.COMMIT, Reason.FENCED] += 1
    denials.served[Act.PULL, Reason.OTHER_OWNER] += 3
    assert list(denials.rows().items()) == [
        ("refused.commit.fenced", 1),
        ("refused.pull.stale", 2),
        ("served.pull.other_owner", 3),
    ]


def test_events_pass_each_10_s() -> None:
    """For each key, with the number since the last one."""
    throttle = EventThrottle()
    assert [throttle.times("a", now_ms) for now_ms in (0, 1, 9999, 10_000)] == [1, 0, 0, 3]
    assert throttle.times("b", 1) == 1


def test_a_faithful_broker_does_not_look_at_epochs() -> None:
    """Its locks are RocketMQ's, which check nothing; nor does it look whether a commit is an administrator's."""
    peer = Peer()
    peer.make_topics("T")
    for commit in (
        UpdateConsumerOffsetRequestHeader("G", "T", 0, 5, 77, "nobody"),
        UpdateConsumerOffsetRequestHeader("G", "T", 0, 2, reset=True),
    ):
        assert peer.answer(RequestCode.UPDATE_CONSUMER_OFFSET, commit).code == C.SUCCESS
        assert peer.broker.catalog.offsets.query("G", "T", 0) == commit.commit_offset
    pull = pull_header(0, lock_epoch=77, lock_client_id="nobody")
    assert peer.answer(RequestCode.PULL_MESSAGE, pull).code == C.PULL_NOT_FOUND


@pytest.mark.parametrize("encoding", [SerializeType.JSON, SerializeType.MSGPACK])
def test_a_faithful_broker_has_no_reset_by_the_owner(encoding: SerializeType) -> None:
    """It answers as to any request that it does not have."""
    peer = Peer(encoding)
    peer.make_topics("T")
    header = ResetOwnOffsetRequestHeader("G", "T", 0, 3, 1, "a")
    assert peer.answer(RequestCode.RESET_OWN_OFFSET, header).code == C.REQUEST_CODE_NOT_SUPPORTED
    assert peer.broker.catalog.offsets.query("G", "T", 0) == -1


def test_the_clients_of_all_connections_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then each connection keeps its last few; what ends makes room."""
    monkeypatch.setattr(checks, "_ALL_MAX", 100)
    clients, many, few = BoundClients(), FakeConnection(), FakeConnection()
    for number in range(1000):
        clients.bind(many, "G", f"m{number}")
        clients.bind(few, "G", f"f{number}")
    kept = {
        name: sum(clients.has(one, "G", f"{name}{number}") for number in range(1000))
        for name, one in (("m", many), ("f", few))
    }
    assert kept == {"m": 50, "f": 50}
    late = FakeConnection()
    for number in range(1000):
        clients.bind(late, "G", f"l{number}")
    assert sum(clients.has(late, "G", f"l{number}") for number in range(1000)) == 16
    assert clients.has(late, "G", "l999")
    clients.on_closed(many)
    assert clients.bind(late, "G", "new")
    assert clients.has(late, "G", "l984")
