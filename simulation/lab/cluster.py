"""A cluster on simulated hosts: real brokers, producers and consumers, their logs and traces, and the judge."""

import json
from collections.abc import Callable
from typing import Any, TypeVar

from lockstep.broker.config import BrokerConfig
from lockstep.broker.server import BrokerServer, Interceptor
from lockstep.broker.state.broker import Broker
from lockstep.client import (
    ConsumerConfig,
    LitePullConsumer,
    MessageExt,
    MessageQueue,
    Producer,
    ProducerConfig,
    PullConsumer,
    PushConsumer,
    SerializeType,
)
from lockstep.client.instance.client import MQClientInstance
from lockstep.order import OrderReport, Record, check_traces
from lockstep.protocol.message import decode_messages
from lockstep.remoting.logs import EventLog
from lockstep.simulation.lab.cluster_log import HostLog, LogLine
from lockstep.simulation.runtime import SimRuntime
from lockstep.simulation.world import World
from lockstep.store import MessageStore

__all__ = ["BROKER", "ONE_CLOCK", "PRODUCER", "TRACE", "Client", "Cluster"]

Client = PushConsumer | Producer | PullConsumer | LitePullConsumer
C = TypeVar("C", bound=Client)
BROKER, PRODUCER = "broker", "producer"
TRACE = "trace.jsonl"
ONE_CLOCK = {"host": "simulation", "machine": "simulation", "boot": "1"}


class Cluster:
    """Brokers and clients by the names of their hosts. `log` is all that they logged.

    Args:
        topic, group: what the consumers subscribe to, and their consumer group.
        tap: makes the interceptor of a server, by the name of its host.
    """

    def __init__(
        self,
        world: World,
        serialize_type: SerializeType,
        *,
        topic: str,
        group: str,
        tap: Callable[[str], Interceptor | None] = lambda _: None,
    ) -> None:
        self.world = world
        self.serialize_type = serialize_type
        self.topic = topic
        self.consumer_group = group
        self.log: list[LogLine] = []
        self._tap = tap
        self._names: tuple[str, ...] = ()  # hosts of name servers; none: the broker named BROKER carries it
        self._servers: dict[str, BrokerServer] = {}  # in order of their start
        self._topics: dict[str, int] = {}
        self._clients: dict[str, Client | MQClientInstance] = {}  # alive, in order of their start
        self._traced: dict[str, None] = {}
        self._witnessed: list[Record] = []  # what brokers stored, and when one came back empty

    def log_of(self, name: str) -> HostLog:
        """The log of a host."""
        return HostLog(self.log, self.world, name)

    # Brokers -------------------------------------------------------------------------------------------------

    @property
    def name_server(self) -> str:
        return ";".join(f"{name}:9876" for name in self._names or (BROKER,))

    async def start_name_server(self, name: str, **settings: Any) -> None:
        """On a host of its own, before any broker, or again; there may be several."""
        config = BrokerConfig(host=name, advertise=self.world.host(name).address, serve_broker=False, **settings)
        server = BrokerServer(config, self.world.host(name), self.log_of(name), interceptor=self._tap(name))
        await self.world.host(name).run(server.start())
        self._names, self._servers[name] = tuple(dict.fromkeys((*self._names, name))), server

    async def broker(self, name: str = BROKER, *, queues: int = 4, **settings: Any) -> BrokerServer:
        """Start a broker with the topic, or start it again; with an empty store, unless `data_dir` is among the
        settings."""
        runtime = self.world.host(name)
        own: dict[str, Any] = {}
        if self._names or name != BROKER:
            own = {"serve_name_server": False, "name_servers": self.name_server}
        config = BrokerConfig(host=name, advertise=runtime.address, broker_name=name, **own, **settings)
        server = BrokerServer(config, runtime, self.log_of(name), interceptor=self._tap(name))
        if name not in self._topics or not config.data_dir:
            server.create_topic(self.topic, queues)
        await runtime.run(server.start())
        self._watch_commits(name, server)
        if name in self._topics and not config.data_dir:
            self.witness("broker_restarted", broker=name)
        self._topics[name] = queues
        self._servers[name] = server
        return server

    async def stop_broker(self, name: str = BROKER) -> None:
        """A clean shutdown."""
        await self.world.host(name).run(self._servers.pop(name).shutdown())

    def witness(self, event: str, **fields: Any) -> None:
        """Add a record of the broker's side to what the judge reads."""
        head = {"event": event, "wall_ms": self.world.now_ms, "mono_ns": self.world.loop.now_ns}
        self._witnessed.append({**head, **ONE_CLOCK, **fields})

    def _watch_commits(self, name: str, server: BrokerServer) -> None:
        """Commits are sent one-way: only the broker knows which of them arrived."""
        assert server.broker is not None
        offsets = server.broker.offsets
        store = offsets.commit

        def commit(consumer_group: str, topic: str, queue_id: int, committed_offset: int) -> int:
            queue = MessageQueue(topic, name, queue_id)
            self.on_commit(consumer_group, queue, committed_offset)
            return store(consumer_group, topic, queue_id, committed_offset)

        offsets.commit = commit  # type: ignore[method-assign]

    def on_commit(self, consumer_group: str, queue: MessageQueue, committed_offset: int) -> None:
        """A broker stores an offset."""
        self.witness(
            "stored",
            group=consumer_group,
            offset=committed_offset,
            topic=queue.topic,
            broker=queue.broker_name,
            queue_id=queue.queue_id,
        )
        self.log_of(queue.broker_name).debug("offset stored", offset=committed_offset, queue=str(queue))

    def core(self, name: str = BROKER) -> Broker:
        """The tables of a running broker."""
        broker = self._servers[name].broker
        assert broker is not None
        return broker

    def members(self, name: str = BROKER) -> tuple[str, ...]:
        """The client ids of the group as the broker knows it."""
        return self.core(name).consumers.client_ids(self.consumer_group)

    def store(self, name: str = BROKER) -> MessageStore:
        return self.core(name).store

    def stored(
        self, queue_id: int = 0, name: str = BROKER, *, topic: str | None = None, first: int = 0
    ) -> list[MessageExt]:
        """All messages in a queue of the broker's store, from an offset on."""
        store, messages = self.store(name), list[MessageExt]()
        while found := store.get(topic or self.topic, queue_id, first + len(messages), 32, None).body:
            messages += decode_messages(found, name)
        return messages

    # Clients -------------------------------------------------------------------------------------------------

    async def consumer(self, name: str, *, listener: Any, **arguments: Any) -> PushConsumer:
        """Start a consumer of the topic on a host of its own. `arguments` are the PushConsumer's and settings."""
        runtime = self.world.host(name)
        of_consumer = {key: arguments.pop(key) for key in _OF_CONSUMER if key in arguments}
        consumer = PushConsumer(
            self.consumer_group,
            name_server=self.name_server,
            config=ConsumerConfig(**{"serialize_type": self.serialize_type, **arguments}),
            listener=listener,
            trace=TRACE,
            runtime=runtime,
            log=self.log_of(name),
            **of_consumer,
        )
        consumer.subscribe(self.topic)
        self._clients[name] = consumer
        self._traced[name] = None
        await runtime.run(consumer.start())
        return consumer

    async def producer(self, name: str = PRODUCER, **settings: Any) -> Producer:
        runtime = self.world.host(name)
        config = ProducerConfig(serialize_type=self.serialize_type, **settings)
        producer = Producer(
            f"{name}s", name_server=self.name_server, config=config, trace=TRACE, runtime=runtime, log=self.log_of(name)
        )
        self._clients[name] = producer
        self._traced[name] = None
        await runtime.run(producer.start())
        return producer

    async def start_client(self, name: str, make: Callable[[SimRuntime, EventLog], C]) -> C:
        """Start a producer or consumer of a story's own on a host; the end shuts it down."""
        runtime = self.world.host(name)
        client = make(runtime, self.log_of(name))
        self._clients[name] = client
        await runtime.run(client.start())
        return client

    def client(self, name: str) -> Client | MQClientInstance:
        """A living client by its host's name."""
        return self._clients[name]

    async def leave(self, name: str) -> None:
        """A clean shutdown of a client."""
        client = self._clients.pop(name)
        await self.world.host(name).run(client.shutdown())

    def crash(self, name: str, *, silently: bool = False) -> None:
        """SIGKILL, or with `silently` the whole machine, of a client or a broker."""
        self._clients.pop(name, None)
        self.world.crash(name, silently=silently)

    def power_cut(self, name: str = BROKER) -> None:
        """Of a broker: its disk keeps what it was told to."""
        self._servers.pop(name)
        self.world.power_cut(name)

    # The end -------------------------------------------------------------------------------------------------

    def records(self, name: str) -> list[Record]:
        """A host's trace so far. All hosts share one monotonic clock, so calls may be compared as if on one."""
        lines = self.world.disk(name).read(TRACE).splitlines()
        return [{**json.loads(line), **ONE_CLOCK} for line in lines]

    async def shut_down(self) -> None:
        """End all clients, then all servers, each the last started first."""
        for name in reversed(list(self._clients)):
            await self.leave(name)
        for name, server in reversed(self._servers.items()):
            await self.world.host(name).run(server.shutdown())

    def judge(self) -> OrderReport:
        """What the judge of order says of all traces so far."""
        return check_traces([*map(self.records, self._traced), self._witnessed])


_OF_CONSUMER = ("ordering", "strategy", "fenced", "on_acquired", "on_lost")
