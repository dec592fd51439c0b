"""A cluster of the lab: hosts that work, faults that happen to them, and the judge of what they did."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final

from lockstep.broker.server import Interceptor
from lockstep.client import Message, MessageQueue, Producer, SendResult, SerializeType
from lockstep.order import Kind, OrderReport, Record, check_traces
from lockstep.simulation.lab.durations import duration_ms
from lockstep.simulation.lab.faults.table import play
from lockstep.simulation.lab.faults.text import check_hosts, read_fault
from lockstep.simulation.lab.findings import Wrong, place_of, queue_of, time_of
from lockstep.simulation.lab.hosts import BROKER, GROUP, ONE_CLOCK, PRODUCER, TOPIC, TRACE, Client, Hosts
from lockstep.simulation.lab.sends import RatedSends
from lockstep.simulation.lab.setup import FaultEvent, Setup
from lockstep.simulation.lab.standstill import Flow, flow_of
from lockstep.simulation.machine.disk import Disk
from lockstep.simulation.virtual_time.loop import START_NS
from lockstep.simulation.world import World

__all__ = ["BROKER", "ONE_CLOCK", "PRODUCER", "TRACE", "Client", "Cluster", "OrderError", "in_groups"]

_POLL_MS: Final = 500
_MANY: Final = 16  # members
_PART_BYTES: Final = 16_384  # of a trace that are decoded at once: the merge of all traces holds a part of each


class OrderError(AssertionError):
    """The judge found violations; the text is its report."""


class _HostTrace:
    """The records of a host, read anew each time."""

    def __init__(self, cluster: "Cluster", name: str) -> None:
        self._cluster = cluster
        self._name = name

    def __iter__(self) -> Iterator[Record]:
        return self._cluster.read_records(self._name)


class Cluster(Hosts):
    """See Hosts. `sent` are the texts of the messages that a broker is known to have stored."""

    def __init__(
        self,
        world: World,
        setup: Setup | None = None,
        *,
        serialize_type: SerializeType = SerializeType.MSGPACK,
        topic: str = TOPIC,
        group: str = GROUP,
        tap: Callable[[str], Interceptor | None] = lambda _: None,
    ) -> None:
        super().__init__(world, setup, serialize_type=serialize_type, topic=topic, group=group, tap=tap)
        self.sent: list[str] = []
        self.measured_from_ms = 0  # what was before, such as the start of the members, is not among the costs
        self._count = 0
        self._judged: tuple[tuple[int, ...], OrderReport] | None = None  # of traces that are so long
        self._tasks: list[asyncio.Task[Any]] = []  # faults, and messages at a rate
        self._early: list[FaultEvent] | None = None  # planned faults that wait for the start of the hosts; None: none
        self.sends = RatedSends(self, self.sent, retries=self.setup.retry_sends)

    # Time and messages ---------------------------------------------------------------------------------------

    async def at(self, when: str | int) -> None:
        """Wait until so long after the start: "30s", or milliseconds."""
        left_ms = duration_ms(when) - self.world.elapsed_ms
        assert left_ms >= 0, "that moment has passed"
        await self.world.sleep_ms(left_ms)

    async def run_for(self, duration: str | int) -> None:
        """Let everything work for so long."""
        await self.world.sleep_ms(duration_ms(duration))

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
        queue = None if queue_id is None else MessageQueue(self.topic, BROKER, queue_id)
        message = Message(self.topic, str(number).encode() + b" " * padding_bytes)
        result = await producer.send(message, sharding_key=f"key{number % keys}", queue=queue)
        self.sent.append(str(number))
        return result

    def send_at_a_rate(
        self, rate: float, until: str | int, make: Callable[[int], Message], *, name: str = PRODUCER
    ) -> None:
        """Begin to send messages, one after the other.

        Args:
            rate: messages a second.
            make: a message by its number, from 0.
        """
        sending = self.sends.run(rate, duration_ms(until), make, name)
        self._tasks.append(self.world.start(sending, name="messages"))

    # Faults --------------------------------------------------------------------------------------------------

    def fault(self, text: str) -> "asyncio.Task[bool]":
        """Play a fault now: "kill c1", "stall c1+70s", "partition c1-broker+20s". Await what it returns for its end.

        Raises FaultError: the text is no fault, or a host does not exist.
        """
        event = read_fault(text, now_ms=self.world.elapsed_ms)
        check_hosts(event, self.known_hosts)
        return self.play_fault(event)

    @property
    def known_hosts(self) -> tuple[str, ...]:
        """The names of hosts that have started, or will by the setup."""
        return tuple(dict.fromkeys((*self.setup.hosts, *self._recipes)))

    def plan_fault(self, event: FaultEvent) -> None:
        """Begin a fault at its time, before all else of that instant, but not before all hosts have started.

        A run is the same whether a fault is planned from its start on, or later, before its time.
        """
        self.world.loop.call_first_at_ns(START_NS + event.at_ms * 1_000_000, self._begin_fault, event)

    @property
    def is_starting(self) -> bool:
        """Whether planned faults wait for the start of the hosts."""
        return self._early is not None

    def _begin_fault(self, event: FaultEvent) -> None:
        if self._early is not None:
            self._early.append(event)
        else:
            self.play_fault(event)

    def play_fault(self, event: FaultEvent) -> "asyncio.Task[bool]":
        """Play a fault at its time, or now if that has passed."""
        task = self.world.start(self._play(event), name=f"fault {event.fault}")
        self._tasks.append(task)
        return task

    async def _play(self, event: FaultEvent) -> bool:
        await self.at(max(event.at_ms, self.world.elapsed_ms))
        self.world.record(f"fault {event}")
        return await play(self, event)

    async def heal(self) -> None:
        """Wait for the end of all faults and messages; then let every host run that may run.

        Brokers and name servers that are down start again, members only if none is left.
        """
        await self.faults_ended()
        world = self.world
        for name in self._recipes:
            host = world.host(name).host if not self.is_down(name) else None
            if host is not None and host.asleep:
                world.wake(name)
            if host is not None and host.paused:
                world.resume(name)
        for one, other in sorted(self.deaf_links):
            world.cut(one, other)  # as TCP gives up an end whose bytes nobody acknowledges
        self.deaf_links.clear()
        members = [name for name in self._recipes if name in self._members]
        down = [name for name in self._recipes if self.is_down(name) and name not in members]
        if members and all(self.is_down(name) for name in members):
            down.append(members[0])
        for name in down:
            await self.start_again(name)
        await self.sends.ended()

    async def faults_ended(self) -> None:
        """Wait for the end of all faults and messages; those without a duration end now."""
        self.lasting.heal()
        while self._tasks:
            await self._tasks.pop(0)

    async def settle(self, bound: str | int) -> bool:
        """Wait until the group has committed everything in the stores. What is left after `bound` is a finding."""
        end_ms = self.world.elapsed_ms + duration_ms(bound)
        while (left := self.not_committed()) and self.world.elapsed_ms < end_ms:
            await self.world.sleep_ms(_POLL_MS)
        for queue, count in left.items():
            what = f"1 message of {queue} is" if count == 1 else f"{count} messages of {queue} are"
            text = f"{what} not handled {duration_ms(bound) / 1000:.0f} s after all was healed"
            self.findings.add(Wrong.STUCK, text, queue=f"{queue.topic}/{queue.broker_name}/{queue.queue_id}")
        return not left

    def not_committed(self) -> dict[MessageQueue, int]:
        """How many messages of which queues the group has still to commit."""
        left = {}
        for broker in filter(self.is_up, self.brokers):
            for queue_id in range(self._topics[broker]):
                end = self.store(broker).max_offset(self.topic, queue_id)
                count = end - max(self.core(broker).catalog.offsets.query(self.consumer_group, self.topic, queue_id), 0)
                if count > 0:
                    left[MessageQueue(self.topic, broker, queue_id)] = count
        return left

    # The end -------------------------------------------------------------------------------------------------

    def records(self, name: str) -> list[Record]:
        """A host's trace so far, in virtual time, so that calls may be compared as if on one clock."""
        return list(self.read_records(name))

    def read_records(self, name: str) -> Iterator[Record]:
        """The same, a few at a time: those of a thousand members take gigabytes."""
        return self._read_records(name, 0)

    def records_since(self, name: str, begin_bytes: int) -> tuple[list[Record], int]:
        """What a host has added to its trace. Returns also the size of the trace, where the next reading begins."""
        return list(self._read_records(name, begin_bytes)), self.world.disk(name).find(TRACE).size_bytes

    def _read_records(self, name: str, begin_bytes: int) -> Iterator[Record]:
        clock = self.world.clock(name)
        for part in _parts(self.world.disk(name), TRACE, begin_bytes):
            # A third of the time of one by one.
            for record in json.loads(b"[" + part.rstrip(b"\n").replace(b"\n", b",") + b"]"):
                record.update(ONE_CLOCK)
                if clock.is_off:
                    record.update({key: clock.virtual_ns(record[key]) for key in _TIMES if key in record})
                yield record

    @property
    def traced_hosts(self) -> tuple[str, ...]:
        """The names of hosts with a trace, in order of their first start."""
        return tuple(self._traced)

    def record_numbers(self) -> Callable[[Record], tuple[str, int] | None]:
        """Finds the place of a record of the judge's: its client id, and its number in that client's trace."""
        places: dict[str, tuple[str, int]] = {}

        def find(record: Record) -> tuple[str, int] | None:
            if not places:  # the first question reads all traces, and most runs have none
                for name in self._traced:
                    for number, one in enumerate(self.read_records(name)):
                        places.setdefault(_text_of(one), (str(one["client_id"]), number))
            return places.get(_text_of(record))

        return find

    async def shut_down(self) -> None:
        """End all clients, then all servers, each the last started first. Many clients end at once."""
        self.ended_ms = self.world.elapsed_ms
        for names in in_groups([*reversed(list(self._clients))]):
            await asyncio.gather(*map(self.leave, names))
        for name in reversed([name for name in self._servers if self.is_up(name)]):
            await self._shut_down_server(name)

    def judge(self) -> OrderReport:
        """What the judge of order says of all traces so far."""
        length = (*(self.world.disk(name).file(TRACE).size_bytes for name in self._traced), len(self.witnessed))
        if self._judged is None or self._judged[0] != length:
            traces = [_HostTrace(self, name) for name in self._traced]
            self._judged = length, check_traces([*traces, self.witnessed])
        return self._judged[1]

    def flow(self) -> Flow:
        """How the messages since `measured_from_ms` went through their queues, until the shutdown."""
        until_ns = self.world.loop.now_ns if self.ended_ms is None else START_NS + self.ended_ms * 1_000_000
        emptied = defaultdict[str, list[int]](list)
        for record in self.witnessed:
            if record["event"] == "broker_restarted":
                emptied[record["broker"]].append(record["mono_ns"])
        records = (record for name in self._traced for record in self.read_records(name))
        group, since_ns = self.consumer_group, START_NS + self.measured_from_ms * 1_000_000
        return flow_of(records, topic=self.topic, group=group, until_ns=until_ns, since_ns=since_ns, emptied_ns=emptied)

    def forgive_repeats(self, name: str) -> None:
        """A broker has started again: it may have lost offsets of a group that pops, and the judge allows repeats."""
        offsets = self.core(name).catalog.offsets
        for queue_id in range(self._topics[name]):
            place = {"group": self.consumer_group, "topic": self.topic, "broker": name, "queue_id": queue_id}
            offset = offsets.query(self.consumer_group, self.topic, queue_id)
            self.witness("reset", **place, offset=max(offset, 0))

    def judge_into_findings(self, excused: Collection[Kind] = ()) -> None:
        """Add what the judge finds, one finding a kind, and requests whose handler failed.

        Args:
            excused: Kinds that are no violation here.
        """
        for line in self.log:
            if line.event == "request_failed":
                self.findings.add(Wrong.REQUEST_FAILED, f"{line.host}: {line.fields.get('reason')}")
        report = self.judge()
        for kind, count in sorted(report.violation_counts.items()):
            if kind not in excused:
                first = next(found for found in report.violations if found.kind is kind)
                self.findings.add(
                    f"judge: {kind}",
                    f"{count} times, first: {first.sentence}",
                    queue=next((place_of(queue) for one in first.evidence if (queue := queue_of(one))), ""),
                    at_ms=max(map(time_of, first.evidence), default=None),
                )
        for cause, count in report.duplicates.items():
            self.findings.sometimes[f"duplicates: {cause}"] += count

    def check(self) -> OrderReport:
        """The judge's report. Raises OrderError with its sentences if it found violations."""
        report = self.judge()
        if report.violation_counts or report.lost:
            raise OrderError("\n".join([report.reason(), *(found.sentence for _, found in report.examples())]))
        return report


def in_groups(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """Few members one by one, so that a reader can follow them. Many at once, as in a deployment: one after the other,
    each start or end is a rebalance of all others."""
    together = len(names) if len(names) >= _MANY else 1
    return (names[first : first + together] for first in range(0, len(names), together))


_TIMES = ("mono_ns", "begin_mono_ns")


def _parts(disk: Disk, path: str, position: int) -> Iterator[bytes]:
    """A file from a position on, in parts of whole lines. Raises FileNotFoundError."""
    content, size_bytes = disk.find(path), _PART_BYTES
    while position < content.size_bytes:
        part = content.read(position, size_bytes)
        end = part.rfind(b"\n") + 1 if position + len(part) < content.size_bytes else len(part)
        size_bytes = _PART_BYTES if end else 2 * size_bytes  # a line may be longer
        if end:
            yield part[:end]
        position += end


def _text_of(record: Record) -> str:
    return repr(sorted(record.items()))
