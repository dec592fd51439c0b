"""What a run shows at a moment: hosts, links, queues, members and deliveries, from the tables of the running world.

It reads only: nothing here awaits, draws, reads a disk or adds to the trace. While a broker is down, what it had stands
as it was.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from lockstep.broker.core.messages import Messages
from lockstep.client import MessageQueue, Producer, PushConsumer
from lockstep.client.consumer.cache.key_queues import KeyedCache
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.client.instance.client import MQClientInstance
from lockstep.protocol.bodies.locks import LockTableRow
from lockstep.protocol.epochs import epoch_text
from lockstep.protocol.messages.properties import sharding_key_of
from lockstep.protocol.names import is_retry_topic, retry_topic
from lockstep.simulation.lab.cluster import BROKER, PRODUCER, Cluster
from lockstep.simulation.lab.faults.fault import Halts
from lockstep.simulation.lab.faults.table import fault_named, in_table
from lockstep.simulation.lab.faults.words import fault_words
from lockstep.simulation.lab.findings import Band
from lockstep.simulation.lab.recorded_cluster import RecordedCluster
from lockstep.simulation.lab.said import say, told
from lockstep.simulation.lab.setup import FaultEvent
from lockstep.simulation.lab.user.story_cluster import StoryCluster
from lockstep.simulation.machine.host import HostEvent

__all__ = ["Json", "Scenes", "host_of", "queue_id"]

Json = dict[str, Any]

_WINDOW: Final = 24  # messages of a queue
_NAMES_MAX: Final = 1_000  # keys: each scene has the names of all
_KEYS_KEPT: Final = 5000  # of the newest messages of a queue; a group that is farther behind is shown without keys
_BEFORE: Final = 4  # of them are committed
_NONE: Final = -1
_BLOCKED: Final = {True: ("partition", "No byte passes."), False: ("hold", "No byte passes from {a} to {b}.")}
_ENDS: Final = frozenset({HostEvent.CRASHED, HostEvent.POWERED_OFF, HostEvent.LOST_POWER})


def queue_id(queue: MessageQueue) -> str:
    """A queue as a scene names it: broker/0; broker/retry/0 for the queue of the group's retry topic."""
    return f"{queue.broker_name}/{'retry/' if is_retry_topic(queue.topic) else ''}{queue.queue_id}"


class Scenes:
    """Makes the scenes of one run. It is made before the run's first step.

    Args:
        cluster: of the run. Its brokers are observed from now on.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._keys = _Keys(cluster)
        self._brokers: dict[str, _Broker] = {}  # the newest process of each
        self._left: dict[str, PushConsumer] = {}  # the newest member of a host, which may be about to leave
        cluster.when_broker_started.append(self._broker_started)
        cluster.when_broker_stops.append(self._broker_ends)
        cluster.world.when_changed.append(self._changed)

    def _broker_started(self, name: str) -> None:
        broker = self._brokers[name] = _Broker(self._cluster, name, self._keys)
        self._keys.watch(name, broker.messages)

    def _broker_ends(self, name: str) -> None:
        self._brokers[name].end()

    def _changed(self, host: str, event: HostEvent, _text: str) -> None:
        if event in _ENDS and host in self._brokers:
            self._broker_ends(host)

    def take(self) -> Json:
        """A Side of the page, without what is told and judged."""
        brokers = self._brokers.values()
        for broker in brokers:
            broker.look()
        return {
            "now_ms": self._world.elapsed_ms,
            "hosts": [self._host(name) for name in self._hosts()],
            "links": self._links(),
            "queues": [queue for broker in brokers for queue in broker.queues],
            "key_names": self._keys.names,
            "members": list(self._members()),
            "deliveries": [delivery for broker in brokers for delivery in broker.deliveries],
        }

    # Hosts and links -----------------------------------------------------------------------------------------

    def _hosts(self) -> list[str]:
        """Those that the setup has, so that they have their place before they start, and all that have started."""
        cluster = self._cluster
        planned = cluster.setup.hosts if isinstance(cluster, StoryCluster) else ()
        return list(dict.fromkeys((*planned, *cluster.started_hosts, *self._world.addresses.values())))

    def _host(self, name: str) -> Json:
        lasting = [_text(band) for band in self._lasting() if band.target == name and not band.other]
        return {"name": name, "role": self._role(name), "state": self._state(name), "lasting": lasting}

    def _role(self, name: str) -> str:
        cluster = self._cluster
        if name in cluster.consumers:
            return "member"
        if name in cluster.brokers or name.startswith(BROKER):
            return "broker"
        if name in cluster.name_servers or name.startswith("names"):
            return "names"
        client = cluster.clients.get(name)
        return "producer" if isinstance(client, Producer) or name.startswith(PRODUCER) else "member"

    def _state(self, name: str) -> str:
        process = self._world.process(name)
        if process is None or not process.alive:
            return "down"
        if process.asleep:
            return "asleep"
        if process.paused:
            return "stopped"
        # Others than members and producers, as of an article's story, have no state of their own.
        if self._cluster.is_up(name) or isinstance(self._cluster.clients.get(name), MQClientInstance):
            return "up"
        return "down" if self._cluster.is_down(name) else "changes"

    def _lasting(self) -> Iterator[Band]:
        """The faults that last; what stops a process is seen by its state."""
        now_ms = self._world.elapsed_ms
        for band in self._cluster.findings.bands if not self._world.healed else ():
            fault = fault_named(band.fault)
            lasts = fault is not None and "{for_}" in fault.did and fault.halts is not Halts.HOST
            if lasts and (band.end_ms is None or band.end_ms > now_ms):
                named = in_table(FaultEvent(band.at_ms, band.fault, band.target, other=band.other))
                yield Band(band.at_ms, band.end_ms, named.fault, named.target, named.other, band.amount)

    def _links(self) -> list[Json]:
        """The links on which something lasts."""
        found: dict[tuple[str, str], list[Json]] = {}
        blocked = set(self._world.blocked())
        for a, b in sorted(blocked):
            if (b, a) not in blocked or a < b:
                fault, text = _BLOCKED[(b, a) in blocked]
                found[a, b] = [{"fault": fault, **told(say(text, a=a, b=b))}]
        for band in self._lasting():
            fault_row = fault_named(band.fault)
            if band.other and (fault_row is None or fault_row.halts is Halts.NOTHING):
                ends = (band.target, band.other)
                found.setdefault(ends if ends[::-1] not in found else ends[::-1], []).append(_text(band))
        return [{"a": a, "b": b, "lasting": lasting} for (a, b), lasting in found.items()]

    # Members -------------------------------------------------------------------------------------------------

    def _members(self) -> Iterator[Json]:
        clients = self._cluster.clients
        for name, client in clients.items():
            if isinstance(client, PushConsumer):
                self._left[name] = client
        for name in self._cluster.consumers:
            # A member that leaves has its queues until its shutdown is over.
            member = clients.get(name) or (self._left.get(name) if self._state(name) == "changes" else None)
            if member is not None:
                periods = member.periods if isinstance(member, PushConsumer) else []
                shown = [one for one in periods if not one.cache.is_empty or not is_retry_topic(one.queue.topic)]
                yield {"name": name, "queues": [self._period(name, period) for period in shown]}

    def _period(self, name: str, period: ProcessQueue) -> Json:
        cache, info = period.cache, period.cache.info()
        running = sorted(cache.in_hand) or self._calls_on(name, period.queue)
        ends = [info.cached_msg_min_offset, info.cached_msg_max_offset] if info.cached_msg_count else []
        offsets = [*ends, *running]
        of_keys = isinstance(cache, KeyedCache)
        return {
            "id": queue_id(period.queue),
            "locked": period.hold.locked,
            "dropped": period.life.dropped,
            # By key the count has what listeners have, else it has not.
            "cached": info.cached_msg_count + (0 if of_keys else len(cache.in_hand)),
            "first": min(offsets, default=_NONE),
            "last": max(offsets, default=_NONE),
            "running": running,
            "suspended": self._waits_to_try_again(name, period),
        }

    def _calls_on(self, name: str, queue: MessageQueue) -> list[int]:
        """Of consumption without order, as far as calls are recorded: its messages stay in the cache meanwhile."""
        cluster = self._cluster
        if not isinstance(cluster, RecordedCluster):
            return []
        process = str(self._world.process(name))
        return sorted(call.offset for call in cluster.seen.running(process) if call.queue == queue)

    def _waits_to_try_again(self, name: str, period: ProcessQueue) -> bool:
        """Whether a listener has failed, and its queue, or one of its keys, waits for the next attempt."""
        cache, hold, life = period.cache, period.hold, period.life
        if isinstance(cache, KeyedCache):
            return bool(cache.key_queues.parked)
        if not hold.needed or life.is_over or life.listener_running or cache.is_empty or not cache.consuming:
            return False
        return hold.is_trusted(self._world.host(name).now_ms())


class _Broker:
    """What a process of a broker has. When it has ended, that stands as it was."""

    def __init__(self, cluster: Cluster, name: str, keys: "_Keys") -> None:
        self._cluster, self._name, self._keys = cluster, name, keys
        self._core, self._runtime = cluster.core(name), cluster.world.host(name)
        self._over = False
        self.queues: list[Json] = []
        self.deliveries: list[Json] = []
        self.look()

    @property
    def messages(self) -> Messages:
        return self._core.messages

    def end(self) -> None:
        """The process is about to end."""
        self.look()
        self._over = True
        for queue in self.queues:
            queue["stands"] = True

    def look(self) -> None:
        if not self._over:
            self.queues, self.deliveries = list(self._queues()), list(self._deliveries())

    def _queues(self) -> Iterator[Json]:
        cluster, store = self._cluster, self.messages.store
        group = cluster.consumer_group
        locks = {row.queue: row for row in self._core.ownership.table.rows(self._runtime.now_ms(), group)}
        for topic in (cluster.topic, retry_topic(group)):
            config = self._core.catalog.topics.get(topic)
            for number in range(config.write_queue_nums if config is not None else 0):
                queue, begin, end = (
                    MessageQueue(topic, self._name, number),
                    store.min_offset(topic, number),
                    store.max_offset(topic, number),
                )
                if is_retry_topic(topic) and not end:
                    continue
                committed = self._core.catalog.offsets.query(group, topic, number)
                first = min(max(begin, committed - _BEFORE), end)
                row = locks.get(queue)
                yield {
                    "id": queue_id(queue),
                    "broker": self._name,
                    "number": number,
                    "min": begin,
                    "max": end,
                    "committed": committed,
                    "lock": self._lock(row) if row is not None else None,
                    "first": first,
                    "keys": self._keys.of(queue, first, min(end, first + _WINDOW)),
                    "stands": False,
                }

    def _lock(self, row: LockTableRow) -> Json:
        now_ms = self._cluster.world.elapsed_ms
        return {
            "owner": host_of(self._cluster, row.client_id),
            "renewed_ms": now_ms - row.age_ms,
            "ends_ms": now_ms + row.remaining_ms,
            "epoch": epoch_text(row.epoch) if row.epoch else "",
            "draining": bool(row.draining),
        }

    def _deliveries(self) -> Iterator[Json]:
        """The messages that a group in order has and has not answered, together what was delivered together."""
        now_ms, clock_ms = self._cluster.world.elapsed_ms, self._runtime.now_ms()
        for topic, number, queue in self._core.messages.pops.fifo.of_group(self._cluster.consumer_group):
            held = [one for one in queue.under_way() if one.visible_ms > clock_ms]
            together: dict[tuple[str | None, int, int], list[int]] = {}
            for one in held:
                together.setdefault((one.client, one.pop_ms, one.visible_ms), []).append(one.queue_offset)
            for (client, pop_ms, visible_ms), offsets in together.items():
                yield {
                    "queue": queue_id(MessageQueue(topic, self._name, number)),
                    "offsets": offsets,
                    "owner": host_of(self._cluster, client or ""),
                    "since_ms": now_ms - clock_ms + pop_ms,
                    "ends_ms": now_ms - clock_ms + visible_ms,
                }


class _Keys:
    """The keys of stored messages, as numbers. They are noted when a broker stores them: to read them later from its
    disk would take its time, and change the run."""

    def __init__(self, cluster: Cluster) -> None:
        # The lab's own keys first: they have the same numbers in every run.
        own = range(cluster.setup.keys) if isinstance(cluster, StoryCluster) else ()
        self.names = [f"key{number}" for number in own]
        self._numbers = {name: number for number, name in enumerate(self.names)}
        self._stored: dict[MessageQueue, dict[int, int]] = {}  # offset -> key

    def of(self, queue: MessageQueue, first: int, end: int) -> list[int]:
        stored = self._stored.get(queue, {})
        return [stored.get(offset, _NONE) for offset in range(first, end)]

    def watch(self, broker: str, messages: Messages) -> None:
        """Note what a broker stores from now on. Its store may have less than the one before it."""
        for queue, stored in self._stored.items():
            if queue.broker_name == broker:
                end = messages.store.max_offset(queue.topic, queue.queue_id)
                for offset in [offset for offset in stored if offset >= end]:
                    del stored[offset]

        def note(topic: str, queue_id: int, offset: int, properties: Mapping[str, str]) -> None:
            key = sharding_key_of(properties)
            if key is not None:
                number = self._numbers.get(key)
                if number is None:
                    if len(self.names) >= _NAMES_MAX:
                        return
                    number = self._numbers[key] = len(self.names)
                    self.names.append(key)
                stored = self._stored.setdefault(MessageQueue(topic, broker, queue_id), {})
                stored[offset] = number
                if len(stored) > _KEYS_KEPT:
                    del stored[next(iter(stored))]

        messages.when_stored.append(note)


def host_of(cluster: Cluster, client: str) -> str:
    """The host of a client id, or of an address."""
    address = client.partition("@")[0].rpartition(":")[0] or client.partition("@")[0]
    return cluster.world.addresses.get(address, address)


def _text(band: Band) -> Json:
    fault = fault_named(band.fault)
    what = (fault.summary if fault is not None else "") or fault_words(band)
    text = say("{what} Here: {amount}.", what=what, amount=band.amount) if band.amount else what
    return {"fault": band.fault, **told(text)}
