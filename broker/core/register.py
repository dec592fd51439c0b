"""Register: a client says what it is a member of, or that it leaves. The members of its groups hear of it (wire.md 9).

Both return steps, after which the front answers: a heartbeat may create many topics and notify many members.
"""

from collections.abc import Sequence
from typing import Final

from lockstep.broker.catalog.members import ClientChannel
from lockstep.broker.core.broker import Broker
from lockstep.broker.core.refused import Reason, Refused
from lockstep.broker.peer import Peer
from lockstep.broker.sliced_work import Steps
from lockstep.protocol.bodies.heartbeat import ConsumerData
from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.names import check_group

__all__ = ["check_size", "register", "unregister"]

# Groups of consumers that one step registers: each may create a topic, and is logged.
_GROUPS_A_STEP: Final = 4
_PRODUCERS_A_STEP: Final = 256
_TOPICS_LOGGED_MAX: Final = 20


def check_size(broker: Broker, peer: Peer, groups: int, subscriptions: int, now_ms: int) -> None:
    """Raises Refused for a heartbeat with too many groups or subscriptions. A front asks before it reads them.

    Args:
        subscriptions: Subscriptions of all groups, plus their tags.
    """
    _check_limit(broker, peer, "heartbeat_groups_max", groups, now_ms)
    _check_limit(broker, peer, "heartbeat_subscriptions_max", subscriptions, now_ms)


def register(
    broker: Broker, peer: Peer, channel: ClientChannel, consumers: Sequence[ConsumerData], producers: Sequence[str]
) -> Steps:
    """Make a client a member of these groups, and notify the members of each consumer group that changed.

    A notice waits until name servers know the group's retry topic, so that a notified member finds it.

    Args:
        channel: The client, with the time of its heartbeat. The front has checked the length of its id.
        producers: Names of producer groups. The front has checked their length.

    Returns:
        Steps to run. The first one raises Refused for too many memberships; then no table of members has changed.
    """
    groups = [consumer.group_name for consumer in consumers]
    # Now, not in a step: a commit that comes next waits for no steps, and is checked against it.
    broker.ownership.bind(peer, channel.client_id, groups, channel.last_update_ms)
    return _register(broker, peer, channel, consumers, producers)


def _register(
    broker: Broker, peer: Peer, channel: ClientChannel, consumers: Sequence[ConsumerData], producers: Sequence[str]
) -> Steps:
    _check_memberships(broker, peer, consumers, producers, channel.last_update_ms)
    changed = []
    for number, consumer in enumerate(consumers, 1):
        if _register_consumer(broker, peer, consumer, channel):
            changed.append(consumer.group_name)
        if number % _GROUPS_A_STEP == 0:
            yield None
    for number, producer_group in enumerate(producers, 1):
        broker.members.producers.register(producer_group, peer, channel)
        if number % _PRODUCERS_A_STEP == 0:
            yield None
    if changed and broker.catalog.topics_registered is not None:
        yield broker.catalog.topics_registered
    for number, group in enumerate(changed, 1):
        yield from broker.notices(group)
        if number % _GROUPS_A_STEP == 0:
            yield None


def _check_memberships(
    broker: Broker, peer: Peer, consumers: Sequence[ConsumerData], producers: Sequence[str], now_ms: int
) -> None:
    """Raises Refused when there would be too many memberships."""
    consuming, producing = broker.members.consumers.memberships, broker.members.producers.memberships
    new = consuming.new_count(peer, (consumer.group_name for consumer in consumers))
    new += producing.new_count(peer, producers)
    if new:
        of_peer = len(consuming.of(peer)) + len(producing.of(peer))
        _check_limit(broker, peer, "groups_per_connection_max", of_peer + new, now_ms)
        _check_limit(broker, peer, "memberships_max", consuming.count + producing.count + new, now_ms)
    growth = broker.members.consumers.character_growth(consumers)
    if growth:
        characters = broker.members.consumers.characters + growth
        _check_limit(broker, peer, "subscription_characters_max", characters, now_ms)


def _check_limit(broker: Broker, peer: Peer, setting: str, count: int, now_ms: int) -> None:
    """Raises Refused and logs `limit_met` when `count` exceeds the setting."""
    maximum = getattr(broker.config, setting)
    if count > maximum:
        broker.limits.met(setting, maximum, now_ms, peer.address)
        raise Refused(Reason.INVALID, f"{count} exceed the broker's setting {setting}: {maximum}")


def _register_consumer(broker: Broker, peer: Peer, consumer: ConsumerData, channel: ClientChannel) -> bool:
    """Register one consumer. Returns whether members or subscriptions changed."""
    group, now_ms = consumer.group_name, channel.last_update_ms
    try:
        check_group(group)
    except LocalProtocolError as error:
        broker.log.warning("heartbeat_group_invalid", peer=peer.address, reason=str(error))
        return False
    config = broker.catalog.groups.find(group, now_ms)
    if config is not None:  # otherwise its pulls are refused
        broker.catalog.topics.ensure_retry_topic(group, config.retry_queue_nums, now_ms)
    if broker.config.property_filter and not channel.is_light:  # compiling costs time
        broker.messages.filters.register(group, consumer.subscriptions, now_ms)
    changed = broker.members.consumers.register(consumer, peer, channel)
    if not channel.is_light and broker.members.consumers.groups[group].newly_different(
        peer, consumer.subscriptions, now_ms
    ):
        why = "the members subscribe to different topics or tags: they miss messages, and queues may have no owner"
        broker.log.warning("subscriptions_differ", group=group, client_id=channel.client_id, why=why)
    if not changed:
        return False
    subscribed = [subscription.topic for subscription in consumer.subscriptions[:_TOPICS_LOGGED_MAX]]
    broker.log.info("consumer_group_changed", group=group, client_id=channel.client_id, topics=subscribed)
    return True


def unregister(
    broker: Broker, peer: Peer, client_id: str, consumer_group: str | None, producer_group: str | None, now_ms: int
) -> Steps:
    """A client leaves a consumer group, a producer group or both; the members of the first are notified.

    Returns:
        Steps to run.
    """
    if consumer_group:
        broker.ownership.client_left(consumer_group, client_id, peer, now_ms)
        # First its calls end, so that none of them gets what it held.
        broker.messages.pops.held.on_left(peer, consumer_group, now_ms)
        # The connection may end later, or never: it may be of other groups, too.
        broker.messages.pops.client_gone(client_id, now_ms + broker.config.pop_grace_ms, consumer_group)
    return _unregister(broker, peer, consumer_group, producer_group)


def _unregister(broker: Broker, peer: Peer, consumer_group: str | None, producer_group: str | None) -> Steps:
    if producer_group:
        broker.members.producers.unregister(producer_group, peer)
    if consumer_group:
        departure = broker.members.consumers.unregister(consumer_group, peer)
        if departure is not None:
            yield from broker.on_departure(departure)
