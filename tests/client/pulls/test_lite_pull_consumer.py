"""LitePullConsumer (wire.md 12.10): subscribe or assign, polls, seeks, pauses and commits."""

from typing import Any

import pytest

from lockstep.client import ConsumerError, LitePullConsumerConfig, NoRouteError
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.filter import FilterError
from lockstep.protocol.headers.messaging import (
    NotifyConsumerIdsChangedRequestHeader,
    OffsetResponseHeader,
    PullMessageResponseHeader,
)
from lockstep.remoting.settings import SettingError
from tests.client.messages import stored_bytes
from tests.client.pulls.pull_stage import Lite, lite, stored_offsets
from tests.client.pulls.slaves import serves
from tests.client.stage import TOPIC, Stage, on_stage, queue_at
from tests.rows import by_row

R = RequestCode
HALF_POLL_MS = 500


# Its queues -------------------------------------------------------------------------------------------------------


@on_stage
async def test_subscribe_and_assign_exclude_each_other(stage: Stage) -> None:
    """Whichever came first is named; an empty assignment is none."""
    it = await lite(stage)
    it.consumer.subscribe(TOPIC)
    with pytest.raises(ConsumerError, match=r"mutually exclusive: this consumer has its queues by subscribe\(\)"):
        it.consumer.assign([queue_at(0)])
    other = Lite(stage, it.broker)
    with pytest.raises(ConsumerError, match="at least one queue"):
        other.consumer.assign([])
    other.consumer.assign([queue_at(0)])
    with pytest.raises(ConsumerError, match=r"has its queues by assign\(\)"):
        other.consumer.subscribe(TOPIC)


@on_stage
async def test_calls_need_a_consumer_that_runs(stage: Stage) -> None:
    """Before the start, and after the shutdown, each says in which state it is."""
    it = await lite(stage)
    for _ in range(2):
        for call in (it.consumer.assignment, it.consumer.commit, lambda: it.consumer.pause([queue_at(0)])):
            with pytest.raises(ConsumerError, match="the service state of this LitePullConsumer is"):
                call()
        with pytest.raises(ConsumerError, match="the service state"):
            await it.consumer.poll()
        if it.consumer.state.name == "CREATE_JUST":
            with pytest.raises(ConsumerError, match="the service state"):
                await anext(it.consumer)
            await it.assigned(0)
            await it.consumer.shutdown()
    with pytest.raises(ConsumerError, match="the service state"):
        it.consumer.subscribe(TOPIC)
    with pytest.raises(FilterError):
        Lite(stage, it.broker).consumer.subscribe(TOPIC, "||")


@on_stage
async def test_a_new_assignment_replaces_the_old_one(stage: Stage) -> None:
    """Missing queues are dropped and their offsets stored, kept queues go on, new queues begin."""
    it = await (await lite(stage, queues=3)).assigned(0, 1)
    got = await it.poll() + await it.poll() + await it.poll()
    assert len(got) == 30
    it.consumer.assign([queue_at(1), queue_at(2)])
    assert it.consumer.assignment() == [queue_at(1), queue_at(2)]
    await stage.world.sleep_ms(50)
    assert [queue_id for queue_id, _ in stored_offsets(it.broker)] == [0]
    assert it.pulled(2)[0] == 0
    pulls_of_0 = len(it.pulled(0))
    await stage.world.sleep_ms(50)
    assert len(it.pulled(0)) == pulls_of_0
    await it.consumer.shutdown()


@on_stage
async def test_a_rebalance_takes_a_queue_with_its_offset(stage: Stage) -> None:
    """The offset of messages from earlier polls is stored when the queue is dropped; its other messages are not
    returned."""
    it = await lite(stage, queues=2)
    it.consumer.subscribe(TOPIC)
    await it.consumer.start()
    it.members()
    it.broker.tell(RemotingCommand(R.NOTIFY_CONSUMER_IDS_CHANGED, NotifyConsumerIdsChangedRequestHeader("tower")))
    await stage.world.until(lambda: it.consumer.assignment() == [queue_at(0), queue_at(1)])
    for _ in range(3):
        await it.poll()
    handled = it.consumer.positions[queue_at(0)]
    await it.poll()
    it.members("0-first")  # sorts before this client: the first queue becomes another's
    it.broker.tell(RemotingCommand(R.NOTIFY_CONSUMER_IDS_CHANGED, NotifyConsumerIdsChangedRequestHeader("tower")))
    await stage.world.until(lambda: it.consumer.assignment() == [queue_at(1)])
    await stage.world.sleep_ms(20)
    assert stored_offsets(it.broker) == [(0, handled)]
    while await it.poll():
        pass
    assert it.consumer.positions == {queue_at(1): 100}
    with pytest.raises(ConsumerError, match="a rebalance may have given it to another member"):
        it.consumer.pause([queue_at(0)])
    await it.consumer.shutdown()


@on_stage
async def test_a_topic_joined_at_the_last_moment(stage: Stage) -> None:
    """The group's members become known only while the consumer says goodbye: it takes no queue any more."""
    it = await lite(stage, request_timeout_ms=500)
    await it.consumer.start()
    it.broker.answers(R.GET_CONSUMER_LIST_BY_GROUP, None)
    it.broker.answers(R.UNREGISTER_CLIENT, None)
    it.consumer.subscribe(TOPIC)
    await stage.world.until(lambda: it.broker.requests(R.GET_CONSUMER_LIST_BY_GROUP))
    ending = stage.client.create_task(it.consumer.shutdown(), name="shutdown")
    await stage.world.until(lambda: it.broker.requests(R.UNREGISTER_CLIENT))
    it.members()
    question = it.broker.requests(R.GET_CONSUMER_LIST_BY_GROUP)[-1]
    reply = it.broker.on[R.GET_CONSUMER_LIST_BY_GROUP](question)
    assert reply is not None
    it.broker.endpoints[-1].reply(reply)
    await ending
    await stage.world.sleep_ms(5000)
    assert it.pulls == []
    assert "pull_failed" not in stage.events()


@on_stage
async def test_a_topic_that_nobody_can_name(stage: Stage) -> None:
    """While no name server answers the consumer goes on without the topic and logs that; the next rebalance has it."""
    it = await lite(stage, request_timeout_ms=500, rebalance_interval_ms=1000)
    await it.consumer.start()
    it.members()
    answer = it.broker.on[R.GET_ROUTEINFO_BY_TOPIC]
    it.broker.answers(R.GET_ROUTEINFO_BY_TOPIC, None)
    it.consumer.subscribe(TOPIC)
    await stage.world.sleep_ms(600)
    assert stage.events("warning").count("subscriptions_not_announced") == 1
    it.broker.on[R.GET_ROUTEINFO_BY_TOPIC] = answer
    await stage.world.until(lambda: it.pulled() != [], timeout_ms=3000)
    assert await it.poll() == list(range(10))
    await it.consumer.shutdown()


@on_stage
async def test_a_start_that_fails_leaves_nothing_running(stage: Stage) -> None:
    """No name server answers: the start raises that error, and the consumer can be shut down."""
    it = await lite(stage, request_timeout_ms=500)
    it.broker.answers(R.GET_ROUTEINFO_BY_TOPIC, None)
    it.consumer.subscribe(TOPIC)
    with pytest.raises(NoRouteError, match="no name server answered"):
        async with it.consumer:
            raise AssertionError("it must not start")
    await it.consumer.shutdown()


# Polls ------------------------------------------------------------------------------------------------------------


@on_stage
async def test_a_poll_waits_for_its_timeout_and_no_longer(stage: Stage) -> None:
    """5 s by default; 0 does not wait; messages end the wait at once."""
    it = await (await lite(stage)).assigned(0)
    serves(it.broker, 10, last=0)
    await stage.world.sleep_ms(20)
    for timeout_ms, waited_ms in ((None, 5000), (700, 700), (0, 0)):
        began_ms = stage.world.elapsed_ms
        assert await it.consumer.poll(timeout_ms) == []
        assert stage.world.elapsed_ms - began_ms == waited_ms
    with pytest.raises(ConsumerError, match="0 ms or more"):
        await it.consumer.poll(-1)
    (held,) = it.broker.requests(R.PULL_MESSAGE)
    serves(it.broker, 3)

    def answer() -> None:
        reply = it.broker.on[R.PULL_MESSAGE](held)
        assert reply is not None
        serves(it.broker, 10, last=0)
        it.broker.endpoints[-1].reply(reply)

    stage.world.loop.call_later(HALF_POLL_MS / 1000, answer)
    began_ms = stage.world.elapsed_ms
    assert await it.poll(5000) == [0, 1, 2]
    assert HALF_POLL_MS <= stage.world.elapsed_ms - began_ms <= HALF_POLL_MS + 10
    await it.consumer.shutdown()


@on_stage
async def test_a_shutdown_ends_a_waiting_poll(stage: Stage) -> None:
    """With nothing, long before its timeout."""
    it = await (await lite(stage)).assigned(0)
    serves(it.broker, 10, last=0)
    polling = stage.client.create_task(it.consumer.poll(60_000), name="poll")
    await stage.world.sleep_ms(100)
    await it.consumer.shutdown()
    assert await polling == []


@by_row(
    "settings, pulled",
    [
        ({"pull_threshold_for_queue": 20}, 30),  # over 20 messages wait
        ({"pull_threshold_for_queue": 19}, 20),
        ({"pull_threshold_bytes_for_queue": 29}, 20),  # bodies "0" to "19" have 30 bytes
        ({"pull_threshold_bytes_for_queue": 30}, 30),
        ({"consume_max_span": 18}, 20),  # from 0 to 19 it is 19
        ({"consume_max_span": 19}, 30),
        ({"pull_threshold_for_all": 19}, 20),  # two pulls of ten
        ({"pull_threshold_for_all": 20}, 30),
    ],
)
@on_stage
async def test_flow_control(stage: Stage, settings: dict[str, Any], pulled: int) -> None:
    """Over a limit, not at it, nothing is pulled for 50 ms; a limit of the queue is logged."""
    it = await (await lite(stage, **settings)).assigned(0)
    await stage.world.sleep_ms(500)
    assert it.pulled() == list(range(0, pulled, 10))
    assert ("pull_throttled" in stage.events("warning")) == ("pull_threshold_for_all" not in settings)
    while it.pulled()[-1] < pulled:
        await it.poll(0)
        await stage.world.sleep_ms(51)
    await it.consumer.shutdown()


@pytest.mark.parametrize(
    ("answer", "delay_ms"), [(ResponseCode.SYSTEM_ERROR, 1000), (ResponseCode.FLOW_CONTROL, 20), (None, 0)]
)
@on_stage
async def test_after_a_failed_pull(stage: Stage, answer: int | None, delay_ms: int) -> None:
    """1000 ms, or 20 when the broker asks for slowness; a first offset that is not known costs 3000 ms."""
    it = await lite(stage)
    if answer is None:
        it.broker.answers(R.QUERY_CONSUMER_OFFSET, ResponseCode.SYSTEM_ERROR, OffsetResponseHeader(0))
    else:
        it.broker.answers(R.PULL_MESSAGE, answer)
    await it.assigned(0)
    began_ms = stage.world.elapsed_ms
    code = R.QUERY_CONSUMER_OFFSET if answer is None else R.PULL_MESSAGE
    await stage.world.until(lambda: len(it.broker.requests(code)) == 2, poll_ms=1)
    expected_ms = delay_ms or 3000
    assert expected_ms <= stage.world.elapsed_ms - began_ms <= expected_ms + 20
    await it.consumer.shutdown()


@on_stage
async def test_an_illegal_offset_is_corrected(stage: Stage) -> None:
    """The next pull begins where the broker says, and the log says that it did."""
    it = await lite(stage)
    serve = it.broker.on[R.PULL_MESSAGE]

    def correct(command: RemotingCommand) -> RemotingCommand:
        it.broker.on[R.PULL_MESSAGE] = serve
        return command.reply(ResponseCode.PULL_OFFSET_MOVED, PullMessageResponseHeader(0, 40, 40, 100))

    it.broker.on[R.PULL_MESSAGE] = correct
    await it.assigned(0)
    assert await it.poll() == list(range(40, 50))
    assert "offset_illegal" in stage.events("warning")
    await it.consumer.shutdown()


@on_stage
async def test_paused_queues_are_looked_at_again_each_second(stage: Stage) -> None:
    """What was pulled before the pause is still handed out, as in RocketMQ; then nothing until it is resumed."""
    it = await (await lite(stage, pull_threshold_for_queue=5)).assigned(0)
    await stage.world.sleep_ms(20)
    it.consumer.pause([queue_at(0)])
    assert await it.poll() == list(range(10))
    await stage.world.sleep_ms(1000)
    paused_ms = stage.world.elapsed_ms
    assert it.pulled() == [0]
    it.consumer.resume([queue_at(0)])
    assert await it.poll(2000) == list(range(10, 20))
    assert stage.world.elapsed_ms - paused_ms <= 1010
    with pytest.raises(ConsumerError, match=r"not assigned to this consumer$"):
        it.consumer.pause([queue_at(7)])
    await it.consumer.shutdown()


@on_stage
async def test_a_queue_that_is_assigned_again_begins_anew(stage: Stage) -> None:
    """What an earlier assignment left in memory is not stored over the commits that others made meanwhile."""
    it = await (await lite(stage, queues=2)).assigned(0)
    await it.poll()
    it.consumer.commit()
    it.consumer.assign([queue_at(1)])
    await stage.world.sleep_ms(50)
    assert stored_offsets(it.broker) == [(0, 10)]
    it.broker.answers(R.QUERY_CONSUMER_OFFSET, OffsetResponseHeader(80))
    it.consumer.assign([queue_at(0)])
    await it.consumer.shutdown()
    assert [offset for queue_id, offset in stored_offsets(it.broker) if queue_id == 0] == [10]


# Seeks ------------------------------------------------------------------------------------------------------------


@on_stage
async def test_a_seek_ends_the_pull_that_waits(stage: Stage) -> None:
    """The next pull goes at once to the new place, and what the old one brings is thrown away."""
    it = await (await lite(stage)).assigned(0)
    assert [offset for _ in range(10) for offset in await it.poll()] == list(range(100))
    held = it.broker.requests(R.PULL_MESSAGE)[-1]
    sought_ms = stage.world.elapsed_ms
    await it.consumer.seek(queue_at(0), 30)
    late = held.reply(ResponseCode.SUCCESS, PullMessageResponseHeader(0, 101, 0, 101), stored_bytes(100))
    it.broker.endpoints[-1].reply(late)
    assert [offset for _ in range(7) for offset in await it.poll()] == list(range(30, 100))
    assert stage.world.elapsed_ms - sought_ms < 100
    assert await it.poll() == []
    assert it.pulled()[10:12] == [100, 30]
    await it.consumer.shutdown()


@on_stage
async def test_seeks_forget_what_waits(stage: Stage) -> None:
    """The next messages are those from there on; to the begin and to the end as the broker has them now."""
    it = await (await lite(stage)).assigned(0)
    assert await it.poll() == list(range(10))
    await it.consumer.seek(queue_at(0), 55)
    assert await it.poll() == list(range(55, 65))
    it.broker.answers(R.GET_MIN_OFFSET, OffsetResponseHeader(20))
    await it.consumer.seek_to_begin(queue_at(0))
    assert await it.poll() == list(range(20, 30))
    await it.consumer.seek_to_end(queue_at(0))
    assert await it.poll() == []
    assert it.consumer.positions == {queue_at(0): 100}
    await it.consumer.shutdown()
    assert stored_offsets(it.broker)[-1] == (0, 100)


@pytest.mark.parametrize("offset", [19, 101])
@on_stage
async def test_a_seek_stays_within_the_queue(stage: Stage, offset: int) -> None:
    """From the first offset to the one behind the last."""
    it = await (await lite(stage)).assigned(0)
    it.broker.answers(R.GET_MIN_OFFSET, OffsetResponseHeader(20))
    with pytest.raises(ConsumerError, match=f"has offsets from 20 to 100, not {offset}"):
        await it.consumer.seek(queue_at(0), offset)
    with pytest.raises(ConsumerError, match="not assigned"):
        await it.consumer.seek(queue_at(1), 50)
    for legal in (20, 100):
        await it.consumer.seek(queue_at(0), legal)
    await it.consumer.shutdown()


# Commits ----------------------------------------------------------------------------------------------------------


@on_stage
async def test_commits_by_hand(stage: Stage) -> None:
    """Without automatic ones nothing is stored but what was committed: all that was handed out, some queues, or given
    offsets."""
    it = await (await lite(stage, queues=2, auto_commit=False)).assigned(0, 1)
    for _ in range(20):
        await it.poll()
    await it.consumer.commit_sync({queue_at(1): 42})
    it.consumer.commit([queue_at(0)])
    await it.consumer.commit_sync([])
    assert stored_offsets(it.broker) == [(1, 42)]
    await it.consumer.shutdown()
    assert stored_offsets(it.broker) == [(1, 42), (0, 100), (1, 42)]


@on_stage
async def test_reading_the_stored_offset_changes_nothing(stage: Stage) -> None:
    """RocketMQ takes what it reads for what it has to store, and so loses a commit that is on its way.
    Automatic commits would store it again."""
    it = await (await lite(stage, auto_commit=False)).assigned(0)
    await it.poll()
    it.consumer.commit()
    it.broker.answers(R.QUERY_CONSUMER_OFFSET, OffsetResponseHeader(3), ResponseCode.QUERY_NOT_FOUND)
    assert await it.consumer.committed(queue_at(0)) == 3
    assert await it.consumer.committed(queue_at(1)) is None
    await it.consumer.shutdown()
    assert stored_offsets(it.broker) == [(0, 10)]


def test_settings_have_their_limits() -> None:
    """An automatic commit is at least a second after the other; a pull outlasts the broker's hold."""
    for wrong in ({"auto_commit_interval_ms": 999}, {"pull_batch_size": 0}, {"pull_timeout_ms": 25_000}):
        with pytest.raises(SettingError, match=next(iter(wrong))):
            LitePullConsumerConfig(**wrong)  # type: ignore[arg-type]
    LitePullConsumerConfig(auto_commit_interval_ms=1000, pull_timeout_ms=25_001)
