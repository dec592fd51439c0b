"""Connected clients: consumer groups with their channels and subscriptions, and producer groups (wire.md 9.2, 9.3).

All tables are in order of arrival, so that equal histories give equal answers.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from zlib import crc32

from lockstep.broker.peer import Peer
from lockstep.protocol.bodies.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from lockstep.protocol.filter import is_tag_type
from lockstep.protocol.messages.ids import pack_host

# As which the hash of a tag counts.
_CODE_CHARACTERS: Final = 8
_DIFFERENT_MS: Final = 30_000  # the heartbeat interval of RocketMQ's clients: by then each has said what it wants
_SAID: Final = -1
_LOOPBACK: Final = bytes((127, 0, 0, 1))

__all__ = ["ClientChannel", "ConsumerGroup", "ConsumerManager", "Departure", "Members", "ProducerManager", "host_bytes"]


@dataclass(slots=True)
class ClientChannel:
    """
    Args:
        fingerprint: Of the last heartbeat that had the subscriptions; 0: the client sends none (docs/wire.md 13).
        is_light: The heartbeat leaves the subscriptions of its groups as they are.
        client_type: A ClientType of apache.rocketmq.v2, of a client of gRPC; "": it speaks RocketMQ 4's protocol.
    """

    client_id: str
    language: int
    version: int
    last_update_ms: int  # of the last heartbeat
    first_update_ms: int = 0
    fingerprint: int = 0
    is_light: bool = False
    client_type: str = ""


@dataclass(slots=True)
class ConsumerGroup:
    consume_type: ConsumeType
    message_model: MessageModel
    consume_from_where: ConsumeFromWhere
    channels: dict[Peer, ClientChannel] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    characters: int = 0  # of the subscriptions
    texts: dict[Peer, int] = field(default_factory=dict)  # a checksum of what each member subscribes to
    ids: tuple[str, ...] | None = None  # None: not listed since a member came or left
    different_ms: int | None = None  # since when members subscribe to different things; _SAID: it was said

    def client_ids(self) -> tuple[str, ...]:
        """Each id once: a client that reconnects may have two channels for a moment."""
        if self.ids is None:
            self.ids = tuple(dict.fromkeys(channel.client_id for channel in self.channels.values()))
        return self.ids

    def newly_different(self, connection: Peer, subscriptions: Iterable[SubscriptionData], now_ms: int) -> bool:
        """Note what a member subscribes to. Returns True once if members differ for longer than a heartbeat interval.

        Members that change one after the other differ for a moment only. When all are equal, it begins anew.
        """
        # A filter by tags has three names.
        wanted = sorted(
            f"{one.topic} {one.sub_string} {not is_tag_type(one.expression_type) and one.expression_type}"
            for one in subscriptions
        )
        before, text = self.texts.get(connection), crc32("\n".join(wanted).encode("utf-8", "replace"))
        self.texts[connection] = text
        if text == before and self.different_ms is None:  # nearly each time: all were equal, and nothing changed
            return False
        if len(set(self.texts.values())) < 2:
            self.different_ms = None
            return False
        if self.different_ms is None:
            self.different_ms = now_ms
        if self.different_ms < 0 or now_ms - self.different_ms < _DIFFERENT_MS:
            return False
        self.different_ms = _SAID
        return True


class Departure(NamedTuple):
    consumer_group: str
    client_id: str


class _Memberships:
    """Peer -> its groups, in order of joining. `count`: memberships of all connections."""

    def __init__(self) -> None:
        self._groups_of: dict[Peer, dict[str, None]] = {}
        self.count = 0

    def of(self, connection: Peer) -> Mapping[str, None]:
        return self._groups_of.get(connection, {})

    def add(self, connection: Peer, group: str) -> None:
        groups = self._groups_of.setdefault(connection, {})
        self.count += group not in groups
        groups[group] = None

    def discard(self, connection: Peer, group: str) -> None:
        groups = self._groups_of.get(connection, {})
        if group in groups:
            del groups[group]
            self.count -= 1
        if not groups:
            self._groups_of.pop(connection, None)

    def new_count(self, connection: Peer, groups: Iterable[str]) -> int:
        """How many of these groups the connection has not joined."""
        return len(set(groups).difference(self.of(connection)))


class ConsumerManager:
    """Consumer groups with members. The groups of one connection are found without a search."""

    def __init__(self) -> None:
        self._groups: dict[str, ConsumerGroup] = {}
        self.memberships = _Memberships()
        self.characters = 0  # of the subscriptions of all groups

    @property
    def groups(self) -> Mapping[str, ConsumerGroup]:
        return self._groups

    def register(self, data: ConsumerData, connection: Peer, channel: ClientChannel) -> bool:
        """Register one consumer of a heartbeat. The latest heartbeat of any member sets the group's type and
        subscriptions.

        Returns:
            Whether members or subscriptions changed. Then the group must be notified.
        """
        group = self._groups.get(data.group_name)
        if group is None:
            group = ConsumerGroup(data.consume_type, data.message_model, data.consume_from_where)
            self._groups[data.group_name] = group
        group.consume_type = data.consume_type
        group.message_model = data.message_model
        group.consume_from_where = data.consume_from_where
        known = group.channels.get(connection)
        channel.first_update_ms = channel.last_update_ms if known is None else known.first_update_ms
        group.channels[connection] = channel
        self.memberships.add(connection, data.group_name)
        joined = known is None or known.client_id != channel.client_id
        if joined:
            group.ids = None
        changed = not channel.is_light and _merge_subscriptions(group.subscriptions, data.subscriptions)
        self.characters -= group.characters
        group.characters = _characters_of(group.subscriptions.values())
        self.characters += group.characters
        return changed or joined

    def character_growth(self, consumers: Iterable[ConsumerData]) -> int:
        """By how much `characters` may grow with these consumers; never below 0."""
        growth = 0
        for data in consumers:
            known = self._groups.get(data.group_name)
            growth += max(0, _characters_of(data.subscriptions) - (known.characters if known is not None else 0))
        return growth

    def unregister(self, consumer_group: str, connection: Peer) -> Departure | None:
        """Remove a channel from a group; None when it was no member. A group without members is removed."""
        group = self._groups.get(consumer_group)
        channel = group.channels.pop(connection, None) if group is not None else None
        if group is None or channel is None:
            return None
        group.ids = None
        group.texts.pop(connection, None)
        self.memberships.discard(connection, consumer_group)
        if not group.channels:
            del self._groups[consumer_group]
            self.characters -= group.characters
        return Departure(consumer_group, channel.client_id)

    def on_closed(self, connection: Peer) -> Iterator[Departure]:
        """Remove a channel from its groups, one group for each departure that the caller takes."""
        for group in list(self.memberships.of(connection)):
            departure = self.unregister(group, connection)
            if departure is not None:
                yield departure

    def expired(self, now_ms: int, timeout_ms: int) -> list[Peer]:
        """Connections without a heartbeat for more than `timeout_ms`. They stay until `on_closed`."""
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

    def has_fingerprint(self, fingerprint: int, connection: Peer, groups: Iterable[str]) -> bool:
        """Whether these groups have the subscriptions of a heartbeat of this connection with this fingerprint."""
        known = [members.channels.get(connection) for group in groups if (members := self._groups.get(group))]
        return bool(known) and all(channel is not None and channel.fingerprint == fingerprint for channel in known)

    def is_broadcasting(self, consumer_group: str) -> bool:
        """Whether each member pulls all queues."""
        members = self._groups.get(consumer_group)
        return members is not None and members.message_model is MessageModel.BROADCASTING

    def connections(self, consumer_group: str) -> list[Peer]:
        group = self._groups.get(consumer_group)
        return list(group.channels) if group is not None else []


def _characters_of(subscriptions: Iterable[SubscriptionData]) -> int:
    return sum(
        len(topic) + len(text) + sum(map(len, tags)) + len(codes) * _CODE_CHARACTERS + len(kind)
        for topic, text, tags, codes, _, kind, _ in subscriptions
    )


def _merge_subscriptions(table: dict[str, SubscriptionData], latest: tuple[SubscriptionData, ...]) -> bool:
    """Merge subscriptions. Returns whether a topic was added or removed; a new version alone is no change."""
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
    """Producer groups with members."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[Peer, ClientChannel]] = {}
        self._clients: dict[str, dict[Peer, int]] = {}  # client id -> its connections, each with its number of groups
        self._turn = 0
        self.memberships = _Memberships()

    def any_connection(self, producer_group: str) -> Peer | None:
        """An open connection of the group, each in turn; None when there is none."""
        connections = [connection for connection in self._groups.get(producer_group, ()) if connection.is_open]
        self._turn += 1
        return connections[self._turn % len(connections)] if connections else None

    def find(self, client_id: str) -> Peer | None:
        """An open connection of a producer, by client id."""
        return next((connection for connection in self._clients.get(client_id, ()) if connection.is_open), None)

    @property
    def groups(self) -> Mapping[str, Mapping[Peer, ClientChannel]]:
        return self._groups

    def register(self, producer_group: str, connection: Peer, channel: ClientChannel) -> None:
        channels = self._groups.setdefault(producer_group, {})
        before = channels.get(connection)
        channels[connection] = channel
        self.memberships.add(connection, producer_group)
        if before is None or before.client_id != channel.client_id:
            connections = self._clients.setdefault(channel.client_id, {})
            connections[connection] = connections.get(connection, 0) + 1
            self._leave_client(before, connection)

    def unregister(self, producer_group: str, connection: Peer) -> None:
        channels = self._groups.get(producer_group, {})
        self._leave_client(channels.pop(connection, None), connection)
        self.memberships.discard(connection, producer_group)
        if not channels:
            self._groups.pop(producer_group, None)

    def _leave_client(self, channel: ClientChannel | None, connection: Peer) -> None:
        if channel is None:
            return
        connections = self._clients[channel.client_id]
        connections[connection] -= 1
        if not connections[connection]:
            del connections[connection]
        if not connections:
            del self._clients[channel.client_id]

    def on_closed(self, connection: Peer) -> Iterator[str]:
        """Remove a channel from its groups, one group for each name that the caller takes."""
        for group in list(self.memberships.of(connection)):
            self.unregister(group, connection)
            yield group

    def expired(self, now_ms: int, timeout_ms: int) -> list[Peer]:
        late = (
            connection
            for channels in self._groups.values()
            for connection, channel in channels.items()
            if now_ms - channel.last_update_ms > timeout_ms
        )
        return list(dict.fromkeys(late))


def host_bytes(host: str) -> bytes:
    """The 4 or 16 address bytes of a host. A host name becomes 127.0.0.1: a message id can only hold an address."""
    try:
        return pack_host(host)
    except ValueError:
        return _LOOPBACK


class Members:
    """The clients of a broker."""

    def __init__(self) -> None:
        self.consumers = ConsumerManager()
        self.producers = ProducerManager()
        self._born_hosts: dict[Peer, tuple[bytes, int]] = {}

    def born_host(self, connection: Peer) -> tuple[bytes, int]:
        """Address bytes and port of a peer, as they are stored in its messages."""
        born = self._born_hosts.get(connection)
        if born is None:
            host, _, port = connection.address.rpartition(":")
            born = self._born_hosts[connection] = (host_bytes(host.strip("[]")), int(port) if port.isdigit() else 0)
        return born

    def forget_host(self, connection: Peer) -> None:
        """A connection closed, and sends no more messages."""
        self._born_hosts.pop(connection, None)

    def refresh(self, now_ms: int) -> None:
        """Treat every client as if it had just sent a heartbeat."""
        members = [group.channels for group in self.consumers.groups.values()]
        for channels in (*members, *self.producers.groups.values()):
            for channel in channels.values():
                channel.last_update_ms = now_ms
