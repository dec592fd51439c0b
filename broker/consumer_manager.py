"""Who is online: consumer groups with their channels and subscriptions, and producer groups (wire.md 9.2, 9.3).

Everything is kept in the order in which it came, so that equal histories give equal answers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from lockstep.broker.connection import Connection
from lockstep.protocol.heartbeat import ConsumeFromWhere, ConsumerData, ConsumeType, MessageModel, SubscriptionData

__all__ = ["ClientChannel", "ConsumerGroup", "ConsumerManager", "Departure", "ProducerManager"]


@dataclass(slots=True)
class ClientChannel:
    client_id: str
    language: int
    version: int
    last_update_ms: int


@dataclass(slots=True)
class ConsumerGroup:
    consume_type: ConsumeType
    message_model: MessageModel
    consume_from_where: ConsumeFromWhere
    channels: dict[Connection, ClientChannel] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)

    def client_ids(self) -> tuple[str, ...]:
        """Each once: a client that reconnects may own two channels for a moment, and must not count as two."""
        return tuple(dict.fromkeys(channel.client_id for channel in self.channels.values()))


class Departure(NamedTuple):
    consumer_group: str
    client_id: str


class ConsumerManager:
    def __init__(self) -> None:
        self._groups: dict[str, ConsumerGroup] = {}

    @property
    def groups(self) -> Mapping[str, ConsumerGroup]:
        return self._groups

    def register(self, data: ConsumerData, connection: Connection, channel: ClientChannel) -> bool:
        """One consumer entry of a heartbeat. True when members or subscriptions changed: then the group is told.

        The latest heartbeat of any member decides the group's kind and subscriptions.
        """
        group = self._groups.get(data.group_name)
        if group is None:
            group = ConsumerGroup(data.consume_type, data.message_model, data.consume_from_where)
            self._groups[data.group_name] = group
        group.consume_type = data.consume_type
        group.message_model = data.message_model
        group.consume_from_where = data.consume_from_where
        known = group.channels.get(connection)
        group.channels[connection] = channel
        joined = known is None or known.client_id != channel.client_id
        return _merge_subscriptions(group.subscriptions, data.subscriptions) or joined

    def unregister(self, consumer_group: str, connection: Connection) -> Departure | None:
        """Take a channel out of one group; None when it was not in it. An empty group is forgotten."""
        group = self._groups.get(consumer_group)
        channel = group.channels.pop(connection, None) if group is not None else None
        if group is None or channel is None:
            return None
        if not group.channels:
            del self._groups[consumer_group]
        return Departure(consumer_group, channel.client_id)

    def on_closed(self, connection: Connection) -> list[Departure]:
        """Take a channel out of every group."""
        departures = (self.unregister(group, connection) for group in list(self._groups))
        return [departure for departure in departures if departure is not None]

    def expired(self, now_ms: int, timeout_ms: int) -> list[Connection]:
        """Channels without a heartbeat for longer than `timeout_ms`. They stay until `on_closed`."""
        late = (
            connection
            for group in self._groups.values()
            for connection, channel in group.channels.items()
            if now_ms - channel.last_update_ms > timeout_ms
        )
        return list(dict.fromkeys(late))

    def client_ids(self, consumer_group: str) -> tuple[str, ...]:
        group = self._groups.get(consumer_group)
        return group.client_ids() if group is not None else ()

    def connections(self, consumer_group: str) -> list[Connection]:
        group = self._groups.get(consumer_group)
        return list(group.channels) if group is not None else []


def _merge_subscriptions(table: dict[str, SubscriptionData], latest: tuple[SubscriptionData, ...]) -> bool:
    """A new topic and a topic no longer named are changes; a higher version of a known one is only taken over."""
    changed = False
    for subscription in latest:
        known = table.get(subscription.topic)
        changed = changed or known is None
        if known is None or known.sub_version < subscription.sub_version:
            table[subscription.topic] = subscription
    wanted = {subscription.topic for subscription in latest}
    for topic in [topic for topic in table if topic not in wanted]:
        del table[topic]
        changed = True
    return changed


class ProducerManager:
    def __init__(self) -> None:
        self._groups: dict[str, dict[Connection, ClientChannel]] = {}
        self._asked = 0

    def any_connection(self, producer_group: str) -> Connection | None:
        """One that is open, another each time; None when nobody of the group is there."""
        connections = [connection for connection in self._groups.get(producer_group, ()) if connection.is_open]
        self._asked += 1
        return connections[self._asked % len(connections)] if connections else None

    def find(self, client_id: str) -> Connection | None:
        """The connection of a producer that is there."""
        for channels in self._groups.values():
            for connection, channel in channels.items():
                if channel.client_id == client_id and connection.is_open:
                    return connection
        return None

    @property
    def groups(self) -> Mapping[str, Mapping[Connection, ClientChannel]]:
        return self._groups

    def register(self, producer_group: str, connection: Connection, channel: ClientChannel) -> None:
        self._groups.setdefault(producer_group, {})[connection] = channel

    def unregister(self, producer_group: str, connection: Connection) -> None:
        channels = self._groups.get(producer_group, {})
        channels.pop(connection, None)
        if not channels:
            self._groups.pop(producer_group, None)

    def on_closed(self, connection: Connection) -> None:
        for group in list(self._groups):
            self.unregister(group, connection)

    def expired(self, now_ms: int, timeout_ms: int) -> list[Connection]:
        late = (
            connection
            for channels in self._groups.values()
            for connection, channel in channels.items()
            if now_ms - channel.last_update_ms > timeout_ms
        )
        return list(dict.fromkeys(late))
