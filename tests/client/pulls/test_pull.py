"""The pull loop of one queue (wire.md 12.6): when it pulls, from which offset, and what each result does."""

from collections.abc import Callable

import pytest

from lockstep.client import ConsumerConfig
from lockstep.client.consumer.buffer import LiteQueues
from lockstep.client.consumer.cache.key_queues import KeyedCache
from lockstep.client.consumer.cache.message_cache import MessageCache
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.protocol.bodies.locks import LockOkBody
from lockstep.protocol.codes import PullSysFlag, RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import PullMessageRequestHeader
from lockstep.remoting.errors import RequestRefused
from tests.client.messages import message_at
from tests.client.periods import period
from tests.client.pulls.pulling import PULL, Answer, Pulling, found, in_turn, pulling, says
from tests.client.pulls.slaves import pulls_of, replicated, serves
from tests.client.stage import TOPIC, Stage, on_stage, queue_at
from tests.rows import by_row


@on_stage
async def test_found_messages_are_put_and_consumed(stage: Stage) -> None:
    """From the first offset on; each pull begins where the last one said; consumption is submitted once."""
    it = await pulling(stage)
    it.broker.on[PULL] = in_turn(found(5, 6), found(7), found(9, next_offset=12))
    await it.run(100)
    assert [pull.queue_offset for pull in it.pulls] == [5, 6 + 1, 8, 12]
    assert it.submitted == [it.queue]
    assert [message.queue_offset for message in it.queue.cache.take_messages(9)] == [5, 6, 7, 9]
    assert it.queue.cache.take_messages(1) == []


@on_stage
async def test_what_a_pull_says(stage: Stage) -> None:
    """RocketMQ's defaults, the subscription's version, and the commit only when there is one."""
    it = await pulling(stage)
    it.broker.on[PULL] = in_turn(found(5), found(6))
    it.offsets.update(queue_at(0), 0)
    await it.run(50)
    first = it.pulls[0]
    assert first[:5] == ("tower", TOPIC, 0, 5, 32)
    assert (first.sys_flag, first.commit_offset) == (PullSysFlag.SUSPEND, 0), "an offset of 0 is not committed"
    assert (first.suspend_timeout_millis, first.sub_version) == (15_000, 77)
    again = await pulling_more(stage, it)
    assert (again.sys_flag, again.commit_offset) == (PullSysFlag.SUSPEND | PullSysFlag.COMMIT_OFFSET, 6)


@on_stage
async def test_a_pull_may_carry_its_subscription(stage: Stage) -> None:
    """With postSubscriptionWhenPull: its text and kind, and the bit that says so, beside its version."""
    it = await pulling(stage, expression="A || B", post_subscription_when_pull=True)
    it.broker.on[PULL] = in_turn(found(5, TAGS="A"))
    await it.run(50)
    (first, second) = it.pulls
    assert (first.sys_flag, second.sys_flag) == (PullSysFlag.SUSPEND | PullSysFlag.SUBSCRIPTION,) * 2
    assert (first.subscription, first.expression_type, first.sub_version) == ("A || B", "TAG", 77)


async def pulling_more(stage: Stage, it: Pulling) -> PullMessageRequestHeader:
    """One more pull, after offset 6 became the one to commit."""
    it.offsets.update(queue_at(0), 6)
    it.queue.life.dropped = False
    await it.run(50)
    return it.pulls[-1]


@on_stage
async def test_the_time_of_a_pull_is_kept(stage: Stage) -> None:
    """Each round of the loop is one, so a queue whose pulls are answered never looks idle."""
    it = await pulling(stage, pull_interval_ms=1000)
    it.broker.on[PULL] = in_turn(found(5), found(6), found(7))
    began_ms = stage.client.now_ms()
    running = stage.client.create_task(it.loop.run(it.queue), name="pull")
    for rounds in range(3):
        await stage.world.sleep_ms(500)
        assert len(it.pulls) == rounds + 1
        assert 0 <= it.queue.last_pull_ms - began_ms - rounds * 1000 <= 50
        await stage.world.sleep_ms(500)
    running.cancel()


@on_stage
async def test_no_pull_without_the_lock(stage: Stage) -> None:
    """Looked at again after 1000 ms; and a lock that has run out here is none."""
    it = await pulling(stage)
    it.queue.hold.locked = False
    it.broker.on[PULL] = in_turn()
    stage.world.loop.call_later(2.5, it.queue.hold.granted, stage.client.now_ms() + 2500)
    await it.run(2900)
    assert it.pulls == []
    it.queue.life.dropped = False
    await it.run(200)
    assert [pull.queue_offset for pull in it.pulls] == [5]
    it.queue.life.dropped = False
    it.queue.hold.last_lock_ms -= 30_001
    await it.run(5000)
    assert len(it.pulls) == 1


@on_stage
async def test_the_first_offset_is_asked_once_and_until_it_is_known(stage: Stage) -> None:
    """An error there costs 1000 ms, and nothing is pulled from anywhere else."""
    it = await pulling(stage)
    asked = 0

    async def fail_twice(_: ProcessQueue) -> int:
        nonlocal asked
        asked += 1
        if asked <= 2:
            raise RequestRefused("b", "QUERY_CONSUMER_OFFSET", 1, "busy")
        return 42

    it.member.first_offset = fail_twice  # type: ignore[assignment]  # a test's own
    it.broker.on[PULL] = in_turn(found(42))
    await it.run(2500)
    assert asked == 3
    assert [pull.queue_offset for pull in it.pulls] == [42, 43]


@pytest.mark.parametrize(
    ("answer", "fields"),
    [
        (found(7, TAGS="A"), None),
        (found(6, next_offset=6, TAGS="A"), None),
        (found(6, next_offset=5, TAGS="A"), {"asked_offset": 6, "next_offset": 5, "first_offset": 6}),
        (found(4, 7, TAGS="A"), {"asked_offset": 6, "next_offset": 8, "first_offset": 4}),
        (found(8, next_offset=2, TAGS="other"), {"asked_offset": 6, "next_offset": 2, "first_offset": None}),
        (says(ResponseCode.PULL_RETRY_IMMEDIATELY, 2), None),
    ],
    ids=["on", "in place", "next goes back", "first is before", "all filtered, next goes back", "nothing matches"],
)
@on_stage
async def test_a_result_from_before_the_request(
    stage: Stage, answer: Callable[[RemotingCommand], Answer], fields: dict[str, int | None] | None
) -> None:
    """Article 3's "maybe data wrong": it is logged, and the loop continues at the broker's offset."""
    it = await pulling(stage, expression="A")
    it.broker.on[PULL] = in_turn(found(5, TAGS="A"), answer)
    await it.run(100)
    told = [told for level, event, told in stage.log.events if event == "pull_result_before_request"]
    assert told == ([] if fields is None else [{"queue": str(it.queue.queue), **fields}])
    assert it.pulls[2].queue_offset == it.queue.cache.next_offset


@on_stage
async def test_messages_know_the_bounds_of_their_queue(stage: Stage) -> None:
    """MIN_OFFSET and MAX_OFFSET as at their pull, beside the properties they were sent with, in place of older ones."""
    it = await pulling(stage)
    it.broker.on[PULL] = in_turn(found(5), found(6, MAX_OFFSET="1", own="x"))
    await it.run(100)
    first, second = it.queue.cache.take_messages(2)
    assert (first.bounds, first.properties) == ((0, 1000), {"MIN_OFFSET": "0", "MAX_OFFSET": "1000"})
    assert second.properties == {"MIN_OFFSET": "0", "MAX_OFFSET": "1000", "own": "x"}


@pytest.mark.parametrize("code", [ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY])
@on_stage
async def test_nothing_new_and_nothing_matching(stage: Stage, code: ResponseCode) -> None:
    """Pull on at once from where the broker says; with nothing cached that is the offset to commit, upwards only."""
    it = await pulling(stage)
    it.broker.on[PULL] = in_turn(says(code, 20), says(code, 15), found(20), says(code, 90))
    await it.run(100)
    assert [pull.queue_offset for pull in it.pulls] == [5, 20, 15, 21, 90]
    assert it.offsets.in_memory(queue_at(0)) == 20, "message 20 is cached and not handled yet"


@on_stage
async def test_what_the_filter_takes_out_is_consumed(stage: Stage) -> None:
    """Messages of an equal hash, alone or behind others: the offset to commit is behind them, when all others are
    handled, whether more follows or not."""
    it = await pulling(stage, expression="Aa")
    it.broker.on[PULL] = in_turn(found(5, 6, TAGS="BB"), found(7, next_offset=9, TAGS="Aa"), found(9, TAGS="BB"))
    await it.run(100)
    assert [pull.queue_offset for pull in it.pulls] == [5, 7, 9, 10]
    assert it.offsets.in_memory(queue_at(0)) == 7, "message 7 is cached and not handled yet"
    it.queue.cache.take_messages(1)
    assert it.queue.cache.position == 7
    assert it.queue.cache.commit() == it.queue.cache.position == 10


@by_row("ordering", ["orderly", "key", "concurrent", "lite"])
def test_what_is_handled_reaches_the_next_pull(ordering: str) -> None:
    """One notion of "consumed up to" for all: without a cached message it is where the next pull begins, and with one
    the offset of the first."""
    by_key = ordering == "key"
    queue: MessageCache = KeyedCache(100) if by_key else MessageCache()
    messages = [message_at(5), message_at(7)]
    queue.next_offset = 12
    lite = LiteQueues()
    if isinstance(queue, KeyedCache):
        (key_queue,) = queue.put_by_key(messages)
        for expected in (7, 12):
            queue.key_queues.take(key_queue, 1)
            queue.key_queues.handled(key_queue)
            assert queue.position == expected
        queue.next_offset = 3  # an answer that goes back
        assert queue.position == 8
    elif ordering == "concurrent":
        queue.put_messages(messages)
        assert [queue.remove_messages([message]) for message in messages] == [7, 12]
    elif ordering == "orderly":
        queue.put_messages(messages)
        queue.take_messages(2)
        assert queue.commit() == queue.position == 12
    else:
        owned = period(queue_at(0), cache=queue)
        lite.put(lite.add(owned), messages)
        lite.take(0)
        assert lite.of(owned).position == 12


@pytest.mark.parametrize(("proposed", "begin"), [(7, 7), (3, 0)])
@on_stage
async def test_an_illegal_offset_takes_the_queue_out(stage: Stage, proposed: int, begin: int) -> None:
    """It is dropped at once. Its next owner begins at the broker's offset, or at the first message if the log ended
    before: what was stored since is not skipped."""
    it = await pulling(stage)
    it.broker.on[PULL] = in_turn(says(ResponseCode.PULL_OFFSET_MOVED, proposed), found(3))
    await it.run(100)
    assert it.corrected == [(range(1000), begin, 10_000)]
    assert it.queue.life.dropped
    assert len(it.pulls) == 1


@on_stage
async def test_tags_are_compared_as_text(stage: Stage) -> None:
    """The broker compares hashes: a message of an equal hash, or without a tag, is dropped here; then pull on."""
    it = await pulling(stage, expression="Aa || C")
    it.broker.on[PULL] = in_turn(found(5, TAGS="BB"), found(6), found(7, TAGS="Aa"))
    await it.run(100)
    assert [message.queue_offset for message in it.queue.cache.take_messages(9)] == [7]
    assert [pull.queue_offset for pull in it.pulls] == [5, 6, 7, 8]


@pytest.mark.parametrize(
    ("trouble", "delay_ms"),
    [
        (lambda command: command.reply(ResponseCode.SYSTEM_ERROR, remark="no"), 1000),
        (lambda command: command.reply(ResponseCode.FLOW_CONTROL, remark="slow down"), 20),
        (lambda command: command.reply(ResponseCode.SUCCESS), 1000),
    ],
    ids=["an error", "flow control", "no header"],
)
@on_stage
async def test_after_a_failure(stage: Stage, trouble: Callable[[RemotingCommand], Answer], delay_ms: int) -> None:
    """The same offset again, 1000 ms later, 20 when the broker asks for slowness (wire.md 12.6)."""
    it = await pulling(stage)
    times: list[int] = []
    answer = in_turn(trouble, found(5))

    def note(command: RemotingCommand) -> Answer:
        times.append(stage.world.elapsed_ms)
        return answer(command)

    it.broker.on[PULL] = note
    await it.run(1500)
    assert [pull.queue_offset for pull in it.pulls] == [5, 5, 6]
    assert delay_ms <= times[1] - times[0] <= delay_ms + 10


@on_stage
async def test_a_broker_that_is_away(stage: Stage) -> None:
    """Tried each second until it is back, and then from the same offset."""
    it = await pulling(stage)
    it.broker.on[PULL] = in_turn(found(5))
    it.broker.stop()
    stage.world.loop.call_later(3, lambda: stage.world.loop.create_task(it.broker.start()))
    await it.run(5000)
    assert [pull.queue_offset for pull in it.pulls] == [5, 6]
    assert stage.events("info").count("pull_failed") == 3


@on_stage
async def test_a_broker_no_route_names_yet(stage: Stage) -> None:
    """Tried each second until a route that names it was fetched."""
    it = Pulling(stage, await stage.broker(), ConsumerConfig(), "*", False)
    stage.route_to({"broker-a": 1})
    it.broker.on[PULL] = in_turn(found(5))
    stage.world.loop.call_later(2.5, lambda: stage.world.loop.create_task(it.instance.routes.fetch(TOPIC)))
    await it.run(2900)
    assert it.pulls == []
    assert stage.events("info").count("pull_failed") == 3
    it.queue.life.dropped = False
    await it.run(500)
    assert [pull.queue_offset for pull in it.pulls] == [5, 6]


@on_stage
async def test_a_cut_pull_is_made_again(stage: Stage) -> None:
    """The answer on its way is lost; the queue goes on at the same offset."""
    it = await pulling(stage)
    it.broker.on[PULL] = in_turn(found(5))
    stage.world.loop.call_later(0.05, stage.world.cut, "client", "broker-a")
    await it.run(2000)
    assert [pull.queue_offset for pull in it.pulls] == [5, 6, 6]


@on_stage
async def test_the_lock_is_looked_at_after_connecting(stage: Stage) -> None:
    """A new connection begins with a renewal. If that shows that the lock is lost, nothing is pulled and committed."""
    it = await pulling(stage)
    it.member.table[queue_at(0)] = it.queue
    it.broker.answers(RequestCode.LOCK_BATCH_MQ, LockOkBody(()))
    await it.run(500)
    assert len(it.broker.requests(RequestCode.LOCK_BATCH_MQ)) == 1
    assert it.pulls == []


@on_stage
async def test_a_pull_interval(stage: Stage) -> None:
    """When one is wanted, that long passes between pulls."""
    it = await pulling(stage, pull_interval_ms=400)
    it.broker.on[PULL] = in_turn(*[found(offset) for offset in range(5, 15)])
    await it.run(1000)
    assert len(it.pulls) == 3


@on_stage
async def test_an_unsubscribed_topic_is_not_pulled(stage: Stage) -> None:
    """The rebalance will drop its queue; until then the loop waits."""
    it = await pulling(stage)
    it.subscriptions.clear()
    it.broker.on[PULL] = in_turn(found(5))
    await it.run(3000)
    assert it.pulls == []


@on_stage
async def test_what_comes_for_a_dropped_queue_is_its_next_owners(stage: Stage) -> None:
    """A held pull that is answered after the drop puts nothing and commits nothing, and the loop ends."""
    it = await pulling(stage)
    held: list[RemotingCommand] = []
    it.broker.on[PULL] = lambda command: held.append(command)
    running = stage.client.create_task(it.loop.run(it.queue), name="pull")
    await stage.world.until(lambda: held)
    it.queue.life.dropped = True
    reply = found(5)(held[0])
    assert reply is not None
    it.broker.endpoints[-1].reply(reply)
    await running
    assert it.queue.cache.is_empty
    assert it.submitted == []


@on_stage
async def test_a_slave_is_read_as_the_broker_suggests(stage: Stage) -> None:
    """The next pull of the queue goes to the slave, without an offset to commit; while the slave is away the master
    answers."""
    master, slave = await replicated(stage, "slave")
    serves(master, 1, suggests=1)
    serves(slave, 1, suggests=1, last=8)
    it = Pulling(stage, master, ConsumerConfig(), "*")
    await it.instance.routes.fetch(TOPIC)
    it.offsets.update(queue_at(0), 6)
    running = stage.client.create_task(it.loop.run(it.queue), name="pull")
    await stage.world.sleep_ms(50)
    assert [pull.queue_offset for pull in it.pulls] == [5]
    assert [(pull.queue_offset, pull.sys_flag) for pull in pulls_of(slave)] == [(6, 2), (7, 2), (8, 2)]
    slave.stop()
    await stage.world.sleep_ms(1100)
    assert [pull.queue_offset for pull in it.pulls][:2] == [5, 8]
    assert it.pulls[1].commit_offset == 6
    running.cancel()
