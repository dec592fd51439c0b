"""Questions to all brokers: they are asked at once, and what they answer does not depend on who answers first."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from lockstep.client import AdminClient, NotLockstepError
from lockstep.client.admin.at_once import at_once
from lockstep.client.errors import ClientError
from lockstep.protocol.bodies.admin import TopicOffset, TopicStatsTable
from lockstep.protocol.bodies.broker import ConsumerIdList
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.remoting.errors import RequestRefused, RequestTimeout
from tests.client.stage import TOPIC, FakeBroker, Stage, on_stage, queue_at
from tests.rows import by_row

NAMES = ("broker-a", "broker-b", "broker-c")
IDS, STATS = RequestCode.GET_CONSUMER_LIST_BY_GROUP, RequestCode.GET_TOPIC_STATS_INFO
Question = Callable[[AdminClient], Awaitable[Any]]
QUESTIONS: dict[str, tuple[RequestCode, Question]] = {
    "consumer_ids": (IDS, lambda admin: admin.consumer_ids("g")),
    "groups": (RequestCode.LIST_CONSUMER_GROUPS, lambda admin: admin.groups()),
    "groups_with_offsets": (RequestCode.GET_ALL_CONSUMER_OFFSET, lambda admin: admin.groups_with_offsets()),
    "groups_of": (RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, lambda admin: admin.groups_of(TOPIC)),
    "members": (RequestCode.GET_CONSUMER_CONNECTION_LIST, lambda admin: admin.members("g")),
    "progress": (RequestCode.GET_CONSUME_STATS, lambda admin: admin.progress("g")),
    "group_configs": (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, lambda admin: admin.group_configs()),
    "message_types": (RequestCode.GET_ALL_TOPIC_CONFIG, lambda admin: admin.message_types()),
    "list_locks": (RequestCode.LIST_LOCKS, lambda admin: admin.list_locks()),
    "list_deliveries": (RequestCode.LIST_DELIVERIES, lambda admin: admin.list_deliveries("g")),
    "list_lock_changes": (RequestCode.LIST_LOCK_CHANGES, lambda admin: admin.list_lock_changes({})),
    "clocks_ahead_ms": (RequestCode.LIST_LOCK_CHANGES, lambda admin: admin.clocks_ahead_ms()),
    "topic_stats": (STATS, lambda admin: admin.topic_stats(TOPIC)),
    "query_messages": (RequestCode.QUERY_MESSAGE, lambda admin: admin.query_messages(TOPIC, "k")),
}


async def three_brokers(stage: Stage) -> list[FakeBroker]:
    brokers = [await stage.broker(name) for name in NAMES]
    stage.route_to(dict.fromkeys(NAMES, 2))
    for broker in brokers:
        broker.answers(IDS, ResponseCode.SYSTEM_ERROR)  # the probe of a Lockstep broker
    return brokers


@by_row("name", QUESTIONS)
def test_a_silent_broker_keeps_no_other_from_being_asked(name: str) -> None:
    """All have the request before any answers. The call fails after the patience for one answer, with the first."""
    code, ask = QUESTIONS[name]

    @on_stage
    async def play(stage: Stage) -> None:
        brokers = await three_brokers(stage)
        for broker in brokers:
            broker.answers(code, None)
        async with stage.admin() as admin:
            await admin.brokers()
            started_ms = stage.world.elapsed_ms
            with pytest.raises(RequestTimeout, match=f"from {brokers[0].address}"):
                await ask(admin)
            waited_ms = stage.world.elapsed_ms - started_ms
        assert [len(broker.requests(code)) for broker in brokers] == [1, 1, 1]
        assert 3000 <= waited_ms < 3500

    play()


def later(stage: Stage, broker: FakeBroker, code: int, delay_ms: int, answer: int | Any) -> None:
    """Let a broker answer `delay_ms` after the request came."""
    broker.answers(code, answer)
    answered = broker.on[code]

    def wait(command: RemotingCommand) -> None:
        reply = answered(command)
        assert reply is not None
        loop = asyncio.get_running_loop()
        loop.call_later(delay_ms / 1000, broker.endpoints[-1].reply, reply)

    broker.on[code] = wait


@on_stage
async def test_the_first_broker_decides_about_the_error(stage: Stage) -> None:
    """Although another one fails before it. Those before it have answered; nothing is left running."""
    first, second, third = await three_brokers(stage)
    first.answers(STATS, TopicStatsTable({}))
    later(stage, second, STATS, 500, ResponseCode.NO_PERMISSION)
    third.answers(STATS, ResponseCode.SYSTEM_ERROR)
    async with stage.admin() as admin:
        with pytest.raises(RequestRefused, match=second.address):
            await admin.topic_stats(TOPIC)
    assert stage.world.elapsed_ms < 2000


@on_stage
async def test_answers_are_merged_in_the_order_of_the_brokers(stage: Stage) -> None:
    """Whoever answers first."""
    brokers = await three_brokers(stage)
    for delay_ms, broker in zip((300, 200, 100), brokers, strict=True):
        later(stage, broker, STATS, delay_ms, TopicStatsTable({queue_at(0, broker.name): TopicOffset(0, delay_ms, 1)}))
    async with stage.admin() as admin:
        stats = await admin.topic_stats(TOPIC)
    assert [(queue.broker_name, of.max_offset) for queue, of in stats.items()] == [
        ("broker-a", 300), ("broker-b", 200), ("broker-c", 100),
    ]  # fmt: skip


# Without those that do not answer ----------------------------------------------------------------------------


def stats_of(broker: FakeBroker) -> TopicStatsTable:
    return TopicStatsTable({queue_at(0, broker.name): TopicOffset(0, 5, 1)})


@on_stage
async def test_a_tolerant_client_goes_on_without_a_silent_broker(stage: Stage) -> None:
    """It waits as long as it was told, and says who is missing, and why. The client itself fails as before."""
    first, second, third = await three_brokers(stage)
    first.answers(STATS, None)
    second.answers(STATS, stats_of(second))
    third.answers(STATS, ResponseCode.NO_PERMISSION)
    async with stage.admin() as admin:
        task = admin.tolerant(1.5)
        await admin.brokers()
        started_ms = stage.world.elapsed_ms
        assert list(await task.topic_stats(TOPIC)) == [queue_at(0, "broker-b")]
        assert 1500 <= stage.world.elapsed_ms - started_ms < 1700
        assert list(task.left_out) == ["broker-a", "broker-c"]
        assert task.left_out["broker-a"] == "no answer within 1.5 s"
        assert "NO_PERMISSION" in task.left_out["broker-c"]
        assert not admin.left_out
        with pytest.raises(RequestTimeout):
            await admin.topic_stats(TOPIC)


@on_stage
async def test_a_broker_that_is_known_to_be_gone_is_not_asked(stage: Stage) -> None:
    """Without it no time is lost; the reason is the one that was given."""
    first, second, third = await three_brokers(stage)
    second.answers(IDS, ConsumerIdList(("b",)))
    third.answers(IDS, ConsumerIdList(("a", "b")))
    async with stage.admin() as admin:
        task = admin.bounded(100_000).tolerant(2, {"broker-a": "cannot connect", "elsewhere": "gone"})
        assert await task.consumer_ids("g") == ["a", "b"]
        assert task.left_out == {"broker-a": "cannot connect"}
    assert first.requests(IDS) == []
    assert stage.world.elapsed_ms < 1000


@on_stage
async def test_no_broker_answers_a_tolerant_client(stage: Stage) -> None:
    """An empty result would look like a cluster that has nothing: the first error is raised."""
    brokers = await three_brokers(stage)
    for broker in brokers:
        broker.answers(STATS, ResponseCode.NO_PERMISSION)
    async with stage.admin() as admin:
        with pytest.raises(RequestRefused, match=brokers[0].address):
            await admin.tolerant(2).topic_stats(TOPIC)
        with pytest.raises(ClientError, match="it is gone"):
            await admin.tolerant(2, dict.fromkeys(NAMES, "it is gone")).topic_stats(TOPIC)


@on_stage
async def test_a_tolerant_client_does_not_hide_apaches_brokers(stage: Stage) -> None:
    """They answer: they have no such call, and another one is asked instead."""
    silent, apaches = await stage.broker("broker-a"), await stage.broker("broker-b", agrees=False)
    stage.route_to({"broker-a": 1, "broker-b": 1})
    for broker in stage.brokers:
        broker.answers(IDS, ResponseCode.SYSTEM_ERROR)
    silent.answers(RequestCode.LIST_LOCKS, None)
    async with AdminClient(name_server=silent.name_server, runtime=stage.client, log=stage.log) as admin:
        with pytest.raises(NotLockstepError, match=apaches.address):
            await admin.tolerant(1).list_locks()


# at_once -----------------------------------------------------------------------------------------------------


async def test_many_are_asked_a_few_at_a_time() -> None:
    """As many as the bound says; the answers are in the order of the items."""
    running, most = 0, 0

    async def act(item: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(item % 3 + 1):
            await asyncio.sleep(0)
        running -= 1
        return -item

    assert await at_once(act, range(100), at_most=7) == [-item for item in range(100)]
    assert most == 7
    assert await at_once(act, ()) == []


async def test_after_a_failure_nothing_is_begun_or_left() -> None:
    """Those after it are cancelled and awaited; their failures are not reported as never retrieved."""
    ended, reported = list[int](), list[Any]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    async def act(item: int) -> None:
        try:
            if item == 1:
                await asyncio.sleep(0)
                raise ClientError("one")
            if item == 2:
                raise ClientError("two")
            if item > 2:
                await asyncio.Event().wait()
        finally:
            ended.append(item)

    with pytest.raises(ClientError, match="one"):
        await at_once(act, range(9), at_most=4)
    assert sorted(ended)[:4] == [0, 1, 2, 3]
    assert len(asyncio.all_tasks()) == 1
    assert not reported


async def test_a_caller_that_goes_away_takes_its_questions_along() -> None:
    """Nothing is asked on for nobody."""
    ended = list[int]()

    async def act(item: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(item)

    task = asyncio.create_task(at_once(act, range(3)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(ended) == [0, 1, 2]
    assert len(asyncio.all_tasks()) == 1


async def test_one_question_needs_no_task() -> None:
    """The usual cluster of tests and demos has one broker."""

    async def own_task(_: int) -> Any:
        return asyncio.current_task()

    assert await at_once(own_task, [1]) == [asyncio.current_task()]
