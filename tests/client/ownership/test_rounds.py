"""The rounds of a member: one at a time, again when something changed meanwhile, and none while it stops."""

import asyncio
from collections.abc import Callable

from lockstep.client import AllocateMessageQueueStrategy, AllocateSticky, ConsumerConfig, allocate_averagely
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.client.consumer.push_member import PushMember
from lockstep.protocol.bodies.broker import ConsumerIdList
from lockstep.protocol.bodies.codec import encode_body
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.bodies.locks import LockOkBody
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import OffsetResponseHeader
from lockstep.protocol.model import MessageQueue
from tests.client.ownership.rebalancing import IDS, LAST, LOCK, UNLOCK
from tests.client.pulls.pulling import PULL, push_member
from tests.client.stage import TOPIC, FakeBroker, Stage, on_stage, queue_at

GRANTED = LockOkBody((queue_at(0),))


async def member_of_one(
    stage: Stage, strategy: AllocateMessageQueueStrategy = allocate_averagely, *, min_interval_ms: int = 0
) -> tuple[FakeBroker, PushMember]:
    """The only member of its group, with a topic of one queue, whose lock it was refused once."""
    broker = await stage.broker(queues=1)
    config = ConsumerConfig(rebalance_min_interval_ms=min_interval_ms)
    member = push_member(stage, config, {TOPIC: SubscriptionData.parse(TOPIC, "*")}, strategy=strategy)
    broker.answers(IDS, ConsumerIdList((member.instance.client_id,)))
    broker.answers(PULL, None)
    broker.answers(UNLOCK, ResponseCode.SUCCESS)
    broker.answers(RequestCode.QUERY_CONSUMER_OFFSET, OffsetResponseHeader(0))
    broker.answers(LOCK, LockOkBody(()))
    await member.rebalance_now()
    return broker, member


def late(stage: Stage, broker: FakeBroker, delay_ms: int) -> Callable[[RemotingCommand], None]:
    """Grants the lock, each time so much later."""

    def answer(command: RemotingCommand) -> None:
        granted = command.reply(ResponseCode.SUCCESS, body=encode_body(GRANTED, command.serialize_type))
        broker.runtime.call_later_ms(delay_ms, broker.endpoints[-1].reply, granted)

    return answer


@on_stage
async def test_a_round_waits_for_the_one_before_it(stage: Stage) -> None:
    """One that begins while released queues are asked for takes none of them a second time."""
    broker, member = await member_of_one(stage)
    broker.on[LOCK] = late(stage, broker, 100)
    await asyncio.gather(member.take_released([queue_at(0)]), member.rebalance_now())
    assert stage.events("info").count("queue_acquired") == 1
    assert len(broker.requests(LOCK)) == 2, "the refused one, and the granted one"
    await member.stop()


@on_stage
async def test_a_change_during_a_round_begins_another(stage: Stage) -> None:
    """At once, and not after 20 s: the round may have asked for the members before it."""
    broker, member = await member_of_one(stage)
    answer = broker.on[IDS]

    def changed(command: RemotingCommand) -> RemotingCommand | None:
        if len(broker.requests(IDS)) == 2:
            member.rebalance_soon()
        return answer(command)

    broker.on[IDS] = changed
    rounds = stage.client.create_task(member._rebalance_forever(), name="rebalance")
    await stage.world.sleep_ms(1_000)
    assert len(broker.requests(IDS)) == 3
    rounds.cancel()


@on_stage
async def test_a_round_that_saw_other_owners_is_repeated_soon(stage: Stage) -> None:
    """Not after 20 s: others may have seen queues on their way, and computed other shares. A round like it is not."""
    broker, member = await member_of_one(stage, AllocateSticky())
    broker.answers(IDS, ConsumerIdList((member.instance.client_id, LAST)))
    rounds = stage.client.create_task(member._rebalance_forever(), name="rebalance")
    await stage.world.sleep_ms(10_000)
    assert len(broker.requests(IDS)) == 3
    rounds.cancel()


@on_stage
async def test_a_round_with_its_share_is_not_repeated(stage: Stage) -> None:
    """With a least time between rounds only the others are, as in RocketMQ 5."""
    broker, member = await member_of_one(stage, min_interval_ms=1000)
    broker.answers(LOCK, GRANTED)
    rounds = stage.client.create_task(member._rebalance_forever(), name="rebalance")
    await stage.world.sleep_ms(10_000)
    assert len(broker.requests(IDS)) == 2
    rounds.cancel()
    await member.stop()


@on_stage
async def test_a_round_that_failed_is_repeated_soon(stage: Stage) -> None:
    """With a least time between rounds, as in RocketMQ 5: it got no share."""

    def fails(*_: object) -> list[MessageQueue]:
        raise ValueError("a strategy that fails")

    broker, member = await member_of_one(stage, fails, min_interval_ms=1000)
    rounds = stage.client.create_task(member._rebalance_forever(), name="rebalance")
    await stage.world.sleep_ms(5500)
    assert len(broker.requests(IDS)) == 6
    rounds.cancel()
    await member.stop()


@on_stage
async def test_a_round_that_connects_is_not_repeated(stage: Stage) -> None:
    """A member without queues has none to give up: a new connection to a broker tells it nothing."""
    broker, member = await member_of_one(stage)
    broker.stop()
    await stage.world.sleep_ms(10)
    await broker.start()
    rounds = stage.client.create_task(member._rebalance_forever(), name="rebalance")
    await stage.world.sleep_ms(10_000)
    assert len(broker.requests(RequestCode.HEART_BEAT)) == 2, "it greets on each connection"
    assert len(broker.requests(IDS)) == 2
    rounds.cancel()


@on_stage
async def test_a_lock_that_ran_out_begins_a_round(stage: Stage) -> None:
    """It was granted again, and another client may have had the queue: a new period begins at once, not after 20 s."""
    broker, member = await member_of_one(stage)
    broker.answers(LOCK, GRANTED)
    rounds = stage.client.create_task(member._rebalance_forever(), name="rebalance")
    await stage.world.sleep_ms(100)
    [before] = member.table.values()
    before.life.outlived_lock = True
    member.lock_reacquired(before)
    await stage.world.sleep_ms(1_000)
    [after] = member.table.values()
    assert (before.life.dropped, after.life.dropped, after is before) == (True, False, False)
    rounds.cancel()
    await member.stop()


@on_stage
async def test_a_member_that_stops_takes_no_released_queue(stage: Stage) -> None:
    """While it waits for its last listener call, a queue that it took would stay locked without a consumer."""
    broker, member = await member_of_one(stage)
    broker.answers(LOCK, GRANTED)
    ended = asyncio.Event()

    async def last_call() -> list[ProcessQueue]:
        await ended.wait()
        return []

    member._end_consumption = last_call  # type: ignore[method-assign]  # a test's own
    stopping = stage.client.create_task(member.stop(), name="stop")
    await stage.world.sleep_ms(100)
    await member.take_released([queue_at(0)])
    assert len(broker.requests(LOCK)) == 1
    ended.set()
    await stopping


@on_stage
async def test_a_member_that_stops_waits_for_the_round(stage: Stage) -> None:
    """A lock that is granted while it stores its last offsets would stay, and nobody would have the queue."""
    broker, member = await member_of_one(stage)
    broker.on[LOCK] = late(stage, broker, 100)

    async def persist_slowly() -> None:
        await stage.world.sleep_ms(1_000)

    member._persist_last = persist_slowly  # type: ignore[method-assign]  # a test's own
    asking = stage.client.create_task(member.take_released([queue_at(0)]), name="take released")
    await stage.world.until(lambda: len(broker.requests(LOCK)) == 2)
    await member.stop()
    await asking
    assert len(broker.requests(UNLOCK)) == 1
