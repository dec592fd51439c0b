"""What is known of a cluster: read once, then rules look at it. Plain data, so that tests can write it down."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from lockstep.protocol.bodies.client import ConsumeStatus, ProcessQueueInfo, consumes_by_pop, consumes_in_order
from lockstep.protocol.bodies.lock_changes import LockChange
from lockstep.protocol.bodies.locks import LockTableRow
from lockstep.protocol.bodies.pop import DeliveryTableBody
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.texts import whole_number

__all__ = ["BrokerFacts", "ClusterFacts", "GroupFacts", "KeySpread", "MemberFacts", "QueueFacts", "TopicFacts"]

_STRATEGIES: Final = {  # as Java shows them, without package and hash -> their names in RocketMQ
    "AllocateMessageQueueAveragely": "AVG",
    "AllocateMessageQueueAveragelyByCircle": "AVG_BY_CIRCLE",
    "AllocateMessageQueueByConfig": "CONFIG",
    "AllocateMessageQueueConsistentHash": "CONSISTENT_HASH",
    "AllocateMessageQueueByMachineRoom": "MACHINE_ROOM",
    "AllocateMachineRoomNearby": "MACHINE_ROOM_NEARBY",
}


@dataclass(frozen=True)
class MemberFacts:
    """A member of a group.

    Args:
        address: Of its connection.
        others: Addresses of other connections to the same broker with this client id.
        others_live: They sent heartbeats beside this one. None: the broker does not say it, so that one may be the
            remains of a connection that was cut.
        properties: Of its running info (307); empty for clients that give none.
        subscriptions: Topic -> expression.
        process_queues, statuses: Its queues, and the statistics of its topics.
        has_info: It answered 307.
    """

    client_id: str
    address: str = ""
    language: str = "JAVA"
    properties: Mapping[str, str] = field(default_factory=dict)
    subscriptions: Mapping[str, str] = field(default_factory=dict)
    process_queues: Mapping[MessageQueue, ProcessQueueInfo] = field(default_factory=dict)
    statuses: Mapping[str, ConsumeStatus] = field(default_factory=dict)
    has_info: bool = True
    others: tuple[str, ...] = ()
    others_live: bool | None = None

    @property
    def orderly(self) -> bool | None:
        """None: it does not say."""
        return consumes_in_order(self.properties)

    @property
    def pops(self) -> bool:
        """It owns no queues, and takes no locks."""
        return consumes_by_pop(self.properties)

    def count(self, name: str) -> int:
        """A property that is a number; 0: it has none."""
        return whole_number(self.properties.get(name, "")) or 0

    def setting(self, name: str) -> str | None:
        """A property as all makes of clients would show it."""
        text = self.properties.get(name)
        if text is not None and name == "allocateMessageQueueStrategy":
            text = text.partition("@")[0].rpartition(".")[2].partition("-")[0]
            return _STRATEGIES.get(text, text)
        return text


class QueueFacts(NamedTuple):
    """A queue of a topic that a group subscribes to.

    Args:
        committed: -1: none is stored.
        consumed_ms: When the last message below `committed` was stored, epoch ms; 0: unknown.
    """

    committed: int
    end: int
    consumed_ms: int = 0

    @property
    def lag(self) -> int:
        return max(self.end - max(self.committed, 0), 0)


class BrokerFacts(NamedTuple):
    """A broker that the name servers know.

    Args:
        is_lockstep: None: it did not answer.
        up_ms: Since its start; 0: unknown.
        stored_tps, pulled_tps: Messages a second in its last ten seconds.
        store_ratio: The used share of its disk, or of its memory limit.
        sends_taken, sends_refused: Of a Lockstep broker since its start: sends that it handled from their bytes, and
            reads that began with a send and were handled request by request.
        error: Why it did not answer.
    """

    name: str
    address: str
    cluster: str = ""
    is_master: bool = True
    is_lockstep: bool | None = None
    version: str = ""
    up_ms: int = 0
    stored_tps: float = 0
    pulled_tps: float = 0
    store_ratio: float = 0
    sends_taken: int = 0
    sends_refused: int = 0
    error: str | None = None


class KeySpread(NamedTuple):
    """A sharding key of which recent messages are in several queues."""

    topic: str
    key: str
    queues: tuple[MessageQueue, ...]


@dataclass(frozen=True)
class GroupFacts:
    """A consumer group.

    Args:
        queues: Of the topics it subscribes to, without retry topics.
        locks, changes: The lock table, and the last changes of owners; None: the brokers are not Lockstep's.
        retry_lag: Messages of its retry topic that it has not consumed.
        oldest_ms: When the oldest message was stored that it has not consumed, epoch ms; 0: unknown, or there is none.
        dead_letter_ms: When its newest dead letter was stored; 0: there is none.
        ordered_at_broker: Its setting for clients of RocketMQ 5; None: the brokers do not say it.
        deliveries: What it popped in order; None: the brokers are not Lockstep's.
    """

    name: str
    members: tuple[MemberFacts, ...] = ()
    from_last_offset: bool = False
    broadcasting: bool = False
    queues: Mapping[MessageQueue, QueueFacts] = field(default_factory=dict)
    locks: Mapping[MessageQueue, LockTableRow] | None = None
    changes: tuple[LockChange, ...] | None = None
    retry_lag: int = 0
    oldest_ms: int = 0
    dead_letter_ms: int = 0
    dead_letter_count: int = 0
    spreads: tuple[KeySpread, ...] = ()
    ordered_at_broker: bool | None = None
    deliveries: DeliveryTableBody | None = None

    @property
    def is_ordered(self) -> bool:
        """A member consumes in order, or a queue of the group was locked."""
        return any(member.orderly for member in self.members) or bool(self.locks)

    def is_popped(self, topic: str) -> bool:
        """Its queues have no owners: members say that they pop, or the brokers list deliveries."""
        listed = self.deliveries is not None and topic in self.deliveries.topics
        return listed or any(member.pops and topic in member.subscriptions for member in self.members)

    @property
    def lag(self) -> int | None:
        """Messages that are stored and not consumed; None: members count themselves (broadcasting)."""
        return None if self.broadcasting else sum(of.lag for of in self.queues.values()) + self.retry_lag

    @property
    def held(self) -> list[MessageQueue] | None:
        """Queues that members have locked; None: the brokers do not list locks."""
        return None if self.locks is None else [queue for queue, row in self.locks.items() if row.is_held]

    @property
    def unowned(self) -> tuple[MessageQueue, ...]:
        """Queues with lag that no member has locked, of a group that locks its queues."""
        held = self.held if self.locks else None
        return () if held is None else tuple(q for q, of in sorted(self.queues.items()) if of.lag and q not in held)


class TopicFacts(NamedTuple):
    """Broker name -> its numbers of queues for reading and for writing."""

    queues: Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class ClusterFacts:
    """
    Args:
        now_ms: This machine's clock, epoch ms.
        lease_ms: The life of a lock: 60,000 by default.
        clocks: What -> how many ms its clock is ahead of this machine's.
        producers_ahead: Address of a producer -> how many ms before they were sent its messages were stored.
        fifo_topics: Of RocketMQ 5's type for messages in order.
        limits: Broker -> setting of a limit that it reached -> how often, and when last, epoch ms.
        topics_count: Of users.
        lists_locks: The brokers list their locks.
        unread: Why groups and locks could not be read.
        behind_ms: A message that waits longer is not well.
    """

    now_ms: int
    lease_ms: int = 60_000
    topics: Mapping[str, TopicFacts] = field(default_factory=dict)
    groups: tuple[GroupFacts, ...] = ()
    clocks: Mapping[str, int] = field(default_factory=dict)
    producers_ahead: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, Mapping[str, tuple[int, int]]] = field(default_factory=dict)
    fifo_topics: Collection[str] = ()
    brokers: tuple[BrokerFacts, ...] = ()
    topics_count: int = 0
    lists_locks: bool = False
    unread: str | None = None
    behind_ms: int = 60_000
