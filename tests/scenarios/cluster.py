"""A cluster on simulated hosts: real brokers, producers and consumers, and the order checker at the end."""

import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from lockstep.broker.state.members import ConsumerGroup
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
from lockstep.order import Cause, Kind, OrderReport
from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.bodies.locks import LockBatchBody, LockOkBody, LockTableRow
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.command import RemotingCommand
from lockstep.simulation import World
from lockstep.simulation.lab.cluster import BROKER, PRODUCER, TRACE
from lockstep.simulation.lab.cluster import Cluster as LabCluster
from lockstep.simulation.lab.cluster_log import LogLine
from lockstep.simulation.lab.setup import LockMode, Setup
from tests.scenarios.calls import Answer, Calls
from tests.scenarios.heard import Heard

__all__ = ["BROKER", "GROUP", "PRODUCER", "TOPIC", "TRACE", "Cluster", "LogLine", "take_all"]

TOPIC, GROUP = "Aircraft", "tower"


def take_all(_group: str, _client: str, queues: Collection[MessageQueue], _clients: object) -> list[MessageQueue]:
    """An allocation by which everybody wants every queue: then the lock alone decides."""
    return list(queues)


@dataclass
class Expected:
    """What a story expects of its report; by default nothing but order: every message once."""

    violations: dict[Kind, int] = field(default_factory=dict)
    duplicates: Collection[Cause] = ()  # each must occur ...
    possible: Collection[Cause] = ()  # ... these may, and no other
    overlaps: int = 0  # pairs of listeners that ran on one queue at once
    emptied: int = 0


class Cluster(LabCluster):
    """`seen` are all listener calls, `log` all that brokers and clients logged, `heard` all requests that arrived."""

    def __init__(self, world: World, serialize_type: SerializeType, *, fenced: bool = False) -> None:
        """`fenced`: by default brokers and ordered consumers have fenced locks."""
        self.fenced = fenced
        setup = Setup(lock_mode=LockMode.FENCED if fenced else LockMode.FAITHFUL)
        self.heard = Heard(world)
        super().__init__(world, setup, serialize_type=serialize_type, topic=TOPIC, group=GROUP, tap=self.heard.tap)
        self.seen = Calls(world)
        self.expected = Expected()
        self._report: OrderReport | None = None

    # What a broker knows -------------------------------------------------------------------------------------

    def group(self, name: str, broker: str = BROKER) -> ConsumerGroup:
        """A consumer group as its members' heartbeats told this broker of it."""
        return self.core(broker).consumers.groups[name]

    def locks(self, name: str = BROKER, *, topic: str = TOPIC) -> dict[int, LockTableRow]:
        """The broker's lock table as it stands now: queue id -> row."""
        rows = self.core(name).locks.list(self.world.now_ms)
        return {row.queue.queue_id: row for row in rows if row.queue.topic == topic}

    def owner(self, queue_id: int = 0, name: str = BROKER) -> str | None:
        """The address of the host that holds a queue's lock."""
        row = self.locks(name).get(queue_id)
        return row.client_id.partition("@")[0] if row is not None else None

    def committed(self, queue_id: int = 0, name: str = BROKER, *, group: str = GROUP, topic: str = TOPIC) -> int:
        return self.core(name).offsets.query(group, topic, queue_id)

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
        return await super().consumer(name, listener=listener, strategy=strategy, ordering=ordering, **settings)

    def crash(self, name: str, *, silently: bool = False) -> None:
        """SIGKILL, or with `silently` the whole machine, of a client or a broker."""
        self.seen.died(str(self.world.host(name).host))
        super().crash(name, silently=silently)

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

    # The end -------------------------------------------------------------------------------------------------

    async def end(self, *, judge: bool = True) -> OrderReport:
        """Shut everything down, once, and judge: violations, duplicates, losses and overlaps are as expected."""
        if self._report is not None:
            return self._report
        await self.shut_down()
        report = self._report = self.judge()
        self._record_evidence(report)
        if judge:
            self._compare(report)
        return report

    def _compare(self, report: OrderReport) -> None:
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
