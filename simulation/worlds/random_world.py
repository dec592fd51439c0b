"""A random world: plays a plan against a cluster, heals it, and says what went wrong."""

from collections.abc import Iterator
from typing import Final

from lockstep.client import ClientError, Message, MessageQueue, Producer, ProducerConfig
from lockstep.order import Kind
from lockstep.remoting.errors import RemotingError
from lockstep.simulation.lab.cluster import BROKER, PRODUCER
from lockstep.simulation.lab.findings import FENCED_OUT, Findings, Wrong, place_of, queue_of, time_of
from lockstep.simulation.lab.hosts import TOPIC
from lockstep.simulation.world import World
from lockstep.simulation.worlds.calls import Calls
from lockstep.simulation.worlds.database import Database
from lockstep.simulation.worlds.faults import Faults
from lockstep.simulation.worlds.handovers import undrained
from lockstep.simulation.worlds.observer import Observer
from lockstep.simulation.worlds.plan import MEMBERS, Fault, Store, WorldPlan
from lockstep.simulation.worlds.watched import WatchedCluster

__all__ = ["RandomWorld"]

_KEYS: Final = 5
_POLL_MS: Final = 500
_SOON_LEASES: Final = 3
_SOON_MS: Final = 15_000  # for what takes no part of a lease: connections, and requests without an answer
# With the log the broker may lose its last stored offsets.
_OF_LOST_LOG: Final = frozenset({
    Kind.WRONG_MESSAGE, Kind.NEVER_SENT, Kind.REPEATED_ID, Kind.COMMIT_BEYOND_END, Kind.REWIND_BELOW_COMMIT,
})  # fmt: skip
_HANDOVERS: Final = (Fault.JOIN, Fault.LEAVE)
_RESET_ENDS: Final = (Fault.RESET, Fault.JOIN, Fault.LEAVE)
_RESET_DROPS: Final = "its offset is reset"
_RESET_REFUSED: Final = "offset_reset_refused"
_OF_SKIPPED: Final = frozenset({Kind.COMMIT_BEYOND_END, Kind.COMMIT_UNHANDLED, Kind.LOST_WRITE})


class RandomWorld:
    """`run` plays the plan; then `findings` has what went wrong and what happened."""

    def __init__(self, world: World, plan: WorldPlan) -> None:
        self.world = world
        self.plan = plan
        fenced = plan.fenced
        self.findings = Findings(world)
        observers = {name: Observer(self.findings, plan, name, TOPIC, fenced=fenced) for name in plan.brokers}
        self.observer = observers[BROKER]  # the others do not start again
        self.cluster = WatchedCluster(world, observers)
        self.cluster.findings = self.findings
        self.database = Database(self.findings)
        self.calls = Calls(plan, self.findings, self.database, self._lease_end_ms, fenced)
        self.faults = Faults(plan, self.cluster, self.findings, self.calls, fenced, self._broker_started)
        self._observers = observers
        for observer in observers.values():
            observer.on_unlock, observer.refuses = self._check_handover, self.faults.refuses
        self.observer.skips = self._has_unhandled
        self._acknowledged: dict[str, MessageQueue] = {}  # by text
        self._sent = 0
        self._log_cut = False  # a power cut took messages with it that were acknowledged, and handled
        self._cut: dict[int, list[range]] = {}  # by queue id: the offsets that power cuts took, given to others since

    async def run(self) -> None:
        plan, world = self.plan, self.world
        for name in plan.brokers:
            await self.faults.start_broker(name)
        together_max = ProducerConfig().send_together_max if plan.together else 1
        await self.cluster.producer(send_together_max=together_max)
        tasks = [world.start(self._send_all(), name="sends")]
        tasks += [
            world.start(self.faults.start_member(name), name=f"start {name}") for name in MEMBERS[: plan.first_members]
        ]
        for event in plan.events:
            await self._until_ms(event.at_ms)
            world.record(f"event {' '.join(map(str, event))}")
            tasks.append(world.start(self.faults.play(event), name=f"event {event.fault}"))
        await self._until_ms(plan.life_ms)
        for task in tasks:
            await task
        await self.faults.heal()
        await self._settle()
        await self.cluster.shut_down()
        self._judge()
        world.power_off()  # a call that runs on may outlive its consumer

    async def _until_ms(self, at_ms: int) -> None:
        if at_ms > self.world.elapsed_ms:
            await self.world.sleep_ms(at_ms - self.world.elapsed_ms)

    def _lease_end_ms(self, address: str, queue: MessageQueue, epoch: int) -> int:
        return self._observers[queue.broker_name].lease_end_ms(address, queue, epoch)

    # Messages ------------------------------------------------------------------------------------------------

    async def _send_all(self) -> None:
        producer = self.world.host(PRODUCER)
        for at_ms, count in self.plan.sends:
            await self._until_ms(at_ms)
            for _ in range(count):
                self._sent += 1
                producer.create_task(self._send(self._sent), name=f"send {self._sent}")

    async def _send(self, number: int) -> None:
        producer = self.cluster.client(PRODUCER)
        assert isinstance(producer, Producer)
        text = str(number)
        try:
            result = await producer.send(Message(TOPIC, text.encode()), sharding_key=f"key{number % _KEYS}")
        except (ClientError, RemotingError):
            self.findings.saw("sends failed")
        else:
            self._acknowledged[text] = result.queue

    def _broker_started(self, log_may_shrink: bool, table_lost: bool) -> None:
        self.observer.broker_started(log_lost=log_may_shrink, table_lost=table_lost)
        self.calls.done.clear()  # commits may be gone
        if log_may_shrink:
            self._log_cut = self.plan.store is not Store.MEMORY
            for queue_id, end in self.faults.ends.items() if self._log_cut else ():
                left = range(self.cluster.store().max_offset(TOPIC, queue_id), end)
                self._cut.setdefault(queue_id, []).append(left)
            stored = self.cluster.stored_texts()
            self.database.log_lost({str(number) for number in range(1, self._sent + 1)} - stored)
            for text in set(self._acknowledged) - stored:
                del self._acknowledged[text]

    def _check_handover(self, address: str, queue: MessageQueue, epoch: int) -> None:
        """A member gives a queue away: no call of it runs, and what it has handled is committed."""
        for call in self.calls.running:
            if (call.address, call.queue, call.epoch) == (address, queue, epoch):
                self.findings.add(
                    Wrong.UNLOCKED_UNDER_CALL, f"{queue}: {call.process} under {epoch}", queue=place_of(queue)
                )
        done, committed = self.calls.done.get((queue, epoch), 0), max(self.cluster.committed(queue), 0)
        if epoch and committed < done and not self.plan.by_key and not self.database.resets:
            text = f"{queue}: {done} messages are handled, {committed} committed"
            self.findings.add(Wrong.NOT_DRAINED, text, queue=place_of(queue))

    # The end -------------------------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Wait until every message in the store has had its effect, and say which ones had it late."""
        begin_ms, left = self.world.elapsed_ms, self._not_handled()
        soon_ms, end_ms = begin_ms + self._soon_ms(left), begin_ms + self.plan.settle_ms
        late: list[tuple[MessageQueue, int, str]] | None = None
        while left and self.world.elapsed_ms < end_ms:
            if late is None and self.world.elapsed_ms >= soon_ms:
                late = [one for one in self._in_question(left) if self.cluster.committed(one[0]) <= one[1]]
            await self.world.sleep_ms(_POLL_MS)
            left = self._not_handled()
        for text in sorted(set(self._acknowledged) - self.cluster.stored_texts()):
            queue = self._acknowledged[text]
            self.findings.add(Wrong.NOT_STORED, f"message {text} of queue {queue.queue_id}", queue=place_of(queue))
        for queue, offset, text in [one for one in late or () if one not in left]:
            text = f"message {text} at offset {offset} of queue {queue.queue_id}, {soon_ms - begin_ms} ms after the end"
            self.findings.add(Wrong.LATE, text, queue=place_of(queue))
        for queue, offset, text in self._in_question(left):
            committed = self.cluster.committed(queue)
            wrong = Wrong.LOST if committed > offset else Wrong.STUCK
            text = f"message {text} at offset {offset} of queue {queue.queue_id}, committed {committed}"
            self.findings.add(wrong, text, queue=place_of(queue))
        self._check_sends()

    def _soon_ms(self, left: list[tuple[MessageQueue, int, str]]) -> int:
        """In this time every queue has an owner again, and it has handled what is left.

        A member whose machine is off leaves its group after two leases.
        """
        numbers = range(1, self._sent + 1)
        texts = map(str, numbers) if self.database.resets else [text for _, _, text in left]
        work_ms = sum(self.calls.work_ms(text) for text in texts)
        work_ms += sum(self.calls.work_ms(str(number)) for number in numbers if self.plan.is_poison(str(number)))
        return _SOON_LEASES * self.plan.lease_ms + _SOON_MS + work_ms

    def _in_question(self, left: list[tuple[MessageQueue, int, str]]) -> Iterator[tuple[MessageQueue, int, str]]:
        """Of the messages without an effect, those that must have one."""
        for queue, offset, text in left:
            if self.plan.fenced and queue.queue_id in self.observer.beyond_end:
                self.findings.saw("messages skipped by unmodified members")  # of a log that was lost with its locks
            elif self.plan.fenced and any(offset in offsets for offsets in self._cut.get(queue.queue_id, ())):
                self.findings.saw("messages skipped of a log that was cut")  # an owner was beyond its new end
            else:
                yield queue, offset, text

    def _check_sends(self) -> None:
        """Of each key, the messages are stored in the order of their sends; a retry may store one again."""
        if self.database.has_lost_log:
            return
        highest, seen = dict[str | None, int](), set[int]()
        for message in (one for queue in self.cluster.queues() for one in self.cluster.stored_in(queue)):
            number, key = int(message.body), message.sharding_key
            if number < highest.get(key, 0) and number not in seen:
                text = f"message {number} of {key} at offset {message.queue_offset}, after {highest[key]}"
                queue = MessageQueue(TOPIC, message.broker_name, message.queue_id)
                self.findings.add(Wrong.STORED_OUT_OF_ORDER, text, queue=place_of(queue))
            seen.add(number)
            highest[key] = max(number, highest.get(key, 0))

    def _not_handled(self) -> list[tuple[MessageQueue, int, str]]:
        """(queue, offset, text) of the messages in the store without an effect."""
        if len(self.calls.succeeded) == self._sent:
            return []
        return [
            (queue, message.queue_offset, text)
            for queue in self.cluster.queues()
            for message in self.cluster.stored_in(queue)
            if (text := message.body.decode()) not in self.database.texts and not self.plan.is_poison(text)
        ]

    def _has_unhandled(self, queue_id: int, first: int, end: int) -> bool:
        messages = self.cluster.stored(queue_id, first=first) if first < end else []
        texts = {message.body.decode() for message in messages[: end - first]}
        return any(not self.plan.is_poison(text) for text in texts - self.database.texts)

    def _check_resets(self) -> None:
        """Where members only come and go, one that begins to reset an offset stores it, or the lock is refused.

        A fenced broker has stored it itself, and keeps it.
        """
        if self.plan.fenced or any(event.fault not in _RESET_ENDS for event in self.plan.events):
            return
        over_ns = 2 * (self.plan.long_ms + self.plan.lease_ms) * 1_000_000
        refused = {line.fields["queue"] for line in self.cluster.log if line.event == _RESET_REFUSED}
        for name in filter(MEMBERS.__contains__, self.cluster.traced_hosts):
            records = self.cluster.records(name)
            for number, one in enumerate(records):
                queue = queue_of(one)
                if queue is None or one["event"] != "dropped" or one.get("why") != _RESET_DROPS:
                    continue
                later = [other for other in records[number:] if other["client_id"] == one["client_id"]]
                stored = any(other["event"] == "reset" and queue_of(other) == queue for other in later)
                if later[-1]["mono_ns"] - one["mono_ns"] > over_ns and not stored and str(queue) not in refused:
                    text = f"{queue}: {name} dropped it to reset its offset, and stored none"
                    self.findings.add(Wrong.RESET_UNDONE, text, queue=place_of(queue), at_ms=time_of(one))

    def _check_handovers(self) -> None:
        """Where faithful members only come and go, one that gives a queue away commits before what it has handled."""
        if self.plan.fenced or self.plan.by_key or any(event.fault not in _HANDOVERS for event in self.plan.events):
            return
        for name in filter(MEMBERS.__contains__, self.cluster.traced_hosts):
            for queue, done, committed, dropped in undrained(self.cluster.records(name)):
                text = f"{queue}: {done} messages are handled, {committed} committed by {name}"
                self.findings.add(Wrong.NOT_DRAINED, text, queue=place_of(queue), at_ms=time_of(dropped))

    def _judge(self) -> None:
        self._check_resets()
        self._check_handovers()
        excused = set[Kind]()
        if self.plan.fenced:
            excused |= FENCED_OUT
            if self.observer.beyond_end:
                excused |= _OF_SKIPPED
        if self._log_cut:
            excused |= _OF_LOST_LOG
        self.cluster.judge_into_findings(excused)
