"""Hooks around listener calls, and before messages are consumed, in every kind of order."""

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from lockstep.client import (
    ConsumeConcurrentlyStatus,
    ConsumeMessageContext,
    ConsumeOrderlyStatus,
    ConsumerConfig,
    ConsumeReturnType,
    FilterMessageContext,
    Message,
    MessageExt,
    MessageQueue,
    PushConsumer,
)
from lockstep.client.consumer.listener import Outcome, return_type
from tests.scenarios.cluster import BROKER, GROUP, TOPIC, Cluster
from tests.scenarios.scenario import MODES, Mode, Scenario, scenario

R = ConsumeReturnType
LATER = ConsumeConcurrentlyStatus.RECONSUME_LATER
SUSPEND = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
TIMEOUT_MS = 3000


class Recorder:
    """Contexts as they were when the hook was called."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ConsumeMessageContext]] = []

    def before(self, context: ConsumeMessageContext) -> None:
        self.calls.append(("before", replace(context)))
        context.data["number"] = len(self.calls)

    def after(self, context: ConsumeMessageContext) -> None:
        assert self.calls[context.data["number"] - 1][1].messages == context.messages
        self.calls.append(("after", replace(context)))

    def outcomes(self, text: str = "") -> list[tuple[ConsumeReturnType | None, bool, str]]:
        """Of calls with messages of this text, or of all."""
        return [
            (context.return_type, context.success, context.status)
            for kind, context in self.calls
            if kind == "after" and text in ("", context.messages[0].body.decode())
        ]


class Raising:
    def before(self, _context: ConsumeMessageContext) -> None:
        raise ValueError("before")

    def after(self, _context: ConsumeMessageContext) -> None:
        raise ValueError("after")

    def filter_message(self, _context: FilterMessageContext) -> None:
        raise ValueError("filter")


async def _consumer(cluster: Cluster, listener: Any, *hooks: Any, ordering: Any, **settings: Any) -> PushConsumer:
    def prepare(consumer: PushConsumer) -> None:
        for hook in hooks:
            if hasattr(hook, "before"):
                consumer.register_consume_message_hook(hook)
            if hasattr(hook, "filter_message"):
                consumer.register_filter_message_hook(hook)

    return await cluster.own_consumer("hooked", GROUP, listener, prepare=prepare, settings=settings, ordering=ordering)


@pytest.mark.by_turns("mode", MODES)
@pytest.mark.parametrize("ordering", ["queue", "key", "none"])
def test_what_a_call_came_to(ordering: str, mode: Mode) -> None:
    """Hooks see SUCCESS, FAILED, EXCEPTION, RETURNNULL for no status, and TIME_OUT from `consume_timeout` on. Each hook
    runs once for each listener call, and a hook that raises changes nothing."""
    again, done = (LATER, ConsumeConcurrentlyStatus.CONSUME_SUCCESS) if ordering == "none" else (SUSPEND, None)
    success = "CONSUME_SUCCESS" if ordering == "none" else "SUCCESS"
    first: dict[str, tuple[Any, tuple[ConsumeReturnType, bool, str]]] = {
        "good": (done, (R.SUCCESS, True, success)),
        "later": (again, (R.FAILED, False, again.name)),
        "raises": (ValueError("broken"), (R.EXCEPTION, False, again.name)),
        "nonsense": ("nonsense", (R.RETURNNULL, False, again.name)),
        "slow": (TIMEOUT_MS, (R.TIME_OUT, True, success)),
        "not slow": (TIMEOUT_MS - 1, (R.SUCCESS, True, success)),
    }

    async def story(cluster: Cluster) -> None:
        await cluster.broker(queues=1)
        hook, heard, left = Recorder(), list[str](), dict(first)

        async def listen(messages: list[MessageExt], _context: Any) -> Any:
            heard.append(messages[0].body.decode())
            step = left.pop(heard[-1], (done,))[0]
            if isinstance(step, Exception):
                raise step
            if isinstance(step, int):
                await asyncio.sleep(step / 1000)
                return done
            return step

        await _consumer(cluster, listen, Raising(), hook, ordering=ordering, consume_timeout_ms=TIMEOUT_MS)
        producer = await cluster.own_producer("p", "writers")
        for text, (_, expected) in first.items():
            sending = producer.send(Message(TOPIC, text.encode()), queue=MessageQueue(TOPIC, BROKER, 0))
            await cluster.world.host("p").run(sending)
            await cluster.world.until(partial(hook.outcomes, text))
            assert hook.outcomes(text)[0] == expected
        await cluster.world.until(lambda: len(hook.outcomes()) == len(first) + 3, timeout_ms=30_000)
        for text in ("later", "raises", "nonsense"):
            assert hook.outcomes(text)[1:] == [(R.SUCCESS, True, success)]
        assert [kind for kind, _ in hook.calls].count("before") == len(heard) == len(hook.outcomes())
        assert {(context.consumer_group, len(context.messages)) for _, context in hook.calls} == {(GROUP, 1)}
        failed = cluster.events("hook_failed", host="hooked")
        assert {line.fields["hook"] for line in failed} >= {"Raising.before", "Raising.after", "Raising.filter_message"}

    Scenario("hooks", story, None).run(mode)


@pytest.mark.parametrize(
    ("status", "success"),
    [
        (ConsumeOrderlyStatus.SUCCESS, True),
        (ConsumeOrderlyStatus.COMMIT, True),
        (ConsumeOrderlyStatus.ROLLBACK, False),
    ],
)
@pytest.mark.by_turns("mode", MODES)
def test_what_counts_as_success(status: ConsumeOrderlyStatus, success: bool, mode: Mode) -> None:
    """With manual commit SUCCESS and COMMIT count, of the four results; hooks see the names as the listener gave
    them."""

    async def story(cluster: Cluster) -> None:
        await cluster.broker_and_producer(queues=1)
        hook, answers = Recorder(), [status]

        def listen(_messages: list[MessageExt], context: Any) -> ConsumeOrderlyStatus:
            context.auto_commit = False
            return answers.pop() if answers else ConsumeOrderlyStatus.COMMIT

        await _consumer(cluster, listen, hook, ordering="queue")
        await cluster.send(1, queue_id=0)
        await cluster.world.until(hook.outcomes)
        assert hook.outcomes()[0] == (R.SUCCESS, success, status.name)
        await cluster.end(judge=False)

    Scenario("success", story, None).run(mode)


@pytest.mark.parametrize(
    ("outcome", "took_ms", "expected"),
    [
        (Outcome(ConsumeOrderlyStatus.SUCCESS), 15 * 60_000 - 1, R.SUCCESS),
        (Outcome(ConsumeOrderlyStatus.SUCCESS), 15 * 60_000, R.TIME_OUT),
        (Outcome(SUSPEND), 15 * 60_000 - 1, R.FAILED),
        (Outcome(SUSPEND), 15 * 60_000, R.TIME_OUT),
        (Outcome(SUSPEND, "ValueError", raised=True), 15 * 60_000, R.EXCEPTION),
        (Outcome(SUSPEND, "returned 5"), 15 * 60_000, R.RETURNNULL),
        (Outcome(ConsumeOrderlyStatus.ROLLBACK), 0, R.SUCCESS),
        (Outcome(ConsumeOrderlyStatus.COMMIT), 0, R.SUCCESS),
    ],
)
def test_times_and_answers(outcome: Outcome[Any], took_ms: int, expected: ConsumeReturnType) -> None:
    """As in 4.9.8 an invalid result decides first, then the 15 minutes, then the result."""
    assert return_type(outcome, took_ms, ConsumerConfig().consume_timeout_ms) is expected


@scenario()
async def test_a_filter_hook_takes_messages_out(cluster: Cluster) -> None:
    """The hook runs after the tags. A message that it removes is never consumed, and counts as handled."""
    await cluster.broker_and_producer(queues=1)
    seen: list[str] = []
    offered: list[int] = []

    class OnlyEven:
        def filter_message(self, context: FilterMessageContext) -> None:
            assert (context.consumer_group, context.queue.topic) == (GROUP, TOPIC)
            offered.extend(int(message.body) for message in context.messages)
            context.messages[:] = [message for message in context.messages if int(message.body) % 2 == 0]

    def listen(messages: list[MessageExt], _context: Any) -> None:
        seen.extend(message.body.decode() for message in messages)

    await cluster.send(10, queue_id=0)
    await _consumer(cluster, listen, OnlyEven(), ordering="queue")
    await cluster.world.until(lambda: len(seen) == 5)
    await cluster.world.until(lambda: cluster.committed() >= 9, timeout_ms=60_000)
    assert (seen, offered) == (["0", "2", "4", "6", "8"], list(range(10)))
    await cluster.end(judge=False)
