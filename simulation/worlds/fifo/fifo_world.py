"""A world of a FIFO group: it plays a plan against one broker, heals it, and says what went wrong."""

import asyncio
from collections import defaultdict
from functools import partial
from typing import Any, Final

from lockstep.client import (
    ClientError,
    Message,
    MessageQueue,
    Producer,
    PullConsumerConfig,
    SimpleConsumer,
)
from lockstep.protocol.bodies.heartbeat import ConsumeFromWhere
from lockstep.protocol.selector import queue_of_group
from lockstep.remoting.errors import RemotingError
from lockstep.remoting.logs import EventLog
from lockstep.simulation.lab.cluster import BROKER, PRODUCER, TRACE, Cluster
from lockstep.simulation.lab.experiment import FaultEvent, LockMode, SeedResult
from lockstep.simulation.lab.faults.table import holding
from lockstep.simulation.lab.findings import Wrong
from lockstep.simulation.lab.hosts import GROUP, TOPIC
from lockstep.simulation.lab.setup import Setup
from lockstep.simulation.runtime import SimRuntime
from lockstep.simulation.world import World
from lockstep.simulation.worlds.fifo.effects import Effects, KeyOfQueue
from lockstep.simulation.worlds.fifo.members import Members
from lockstep.simulation.worlds.fifo.observer import Deliveries
from lockstep.simulation.worlds.fifo.plan import ANSWER_MS, ENDS, LOST_ANSWER, FifoPlan, draw_plan

__all__ = ["FIFO_WORLDS", "FifoWorld"]

_AGAIN_MS: Final = 500
_IDLE_CLOSE_MS: Final = 30_000
_CRASHED: Final = "recovered_after_crash"


class _Member(SimpleConsumer):
    """A process that handles messages as long as it lives."""

    members: Members
    runtime: SimRuntime

    async def start(self) -> None:
        await super().start()
        for number in range(self.members.plan.loops):
            process = f"{self.runtime.host}/{number}"
            self.runtime.create_task(self.members.receive(self, process), name=f"receive {number}")


class _FifoCluster(Cluster):
    """See Cluster. It tells the observer of offsets that the broker stores."""

    deliveries: Deliveries

    def on_commit(self, consumer_group: str, queue: MessageQueue, committed_offset: int) -> None:
        if (consumer_group, queue.topic) == (GROUP, TOPIC):
            self.deliveries.committed(queue.queue_id, committed_offset)
        super().on_commit(consumer_group, queue, committed_offset)


class FifoWorld:
    """`run` plays the plan; then `findings` has what went wrong and what happened."""

    def __init__(self, world: World, plan: FifoPlan) -> None:
        self.world = world
        self.plan = plan
        setup = Setup(lock_mode=plan.lock_mode, store=plan.store, consumers=plan.members, queues=plan.queues)
        self.cluster = _FifoCluster(world, setup, tap=lambda name: self.deliveries if name == BROKER else None)
        self.findings = self.cluster.findings
        self.deliveries = Deliveries(
            self.findings,
            lambda queue_id, first: self.cluster.stored(queue_id, first=first),
            fenced=plan.fenced,
            grace_ms=plan.grace_ms,
        )
        self.cluster.deliveries = self.deliveries
        self.deliveries.on_given = self._given
        self.effects = Effects(self.findings, fenced=plan.fenced)
        self.members = Members(plan, self.findings, self.effects)
        self._losing: dict[str, FaultEvent] = {}  # host -> the fault that waits for an answer with messages
        self._ends: list[asyncio.Task[None]] = []  # of faults of ours
        self._log_read = 0
        self.turns = defaultdict[str, asyncio.Lock](asyncio.Lock)

    async def run(self) -> None:
        cluster, plan, world = self.cluster, self.plan, self.world
        world.disk(BROKER).sync_ms = plan.sync_ms
        await self.start_broker()
        cluster.when_broker_started.append(self._broker_started)
        await cluster.producer()
        for name in plan.hosts:
            await self.start_member(name)
        tasks = [world.start(self._send_all(), name="sends")]
        for event in plan.events:
            if event.fault == LOST_ANSWER:
                tasks.append(world.start(self._lose_answer(event), name=f"event {event.fault}"))
            else:
                cluster.play_fault(event)
        await cluster.at(plan.life_ms)
        for task in tasks:
            await task
        self._losing.clear()
        for task in self._ends:
            await task
        await cluster.heal()
        self.members.calm = True
        await self.settle()
        await cluster.shut_down()
        cluster.judge_into_findings()
        world.power_off()  # a call that runs on may outlive its consumer

    # Hosts ---------------------------------------------------------------------------------------------------

    def broker_settings(self) -> dict[str, Any]:
        """Of the broker, besides those of its store and its mode."""
        return {"pop_grace_ms": self.plan.grace_ms, "idle_close_ms": _IDLE_CLOSE_MS}

    async def start_broker(self) -> None:
        settings = {**self.cluster.setup.broker_settings, **self.broker_settings()}
        await self.cluster.broker(queues=self.plan.queues, **settings)

    async def start_member(self, name: str) -> None:
        await self.cluster.start_client(name, self.member, traced=True)

    def _broker_started(self, _: str) -> None:
        ends = [band for band in self.findings.bands if band.target == BROKER and band.fault in ENDS]
        self.deliveries.broker_ended(ends[-1].at_ms)
        self.cluster.forgive_repeats(BROKER)
        log, self._log_read = self.cluster.log[self._log_read :], len(self.cluster.log)
        self.deliveries.broker_started(crashed=any(line.event == _CRASHED for line in log))

    def member(self, runtime: SimRuntime, log: EventLog, *, trace: str | None = TRACE) -> SimpleConsumer:
        plan = self.plan
        config = PullConsumerConfig(
            pull_suspend_ms=plan.wait_ms,
            pull_timeout_ms=plan.wait_ms + 10_000,  # of pulls, which it makes none of
            consumer_pull_timeout_ms=ANSWER_MS,
            request_timeout_ms=ANSWER_MS,
        )
        member = _Member(
            GROUP,
            in_order=True,
            invisible_ms=plan.invisible_ms,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            trace=trace,
            name_server=self.cluster.name_server,
            config=config,
            runtime=runtime,
            log=log,
        )
        member.members, member.runtime = self.members, runtime
        member.subscribe(TOPIC)
        return member

    # Messages ------------------------------------------------------------------------------------------------

    async def _send_all(self) -> None:
        producer, number = self.world.host(PRODUCER), 0
        tasks = []
        for at_ms, count in self.plan.sends:
            await self.cluster.at(max(at_ms, self.world.elapsed_ms))
            for _ in range(count):
                tasks.append(producer.create_task(self.send(number), name=f"send {number}"))
                number += 1
        for task in tasks:
            await task

    async def send(self, number: int) -> None:
        """Until it is stored, one message of a key after the other: those of a key are stored in this order."""
        producer, key = self.cluster.client(PRODUCER), f"key{number % self.plan.keys}"
        assert isinstance(producer, Producer)
        queue = MessageQueue(TOPIC, BROKER, queue_of_group(key, self.plan.queues))
        async with self.turns[key]:
            while True:
                try:
                    await producer.send(Message(TOPIC, str(number).encode()), sharding_key=key, queue=queue)
                    return
                except (ClientError, RemotingError):
                    self.findings.saw("sends made again")
                    await asyncio.sleep(_AGAIN_MS / 1000)

    # Faults --------------------------------------------------------------------------------------------------

    async def _lose_answer(self, event: FaultEvent) -> None:
        await self.cluster.at(max(event.at_ms, self.world.elapsed_ms))
        self._losing[self.world.host(event.target).address] = event

    def _given(self, host: str) -> None:
        """An answer with messages is about to leave for a member."""
        event = self._losing.pop(host, None)
        if event is None:
            return
        self.findings.saw(LOST_ANSWER)
        band = self.findings.begin(LOST_ANSWER, event.target)
        if not event.duration_ms:
            # Once the answer is under way.
            self._ends.append(self.world.start(self._cut(event.target), name="cut"))
            return
        change = holding(self.cluster, BROKER, event.target)
        self.cluster.changes.begin(change)
        band.end_ms = self.world.elapsed_ms + event.duration_ms
        release = self._release(event, partial(self.cluster.changes.end, change))
        self._ends.append(self.world.start(release, name="release"))

    async def _cut(self, name: str) -> None:
        self.world.cut(BROKER, name)

    async def _release(self, event: FaultEvent, end: partial[None]) -> None:
        await self.world.sleep_ms(event.duration_ms)
        end()

    # The end -------------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Everything is acknowledged within a bound, and then the last effect of each key is of its last message."""
        if not await self.cluster.settle(self.plan.settle_ms):
            return
        stored: dict[KeyOfQueue, list[int]] = {}
        for queue_id in range(self.plan.queues):
            queue = MessageQueue(TOPIC, BROKER, queue_id)
            for message in self.cluster.stored(queue_id):
                if message.msg_id not in self.deliveries.dead:
                    stored.setdefault(KeyOfQueue(queue, message.sharding_key), []).append(message.queue_offset)
        self.effects.check(stored)


class _FifoWorlds:
    """An Experiment."""

    name = "worlds/fifo"
    summary = "Members of a FIFO group are slow, fail, renew and stop; answers of pops are lost, the broker restarts."
    sometimes: Final = dict.fromkeys(
        LockMode,
        (
            *("stale acks", "partial acks", "expired deliveries", "re-entries", "restarts soon after a pop"),
            *("renewals", "given back", LOST_ANSWER, "kill", "stall", "sleep", "partition", "late", "hang-disk"),
        ),
    )

    # It gives what was acknowledged again with what was not, takes any answer, and a kill takes its record.
    rocketmqs: Final = frozenset[str](
        {
            *(
                Wrong.ACKED_AGAIN,
                Wrong.STALE_ACK,
                Wrong.TWO_HOLDERS,
                Wrong.GIVEN_BEHIND,
                Wrong.COMMIT_UNACKED,
                Wrong.PASSED_OVER,
            ),
            *(Wrong.EFFECT_LEFT_OUT, Wrong.EFFECT_OUT_OF_ORDER),
            *("judge: overlap", "judge: stale-owner", "judge: concurrent-calls"),
        }
    )

    def draw(self, seed: int, mode: LockMode) -> FifoPlan:
        return draw_plan(seed, mode)

    def build(self, world: World, plan: FifoPlan) -> FifoWorld:
        return FifoWorld(world, plan)

    def fails(self, outcome: SeedResult) -> bool:
        allowed = self.rocketmqs if outcome.mode is LockMode.FAITHFUL else frozenset[str]()
        return bool(outcome.error or set(outcome.wrong) - allowed)


FIFO_WORLDS: Final = _FifoWorlds()
