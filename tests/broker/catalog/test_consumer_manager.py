"""Groups, channels and subscriptions (wire.md 9.2, 9.3)."""

from lockstep.broker.catalog.members import ClientChannel, ConsumerManager, Departure, ProducerManager
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from tests.broker.helpers import NOW_MS, FakeConnection, consumer

T = SubscriptionData.parse("T", "*", 1)
U = SubscriptionData.parse("U", "A || B", 1)


def channel(client_id: str, now_ms: int = NOW_MS) -> ClientChannel:
    return ClientChannel(client_id, 0, 409, now_ms)


def test_a_new_member_is_a_change_and_its_next_heartbeat_is_not() -> None:
    """Equal heartbeats change nothing."""
    manager, connection = ConsumerManager(), FakeConnection()
    assert manager.register(consumer("G", T), connection, channel("a"))
    assert not manager.register(consumer("G", T), connection, channel("a"))
    assert manager.client_ids("G") == ("a",)


def test_another_client_of_a_connection_is_a_change() -> None:
    """The list of the members has another name in it, so the others must share the queues anew."""
    manager, connection = ConsumerManager(), FakeConnection()
    manager.register(consumer("G", T), connection, channel("a"))
    assert manager.register(consumer("G", T), connection, channel("b"))
    assert manager.client_ids("G") == ("b",)


def test_topics_added_and_removed_are_changes_of_the_group() -> None:
    """The last heartbeat of any member decides what the group subscribes to."""
    manager, first, second = ConsumerManager(), FakeConnection(), FakeConnection()
    manager.register(consumer("G", T), first, channel("a"))
    manager.register(consumer("G", T), second, channel("b"))
    assert manager.register(consumer("G", T, U), first, channel("a"))
    assert list(manager.groups["G"].subscriptions) == ["T", "U"]
    assert manager.register(consumer("G", T), second, channel("b"))
    assert list(manager.groups["G"].subscriptions) == ["T"]


def test_only_a_higher_version_replaces_a_subscription_and_that_is_no_change() -> None:
    """An older or equal version is ignored."""
    manager, connection = ConsumerManager(), FakeConnection()
    manager.register(consumer("G", T), connection, channel("a"))
    for expression, version in [("new", 2), ("old", 0), ("equal", 2)]:
        subscription = SubscriptionData.parse("T", expression, version)
        assert not manager.register(consumer("G", subscription), connection, channel("a"))
    assert manager.groups["G"].subscriptions["T"].sub_string == "new"


def test_a_client_with_two_channels_counts_once() -> None:
    """As long as an old connection lingers, a reconnected client must not be given two shares."""
    manager = ConsumerManager()
    for client_id in ("a", "b", "a"):
        manager.register(consumer("G", T), FakeConnection(), channel(client_id))
    assert manager.client_ids("G") == ("a", "b")
    assert len(manager.connections("G")) == 3


def test_a_closed_connection_leaves_every_group_and_empty_groups_vanish() -> None:
    """Departures name group and client, in the order in which the groups came."""
    manager, gone, stays = ConsumerManager(), FakeConnection(), FakeConnection()
    manager.register(consumer("G", T), gone, channel("a"))
    manager.register(consumer("H", T), gone, channel("a"))
    manager.register(consumer("H", T), stays, channel("b"))
    assert list(manager.on_closed(gone)) == [Departure("G", "a"), Departure("H", "a")]
    assert list(manager.groups) == ["H"]
    assert list(manager.on_closed(gone)) == []


def test_unregistering_leaves_only_the_named_group() -> None:
    """An unknown group is no departure."""
    manager, connection = ConsumerManager(), FakeConnection()
    manager.register(consumer("G", T), connection, channel("a"))
    manager.register(consumer("H", T), connection, channel("a"))
    assert manager.unregister("G", connection) == Departure("G", "a")
    assert manager.unregister("G", connection) is None
    assert list(manager.groups) == ["H"]


def test_channels_expire_after_their_timeout_and_not_at_it() -> None:
    """Each connection is named once, however many groups it is in."""
    manager, connection = ConsumerManager(), FakeConnection()
    manager.register(consumer("G", T), connection, channel("a"))
    manager.register(consumer("H", T), connection, channel("a"))
    assert manager.expired(NOW_MS + 120_000, 120_000) == []
    assert manager.expired(NOW_MS + 120_001, 120_000) == [connection]
    manager.register(consumer("G", T), connection, channel("a", NOW_MS + 120_000))
    manager.register(consumer("H", T), connection, channel("a", NOW_MS + 120_000))
    assert manager.expired(NOW_MS + 120_001, 120_000) == []


def test_producers_come_and_go() -> None:
    """Groups of producers are kept by connection and expire like consumers."""
    manager, connection = ProducerManager(), FakeConnection()
    manager.register("PG", connection, channel("p"))
    assert manager.expired(NOW_MS + 120_001, 120_000) == [connection]
    manager.unregister("other", connection)
    assert list(manager.groups) == ["PG"]
    assert list(manager.on_closed(connection)) == ["PG"]
    assert not manager.groups
