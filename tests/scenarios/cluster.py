"""A cluster on simulated hosts: real brokers, producers and consumers, and the order checker at the end."""

import zlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lockstep.client import ConsumerConfig, Producer, ProducerConfig, PushConsumer, SerializeType
from lockstep.order import Cause, Kind, OrderReport
from lockstep.remoting.logs import EventLog
from lockstep.simulation import SimRuntime, World
from lockstep.simulation.lab.cluster import BROKER, PRODUCER, TRACE
from lockstep.simulation.lab.cluster_log import LogLine
from lockstep.simulation.lab.recorded_cluster import GROUP, TOPIC, RecordedCluster, take_all
from lockstep.simulation.lab.setup import LockMode

__all__ = ["BROKER", "GROUP", "PRODUCER", "TOPIC", "TRACE", "Cluster", "LogLine", "take_all"]


@dataclass
class Expected:
    """What a story expects of its report; by default nothing but order: every message once."""

    violations: dict[Kind, int] = field(default_factory=dict)
    duplicates: Collection[Cause] = ()  # each must occur ...
    possible: Collection[Cause] = ()  # ... these may, and no other
    overlaps: int = 0  # pairs of listeners that ran on one queue at once
    emptied: int = 0


class Cluster(RecordedCluster):
    """A cluster whose end is judged."""

    def __init__(self, world: World, serialize_type: SerializeType, *, fenced: bool = False) -> None:
        """`fenced`: by default brokers and ordered consumers have fenced locks."""
        super().__init__(world, serialize_type, lock_mode=LockMode.FENCED if fenced else LockMode.FAITHFUL)
        self.fenced = fenced
        self.expected = Expected()
        self._report: OrderReport | None = None

    async def broker_and_producer(self, **settings: Any) -> None:
        """A broker with these settings, and a producer that has sent nothing yet."""
        await self.broker(**settings)
        await self.producer()

    async def own_consumer(
        self,
        host: str,
        group: str,
        listener: Any,
        *,
        topics: Iterable[str] = (TOPIC,),
        prepare: Callable[[PushConsumer], object] = lambda _: None,
        settings: Mapping[str, Any] | None = None,
        **given: Any,
    ) -> PushConsumer:
        """A consumer with the test's own listener, settings and arguments. `prepare` gets it before its start."""
        config = ConsumerConfig(serialize_type=self.serialize_type, **(settings or {}))
        given |= {"name_server": self.name_server, "config": config, "listener": listener}

        def make(runtime: SimRuntime, log: EventLog) -> PushConsumer:
            consumer = PushConsumer(group, runtime=runtime, log=log, **given)
            for topic in topics:
                consumer.subscribe(topic)
            prepare(consumer)
            return consumer

        return await self.start_client(host, make)

    async def own_producer(self, host: str, group: str, **given: Any) -> Producer:
        config = ProducerConfig(serialize_type=self.serialize_type)
        given |= {"name_server": self.name_server, "config": config}
        return await self.start_client(host, lambda runtime, log: Producer(group, runtime=runtime, log=log, **given))

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
