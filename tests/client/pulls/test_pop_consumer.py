"""PushConsumer in POP mode (docs/wire.md 18) at real brokers on virtual time."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from lockstep.client import (
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyStatus,
    ConsumerError,
    PushConsumer,
)
from lockstep.client.consumer.pop.member import PopMember
from lockstep.protocol.codes import RequestCode
from tests.client.pulls.pop_stage import INVISIBLE_MS, Pops, on_pops

R = RequestCode
LIMIT_1 = {"max_reconsume_times": 1}
Listener = Callable[[list[Any], Any], Awaitable[Any]]


class Seen:
    """What listeners got: (host, body, reconsume_times, elapsed ms) in the order of their calls."""

    def __init__(self, pops: Pops) -> None:
        self._pops = pops
        self.calls: list[tuple[str, str, int, int]] = []
        self.handled: list[str] = []
        self.running: defaultdict[str, int] = defaultdict(int)
        self.overlaps: list[str] = []
        self.fails: dict[str, int] = {}
        self.takes_ms: dict[str, int] = {}

    @property
    def bodies(self) -> list[str]:
        return [body for _, body, _, _ in self.calls]

    def has(self, host: str) -> bool:
        """Whether a call began there."""
        return host in [call[0] for call in self.calls]

    def times(self, body: str) -> list[int]:
        """When the calls for a message began."""
        return [at for _, one, _, at in self.calls if one == body]

    def listener(self, host: str) -> Listener:
        async def listen(messages: list[Any], context: Any) -> Any:
            (message,) = messages
            body, key = message.body.decode(), message.sharding_key
            self.calls.append((host, body, message.reconsume_times, self._pops.world.elapsed_ms))
            self.running[key] += 1
            if self.running[key] > 1:
                self.overlaps.append(body)
            try:
                await asyncio.sleep(self.takes_ms.get(body, 0) / 1000)
            finally:
                self.running[key] -= 1
            if self.fails.get(body, 0) > message.reconsume_times:
                return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
            self.handled.append(body)
            return None

        return listen


async def a_group(
    pops: Pops,
    *names: str,
    sent: int,
    keys: int = 1,
    takes_ms: dict[str, int] | None = None,
    fails: dict[str, int] | None = None,
    **arguments: Any,
) -> Seen:
    """A broker with one queue and messages in it, so that a pop brings several; consumers."""
    await pops.broker(queues=1)
    await pops.producer()
    await pops.send(sent, keys=keys)
    seen = Seen(pops)
    seen.takes_ms, seen.fails = takes_ms or {}, fails or {}
    for name in names:
        await pops.push(name, seen.listener(name), **arguments)
    return seen


@pytest.mark.parametrize("fenced", [False, True])
def test_the_order_of_each_key(fenced: bool) -> None:
    """Two members share the messages; each is handled once, and a key has one call at a time."""

    @on_pops(fenced=fenced)
    async def story(pops: Pops) -> None:
        takes_ms = {str(number): 5 for number in range(64)}
        seen = await a_group(pops, "c1", "c2", sent=64, keys=4, takes_ms=takes_ms)
        await pops.world.until(lambda: pops.committed() == 64)
        assert seen.overlaps == []
        assert sorted(seen.handled, key=int) == [str(number) for number in range(64)]
        for key in range(4):
            of_key = [int(body) for body in seen.handled if int(body) % 4 == key]
            assert of_key == sorted(of_key)

    story()


@pytest.mark.parametrize("fenced", [False, True])
def test_a_killed_member(fenced: bool) -> None:
    """What it had comes to the other one: at the end of its invisible time, under fenced mode a grace later."""

    @on_pops(fenced=fenced)
    async def story(pops: Pops) -> None:
        seen = await a_group(pops, "c1", sent=2, takes_ms={"0": 600_000})
        await pops.world.until(lambda: seen.calls)
        await pops.push("c2", seen.listener("c2"))
        seen.takes_ms.clear()
        await pops.run_for(1000)
        killed_ms = pops.world.elapsed_ms
        pops.crash("c1")
        await pops.world.until(lambda: pops.committed() == 2)
        assert [call[:3] for call in seen.calls] == [("c1", "0", 0), ("c2", "0", 1), ("c2", "1", 1)]
        grace_ms = pops.core().config.pop_grace_ms if fenced else INVISIBLE_MS - 1500
        assert 0 <= seen.times("0")[1] - killed_ms - grace_ms < 1600

    story()


@pytest.mark.parametrize("fenced", [False, True])
def test_a_slow_listener(fenced: bool) -> None:
    """Its delivery is renewed, and the one behind it; nobody else gets them."""

    @on_pops(fenced=fenced)
    async def story(pops: Pops) -> None:
        seen = await a_group(pops, "c1", "c2", sent=2, takes_ms={"0": 10 * INVISIBLE_MS})
        await pops.world.until(lambda: pops.committed() == 2, timeout_ms=20 * INVISIBLE_MS)
        assert [call[1:3] for call in seen.calls] == [("0", 0), ("1", 0)]

    story()


@pytest.mark.parametrize("fenced", [False, True])
def test_a_failing_listener(fenced: bool) -> None:
    """Its key is tried again after 1 s, then 5 s, then it is a dead letter, and the next of its key comes."""

    @on_pops(fenced=fenced)
    async def story(pops: Pops) -> None:
        seen = await a_group(pops, "c1", sent=4, keys=2, fails={"0": 100}, config={"max_reconsume_times": 2})
        await pops.world.until(lambda: pops.committed() == 4)
        assert [call[1:3] for call in seen.calls] == [("0", 0), ("1", 0), ("3", 0), ("0", 1), ("0", 2), ("2", 0)]
        first, second, third = seen.times("0")
        assert (second - first, third - second) == (1000, 5000)
        assert pops.dead_letters() == 1

    story()


@pytest.mark.parametrize("fenced", [False, True])
def test_a_lost_answer_to_an_acknowledgement(fenced: bool) -> None:
    """It is repeated, and the next message of the key waits for it."""

    @on_pops(fenced=fenced)
    async def story(pops: Pops) -> None:
        pops.tap.deaf[R.ACK_MESSAGE] = 1
        seen = await a_group(pops, "c1", sent=2, config={"request_timeout_ms": 1000})
        await pops.world.until(lambda: pops.committed() == 2)
        assert seen.bodies == ["0", "1"]
        assert seen.times("1")[0] - seen.times("0")[0] >= 1000
        assert pops.tap.seen[R.ACK_MESSAGE] == 3

    story()


@pytest.mark.parametrize("fenced", [False, True])
def test_a_member_that_the_broker_does_not_hear(fenced: bool) -> None:
    """When its invisible time is over, its call is cancelled, and what is behind it is not handled there."""

    @on_pops(fenced=fenced)
    async def story(pops: Pops) -> None:
        seen = await a_group(pops, "c1", sent=2, takes_ms={"0": 3 * INVISIBLE_MS})
        await pops.world.until(lambda: seen.calls)
        consumer = await pops.push("c2", seen.listener("c2"))
        seen.takes_ms.clear()
        await pops.fault(f"partition c1-broker+{2 * INVISIBLE_MS}ms")
        await pops.world.until(lambda: pops.committed() == 2)
        await pops.run_for(3 * INVISIBLE_MS)
        assert [call[:2] for call in seen.calls] == [("c1", "0"), ("c2", "0"), ("c2", "1")]
        assert seen.handled == ["0", "1"]
        assert seen.overlaps == []
        assert consumer.state.name == "RUNNING"
        lost = [line.fields["offset"] for line in pops.log if line.event == "delivery_lost"]
        assert lost == [0]

    story()


@on_pops(fenced=True)
async def test_a_connection_that_ends(pops: Pops) -> None:
    """The member says at once that it lives, so that nobody gets what it had."""
    # At the usual renewal it would be too late.
    seen = await a_group(pops, "c1", sent=2, takes_ms={"0": 7000, "1": 7000}, invisible_ms=60_000)
    await pops.world.until(lambda: seen.calls)
    await pops.push("c2", seen.listener("c2"))
    await pops.run_for(1000)
    await pops.fault("cut c1-broker")
    await pops.run_for(8000)
    await pops.fault("cut c1-broker")
    await pops.world.until(lambda: pops.committed() == 2)
    assert [call[:3] for call in seen.calls] == [("c1", "0", 0), ("c1", "1", 0)]


@pytest.mark.parametrize("fenced", [False, True])
def test_a_call_that_outlives_its_delivery(fenced: bool) -> None:
    """The message comes again to the member that still works on it: it is not called twice, and its answer counts."""

    @on_pops(fenced=fenced)
    async def story(pops: Pops) -> None:
        seen = await a_group(pops, "c1", sent=2, takes_ms={"0": 4 * INVISIBLE_MS}, on_lock_lost="finish")
        await pops.world.until(lambda: seen.calls)
        await pops.fault(f"partition c1-broker+{2 * INVISIBLE_MS}ms")
        await pops.world.until(lambda: pops.committed() == 2)
        assert seen.bodies == ["0", "1"]

    story()


@on_pops(fenced=True)
async def test_a_stale_answer(pops: Pops) -> None:
    """Another member has the message since: the call is cancelled, counted, and nothing behind it begins."""
    seen = await a_group(pops, "c1", sent=2, takes_ms={"0": 3 * INVISIBLE_MS})
    await pops.world.until(lambda: seen.calls)
    await pops.push("c2", seen.listener("c2"))
    seen.takes_ms.clear()
    pops.fault("partition c1-broker+5s")
    await pops.fault("cut c1-broker")
    await pops.world.until(lambda: pops.committed() == 2)
    await pops.run_for(4 * INVISIBLE_MS)
    assert [call[:3] for call in seen.calls] == [("c1", "0", 0), ("c2", "0", 1), ("c2", "1", 1)]
    assert seen.handled == ["0", "1"]
    (lost,) = [line.fields for line in pops.log if line.event == "delivery_lost"]
    assert (lost["offset"], lost["why"]) == (0, "the broker says that its delivery has ended")


@pytest.mark.parametrize("fenced", [False, True])
def test_a_message_that_ends_its_members(fenced: bool) -> None:
    """Each time it is delivered its member is killed: after the group's retries it is a dead letter without a call."""

    @on_pops(fenced=fenced)
    async def story(pops: Pops) -> None:
        seen = await a_group(pops, "c1", sent=2, takes_ms={"0": 600_000}, config=LIMIT_1)
        for name, following in (("c1", "c2"), ("c2", "c3")):
            await pops.world.until(partial(seen.has, name))
            pops.crash(name)
            await pops.push(following, seen.listener(following), config=LIMIT_1)
        await pops.world.until(lambda: pops.committed() == 2)
        assert [call[:3] for call in seen.calls] == [("c1", "0", 0), ("c2", "0", 1), ("c3", "1", 2)]
        assert pops.dead_letters() == 1

    story()


@pytest.mark.parametrize("fenced", [False, True])
def test_a_clean_stop(fenced: bool) -> None:
    """The running call ends and is acknowledged; what waited comes to another member at once."""

    @on_pops(fenced=fenced)
    async def story(pops: Pops) -> None:
        seen = await a_group(pops, "c1", sent=3, takes_ms={"0": 2000})
        await pops.world.until(lambda: seen.calls)
        await pops.push("c2", seen.listener("c2"))
        began_ms = pops.world.elapsed_ms
        await pops.leave("c1")
        await pops.world.until(lambda: pops.committed() == 3)
        assert [call[:2] for call in seen.calls] == [("c1", "0"), ("c2", "1"), ("c2", "2")]
        assert pops.world.elapsed_ms - began_ms < 2100

    story()


@pytest.mark.parametrize("broker", ["faithful", "fenced", "RocketMQ's"])
@pytest.mark.parametrize("sent", ["before", "meanwhile", "after the farewell"])
def test_a_stop_meets_a_message(sent: str, broker: str) -> None:
    """The member has a call at the broker, 300 ms away. What it gets goes back: another member has it at once.

    A call of a member that has left gets nothing. RocketMQ's broker goes on with it, so the stop waits for a moment.
    """

    @on_pops(fenced=broker == "fenced")
    async def story(pops: Pops) -> None:
        seen = await a_group(pops, "c1", sent=0)
        if broker == "RocketMQ's":
            pops.core().messages.pops.held.on_left = lambda *_: None  # type: ignore[method-assign]
        slow = pops.fault("slow c1-broker+5s=300ms")
        await pops.world.until(lambda: bool(len(pops.core().messages.pops.held)))
        if sent == "before":
            await pops.send(1)
        stop = pops.fault("leave c1")
        if sent == "after the farewell":
            await pops.world.until(lambda: not pops.members())
        if sent != "before":
            await pops.send(1)
        began_ms = pops.world.elapsed_ms
        await stop
        await pops.push("c2", seen.listener("c2"))
        await pops.world.until(lambda: pops.committed() == 1)
        was_delivered = sent != "after the farewell" or broker == "RocketMQ's"
        assert [call[:3] for call in seen.calls] == [("c2", "0", int(was_delivered))]
        assert pops.world.elapsed_ms - began_ms < 2000
        await slow

    story()


@on_pops()
async def test_without_order(pops: Pops) -> None:
    """What failed comes again from the broker after its delay, and becomes a dead letter when the group wants it."""
    await pops.broker(queues=1)
    await pops.producer()
    calls: list[tuple[str, int, int]] = []

    async def listen(messages: list[Any], context: Any) -> ConsumeConcurrentlyStatus:
        calls.append((messages[0].body.decode(), messages[0].reconsume_times, pops.world.elapsed_ms))
        if messages[0].body == b"1" and messages[0].reconsume_times < 2:
            context.delay_level_when_next_consume = 1 if messages[0].reconsume_times else 0
            return ConsumeConcurrentlyStatus.RECONSUME_LATER
        if messages[0].body == b"2":
            context.delay_level_when_next_consume = -1
            return ConsumeConcurrentlyStatus.RECONSUME_LATER
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    await pops.push("c1", listen, ordering="none", trace=None)
    await pops.send(3)
    await pops.run_for(20_000)
    at = [when for body, _, when in calls if body == "1"]
    assert sorted(call[:2] for call in calls) == [("0", 0), ("1", 0), ("1", 1), ("1", 2), ("2", 0)]
    assert 10_000 <= at[1] - at[0] < 11_500
    assert 1000 <= at[2] - at[1] < 2500
    assert pops.dead_letters() == 1


@on_pops()
async def test_the_retries_of_the_group(pops: Pops) -> None:
    """They count unless `max_reconsume_times` says otherwise."""
    await pops.broker(queues=1)
    groups = pops.core().catalog.groups
    group = groups.find(pops.consumer_group, 0)
    assert group is not None
    groups.put(group._replace(retry_max_times=1), 0)
    await pops.producer()
    await pops.send(1)
    seen = Seen(pops)
    seen.fails["0"] = 100
    await pops.push("c1", seen.listener("c1"))
    await pops.world.until(lambda: pops.committed() == 1)
    assert [call[1:3] for call in seen.calls] == [("0", 0), ("0", 1)]
    assert pops.dead_letters() == 1


@on_pops()
async def test_a_group_in_order_is_not_read_without(pops: Pops) -> None:
    await pops.broker(queues=1)
    group = pops.core().catalog.groups.find(pops.consumer_group, 0)
    assert group is not None
    pops.core().catalog.groups.put(group._replace(consume_message_orderly=True), 0)
    with pytest.raises(ConsumerError, match="read in order"):
        await pops.push("c1", Seen(pops).listener("c1"), ordering="none", trace=None)


@pytest.mark.parametrize("fenced", [False, True])
def test_a_delivery_that_ends_while_its_dead_letter_fails(fenced: bool) -> None:
    """It is not held any more: the message comes again, and becomes a dead letter then."""

    @on_pops(fenced=fenced)
    async def story(pops: Pops) -> None:
        limit_0 = {"max_reconsume_times": 0}
        seen = await a_group(pops, "c1", sent=1, takes_ms={"0": 5000}, fails={"0": 100}, config=limit_0)
        await pops.world.until(lambda: seen.calls)
        pops.tap.deaf.update({R.CONSUMER_SEND_MSG_BACK: 1, R.CHANGE_MESSAGE_INVISIBLETIME: 100})
        await pops.world.until(lambda: any(line.event == "dead_letter_not_sent" for line in pops.log))
        assert any(line.event == "delivery_lost" for line in pops.log)
        pops.tap.deaf.clear()
        await pops.world.until(lambda: pops.committed() == 1, timeout_ms=20 * INVISIBLE_MS)
        # The call whose answer was lost made one, too.
        assert pops.dead_letters() == 2
        assert seen.bodies == ["0"]

    story()


@on_pops()
async def test_a_rollback(pops: Pops) -> None:
    """The message comes again, and it does not count as an attempt."""
    calls: list[tuple[str, int]] = []

    async def listen(messages: list[Any], context: Any) -> Any:
        calls.append((messages[0].body.decode(), messages[0].reconsume_times))
        context.auto_commit = False
        return ConsumeOrderlyStatus.ROLLBACK if len(calls) < 4 else ConsumeOrderlyStatus.COMMIT

    await pops.broker(queues=1)
    await pops.producer()
    await pops.send(2, keys=1)
    await pops.push("c1", listen, config=LIMIT_1)
    await pops.world.until(lambda: pops.committed() == 2)
    assert calls == [("0", 0)] * 4 + [("1", 0)]
    assert pops.dead_letters() == 0


@on_pops()
async def test_a_success_without_commit(pops: Pops) -> None:
    """It acknowledges nothing: the message comes again. The log says it once."""
    calls: list[str] = []

    async def listen(messages: list[Any], context: Any) -> Any:
        calls.append(messages[0].body.decode())
        context.auto_commit = False
        return None if len(calls) < 3 else ConsumeOrderlyStatus.COMMIT

    await pops.broker(queues=1)
    await pops.producer()
    await pops.send(2, keys=1)
    await pops.push("c1", listen, config=LIMIT_1)
    await pops.world.until(lambda: pops.committed() == 2)
    assert calls == ["0", "0", "0", "1"]
    assert pops.dead_letters() == 0
    assert len([line for line in pops.log if line.event == "manual_commit_not_supported"]) == 1


@pytest.mark.parametrize("fenced", [False, True])
def test_the_last_topic_is_left_while_a_call_runs(fenced: bool) -> None:
    """The member stays in the group until the call ends; what waits behind it goes to another member."""

    @on_pops(fenced=fenced)
    async def story(pops: Pops) -> None:
        seen = await a_group(pops, sent=3, takes_ms={"0": 5 * INVISIBLE_MS})
        consumer = await pops.push("c1", seen.listener("c1"))
        await pops.world.until(lambda: seen.calls)
        await pops.push("c2", seen.listener("c2"))
        consumer.unsubscribe(pops.topic)
        await pops.world.until(lambda: pops.committed() == 3, timeout_ms=20 * INVISIBLE_MS)
        assert [call[:2] for call in seen.calls] == [("c1", "0"), ("c2", "1"), ("c2", "2")]
        assert seen.overlaps == []
        await pops.world.until(lambda: any(line.event == "group_left" for line in pops.log))

    story()


@on_pops()
async def test_a_renewal_that_fails_unexpectedly(pops: Pops) -> None:
    """It is logged, and the next one is made: nobody else gets the message."""
    seen = await a_group(pops, sent=1, takes_ms={"0": 3 * INVISIBLE_MS})
    consumer = await pops.push("c1", seen.listener("c1"))
    member = consumer._member
    assert isinstance(member, PopMember)
    calls: Any = member._calls
    change, failures = calls.change_invisible, [OSError("disk full")]

    async def fail_once(*arguments: Any) -> None:
        if failures:
            raise failures.pop()
        await change(*arguments)

    calls.change_invisible = fail_once
    await pops.push("c2", seen.listener("c2"))
    await pops.world.until(lambda: pops.committed() == 1, timeout_ms=20 * INVISIBLE_MS)
    assert seen.bodies == ["0"]
    assert len([line for line in pops.log if line.event == "renewal_failed"]) == 1


@on_pops()
async def test_a_stop_that_a_trace_disturbs(pops: Pops) -> None:
    """An error while something is given back does not leave the stop half done."""
    seen = await a_group(pops, sent=2, takes_ms={"0": 500})
    consumer = await pops.push("c1", seen.listener("c1"), trace=None)
    member = consumer._member
    assert isinstance(member, PopMember)
    calls: Any = member._calls

    async def fail(*_: Any) -> None:
        raise OSError("disk full")

    await pops.world.until(lambda: seen.calls)
    calls.change_invisible = fail
    await pops.leave("c1")
    assert consumer.state.name == "SHUTDOWN_ALREADY"
    assert seen.handled == ["0"]


@on_pops()
async def test_a_stop_without_an_answer_to_an_acknowledgement(pops: Pops) -> None:
    """No listener is stuck, and nothing is given back a second time."""
    config = {"request_timeout_ms": 1000}
    seen = await a_group(pops, "c1", sent=2, takes_ms={"0": 500}, config=config, trace=None)
    await pops.world.until(lambda: seen.calls)
    pops.tap.deaf[R.ACK_MESSAGE] = 100
    await pops.leave("c1")
    await pops.run_for(2000)
    assert [line.fields["why"] for line in pops.log if line.event == "delivery_lost"] == ["the consumer stops"]
    assert [line for line in pops.log if line.event == "listener_stuck"] == []


@on_pops()
async def test_a_delivery_that_ends_during_a_stop(pops: Pops) -> None:
    """What was behind it was given back when the stop began, and is not given back again."""
    config = {"request_timeout_ms": 1000, "await_termination_ms": 2 * INVISIBLE_MS}
    seen = await a_group(pops, "c1", sent=2, takes_ms={"0": 500}, config=config, trace=None)
    await pops.world.until(lambda: seen.calls)
    pops.tap.deaf[R.ACK_MESSAGE] = 100
    await pops.leave("c1")
    # At once, and when the call that waited at the broker brought it again.
    assert pops.tap.seen[R.CHANGE_MESSAGE_INVISIBLETIME] == 2


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"ordering": "key", "key": "KEYS"}, "key is for pulls: with pop the brokers know the sharding key alone"),
        ({"ordering": "none", "trace": "t.jsonl"}, "a trace is judged for order"),
    ],
)
def test_what_pops_cannot_do(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(ConsumerError, match=why):
        PushConsumer("g", name_server="127.0.0.1:1", pop=True, **wrong)


@on_pops()
async def test_a_stop_while_a_dead_letter_has_no_answer(pops: Pops) -> None:
    """The message is one without a call: no listener is stuck."""
    config = {"max_reconsume_times": 0, "await_termination_ms": 1000}
    seen = await a_group(pops, "c1", sent=1, takes_ms={"0": 600_000}, config=config, trace=None)
    await pops.world.until(lambda: seen.calls)
    pops.crash("c1")
    pops.tap.deaf[R.CONSUMER_SEND_MSG_BACK] = 100
    await pops.push("c2", seen.listener("c2"), config=config, trace=None)
    await pops.world.until(lambda: pops.tap.seen[R.CONSUMER_SEND_MSG_BACK])
    await pops.leave("c2")
    assert not seen.has("c2")
    assert [line for line in pops.log if line.event == "listener_stuck"] == []
