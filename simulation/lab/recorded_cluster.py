"""A cluster that records what happens in it: listener calls, requests, and acts of the story itself."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from lockstep.broker.catalog.members import ConsumerGroup
from lockstep.broker.server import BrokerServer
from lockstep.client import (
    AllocateMessageQueueStrategy,
    MessageQueue,
    PushConsumer,
    SerializeType,
    allocate_averagely,
)
from lockstep.client.config import ClientConfig
from lockstep.client.consumer.dispatch.table import OrderingName
from lockstep.client.instance.client import MQClientInstance, name_server_addresses
from lockstep.client.profiles import PROFILES
from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.bodies.locks import LockBatchBody, LockOkBody, LockTableRow
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.command import RemotingCommand
from lockstep.simulation.lab.calls import Answer, Calls
from lockstep.simulation.lab.cluster import BROKER, Cluster
from lockstep.simulation.lab.cluster_log import HostLog, LogLine
from lockstep.simulation.lab.request_log import RequestLog
from lockstep.simulation.lab.said import say
from lockstep.simulation.lab.setup import LockMode, Setup
from lockstep.simulation.options import SimulationOptions
from lockstep.simulation.world import World

__all__ = ["GROUP", "INSTANT", "TOPIC", "Lines", "RecordedCluster", "take_all"]

TOPIC, GROUP = "Aircraft", "tower"
INSTANT: Final = SimulationOptions(latency_us_min=0, latency_us_max=0, loopback_us_max=0)
"""A network without latency: what a client asks, its broker hears in the same millisecond."""


def take_all(_group: str, _client: str, queues: Collection[MessageQueue], _clients: object) -> list[MessageQueue]:
    """An allocation by which everybody wants every queue: then the lock alone decides."""
    return list(queues)


class Lines(list[LogLine]):
    """All that is logged. `on_line` is called with each line."""

    on_line: Callable[[LogLine], object] = staticmethod(lambda _line: None)

    def append(self, line: LogLine) -> None:
        super().append(line)
        self.on_line(line)


class RecordedCluster(Cluster):
    """See Cluster. `seen` are all listener calls, `request_log` has all requests that arrived.

    Args:
        profile: a name of `client.profiles`, whose settings the consumers have.
    """

    def __init__(
        self,
        world: World,
        serialize_type: SerializeType,
        *,
        profile: str = "rocketmq",
        lock_mode: LockMode = LockMode.FAITHFUL,
    ) -> None:
        self.request_log = RequestLog(world)
        setup = Setup(lock_mode=lock_mode, consumers=0, consumer=PROFILES[profile])
        super().__init__(
            world, setup, serialize_type=serialize_type, topic=TOPIC, group=GROUP, tap=self.request_log.tap
        )
        self.log = Lines()
        self.on_act: Callable[[str, str], object] = lambda _host, _text: None  # the story itself does something
        self.not_judged = ""  # why the judge cannot be asked about this story
        self.seen = Calls(world)
        self._hosts: dict[str, str] = {}  # address -> name

    # Hosts ---------------------------------------------------------------------------------------------------

    def log_of(self, name: str) -> HostLog:
        self._hosts[self.world.host(name).address] = name
        return super().log_of(name)

    def who(self, client: str) -> str:
        """The name of a host, for an address or for the client id of a process on it."""
        address = client.partition("@")[0]
        return self._hosts.get(address, address)

    def push_consumers(self) -> list[tuple[str, PushConsumer]]:
        """Those that live, by the names of their hosts."""
        return [(name, client) for name, client in self._clients.items() if isinstance(client, PushConsumer)]

    def cut_off(self, name: str, other: str = BROKER) -> None:
        """Stop all bytes between two hosts."""
        self.on_act(name, say("is cut off from {other}", other=_the(other)))
        self.world.partition(name, other)

    def reconnect(self, name: str, other: str = BROKER) -> None:
        """End that; what was sent meanwhile arrives."""
        self.on_act(name, say("reaches {other} again", other=_the(other)))
        self.world.repair(name, other)

    def hold_answers(self, name: str, of: str = BROKER) -> None:
        """Hold all bytes from a server to a host; the other direction is free."""
        self.on_act(of, say("is slow: its answers do not reach {name}", name=name))
        self.world.hold(of, name)

    def release_answers(self, name: str, of: str = BROKER) -> None:
        self.on_act(of, say("is fast again: its answers reach {name}", name=name))
        self.world.release(of, name)

    # What a broker knows -------------------------------------------------------------------------------------

    def group(self, name: str, broker: str = BROKER) -> ConsumerGroup:
        """A consumer group as its members' heartbeats told this broker of it."""
        return self.core(broker).members.consumers.groups[name]

    def locks(self, name: str = BROKER, *, topic: str = TOPIC) -> dict[int, LockTableRow]:
        """The broker's lock table as it stands now: queue id -> row."""
        rows = tuple(self.core(name).ownership.table.rows(self.world.now_ms))
        return {row.queue.queue_id: row for row in rows if row.queue.topic == topic}

    def owner(self, queue_id: int = 0, name: str = BROKER) -> str | None:
        """The address of the host that holds a queue's lock."""
        row = self.locks(name).get(queue_id)
        return row.client_id.partition("@")[0] if row is not None else None

    def committed(self, queue_id: int = 0, name: str = BROKER, *, group: str = GROUP, topic: str = TOPIC) -> int:
        return self.core(name).catalog.offsets.query(group, topic, queue_id)

    async def broker(self, name: str = BROKER, *, queues: int = 4, **settings: Any) -> BrokerServer:
        topic = "starts with the topic {topic} of {queues} queue"
        self.on_act(name, say(f"{topic}s" if queues > 1 else topic, topic=TOPIC, queues=queues))
        return await super().broker(name, queues=queues, **settings)

    # Members -------------------------------------------------------------------------------------------------

    async def consumer(
        self,
        name: str,
        *,
        work_ms: int = 0,
        works_ms: Mapping[str, int] | None = None,
        answer: Answer | None = None,
        strategy: AllocateMessageQueueStrategy = allocate_averagely,
        ordering: OrderingName = "queue",
        listener: Any = None,
        **settings: Any,
    ) -> PushConsumer:
        """Start a consumer of the topic on a host of its own; its listener works for `work_ms` (`works_ms` by text),
        then answers, or is the one that is given."""
        if listener is None:
            listener = self.seen.listener(self.world.host(name), work_ms, works_ms or {}, answer, ordering=ordering)
        settings = {**self.setup.consumer, **settings}
        self.on_act(name, say("starts as a member of the group {group}", group=GROUP))
        return await super().consumer(name, listener=listener, strategy=strategy, ordering=ordering, **settings)

    def crash(self, name: str, *, silently: bool = False) -> None:
        """SIGKILL, or with `silently` the whole machine, of a client or a broker."""
        self.on_act(name, "vanishes with its machine" if silently else "is killed")
        self.seen.died(str(self.world.host(name).host))
        super().crash(name, silently=silently)

    async def leave(self, name: str) -> None:
        """A clean shutdown of a client."""
        self.on_act(name, "shuts down")
        await super().leave(name)

    # Others --------------------------------------------------------------------------------------------------

    async def lock(self, name: str, queue_id: int = 0) -> bool:
        """Ask for a queue's lock with a LOCK_BATCH_MQ of another client's; True: granted."""
        queue = MessageQueue(TOPIC, BROKER, queue_id)
        body = LockBatchBody(GROUP, self._instance(name).client_id, (queue,))
        reply = await self.call(name, RequestCode.LOCK_BATCH_MQ, body=body)
        return queue in decode_body(LockOkBody, reply.body, reply.serialize_type).lock_ok_mq_set

    async def call(
        self, name: str, code: int, header: tuple[Any, ...] | None = None, body: LockBatchBody | None = None
    ) -> RemotingCommand:
        """One request of a client that is neither consumer nor producer, to the broker. Raises what a refusal does."""
        address = self._servers[BROKER].broker_address
        return await self.world.host(name).run(self._instance(name).call_address(address, code, header, body=body))

    def _instance(self, name: str) -> MQClientInstance:
        instance = self._clients.get(name)
        if instance is None:
            config = ClientConfig(serialize_type=self.serialize_type)
            names = name_server_addresses(self.name_server)
            instance = MQClientInstance(self.world.host(name), names, config, self.log_of(name))
            self._clients[name] = instance
        assert isinstance(instance, MQClientInstance)
        return instance

    def events(self, event: str, *, host: str | None = None, since_ms: int = 0, **fields: object) -> list[LogLine]:
        """What was logged under this name, with these fields."""
        return [
            line
            for line in self.log
            if line.event == event and host in (None, line.host) and line.at_ms >= since_ms
            and all(line.fields.get(name) == value for name, value in fields.items())
        ]  # fmt: skip

    async def all_seen(self, *, timeout_ms: int = 150_000) -> None:
        """Wait until every message that was sent has been handled, by a listener that asked for no other attempt."""

        def everything() -> bool:
            return not set(self.sent).difference(call.text for call in self.seen.all if call.good)

        await self.world.until(everything, timeout_ms=timeout_ms, poll_ms=100)


def _the(host: str) -> str:
    return f"the {host}" if host == BROKER else host
