"""No task of a consumer ends unseen: what is no Exception is said, and the queue goes on."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from lockstep.client import ConsumeConcurrentlyStatus, MessageExt, PushConsumer
from lockstep.client.consumer.dispatch.table import OrderingName
from lockstep.order import Cause
from tests.client.messages import Panic
from tests.scenarios.cluster import Cluster
from tests.scenarios.scenario import INSTANT, scenario

_ENDS: list[BaseException] = [Panic("in Rust"), GeneratorExit("of the user"), asyncio.CancelledError("of no one")]


class _Once:
    """Calls the function that it replaces, but raises the first time."""

    def __init__(self, owner: Any, name: str, error: BaseException) -> None:
        self._function, self._error, self.raised = getattr(owner, name), error, False
        setattr(owner, name, self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.raised:
            self.raised = True
            raise self._error
        return self._function(*args, **kwargs)


async def goes_on(
    cluster: Cluster, ordering: OrderingName, spoil: Callable[[PushConsumer, BaseException], _Once], event: str
) -> None:
    """Each kind of end, at one place: it is said once more, and all that is sent is handled within a minute."""
    cluster.expected.possible = {Cause.SUSPEND}
    await cluster.broker_and_producer(queues=1)
    consumer = await cluster.consumer("c1", ordering=ordering)
    await cluster.send(3, keys=2)
    await cluster.all_seen()
    for number, error in enumerate(_ENDS, 1):
        spoilt = spoil(consumer, error)
        await cluster.send(3, keys=2)
        await cluster.world.until(partial(getattr, spoilt, "raised"), timeout_ms=60_000)
        await cluster.all_seen(timeout_ms=60_000)
        await cluster.run_for("10s")  # what was seen and not recorded comes again
        assert len(cluster.events(event, host="c1")) == number, cluster.events(event)


def _member(consumer: PushConsumer) -> Any:
    return consumer._member


def _trace(consumer: PushConsumer, error: BaseException) -> _Once:
    """After a call of the listener, and before it is recorded."""
    return _Once(_member(consumer).membership.trace, "handled", error)


@scenario(INSTANT, also_fenced=True)
async def test_a_run_of_a_queue(cluster: Cluster) -> None:
    await goes_on(cluster, "queue", _trace, "consume_failed")


@scenario(INSTANT, also_fenced=True)
async def test_a_worker_of_keys(cluster: Cluster) -> None:
    await goes_on(cluster, "key", _trace, "consume_failed")


@scenario(INSTANT)
async def test_a_worker_without_order(cluster: Cluster) -> None:
    await goes_on(cluster, "none", _trace, "consume_failed")


@scenario(INSTANT, also_fenced=True)
async def test_a_pull(cluster: Cluster) -> None:
    await goes_on(cluster, "queue", lambda consumer, error: _Once(_member(consumer), "take", error), "pull_failed")


@scenario(INSTANT, also_fenced=True)
async def test_a_pull_loop(cluster: Cluster) -> None:
    """Outside of the place where errors of a pull are caught."""
    await goes_on(cluster, "queue", lambda consumer, error: _Once(_member(consumer), "pause_ms", error), "pull_failed")


@scenario(INSTANT, also_fenced=True)
async def test_a_commit(cluster: Cluster) -> None:
    await goes_on(cluster, "queue", lambda consumer, error: _Once(_member(consumer), "_persist", error), "task_failed")


@scenario(INSTANT)
async def test_a_renewal(cluster: Cluster) -> None:
    def spoil(consumer: PushConsumer, error: BaseException) -> _Once:
        return _Once(_member(consumer)._locks, "_renew", error)

    await goes_on(cluster, "queue", spoil, "task_failed")


@scenario(INSTANT, also_fenced=True)
async def test_a_rebalance(cluster: Cluster) -> None:
    def spoil(consumer: PushConsumer, error: BaseException) -> _Once:
        return _Once(_member(consumer)._rebalance, "run", error)

    await goes_on(cluster, "queue", spoil, "rebalance_failed")


async def _listener_ends(cluster: Cluster, ordering: OrderingName) -> None:
    """The listener itself raises each of them, once."""
    cluster.expected.possible = {Cause.SUSPEND}
    ends = list(_ENDS)

    def answer(message: MessageExt, context: Any) -> Any:
        if ends:
            raise ends.pop(0)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS if ordering == "none" else None

    await cluster.broker_and_producer(queues=1)
    await cluster.consumer("c1", ordering=ordering, answer=answer)
    await cluster.send(5, keys=1)
    await cluster.all_seen(timeout_ms=60_000)
    said = cluster.events("listener_failed") + cluster.events("listener_failed_again")
    assert len(said) == len(_ENDS)


@scenario(INSTANT, also_fenced=True)
async def test_a_listener_of_a_queue(cluster: Cluster) -> None:
    await _listener_ends(cluster, "queue")


@scenario(INSTANT, also_fenced=True)
async def test_a_listener_of_keys(cluster: Cluster) -> None:
    await _listener_ends(cluster, "key")


@scenario(INSTANT)
async def test_a_listener_without_order(cluster: Cluster) -> None:
    await _listener_ends(cluster, "none")
