"""Straight calls by the native part and by its twin in Python: the same calls at the same times, and the same ends."""

import asyncio
from typing import Any, Final
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.client import ConsumeOrderlyContext, MessageExt
from lockstep.client.consumer.dispatch import straight
from lockstep.client.consumer.dispatch.straight import Rest
from lockstep.client.consumer.left_work import LeftWork
from lockstep.protocol.native import NATIVE
from lockstep.simulation import World, simulate
from tests.client.dispatch.consume_service import SUSPEND, S, Service
from tests.client.stage import Stage
from tests.fuzz.strategies import fuzz

pytestmark = pytest.mark.skipif(NATIVE is None, reason="no native part: make native")

# What the listener does at each call: it waits so many ms, has such a context, and answers or raises.
_WAITS: Final = st.sampled_from([None, None, None, 0, 1, 700, 1200, 40_000])
_ANSWERS: Final = st.sampled_from([None, None, None, None, S.SUCCESS, S.COMMIT, S.ROLLBACK, SUSPEND, 5, ValueError])


class _NoTruth:
    """An error between two calls that is not the listener's."""

    def __bool__(self) -> bool:
        raise ValueError("neither true nor false")


_STEPS: Final = st.tuples(_WAITS, _ANSWERS, st.sampled_from([True, True, True, False, _NoTruth()]))


def _play(steps: list[tuple[int | None, Any, Any]], batch: int, call_each: Any) -> dict[str, Any]:
    """All that can be seen of a service whose listener does this; the queue is dropped in the end."""
    seen: dict[str, Any] = {}
    left = iter(steps)

    async def work(wait_ms: int | None, answer: Any) -> Any:
        if wait_ms is not None:
            await asyncio.sleep(wait_ms / 1000)
        if answer is ValueError:
            raise ValueError("no")
        return answer

    def answer(messages: list[MessageExt], context: ConsumeOrderlyContext) -> Any:
        wait_ms, given, context.auto_commit = next(left, (None, None, True))
        messages.clear()
        return work(wait_ms, given)

    async def play(stage: Stage) -> None:
        service = Service(stage, answer, consume_message_batch_max_size=batch, max_reconsume_times=2)
        service.service._call._left = left_work = LeftWork(stage.client, stage.log, "g")
        service.service._call._until_look = left_work.calls_between = 7
        for offset in range(0, 40, 8):
            service.put(*range(offset, offset + 8))
            await service.quiet(900)
        await service.quiet(200_000)
        totals = service.stats.of(service.queue.queue.topic)
        seen["calls"] = list(zip(service.calls, service.times, strict=True))
        seen["committed"], seen["dead"], seen["locks"] = service.offsets[-1:], service.dead, service.lock_asked
        seen["totals"] = [getattr(totals, name) for name in totals.__slots__ if name != "times"]
        seen["cache"] = service.queue.cache.info()._replace(last_pull_timestamp=0)
        seen["log"] = repr(stage.log.events)
        seen["running"] = service.queue.life.listener_running, service.service._running
        service.queue.life.dropped = True
        await service.quiet(60_000)
        await stage.close()

    async def scenario(world: World) -> None:
        stage = Stage(world)
        await stage.client.run(play(stage))

    with mock.patch.object(straight, "CALL_EACH", call_each), mock.patch.object(Service, "watches_calls", False):
        simulate(scenario)
    return seen


def test_an_error_between_two_calls_forgets_nothing_that_was_handled() -> None:
    """As of the clock, or of a handler of a signal: the native part had made many calls that no offset knew of."""
    steps: list[tuple[int | None, Any, Any]] = [(None, None, True)] * 4 + [(None, None, _NoTruth())]
    for arm in (None, straight.CALL_EACH):
        seen = _play(steps, 1, arm)
        assert [offset for ((offsets, _), _) in seen["calls"] for offset in offsets][:7] == [0, 1, 2, 3, 4, 4, 5]


@fuzz
@given(st.lists(_STEPS, max_size=45), st.sampled_from([1, 1, 3]))
def test_both_arms_call_alike(steps: list[tuple[int | None, Any, Any]], batch: int) -> None:
    ours, theirs = _play(steps, batch, None), _play(steps, batch, straight.CALL_EACH)
    for name, seen in ours.items():
        assert theirs[name] == seen, name


def test_the_rest_of_a_call_is_cancelled_and_closed() -> None:
    """As an awaited coroutine is."""
    ended: list[str] = []

    async def listener() -> str:
        try:
            await asyncio.Future()
        except BaseException as error:
            ended.append(type(error).__name__)
            raise
        return "never"

    async def begin() -> None:
        call = listener().__await__()
        await Rest(call, next(call))

    async def scenario() -> None:
        task = asyncio.ensure_future(begin())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        unfinished = begin()
        unfinished.send(None)
        unfinished.close()

    asyncio.run(scenario())
    assert ended == ["CancelledError", "GeneratorExit"]
