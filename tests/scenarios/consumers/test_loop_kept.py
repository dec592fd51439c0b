"""A listener that keeps the event loop is named; one that awaits, or works on a thread, is not."""

import asyncio
import time
from typing import Any

import pytest

from lockstep.client import ConsumeConcurrentlyStatus
from lockstep.client.consumer.dispatch.table import OrderingName
from lockstep.remoting.host.loop_watch import LoopWatch
from lockstep.remoting.host.runtime import AsyncioRuntime
from tests.remoting.helpers import SteppedRuntime
from tests.scenarios.cluster import GROUP, Cluster
from tests.scenarios.scenario import INSTANT, scenario


async def _keeps(cluster: Cluster, ordering: OrderingName) -> None:
    """The first call awaits for long and is not named; the second one keeps the loop for 4 s."""
    runtime = cluster.world.host("c1")
    calls = 0

    async def listen(messages: list[Any], context: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            await asyncio.sleep(5)
        elif calls == 2:
            runtime.keep_loop_ms(4000)
            await asyncio.sleep(0)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS if ordering == "none" else None

    await cluster.broker_and_producer(queues=1)
    await cluster.consumer("c1", ordering=ordering, listener=listen)
    await cluster.send(1)
    await cluster.run_for("10s")
    assert not cluster.events("loop_kept")
    await cluster.send(1)
    await cluster.world.until(lambda: calls == 2)
    await cluster.run_for("20s")
    (line,) = cluster.events("loop_kept")
    assert line.level == "warning"
    assert line.fields["kept_ms"] == 4000
    assert f"the listener of {GROUP} kept the event loop for 4.0 s" in line.fields["why"]


@scenario(INSTANT, also_fenced=True)
async def test_in_order(cluster: Cluster) -> None:
    await _keeps(cluster, "queue")


@scenario(INSTANT, also_fenced=True)
async def test_in_order_of_keys(cluster: Cluster) -> None:
    await _keeps(cluster, "key")


@scenario(INSTANT)
async def test_without_order(cluster: Cluster) -> None:
    await _keeps(cluster, "none")


@scenario(INSTANT)
async def test_other_code_that_keeps_the_loop(cluster: Cluster) -> None:
    """It is said, and no listener is named."""
    await cluster.broker(queues=1)
    await cluster.consumer("c1")
    cluster.world.host("c1").call_later_ms(100, cluster.world.host("c1").keep_loop_ms, 3000)
    await cluster.run_for("10s")
    (line,) = cluster.events("loop_kept")
    assert line.fields["why"].startswith("a function kept the event loop for 3.0 s")
    assert "queue" not in line.fields


async def test_the_watch_ticks_twice_a_second() -> None:
    """A tick in time says nothing; a late one says how late, and `kept_ms` knows it before."""
    runtime, late = SteppedRuntime(), list[int]()
    watch = LoopWatch(runtime.monotonic_ns, runtime.call_later_ms, late.append)
    runtime.advance(10_000)
    assert (late, watch.kept_ms()) == ([], 0)
    runtime.clock_ms += 4000
    assert watch.kept_ms() == 4000
    runtime.advance(500)
    assert late == [4000]
    assert watch.kept_ms() == 0
    watch.close()
    assert not runtime.live_timers()


async def test_a_real_loop_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the clock that stands while the machine sleeps."""
    now_ns = 0
    monkeypatch.setattr(time, "monotonic_ns", lambda: now_ns)
    watch = AsyncioRuntime().watch_loop(print)
    now_ns = 4_000_000_000
    assert watch.kept_ms() == 4000
    watch.close()
