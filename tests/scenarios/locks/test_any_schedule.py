"""Random schedules of joins, stalls, kills and cuts: one listener a queue, each key in order, nothing lost."""

import random
from typing import NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lockstep.client import ConsumeOrderlyContext, ConsumeOrderlyStatus, MessageExt, SerializeType
from lockstep.order import Kind
from lockstep.simulation.lab.calls import Call
from tests.scenarios.cluster import BROKER, Cluster
from tests.scenarios.scenario import ENCODINGS, Mode, Scenario, scenario

NAMES = ("c1", "c2", "c3", "c4")
KINDS = ("join", "leave", "crash", "stall", "cut", "partition")
LOCK_LIFE_MS, BELIEF_MS, WORK_MS = 60_000, 30_000, 500
SETTLE_MS = 400_000


class Step(NamedTuple):
    kind: str
    name: str
    duration_ms: int  # of a stall or a partition
    pause_ms: int  # before the next step


class Disorder:
    """Plays a schedule against a cluster. `stalls` are (process, begin_ms, end_ms)."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.alive: dict[str, int] = {}  # name -> stalled or cut off until
        self.stalls: list[tuple[str, int, int]] = []

    async def play(self, schedule: list[Step]) -> None:
        cluster = self.cluster
        await self.join("c1", 0)
        for step in schedule:
            present = step.name in self.alive
            if present is not (step.kind == "join") and self.alive.get(step.name, 0) <= cluster.world.elapsed_ms:
                await getattr(self, step.kind)(step.name, step.duration_ms)
            await self.carry_on(step.pause_ms)
        if not self.alive:
            await self.join("c1", 0)
        await cluster.send(10, keys=6)
        await cluster.all_seen(timeout_ms=SETTLE_MS)

    async def carry_on(self, duration_ms: int) -> None:
        """Messages all the while, so that listeners are at work whatever comes next."""
        end_ms = self.cluster.world.elapsed_ms + duration_ms
        while True:
            await self.cluster.send(6, keys=6)
            left_ms = end_ms - self.cluster.world.elapsed_ms
            if left_ms <= 0:
                break
            await self.cluster.world.sleep_ms(min(left_ms, 2000))

    async def join(self, name: str, _: int) -> None:
        await self.cluster.consumer(name, work_ms=WORK_MS, answer=self.answer)
        self.alive[name] = 0

    async def leave(self, name: str, _: int) -> None:
        del self.alive[name]
        await self.cluster.leave(name)

    async def crash(self, name: str, _: int) -> None:
        del self.alive[name]
        self.cluster.crash(name)

    async def stall(self, name: str, duration_ms: int) -> None:
        now_ms = self.cluster.world.elapsed_ms
        self.cluster.world.stall(name, duration_ms)
        self.alive[name] = now_ms + duration_ms
        self.stalls.append((str(self.cluster.world.host(name).host), now_ms, now_ms + duration_ms))

    async def cut(self, name: str, _: int) -> None:
        self.cluster.world.cut(name, BROKER)

    async def partition(self, name: str, duration_ms: int) -> None:
        world = self.cluster.world
        world.partition(name, BROKER)
        self.alive[name] = world.elapsed_ms + duration_ms
        world.loop.call_later(duration_ms / 1000, world.repair, name, BROKER, context=world.loop.ground)

    @staticmethod
    def answer(message: MessageExt, _: ConsumeOrderlyContext) -> ConsumeOrderlyStatus | None:
        """Every seventh message is suspended once, every eleventh fails once."""
        number = int(message.body)
        if message.reconsume_times == 0 and number % 11 == 0:
            raise ValueError("a listener that fails")
        suspend = message.reconsume_times == 0 and number % 7 == 0
        return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT if suspend else None

    def excused(self, call: Call) -> bool:
        """Did its process stall so long, while this listener ran, that the lock it began under expired?"""
        stalled_ms = sum(
            end_ms - begin_ms
            for process, begin_ms, end_ms in self.stalls
            if process == call.process and call.begin_ms <= begin_ms and (call.end_ms < 0 or begin_ms <= call.end_ms)
        )
        return stalled_ms >= LOCK_LIFE_MS - BELIEF_MS - WORK_MS


async def _hold(cluster: Cluster, schedule: list[Step]) -> None:
    """Play a schedule, and judge by what it excuses."""
    await cluster.broker_and_producer(queues=3)
    disorder = Disorder(cluster)
    await disorder.play(schedule)
    report = await cluster.end(judge=False)
    text = "\n".join(report.lines())
    for earlier, later in cluster.seen.overlaps:
        assert earlier.process != later.process, (earlier, later)
        assert disorder.excused(earlier), (earlier, later)
    allowed = {Kind.OVERLAP, Kind.STALE_REPEAT} if cluster.seen.overlaps else set()
    assert set(report.violation_counts) <= allowed, text
    assert report.lost == 0, text


def _draw(rng: random.Random) -> list[Step]:
    return [
        Step(rng.choice(KINDS), rng.choice(NAMES), rng.randrange(100, 150_000), rng.randrange(0, 40_000))
        for _ in range(12)
    ]


@scenario()
async def test_one_listener_a_queue_in_a_drawn_schedule(cluster: Cluster) -> None:
    """A seed draws the schedule. Two listeners never run on one queue, except when a stall inside a listener allows
    it."""
    await _hold(cluster, _draw(cluster.world.rng))


STEPS = st.builds(
    Step,
    kind=st.sampled_from(KINDS),
    name=st.sampled_from(NAMES),
    duration_ms=st.integers(100, 150_000),
    pause_ms=st.integers(0, 40_000),
)


@settings(
    max_examples=settings().max_examples // 2,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(schedule=st.lists(STEPS, max_size=12), seed=st.integers(0, 2**32), encoding=st.sampled_from(ENCODINGS))
def test_one_listener_a_queue_in_any_schedule(schedule: list[Step], seed: int, encoding: SerializeType) -> None:
    """In any schedule: one process never runs two listeners on one queue; two processes do only when a stall inside a
    listener allows it; otherwise messages are handled in order and none is lost."""

    async def story(cluster: Cluster) -> None:
        await _hold(cluster, schedule)

    Scenario("any schedule", story, None).run(Mode(encoding), seed)
