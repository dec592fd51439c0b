"""Lock requests to a broker with fenced locks: through the codecs, without sockets."""

from collections.abc import Callable
from typing import Any

import pytest

from lockstep.protocol.bodies.codec import decode_body, encode_body
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.bodies.locks import (
    LockBatchBody,
    LockGrant,
    LockOkBody,
    LockRefusal,
    LocksReleasedBody,
    LockTableBody,
)
from lockstep.protocol.codes import RequestCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.epochs import make_epoch
from lockstep.protocol.headers.messaging import (
    ListLocksRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
    UnregisterClientRequestHeader,
)
from tests.broker.helpers import NOW_MS, FakeConnection, Peer, consumer, queues_of
from tests.broker.ownership.fences import fenced

R = RequestCode
LEASE_MS = 60_000
FIRST, SECOND = queues_of("T", 2)


class Clients:
    """A broker in memory, and peers of it by name: "java" and "go" send no epochs and JSON."""

    def __init__(self, **settings: Any) -> None:
        self.names: dict[str, Peer] = {}
        self.first = Peer(SerializeType.MSGPACK, lock_mode="fenced", **settings)
        self.first.make_topics("T")

    def __getitem__(self, name: str) -> Peer:
        if name not in self.names:
            encoding = SerializeType.JSON if name in ("java", "go") else SerializeType.MSGPACK
            connection = FakeConnection(name, encoding)
            self.names[name] = Peer(encoding, broker=self.first.broker, connection=connection)
            self.names[name].now_ms = self.first.now_ms
        return self.names[name]

    def pass_ms(self, passed_ms: int) -> None:
        self.first.now_ms += passed_ms
        for peer in self.names.values():
            peer.now_ms = self.first.now_ms

    def lock(self, name: str, *epochs: int) -> LockOkBody:
        """Lock the first queues, as many as there are epochs; an unmodified client locks the first one."""
        queues = (FIRST, SECOND)[: len(epochs) or 1]
        body = LockBatchBody("G", name, queues, epochs or None)
        reply = self[name].answer(R.LOCK_BATCH_MQ, None, body)
        assert reply.code == 0
        return decode_body(LockOkBody, reply.body, reply.serialize_type)

    def claim(self, name: str) -> int:
        (grant,) = self.lock(name, 0).grants or (LockGrant(0, 0),)
        return grant.epoch

    def join(self, name: str) -> None:
        """A heartbeat: the client is a member of the group for 120 s."""
        assert self[name].heartbeat(name, consumer("G", SubscriptionData("T"))).code == 0

    def members(self) -> tuple[str, ...]:
        return self.first.broker.members.consumers.client_ids("G")

    def end_locks(self) -> None:
        """What the timer of the server does when a lease or lock delay is over."""
        broker = self.first.broker
        broker.ownership.end_due(self.first.now_ms)

    def unlock(self, name: str, *epochs: int) -> None:
        body = LockBatchBody("G", name, (FIRST, SECOND)[: len(epochs) or 1], epochs or None)
        assert self[name].answer(R.UNLOCK_BATCH_MQ, None, body).code == 0

    def told(self, name: str) -> list[tuple[int, Any]]:
        """Code and content of what the broker sent to a client, and forget it."""
        pushed, self[name].connection.pushed = self[name].connection.pushed, []
        return [(command.code, self.content_of(command)) for command in pushed]

    @staticmethod
    def content_of(command: RemotingCommand) -> Any:
        if command.code == R.LOCKS_RELEASED:
            return decode_body(LocksReleasedBody, command.body, SerializeType.MSGPACK)
        assert isinstance(command.header, NotifyConsumerIdsChangedRequestHeader)
        return command.header.consumer_group


def test_a_fenced_request_gets_grants_and_refusals() -> None:
    """Epoch and lease of each queue that is owned; owner and wait time of the others."""
    clients = Clients()
    assert clients.lock("a", 0) == LockOkBody((FIRST,), (LockGrant(make_epoch(NOW_MS, 1), LEASE_MS),), ())
    clients.pass_ms(10_000)
    assert clients.lock("b", 0, 0) == LockOkBody(
        (SECOND,), (LockGrant(make_epoch(NOW_MS, 2), LEASE_MS),), (LockRefusal(FIRST, "HELD", "a", 50_000),)
    )
    first, second = make_epoch(NOW_MS, 1), make_epoch(NOW_MS, 2)
    refused = clients.lock("a", first, second).refusals
    assert refused == (LockRefusal(SECOND, "FENCED", "b"),)
    clients.unlock("a", first)
    assert clients.lock("a", first).refusals == (LockRefusal(FIRST, "NOT_HELD"),)
    again = clients.claim("a")
    assert again > second
    assert clients.lock("a", first).refusals == (LockRefusal(FIRST, "STALE", "a"),)


def test_an_unmodified_request_gets_rocketmqs_reply() -> None:
    """No member of ours, byte for byte."""
    clients = Clients()
    java = clients["java"]
    reply = java.answer(R.LOCK_BATCH_MQ, None, LockBatchBody("G", "java", (FIRST,)))
    assert reply.body == b'{"lockOKMQSet":[{"brokerName":"broker-a","queueId":0,"topic":"T"}]}'
    assert clients.lock("go") == LockOkBody(())
    assert clients.lock("java") == LockOkBody((FIRST,))
    clients.unlock("go")
    assert clients.lock("java") == LockOkBody((FIRST,))


@pytest.mark.parametrize("encoding", [SerializeType.JSON, SerializeType.ROCKETMQ])
def test_epochs_in_json_are_texts(encoding: SerializeType) -> None:
    """A peer that agreed on another encoding than MSGPACK reads and writes them so."""
    peer = Peer(encoding, lock_mode="fenced")
    request = encode_body(LockBatchBody("G", "a", (FIRST,), (0,)), encoding)
    assert b'"epochs":["0-0"]' in request
    reply = peer.answer(R.LOCK_BATCH_MQ, None, request)
    assert b'"epochs":["%d-1"]' % NOW_MS in reply.body


def test_those_who_wait_are_told_when_a_queue_is_free() -> None:
    """Clients with epochs get the queues; others a notice that members changed, which makes them look at once."""
    clients = Clients()
    epoch = clients.claim("a")
    assert clients.claim("b") == 0
    assert clients.lock("java") == LockOkBody(())
    clients.unlock("b", epoch)
    assert clients.told("b") == clients.told("java") == [], "a stale unlock frees nobody"
    clients.unlock("a", epoch)
    assert clients.told("b") == [(R.LOCKS_RELEASED, LocksReleasedBody("G", (FIRST,)))]
    assert clients.told("java") == [(R.NOTIFY_CONSUMER_IDS_CHANGED, "G")]
    assert clients.told("a") == []


def test_a_group_without_notices_is_not_notified() -> None:
    """The setting of RocketMQ holds for unmodified clients."""
    clients = Clients(notify_consumer_ids_changed=False)
    epoch = clients.claim("a")
    clients.lock("java")
    clients.unlock("a", epoch)
    assert clients.told("java") == []


def test_a_turn_of_the_loop_tells_once() -> None:
    """However many queues are freed in it, in however many requests."""
    clients = Clients()
    later: list[Any] = []
    clients.first.broker.work.soon = later.append
    grants = clients.lock("a", 0, 0).grants or ()
    clients.lock("b", 0, 0)
    clients.unlock("a", grants[0].epoch)
    clients.unlock("a", 0, grants[1].epoch)
    assert clients.told("b") == []
    while later:
        later.pop(0)()
    assert clients.told("b") == [(R.LOCKS_RELEASED, LocksReleasedBody("G", (FIRST, SECOND)))]


def test_a_lost_connection_begins_the_delay_and_its_end_is_told() -> None:
    """Through the hooks that the server calls."""
    clients = Clients()
    epoch = clients.claim("a")
    clients.claim("b")
    broker, gone = clients.first.broker, clients["a"].connection
    broker.on_closed(gone)
    broker.ownership.connection_ended(gone, clients.first.now_ms)
    assert clients.lock("c", 0).refusals == (LockRefusal(FIRST, "HELD", "a", 3000),)
    assert fenced(broker).table.next_due_ms == NOW_MS + 3000
    clients.pass_ms(3000)
    broker.ownership.end_due(clients.first.now_ms)
    assert clients.told("b") == clients.told("c") == [(R.LOCKS_RELEASED, LocksReleasedBody("G", (FIRST,)))]
    assert clients.claim("b") > epoch
    events = [event for event in clients.first.log.events if event[1] in ("locks_delayed", "lock_ended")]
    assert events == [
        ("info", "locks_delayed", {"peer": "a", "count": 1}),
        ("info", "lock_ended", {
            "group": "G", "client_id": "a", "why": "connection lost", "queue": str(FIRST), "epoch": f"{NOW_MS}-1"}),
    ]  # fmt: skip


def test_many_locks_of_a_connection_end_in_steps() -> None:
    """All as of the end of the connection, and others have their turns between."""
    clients, queues = Clients(), tuple(queues_of("many", 450))
    clients.first.make_topics("many", queue_nums=450)
    assert clients["a"].answer(R.LOCK_BATCH_MQ, None, LockBatchBody("G", "a", queues, (0,) * 450)).code == 0
    broker, gone, turns = clients.first.broker, clients["a"].connection, list[Callable[[], None]]()
    broker.work.soon = turns.append
    broker.ownership.connection_ended(gone, clients.first.now_ms)
    while turns:
        clients.pass_ms(10)
        turns.pop(0)()
    counts = [fields["count"] for _, event, fields in clients.first.log.events if event == "locks_delayed"]
    assert counts == [200, 200, 50]
    locks = [fenced(broker).table.entry("G", "many", queue.queue_id) for queue in queues]
    assert {lock and lock.ends_ms for lock in locks} == {NOW_MS + 3000}


def test_an_end_that_the_broker_decided_on_is_no_delay() -> None:
    """A connection that it closed for its silence."""
    clients = Clients()
    clients.claim("a")
    broker, gone = clients.first.broker, clients["a"].connection
    gone.ended_by_peer = False
    broker.on_closed(gone)
    broker.ownership.connection_ended(gone, clients.first.now_ms)
    clients.pass_ms(LEASE_MS - 1)
    assert clients.claim("b") == 0
    clients.pass_ms(1)
    assert clients.claim("b")


def test_unregistering_frees_the_queues_of_the_client() -> None:
    """Over its own connection alone."""
    clients = Clients()
    clients.lock("java")
    clients.lock("go")
    header = UnregisterClientRequestHeader("java", consumer_group="G")
    clients["go"].answer(R.UNREGISTER_CLIENT, header)
    assert clients.told("go") == []
    clients["java"].answer(R.UNREGISTER_CLIENT, header)
    assert clients.told("go") == [(R.NOTIFY_CONSUMER_IDS_CHANGED, "G")]
    assert clients.lock("go") == LockOkBody((FIRST,))


def test_rows_show_epoch_draining_and_who_waits() -> None:
    """LIST_LOCKS of a broker with fenced locks."""
    clients = Clients()
    epoch = clients.claim("a")
    clients.claim("b")
    clients.pass_ms(1000)
    reply = clients["a"].answer(R.LIST_LOCKS, ListLocksRequestHeader("G"))
    (row,) = decode_body(LockTableBody, reply.body, reply.serialize_type).rows
    assert row == ("G", FIRST, "a", 1000, LEASE_MS - 1001, 1000, epoch, False, 1)
    clients.first.broker.ownership.connection_ended(clients["a"].connection, NOW_MS + 1000)
    reply = clients["b"].answer(R.LIST_LOCKS, ListLocksRequestHeader("G"))
    (row,) = decode_body(LockTableBody, reply.body, reply.serialize_type).rows
    assert (row.remaining_ms, row.draining) == (2999, True)


def test_a_faithful_broker_ignores_epochs() -> None:
    """Its reply has no grants, by which a client knows that it has no fenced lock."""
    peer = Peer(SerializeType.MSGPACK)
    reply = peer.answer(R.LOCK_BATCH_MQ, None, LockBatchBody("G", "a", (FIRST,), (0,)))
    assert decode_body(LockOkBody, reply.body, reply.serialize_type) == LockOkBody((FIRST,))
    assert peer.answer(R.UNLOCK_BATCH_MQ, None, LockBatchBody("G", "a", (FIRST,), (1,))).code == 0
    assert len(peer.broker.ownership.table) == 0


def test_a_silent_owner_leaves_its_group_when_its_lease_ends() -> None:
    """RocketMQ keeps a member without heartbeats for 120 s; nobody would ask for its queues until then."""
    clients = Clients()
    for name in ("A", "B"):
        clients.join(name)
    clients.claim("A")
    clients.pass_ms(LEASE_MS // 2 - 1)
    clients.join("B")
    clients.told("B")
    clients.pass_ms(LEASE_MS // 2)
    clients.end_locks()
    assert clients.members() == ("A", "B")
    clients.pass_ms(1)
    clients.end_locks()
    assert clients.members() == ("B",)
    assert (R.NOTIFY_CONSUMER_IDS_CHANGED, "G") in clients.told("B")
    clients.join("A")
    assert clients.members() == ("B", "A")


@pytest.mark.parametrize("sign", ["another lock", "a heartbeat"])
def test_an_owner_that_gives_a_sign_of_life_stays_in_its_group(sign: str) -> None:
    """One lease may end because an unlock was lost; the client is no dead one for that."""
    clients = Clients()
    clients.join("A")
    clients.lock("A", 0)
    clients.pass_ms(LEASE_MS // 2 + 1)
    if sign == "a heartbeat":
        clients.join("A")
    else:
        body = LockBatchBody("G", "A", (SECOND,), (0,))
        assert clients["A"].answer(R.LOCK_BATCH_MQ, None, body).code == 0
    clients.pass_ms(LEASE_MS // 2 - 1)
    clients.end_locks()
    assert clients.members() == ("A",)


def test_an_owner_that_is_silent_in_one_group_leaves_that_group() -> None:
    """A lock of another group, over the same connection, is no sign of life in this one."""
    clients = Clients()
    clients.join("A")
    clients.lock("A", 0)
    clients.pass_ms(LEASE_MS // 2 + 1)
    body = LockBatchBody("other", "A", (FIRST,), (0,))
    assert clients["A"].answer(R.LOCK_BATCH_MQ, None, body).code == 0
    clients.pass_ms(LEASE_MS // 2 - 1)
    clients.end_locks()
    assert clients.members() == ()


def test_one_look_for_a_silent_owner_serves_all_its_leases_that_end_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look reads all locks of a connection: one for each of thousands of leases would stop the loop for a minute."""
    clients = Clients()
    looks: list[int] = []
    monkeypatch.setattr(fenced(clients.first.broker).table, "is_silent", lambda _lock, now_ms: looks.append(now_ms))
    clients.lock("a", 0, 0)
    clients.pass_ms(LEASE_MS)
    clients.end_locks()
    assert looks == [NOW_MS + LEASE_MS]
    clients.lock("a", 0, 0)
    clients.pass_ms(LEASE_MS)
    clients.end_locks()
    assert looks[1:] == [NOW_MS + 2 * LEASE_MS]


@pytest.mark.parametrize("encoding", list(SerializeType), ids=lambda t: t.name)
def test_a_renewal_of_all_queues_has_the_same_answer_by_the_shorter_way(encoding: SerializeType) -> None:
    """With log level debug the broker makes an answer for each queue; the bytes and the times are equal."""
    seen = []
    for log_debug in (False, True):
        peer = Peer(encoding, lock_mode="fenced", log_debug=log_debug)
        peer.make_topics("T")
        claimed = peer.answer(R.LOCK_BATCH_MQ, None, LockBatchBody("G", "c", (FIRST, SECOND), (0, 0)))
        epochs = tuple(grant.epoch for grant in decode_body(LockOkBody, claimed.body, encoding).grants or ())
        peer.now_ms += LEASE_MS - 1
        renewed = peer.answer(R.LOCK_BATCH_MQ, None, LockBatchBody("G", "c", (FIRST, SECOND), epochs))
        assert len(decode_body(LockOkBody, renewed.body, encoding).grants or ()) == 2
        assert log_debug is ("lock_renewed" in peer.log.names())
        seen.append((renewed.body, tuple(peer.broker.ownership.table.rows(peer.now_ms))))
    assert seen[0] == seen[1]


def test_a_renewal_of_some_queues_is_answered_for_each() -> None:
    """One queue has another epoch: the other one is renewed, and its lease begins anew."""
    clients = Clients()
    grants = clients.lock("a", 0, 0).grants
    assert grants is not None
    clients.pass_ms(LEASE_MS - 1)
    renewal = clients.lock("a", grants[0].epoch, grants[1].epoch - 1)
    assert renewal.grants == (LockGrant(grants[0].epoch, LEASE_MS),)
    assert [refusal.answer for refusal in renewal.refusals or ()] == ["STALE"]
    clients.pass_ms(1)
    remaining_ms = [row.remaining_ms for row in tuple(clients.first.broker.ownership.table.rows(clients.first.now_ms))]
    assert remaining_ms == [LEASE_MS - 2, -1]
