"""A cluster on simulated hosts: real brokers, producers and consumers, and the order checker at the end."""

import asyncio
import json
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from lockstep.broker.config import BrokerConfig
from lockstep.broker.server import BrokerServer
from lockstep.broker.state.broker import Broker
from lockstep.broker.state.members import ConsumerGroup
from lockstep.client import (
    AllocateMessageQueueStrategy,
    ConsumerConfig,
    LitePullConsumer,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    ProducerConfig,
    PullConsumer,
    PushConsumer,
    SendResult,
    SerializeType,
    allocate_averagely,
)
from lockstep.client.config import ClientConfig
from lockstep.client.consumer.dispatch.table import OrderingName
from lockstep.client.instance.client import MQClientInstance, name_server_addresses
from lockstep.order import Cause, Kind, OrderReport, Record, check_traces
from lockstep.protocol.bodies.broker import LockBatchBody, LockOkBody, LockTableRow
from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.message import decode_messages
from lockstep.remoting.logs import EventLog
from lockstep.simulation import SimRuntime, World
from lockstep.store import MessageStore
from tests.scenarios.calls import Answer, Calls
from tests.scenarios.heard import Heard

__all__ = ["GROUP", "TOPIC", "TRACE", "Cluster", "LogLine", "take_all"]

Client = PushConsumer | Producer | PullConsumer | LitePullConsumer
C = TypeVar("C", bound=Client)
TOPIC, GROUP = "Aircraft", "tower"
BROKER, PRODUCER = "broker", "producer"
TRACE = "trace.jsonl"
ONE_CLOCK = {"host": "simulation", "machine": "simulation", "boot": "1"}


def take_all(_group: str, _client: str, queues: Collection[MessageQueue], _clients: object) -> list[MessageQueue]:
    """An allocation by which everybody wants every queue: then the lock alone decides."""
    return list(queues)


@dataclass(frozen=True)
class LogLine:
    at_ms: int  # virtual, since the start
    host: str
    level: str
    event: str
    fields: dict[str, Any]


class _HostLog:
    """The EventLog of one host, into the cluster's list."""

    def __init__(self, lines: list[LogLine], world: World, host: str) -> None:
        self._lines, self._world, self._host = lines, world, host

    def _add(self, level: str, event: str, fields: dict[str, Any]) -> None:
        self._lines.append(LogLine(self._world.elapsed_ms, self._host, level, event, fields))

    def debug(self, event: str, **fields: Any) -> None:
        self._add("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._add("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._add("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._add("error", event, fields)


@dataclass
class Expected:
    """What a story expects of its report; by default nothing but order: every message once."""

    violations: dict[Kind, int] = field(default_factory=dict)
    duplicates: Collection[Cause] = ()  # each must occur ...
    possible: Collection[Cause] = ()  # ... these may, and no other
    overlaps: int = 0  # pairs of listeners that ran on one queue at once
    emptied: int = 0


class Cluster:
    """`seen` are all listener calls, `log` all that brokers and clients logged, `heard` all requests that arrived."""

    def __init__(self, world: World, serialize_type: SerializeType) -> None:
        self.world = world
        self.serialize_type = serialize_type
        self.log: list[LogLine] = []
        self.seen = Calls(world)
        self.heard = Heard(world)
        self.expected = Expected()
        self.sent: list[str] = []  # texts that a broker is known to have stored
        self._names: tuple[str, ...] = ()  # hosts of name servers; none: the broker named BROKER carries it
        self._servers: dict[str, BrokerServer] = {}  # in order of their start
        self._topics: dict[str, int] = {}
        self._clients: dict[str, Client | MQClientInstance] = {}  # alive, in order of their start
        self._traced: dict[str, None] = {}
        self._witnessed: list[Record] = []  # what brokers stored, and when one came back empty
        self._count = 0
        self._report: OrderReport | None = None

    # Brokers -------------------------------------------------------------------------------------------------

    @property
    def name_server(self) -> str:
        return ";".join(f"{name}:9876" for name in self._names or (BROKER,))

    async def start_name_server(self, name: str, **settings: Any) -> None:
        """On a host of its own, before any broker, or again; there may be several."""
        config = BrokerConfig(host=name, advertise=self.world.host(name).address, serve_broker=False, **settings)
        server = BrokerServer(config, self.world.host(name), self._log(name), interceptor=self.heard.tap(name))
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
        server = BrokerServer(config, runtime, self._log(name), interceptor=self.heard.tap(name))
        if name not in self._topics or not config.data_dir:
            server.create_topic(TOPIC, queues)
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

    def group(self, name: str, broker: str = BROKER) -> ConsumerGroup:
        """A consumer group as its members' heartbeats told this broker of it."""
        return self._broker(broker).consumers.groups[name]

    def witness(self, event: str, **fields: Any) -> None:
        head = {"event": event, "wall_ms": self.world.now_ms, "mono_ns": self.world.loop.now_ns}
        self._witnessed.append({**head, **ONE_CLOCK, **fields})

    def _watch_commits(self, name: str, server: BrokerServer) -> None:
        """Commits are sent one-way: only the broker knows which of them arrived."""
        assert server.broker is not None
        offsets = server.broker.offsets
        store = offsets.commit

        def commit(consumer_group: str, topic: str, queue_id: int, committed_offset: int) -> int:
            queue = MessageQueue(topic, name, queue_id)
            self.witness(
                "stored", group=consumer_group, offset=committed_offset, topic=topic, broker=name, queue_id=queue_id
            )
            self._log(name).debug("offset stored", offset=committed_offset, queue=str(queue))
            return store(consumer_group, topic, queue_id, committed_offset)

        offsets.commit = commit  # type: ignore[method-assign]

    def _broker(self, name: str) -> Broker:
        broker = self._servers[name].broker
        assert broker is not None
        return broker

    def locks(self, name: str = BROKER, *, topic: str = TOPIC) -> dict[int, LockTableRow]:
        """The broker's lock table as it stands now: queue id -> row."""
        rows = self._broker(name).locks.list(self.world.now_ms)
        return {row.queue.queue_id: row for row in rows if row.queue.topic == topic}

    def owner(self, queue_id: int = 0, name: str = BROKER) -> str | None:
        """The address of the host that holds a queue's lock."""
        row = self.locks(name).get(queue_id)
        return row.client_id.partition("@")[0] if row is not None else None

    def members(self, name: str = BROKER) -> tuple[str, ...]:
        """The client ids of the group as the broker knows it."""
        return self._broker(name).consumers.client_ids(GROUP)

    def committed(self, queue_id: int = 0, name: str = BROKER, *, group: str = GROUP, topic: str = TOPIC) -> int:
        return self._broker(name).offsets.query(group, topic, queue_id)

    def store(self, name: str = BROKER) -> MessageStore:
        return self._broker(name).store

    def stored(self, queue_id: int = 0, name: str = BROKER, *, topic: str = TOPIC, first: int = 0) -> list[MessageExt]:
        """All messages in a queue of the broker's store, from an offset on."""
        broker, messages = self._broker(name), list[MessageExt]()
        while found := broker.store.get(topic, queue_id, first + len(messages), 32, None).body:
            messages += decode_messages(found, name)
        return messages

    # Consumers -----------------------------------------------------------------------------------------------

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
        runtime = self.world.host(name)
        consumer = PushConsumer(
            GROUP,
            name_server=self.name_server,
            config=ConsumerConfig(serialize_type=self.serialize_type, **settings),
            listener=listener or self.seen.listener(runtime, work_ms, works_ms or {}, answer, ordering=ordering),
            ordering=ordering,
            strategy=strategy,
            trace=TRACE,
            runtime=runtime,
            log=self._log(name),
        )
        consumer.subscribe(TOPIC)
        self._clients[name] = consumer
        self._traced[name] = None
        await runtime.run(consumer.start())
        return consumer

    async def leave(self, name: str) -> None:
        """A clean shutdown."""
        client = self._clients.pop(name)
        await self.world.host(name).run(client.shutdown())

    def crash(self, name: str, *, silently: bool = False) -> None:
        """SIGKILL, or with `silently` the whole machine, of a client or a broker."""
        self.seen.died(str(self.world.host(name).host))
        self._clients.pop(name, None)
        self.world.crash(name, silently=silently)

    def power_cut(self, name: str = BROKER) -> None:
        """Of a broker: its disk keeps what it was told to."""
        self._servers.pop(name)
        self.world.power_cut(name)

    # Producers -----------------------------------------------------------------------------------------------

    async def producer(self, name: str = PRODUCER, **settings: Any) -> Producer:
        runtime = self.world.host(name)
        config = ProducerConfig(serialize_type=self.serialize_type, **settings)
        producer = Producer(
            f"{name}s", name_server=self.name_server, config=config, trace=TRACE, runtime=runtime, log=self._log(name)
        )
        self._clients[name] = producer
        self._traced[name] = None
        await runtime.run(producer.start())
        return producer

    async def send(self, count: int = 1, *, keys: int = 8, queue_id: int | None = None, name: str = PRODUCER) -> None:
        """Send messages numbered on over all sends, all at once: with keys in turn, or to one queue."""
        await self.world.host(name).run(self._send_all(name, count, keys, queue_id))

    async def _send_all(self, name: str, count: int, keys: int, queue_id: int | None) -> None:
        await asyncio.gather(*[self.send_one(keys, queue_id, name) for _ in range(count)])

    async def send_one(
        self, keys: int = 8, queue_id: int | None = None, name: str = PRODUCER, *, padding_bytes: int = 0
    ) -> SendResult:
        """To be awaited on the producer's host. Raises SendError."""
        producer = self._clients[name]
        assert isinstance(producer, Producer)
        number, self._count = self._count, self._count + 1
        queue = None if queue_id is None else MessageQueue(TOPIC, BROKER, queue_id)
        message = Message(TOPIC, str(number).encode() + b" " * padding_bytes)
        result = await producer.send(message, sharding_key=f"key{number % keys}", queue=queue)
        self.sent.append(str(number))
        return result

    async def start_client(self, name: str, make: Callable[[SimRuntime, EventLog], C]) -> C:
        """Start a producer or consumer of a story's own on a host; the end shuts it down."""
        runtime = self.world.host(name)
        client = make(runtime, self._log(name))
        self._clients[name] = client
        await runtime.run(client.start())
        return client

    def client(self, name: str) -> Client | MQClientInstance:
        """A living client by its host's name."""
        return self._clients[name]

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
            instance = MQClientInstance(self.world.host(name), names, config, self._log(name))
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

    async def at(self, elapsed_ms: int) -> None:
        """Wait until this many virtual milliseconds after the start."""
        assert elapsed_ms >= self.world.elapsed_ms, "that moment has passed"
        await self.world.sleep_ms(elapsed_ms - self.world.elapsed_ms)

    async def all_seen(self, *, timeout_ms: int = 150_000) -> None:
        """Wait until every message that was sent has been handled, by a listener that asked for no other attempt."""

        def everything() -> bool:
            return not set(self.sent).difference(call.text for call in self.seen.all if call.good)

        await self.world.until(everything, timeout_ms=timeout_ms, poll_ms=100)

    def _log(self, name: str) -> _HostLog:
        return _HostLog(self.log, self.world, name)

    # The end -------------------------------------------------------------------------------------------------

    def records(self, name: str) -> list[Record]:
        """A host's trace so far. All hosts share one monotonic clock, so calls may be compared as if on one."""
        lines = self.world.disk(name).read(TRACE).splitlines()
        return [{**json.loads(line), **ONE_CLOCK} for line in lines]

    async def end(self, *, judge: bool = True) -> OrderReport:
        """Shut everything down, once, and judge: violations, duplicates, losses and overlaps are as expected."""
        if self._report is not None:
            return self._report
        for name in reversed(list(self._clients)):
            await self.leave(name)
        for name, server in reversed(self._servers.items()):
            await self.world.host(name).run(server.shutdown())
        report = self._report = check_traces([*map(self.records, self._traced), self._witnessed])
        self._record_evidence(report)
        if judge:
            self._judge(report)
        return report

    def _judge(self, report: OrderReport) -> None:
        text, expected = "\n".join(report.lines()), self.expected
        assert report.violation_counts == expected.violations, text
        assert set(expected.duplicates) <= set(report.duplicates) <= {*expected.duplicates, *expected.possible}, text
        assert (report.lost, report.emptied) == (0, expected.emptied), text
        assert len(self.seen.overlaps) == expected.overlaps, self.seen.overlaps

    def _record_evidence(self, report: OrderReport) -> None:
        """Traces and logs become part of the run's hash."""
        for name in self._traced:
            self.world.record(f"trace of {name} {zlib.crc32(self.world.disk(name).read(TRACE)):08x}")
        self.world.record(f"log {zlib.crc32(repr(self.log).encode()):08x}")
        for line in report.lines():
            self.world.record(line)
