"""A consumer stands still until its locks expire: others take its queues, and it must not go on where it was."""

import asyncio
import signal
from collections.abc import Sequence

import pytest

from lockstep.order import Cause, Kind, Record, check_files
from lockstep.remoting.host.clocks import boot_ns
from tests.integration.harness.processes import ConsumerProcess, Processes, until
from tests.integration.harness.workload import (
    SHORT_LOCKS,
    Trickle,
    drained,
    producing,
    records,
    spread,
)

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]  # on a busy machine each condition takes its time

TOPIC, GROUP, QUEUES = "orders", "audit", 6
PREFETCHED = 100  # more than a client fetches ahead of this trickle
# A silent client is given up after 5 s, before its locks run out. Each limit is five times the interval it watches:
# on a busy machine those that do not stand still must not be late.
LOCK_LIFE_MS = 8000
OPTIONS = (
    *("-D", f"rocketmq.broker.rebalance.lockMaxLiveTime={LOCK_LIFE_MS}"),
    *("-D", "channel_expired_timeout_ms=5000", "-D", "scan_interval_ms=500"),
)
CONFIG = SHORT_LOCKS | {
    "heartbeat_broker_interval_ms": 1000,
    "lock_max_live_time_ms": 5000,
    "broker_lock_max_live_time_ms": LOCK_LIFE_MS,
}


def cut_calls(consumer: ConsumerProcess, continued_ns: int) -> list[Record]:
    """The listener calls that were under way while it stood still."""
    return [r for r in records(consumer.trace, "handled") if r["begin_mono_ns"] < continued_ns < r["mono_ns"]]


async def test_a_consumer_that_stood_still_begins_anew(processes: Processes) -> None:
    """It is stopped until others own its queues, and then continued: it asks for its queues again and begins at the
    commit. It does not handle messages that it had cached, because others have handled them. No lock can prevent that
    the calls in which it was stopped, at most one a queue, end beside the new owner's calls."""
    broker = await processes.broker("--topic", f"{TOPIC}:{QUEUES}", *OPTIONS)
    consumers = await asyncio.gather(
        *[processes.consumer(broker, TOPIC, group=GROUP, config=CONFIG, work_ms=2) for _ in range(3)]
    )
    stalled, *others = consumers
    sent_trace = processes.folder / "producer.trace"
    async with broker.admin() as admin, producing(broker, sent_trace) as producer:
        async with Trickle(producer, TOPIC, 5) as trickle:
            held = await until(
                lambda: spread(admin, GROUP, TOPIC, QUEUES, consumers), "an even share for each consumer"
            )
            await until(lambda: len(records(stalled.trace, "handled")) > 50, "it is at work")
            stalled.send_signal(signal.SIGSTOP)
            await until(lambda: spread(admin, GROUP, TOPIC, QUEUES, others), "the others hold every queue", 20)
            await until(lambda: handled_beyond(stalled, others), "they have handled what it had fetched")
            continued_ns = boot_ns()
            stalled.send_signal(signal.SIGCONT)
            await until(lambda: spread(admin, GROUP, TOPIC, QUEUES, consumers), "it has its share again", 20)
            before = len(records(stalled.trace, "handled"))
            await until(lambda: len(records(stalled.trace, "handled")) > before + 50, "it is at work again")
        await until(lambda: drained(admin, GROUP, TOPIC), "all is handled and committed", 30)
    for consumer in consumers:
        assert await consumer.stop() == 0
    report = check_files([sent_trace, *(consumer.trace for consumer in consumers)])
    shown = "\n".join(report.lines())
    assert (report.sent, report.handled, report.lost) == (trickle.sent, trickle.sent, 0), shown
    cut = cut_calls(stalled, continued_ns)
    assert len(cut) <= sum(owner == stalled.client_id for queue, owner in held.items() if queue.topic == TOPIC)
    for violation in report.violations:
        assert violation.kind in (Kind.OVERLAP, Kind.STALE_REPEAT), shown
        assert any(record in cut for record in violation.evidence), shown
    assert set(report.duplicates) <= {Cause.TAKEOVER, Cause.UNEXPLAINED}
    assert report.duplicates.get(Cause.UNEXPLAINED, 0) <= len(cut)


def handled_beyond(stalled: ConsumerProcess, others: Sequence[ConsumerProcess]) -> bool:
    """Whether the others went on in each queue past the point where the one stood still."""
    ends = {r["queue_id"]: r["offset"] for r in records(stalled.trace, "handled")}
    later = {(r["queue_id"], r["offset"]) for consumer in others for r in records(consumer.trace, "handled")}
    return all((queue_id, offset + PREFETCHED) in later for queue_id, offset in ends.items())
