"""Slow and failing brokers are left alone as long as in RocketMQ (wire.md 12.11)."""

import random

from lockstep.client import Message, ProducerConfig
from lockstep.client.producer.round_robin import FaultLatency
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.model import MessageQueue
from tests.client.producer.send_stage import SEND, producer_for, store
from tests.client.stage import TOPIC, Stage, on_stage
from tests.rows import by_row

QUEUES = [MessageQueue("T", name, i) for name in ("a", "b", "c") for i in range(2)]
# The table of wire.md 12.11: a latency, and how long its broker is left alone; then each step's last millisecond.
STEPS = {
    0: 0, 49: 0, 50: 0, 99: 0, 100: 0, 549: 0, 550: 30_000, 999: 30_000, 1000: 60_000, 1999: 60_000, 2000: 120_000,
    2999: 120_000, 3000: 180_000, 14_999: 180_000, 15_000: 600_000, 10**9: 600_000,
}  # fmt: skip


class Turns:
    def __init__(self) -> None:
        self.count = -1

    def __call__(self) -> int:
        self.count += 1
        return self.count


def faults() -> FaultLatency:
    return FaultLatency(random.Random(1))


@by_row("latency_ms, pause_ms", STEPS.items())
def test_how_long_a_slow_broker_is_left_alone(latency_ms: int, pause_ms: int) -> None:
    """To the millisecond."""
    known = faults()
    known.update("a", latency_ms, 1000)
    assert known.pause_ms(latency_ms) == pause_ms
    assert known.is_available("a", 1000 + pause_ms)
    assert pause_ms == 0 or not known.is_available("a", 1000 + pause_ms - 1)
    assert known.is_available("b", 1000), "nothing is known of it"


def test_a_failure_counts_as_thirty_seconds() -> None:
    """However fast it failed, its broker is left alone for ten minutes; one good send sooner ends that."""
    known = faults()
    known.update("a", 1, 0, failed=True)
    assert not known.is_available("a", 599_999)
    assert known.is_available("a", 600_000)
    known.update("a", 10, 5)
    assert known.is_available("a", 5)


def test_available_brokers_take_turns() -> None:
    known, turn = faults(), Turns()
    known.update("b", 3000, 0)
    chosen = [known.choose(QUEUES, turn, 10).broker_name for _ in range(6)]
    assert set(chosen) == {"a", "c"}
    assert known.choose(QUEUES, lambda: 2, 10).broker_name == "c", "the next one after those left alone"
    assert {known.choose(QUEUES, turn, 180_000).broker_name for _ in range(6)} == {"a", "b", "c"}


def test_when_all_are_left_alone_the_better_half_is_used() -> None:
    """Of three the best one, by latency; of four the best two, in turn."""
    known, turn = faults(), Turns()
    for name, latency_ms in (("a", 3000), ("b", 600), ("c", 1000)):
        known.update(name, latency_ms, 0)
    assert {known.choose(QUEUES, turn, 10).broker_name for _ in range(6)} == {"b"}
    known.update("d", 16_000, 0)
    assert {known.choose(QUEUES, turn, 10).broker_name for _ in range(8)} == {"b", "c"}


def test_a_better_broker_without_the_topic_is_forgotten() -> None:
    known, turn = faults(), Turns()
    known.update("gone", 600, 0)
    for name in "abc":
        known.update(name, 16_000, 0)
    assert {known.choose(QUEUES, turn, 10).broker_name for _ in range(40)} <= {"a", "b", "c"}
    assert known.pick_one_at_least(10) != "gone"


def test_nothing_known() -> None:
    assert faults().pick_one_at_least(0) is None


@on_stage
async def test_a_failing_broker_is_avoided_by_later_sends(stage: Stage) -> None:
    """With the setting one failure is enough; without, every second send tries the broker that refuses."""
    bad, good = await stage.broker("broker-a"), await stage.broker("broker-b")
    stage.route_to({"broker-a": 2, "broker-b": 2})
    bad.answers(SEND, ResponseCode.SERVICE_NOT_AVAILABLE)
    stored = store(good)
    async with producer_for(stage, ProducerConfig(send_latency_fault_enable=True)) as producer:
        for i in range(8):
            await producer.send(Message(TOPIC, b"%d" % i))
        assert len(bad.requests(SEND)) == 1
        await stage.world.sleep_ms(599_000)
        await producer.send(Message(TOPIC, b"8"))
        assert len(bad.requests(SEND)) == 1
        await stage.world.sleep_ms(2000)
        for _ in range(4):
            await producer.send(Message(TOPIC, b"9"))
        assert len(bad.requests(SEND)) == 2, "after ten minutes it is tried again"
    assert len(stored) == 13
