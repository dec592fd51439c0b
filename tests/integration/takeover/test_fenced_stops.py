"""A consumer under fenced locks is stopped inside a call for longer than its lease, and then goes on."""

import asyncio
import itertools
import re
import signal
from dataclasses import dataclass
from typing import Any

import pytest

from lockstep.client import ConsumerConfig, MessageQueue, SerializeType
from lockstep.client.instance.client import MQClientInstance
from lockstep.order import Cause, OrderReport, Record, check_files
from lockstep.protocol.codes import PullSysFlag, RequestCode, ResponseCode
from lockstep.protocol.epochs import parse_epoch
from lockstep.protocol.headers.messaging import PullMessageRequestHeader, UpdateConsumerOffsetRequestHeader
from lockstep.remoting.host.clocks import boot_ns
from lockstep.remoting.host.runtime import AsyncioRuntime
from lockstep.remoting.logs import StdlibLog
from lockstep.remoting.settings import parse_addresses
from tests.integration.harness.effects import Effects
from tests.integration.harness.processes import PATIENT, Broker, ConsumerProcess, Processes, until
from tests.integration.harness.workload import drained, producing, records, send_keyed, spread

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]  # on a busy machine each condition takes its time

HOLDING = re.compile(r"holding (\d+)\n")
TOPIC, GROUP, QUEUES = "orders", "audit", 2
LEASE_MS = 5000
FENCED = ("--lock-mode", "fenced", "--lock-live-ms", str(LEASE_MS), "-D", "scan_interval_ms=500")
SILENT_MS = 4000  # then the broker closes a connection: before the lease ends, when it drops the member anyway
DEFAULT_LEASE_S, SILENT_S = 60, 120  # of a broker without settings: the lease, and when it closes a silent connection
CLOSING = (*FENCED, "-D", f"channel_expired_timeout_ms={SILENT_MS}")
CONFIG = {"heartbeat_broker_interval_ms": 1000, "persist_consumer_offset_interval_ms": 500}
LATE_CONFIG = CONFIG | {
    "persist_consumer_offset_interval_ms": 60_000,  # the end of the period stores the last offset
    "pull_threshold_for_queue": 1,  # no pull is under way while a call waits
}
HANDLED, SENT = 10, 200
REFUSALS = {ResponseCode.FENCED, ResponseCode.NOT_HELD, ResponseCode.STALE}  # by who owns the queue by then


def periods(consumer: ConsumerProcess, queue: MessageQueue) -> list[Record]:
    return [r for r in records(consumer.trace, "acquired") if (r["topic"], r["queue_id"]) == (TOPIC, queue.queue_id)]


def epoch_of(record: Record) -> int:
    return parse_epoch(record["epoch"])


async def codes_under(broker: Broker, client_id: str, queue: MessageQueue, epoch: int) -> list[int]:
    """How the broker answers a commit and a pull of this client under an epoch."""
    config = ConsumerConfig(serialize_type=SerializeType.MSGPACK, **PATIENT)
    log = StdlibLog("lockstep.tests")
    instance = MQClientInstance(AsyncioRuntime(), parse_addresses(broker.name_server), config, log)
    commit = UpdateConsumerOffsetRequestHeader(GROUP, TOPIC, queue.queue_id, SENT, epoch, client_id)
    pull = PullMessageRequestHeader(
        GROUP, TOPIC, queue.queue_id, 0, 1, int(PullSysFlag.SUBSCRIPTION), 0, 0, 0, "*", "TAG", epoch, client_id
    )
    requests = {RequestCode.UPDATE_CONSUMER_OFFSET: commit, RequestCode.PULL_MESSAGE: pull}
    try:
        address = f"127.0.0.1:{broker.port}"
        return [(await instance.call_address(address, code, header)).code for code, header in requests.items()]
    finally:
        instance.dialer.close()


@pytest.mark.parametrize("listener", ["guarded", "guarded_thread"])
@pytest.mark.parametrize("connection", ["kept", "closed"])
async def test_a_consumer_stopped_inside_a_call_is_fenced(processes: Processes, connection: str, listener: str) -> None:
    """It stands still until another client owns its queue; with `closed` also until the broker has closed its
    connection. Then its commit and the effect of its call are refused, also when a cancelled call still tries it."""
    options = CLOSING if connection == "closed" else FENCED
    await stop_inside_a_call(processes, Stop(options, connection == "closed", listener, owned_within_s=20))


@pytest.mark.realtime
@pytest.mark.parametrize(("stopped_s", "closes"), [(DEFAULT_LEASE_S + 10, False), (SILENT_S + 30, True)])
async def test_a_consumer_stopped_for_minutes_is_fenced(processes: Processes, stopped_s: int, closes: bool) -> None:
    """The same with the settings that a broker has by default: 70 s with its connection, and 150 s, in which the broker
    closes it."""
    stop = Stop(("--lock-mode", "fenced"), closes, "guarded", owned_within_s=DEFAULT_LEASE_S + 20, stopped_s=stopped_s)
    await stop_inside_a_call(processes, stop)


@dataclass(frozen=True)
class Stop:
    """How a consumer is stopped.

    Args:
        options: of the broker.
        closes: the broker closes its connection meanwhile.
        stopped_s: at least so long.
    """

    options: tuple[str, ...]
    closes: bool
    listener: str
    owned_within_s: float
    stopped_s: float = 0


def closings(broker: Broker) -> list[Any]:
    return [*broker.events("heartbeat_expired"), *broker.events("connection_idle")]


async def stop_inside_a_call(processes: Processes, stop: Stop) -> None:
    broker = await processes.broker("--topic", f"{TOPIC}:{QUEUES}", *stop.options)
    sent_trace, path = processes.folder / "producer.trace", str(processes.folder / "effects.db")
    effects = Effects(path)
    spec: dict[str, Any] = {"group": GROUP, "fenced": True, "effects": path, "listener": stop.listener}
    consumers = await asyncio.gather(
        processes.consumer(broker, TOPIC, config=LATE_CONFIG, hold_after=HANDLED, **spec),
        processes.consumer(broker, TOPIC, config=CONFIG, **spec),
    )
    stalled, other = consumers
    async with broker.admin() as admin, producing(broker, sent_trace) as producer:
        await until(lambda: spread(admin, GROUP, TOPIC, QUEUES, consumers), "a queue for each")
        await send_keyed(producer, TOPIC, range(SENT))
        queue = MessageQueue(TOPIC, "broker-a", int((await stalled.said(HOLDING))[1]))
        old = epoch_of(periods(stalled, queue)[-1])
        before = len(periods(other, queue))
        stalled.send_signal(signal.SIGSTOP)
        stopped_ns = boot_ns()
        await until(lambda: periods(other, queue)[before:], "the other owns the queue", stop.owned_within_s)
        new = epoch_of(periods(other, queue)[-1])
        assert new > old
        await until(lambda: new in [effect.epoch for effect in effects.written()], "the other is at work in it")
        if stop.closes:  # with the default settings because nothing arrives, before the heartbeat is missed
            closed_s = stop.stopped_s + 20
            await until(lambda: closings(broker), "the broker has closed the connection", closed_s)
        await until(lambda: boot_ns() - stopped_ns >= stop.stopped_s * 1e9, "it stands still", stop.stopped_s + 20)
        assert bool(closings(broker)) == stop.closes
        assert await codes_under(broker, stalled.client_id, queue, old) == [ResponseCode.FENCED, ResponseCode.FENCED]
        continued_ns = boot_ns()
        stalled.send_signal(signal.SIGCONT)
        await until(lambda: records(stalled.trace, "lock_lost"), "it knows that its lease has ended")
        stalled.send_signal(signal.SIGUSR1)
        (refused,) = await until(effects.refused, "its effect was refused")
        assert (refused.queue_id, refused.epoch) == (queue.queue_id, old)
        assert {*await codes_under(broker, stalled.client_id, queue, old)} <= REFUSALS
        await until(
            lambda: [r for r in records(stalled.trace, "acquired") if r["mono_ns"] > continued_ns], "it is back", 30
        )
        assert await stalled.stop() == 0
        await until(lambda: drained(admin, GROUP, TOPIC), "all is handled and committed", 30)
        assert await other.stop() == 0
    check_effects(effects)
    late = [r for r in records(stalled.trace, "committed") if r["mono_ns"] > continued_ns and epoch_of(r) == old]
    assert late == []
    report = check_files([sent_trace, *(consumer.trace for consumer in consumers)])
    outlived = [r for r in records(stalled.trace, "handled") if "outlived_ms" in r]
    assert len(outlived) == (stop.listener == "guarded_thread"), "an async call is cancelled, a thread is not"
    check_order(report)


def check_order(report: OrderReport) -> None:
    shown = "\n".join(report.lines())
    assert (report.sent, report.handled, report.lost) == (SENT, SENT, 0), shown
    assert (report.violation_counts, report.undecided_counts) == ({}, {}), shown
    assert set(report.duplicates) <= {Cause.TAKEOVER, Cause.UNEXPLAINED}, shown


def check_effects(effects: Effects) -> None:
    """Each message has one effect, and none came under an epoch that a later one preceded in its queue."""
    written = effects.written()
    assert len(written) == SENT
    for queue_id in range(QUEUES):
        rows = [effect for effect in written if effect.queue_id == queue_id]
        assert [row.offset for row in rows] == list(range(len(rows)))
        assert all(one.epoch <= two.epoch for one, two in itertools.pairwise(rows))
