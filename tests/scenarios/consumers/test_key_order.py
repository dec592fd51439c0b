"""`ordering="key"`: keys of one queue run at once, each in order, and a failing key does not stop the others."""

import asyncio
from collections import defaultdict
from itertools import pairwise

from lockstep.client import (
    ConsumeFromWhere,
    ConsumeOrderlyContext,
    ConsumeOrderlyStatus,
    Message,
    MessageExt,
    MessageQueue,
)
from lockstep.order import Cause
from lockstep.simulation.lab.calls import Answer
from tests.scenarios.cluster import BROKER, GROUP, PRODUCER, TOPIC, TRACE, Cluster, take_all
from tests.scenarios.scenario import INSTANT, scenario

SUSPEND = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
BELIEF_MS, LOCK_LIFE_MS, PERSIST_MS = 30_000, 60_000, 5_000


def poisoned(key: str, *, times: int = 2**31) -> Answer:
    """The messages of a key fail, so often each."""

    def answer(message: MessageExt, _: ConsumeOrderlyContext) -> ConsumeOrderlyStatus | None:
        return SUSPEND if message.sharding_key == key and message.reconsume_times < times else None

    return answer


def by_key(cluster: Cluster, *, good: bool = True) -> dict[str | None, list[str]]:
    """What was handled of each key, in turn."""
    texts: dict[str | None, list[str]] = defaultdict(list)
    for call in cluster.seen.all:
        if call.good or not good:
            texts[call.key].append(call.text)
    return texts


def in_turn(key: int, keys: int, count: int) -> list[str]:
    return [str(number) for number in range(key, count, keys)]


# Side by side ------------------------------------------------------------------------------------------------


@scenario(INSTANT, also_fenced=True)
async def test_keys_of_a_queue_are_handled_at_once(cluster: Cluster) -> None:
    """Eight keys of one queue, five messages each, a listener of 1 s: 5 s for all 40, each key in order."""
    await cluster.broker_and_producer(queues=1)
    await cluster.send(40, keys=8, queue_id=0)
    await cluster.consumer("c1", ordering="key", work_ms=1000, consume_from_where=FIRST)
    await cluster.all_seen()
    calls = cluster.seen.all
    assert calls[-1].end_ms - calls[0].begin_ms == 5000
    assert by_key(cluster) == {f"key{key}": in_turn(key, 8, 40) for key in range(8)}
    await cluster.leave("c1")
    assert cluster.committed() == 40


@scenario(INSTANT, also_fenced=True)
async def test_the_key_that_a_consumer_names(cluster: Cluster) -> None:
    """With key="KEYS" four keys of one queue, without sharding keys, run at once and each in order."""
    await cluster.broker(queues=1)
    producer = await cluster.producer()
    texts: dict[str | None, list[bytes]] = defaultdict(list)

    async def listen(messages: list[MessageExt], _: ConsumeOrderlyContext) -> None:
        await asyncio.sleep(1)
        texts[messages[0].keys].append(messages[0].body)

    for number in range(20):
        message = Message(TOPIC, b"%d" % number, keys=f"k{number % 4}")
        await cluster.world.host(PRODUCER).run(producer.send(message, queue=MessageQueue(TOPIC, BROKER, 0)))
    began_ms = cluster.world.elapsed_ms
    settings = {"consume_from_where": FIRST}
    await cluster.own_consumer("c9", "by-keys", listen, settings=settings, ordering="key", key="KEYS", trace=TRACE)
    cluster._traced["c9"] = None  # its trace is judged
    await cluster.world.until(lambda: sum(map(len, texts.values())) == 20)
    assert cluster.world.elapsed_ms - began_ms < 10_000
    assert texts == {f"k{key}": [b"%d" % number for number in range(key, 20, 4)] for key in range(4)}
    handled = [record for record in cluster.records("c9") if record["event"] == "handled"]
    assert {record["key"] for record in handled} == {"k0", "k1", "k2", "k3"}
    report = await cluster.end()
    assert (report.handled, report.keys) == (20, 4)


@scenario(INSTANT, also_fenced=True)
async def test_so_many_calls_and_no_more(cluster: Cluster) -> None:
    """With key_concurrency 2 eight keys take turns, two at a time; none gets two calls before all got one."""
    await cluster.broker_and_producer(queues=1)
    await cluster.send(24, keys=8, queue_id=0)
    await cluster.consumer("c1", ordering="key", work_ms=1000, key_concurrency=2, consume_from_where=FIRST)
    await cluster.all_seen()
    calls = cluster.seen.all
    assert calls[-1].end_ms - calls[0].begin_ms == 12_000
    assert max(sum(o.begin_ms <= call.begin_ms < o.end_ms for o in calls) for call in calls) == 2
    assert {call.key for call in calls[:8]} == {f"key{key}" for key in range(8)}


# A key that fails --------------------------------------------------------------------------------------------


@scenario(INSTANT, also_fenced=True)
async def test_a_poisoned_key_holds_up_itself_alone(cluster: Cluster) -> None:
    """It is tried again each 1 000 ms. The other keys go on, and the commit waits for the failing message."""
    cluster.expected.duplicates = {Cause.SUSPEND}
    await cluster.broker_and_producer(queues=1)
    await cluster.consumer("c1", ordering="key", answer=poisoned("key3", times=20))
    await cluster.send(80, keys=8, queue_id=0)
    await cluster.world.sleep_ms(PERSIST_MS + 10_000)
    others = [call for call in cluster.seen.all if call.key != "key3"]
    assert len(others) == 70
    tries = [call for call in cluster.seen.all if call.key == "key3"]
    assert {call.text for call in tries} == {"3"}
    assert [call.reconsume_times for call in tries] == list(range(len(tries)))
    assert {after.begin_ms - before.end_ms for before, after in pairwise(tries)} == {1000}
    assert others[-1].end_ms < tries[2].begin_ms
    assert cluster.committed() == 3
    await cluster.send(8, keys=8, queue_id=0)
    await cluster.all_seen(timeout_ms=250_000)
    assert by_key(cluster)["key3"] == in_turn(3, 8, 88)
    await cluster.leave("c1")
    assert cluster.committed() == 88


@scenario(INSTANT, also_fenced=True)
async def test_a_listener_may_say_how_long_its_key_waits(cluster: Cluster) -> None:
    """The context's suspend time is used, within 10 and 30 000 ms; an exception suspends for 1 000 ms."""
    cluster.expected.duplicates = {Cause.SUSPEND}
    wanted = {0: 5000, 1: 1, 2: 99_999}

    def answer(message: MessageExt, context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus | None:
        if message.reconsume_times == 3:
            raise ValueError("no such runway")
        if message.reconsume_times in wanted:
            context.suspend_current_queue_time_ms = wanted[message.reconsume_times]
            return SUSPEND
        return None

    await cluster.broker_and_producer(queues=1)
    await cluster.consumer("c1", ordering="key", answer=answer)
    await cluster.send()
    await cluster.world.until(lambda: len(cluster.seen.all) == 5)
    waited_ms = [after.begin_ms - before.end_ms for before, after in pairwise(cluster.seen.all)]
    assert waited_ms == [5000, 10, 30_000, 1000]
    [line] = cluster.events("listener_failed", consequence="key suspended")
    assert line.fields["error"] == "ValueError: no such runway"


@scenario(also_fenced=True)
async def test_a_parked_key_leaves_room_for_the_others(cluster: Cluster) -> None:
    """Parked messages do not count for pull_threshold_for_queue: other keys go on beyond that number."""
    cluster.expected.duplicates = {Cause.SUSPEND}
    await cluster.broker_and_producer(queues=1)
    healed: list[bool] = []

    def answer(message: MessageExt, _: ConsumeOrderlyContext) -> ConsumeOrderlyStatus | None:
        return SUSPEND if message.sharding_key == "key0" and not healed else None

    await cluster.consumer("c1", ordering="key", answer=answer, pull_threshold_for_queue=10)
    await cluster.send(100, keys=1, queue_id=0)
    await cluster.send(100, keys=2, queue_id=0)
    await cluster.world.until(lambda: len(by_key(cluster)["key1"]) == 50)
    assert by_key(cluster)["key0"] == []
    healed.append(True)
    await cluster.all_seen()
    assert by_key(cluster)["key0"] == [*map(str, range(100)), *map(str, range(100, 200, 2))]


@scenario(also_fenced=True)
async def test_after_max_reconsume_times_the_key_goes_on(cluster: Cluster) -> None:
    """The message becomes a dead letter, the next of its key follows, and nothing is lost."""
    cluster.expected.duplicates = {Cause.SUSPEND}
    await cluster.broker_and_producer(queues=1)
    await cluster.consumer(
        "c1", ordering="key", max_reconsume_times=2, answer=lambda message, _: SUSPEND if message.body == b"2" else None
    )
    await cluster.send(16, keys=4, queue_id=0)
    await cluster.world.until(lambda: cluster.seen.texts()[-3:] == ["6", "10", "14"])
    tries = [call for call in cluster.seen.all if call.text == "2"]
    assert [call.reconsume_times for call in tries] == [0, 1, 2]
    assert by_key(cluster, good=False)["key2"] == ["2", "2", "2", "6", "10", "14"]
    await cluster.world.until(lambda: bool(cluster.stored(topic=f"%DLQ%{GROUP}")), timeout_ms=300_000)
    [letter] = cluster.stored(topic=f"%DLQ%{GROUP}")
    assert (letter.body, letter.sharding_key, letter.reconsume_times) == (b"2", "key2", 2)
    await cluster.leave("c1")
    assert cluster.committed() == 16
    report = await cluster.end()
    assert (report.dead_lettered, report.handled) == (1, 16)


@scenario(also_fenced=True)
async def test_a_dead_letter_that_cannot_be_sent_stays(cluster: Cluster) -> None:
    """Without a broker it is tried again at the head of its key, and sent when the broker is back."""
    cluster.expected.duplicates = {Cause.SUSPEND}
    await cluster.broker_and_producer(queues=1)
    await cluster.consumer("c1", ordering="key", max_reconsume_times=1, answer=poisoned("key0"))
    await cluster.send(4, keys=2, queue_id=0)
    await cluster.world.until(lambda: len(cluster.seen.all) == 3)
    cluster.world.partition("c1", BROKER)
    await cluster.world.sleep_ms(12_000)
    tries = [call for call in cluster.seen.all if call.key == "key0"]
    assert len(tries) > 2
    assert {call.text for call in tries} == {"0"}
    cluster.world.repair("c1", BROKER)
    await cluster.world.until(lambda: len(cluster.events("dead_lettered")) == 2)
    assert by_key(cluster, good=False)["key0"][-2:] == ["2", "2"]
    await cluster.leave("c1")
    assert cluster.committed() == 4


# The span ----------------------------------------------------------------------------------------------------


@scenario(also_fenced=True)
async def test_at_the_span_the_queue_stops_and_says_so(cluster: Cluster) -> None:
    """Only offsets less than key_span_max (50) above the failing message are handled; one log event a stop names the
    key."""
    cluster.expected.duplicates = {Cause.SUSPEND}
    healed: set[str] = set()

    def answer(message: MessageExt, _: ConsumeOrderlyContext) -> ConsumeOrderlyStatus | None:
        text = message.body.decode()
        return SUSPEND if text in ("2", "120") and text not in healed else None

    await cluster.broker_and_producer(queues=1)
    await cluster.consumer("c1", ordering="key", answer=answer, key_span_max=50, pull_batch_size=7)
    await cluster.send(200, keys=4, queue_id=0)
    await cluster.world.sleep_ms(5000)
    handled = {int(call.text) for call in cluster.seen.all if call.good}
    assert handled == {number for number in range(52) if number == 0 or number % 4 != 2}
    [stopped] = cluster.events("queue_blocked_by_key")
    assert (stopped.fields["key"], stopped.fields["offset"], stopped.fields["span_max"]) == ("key2", 2, 50)
    assert not cluster.events("queue_unblocked")
    healed.add("2")
    await cluster.world.sleep_ms(5000)
    assert max(int(call.text) for call in cluster.seen.all) == 169
    lines = cluster.events("queue_blocked_by_key")
    assert [line.fields["key"] for line in lines] == ["key2", "key0"]
    assert len(cluster.events("queue_unblocked")) == 1
    healed.add("120")
    await cluster.all_seen()
    assert by_key(cluster) == {f"key{key}": in_turn(key, 4, 200) for key in range(4)}


@scenario(also_fenced=True)
async def test_parked_bytes_stop_the_queue_too(cluster: Cluster) -> None:
    """Parked messages take memory: at pull_threshold_bytes_for_queue the queue stops, and the log event names the
    key."""
    cluster.expected.duplicates = {Cause.SUSPEND}
    healed: list[bool] = []

    def answer(message: MessageExt, _: ConsumeOrderlyContext) -> ConsumeOrderlyStatus | None:
        return SUSPEND if message.sharding_key == "key0" and not healed else None

    await cluster.broker_and_producer(queues=1)
    await cluster.consumer("c1", ordering="key", answer=answer, pull_threshold_bytes_for_queue=2000, pull_batch_size=5)
    for _ in range(60):
        await cluster.world.host("producer").run(cluster.send_one(3, 0, padding_bytes=150))
    await cluster.world.sleep_ms(3000)
    [stopped] = cluster.events("queue_blocked_by_key")
    assert stopped.fields["key"] == "key0"
    assert stopped.fields["bytes"] > 2000
    assert len([call for call in cluster.seen.all if call.good]) < 40
    healed.append(True)
    await cluster.world.until(lambda: len([call for call in cluster.seen.all if call.good]) == 60)


# Owners ------------------------------------------------------------------------------------------------------


@scenario(also_fenced=True)
async def test_a_killed_owner_is_succeeded_key_by_key(cluster: Cluster) -> None:
    """SIGKILL while a key is parked: the next owner begins at the commit, repeats what was handled above it, in
    order."""
    cluster.expected.duplicates = {Cause.TAKEOVER, Cause.SUSPEND}
    await cluster.broker_and_producer(queues=2)
    await cluster.consumer("c1", ordering="key", work_ms=50, answer=poisoned("key5"))
    await cluster.consumer("c2", ordering="key", work_ms=50)
    await cluster.at(45_000)
    await cluster.send(300, keys=20)
    await cluster.at(48_000)
    first_owners = [cluster.owner(queue_id) for queue_id in range(2)]
    cluster.crash("c1")
    await cluster.all_seen()
    assert len(set(first_owners)) == 2
    for texts in by_key(cluster).values():
        firsts = list(dict.fromkeys(texts))
        assert firsts == sorted(firsts, key=int)


@scenario(also_fenced=True)
async def test_what_repeats_after_a_restart(cluster: Cluster) -> None:
    """The commit is at the parked message: only messages that were handled above it are repeated."""
    cluster.expected.duplicates = {Cause.TAKEOVER, Cause.SUSPEND}
    await cluster.broker_and_producer(queues=1)
    await cluster.consumer("c1", ordering="key", answer=poisoned("key2"))
    await cluster.send(20, keys=4, queue_id=0)
    await cluster.world.sleep_ms(2000)
    await cluster.leave("c1")
    assert cluster.committed() == 2
    assert len([call for call in cluster.seen.all if call.good]) == 15
    await cluster.consumer("c2", ordering="key")
    await cluster.all_seen()
    assert sorted(map(int, cluster.seen.texts("c2"))) == list(range(2, 20))


@scenario(also_fenced=True)
async def test_calls_at_work_are_awaited_when_an_owner_leaves(cluster: Cluster) -> None:
    """A shutdown waits for all eight calls, commits them, and then releases the queue."""
    await cluster.broker_and_producer(queues=1)
    await cluster.consumer("c1", ordering="key", work_ms=3000)
    await cluster.send(16, keys=8, queue_id=0)
    await cluster.world.until(lambda: len(cluster.seen.all) == 8)
    await cluster.leave("c1")
    assert [call.good for call in cluster.seen.all] == [True] * 8
    assert cluster.committed() == 8
    await cluster.consumer("c2", ordering="key")
    await cluster.all_seen()
    assert len(cluster.seen.all) == 16


@scenario(also_fenced=True)
async def test_a_queue_that_is_given_away_waits_for_its_calls(cluster: Cluster) -> None:
    """A member joins: running calls end before the next owner's begin, and are not committed."""
    cluster.expected.possible = {Cause.TAKEOVER}
    await cluster.broker_and_producer(queues=2)
    await cluster.consumer("c1", ordering="key", work_ms=4000)
    await cluster.send(80, keys=40)
    await cluster.world.until(lambda: len(cluster.seen.all) >= 30)
    await cluster.consumer("c2", ordering="key", work_ms=100)
    await cluster.all_seen()
    assert {call.process for call in cluster.seen.all} == {"c1", "c2"}


@scenario()
async def test_a_lost_lock_stops_new_messages(cluster: Cluster) -> None:
    """Cut off, the holder trusts its lock for 30 s; then no call begins, and the next owner goes on in order."""
    cluster.expected.duplicates = {Cause.TAKEOVER, Cause.SUSPEND}
    await cluster.broker_and_producer(queues=1)
    await cluster.consumer("c1", ordering="key", work_ms=2000, answer=poisoned("key1"), strategy=take_all)
    await cluster.consumer("c2", ordering="key", strategy=take_all)
    await cluster.at(41_500)
    await cluster.send(300, keys=4, queue_id=0)
    await cluster.at(42_500)
    renewed_ms = cluster.world.elapsed_ms - cluster.locks()[0].age_ms
    cluster.world.partition("c1", BROKER)
    await cluster.all_seen()
    mine = cluster.seen.of("c1")
    assert renewed_ms + BELIEF_MS - 2000 <= mine[-1].begin_ms <= renewed_ms + BELIEF_MS
    assert cluster.seen.of("c2")[0].begin_ms > renewed_ms + LOCK_LIFE_MS
    assert len(cluster.seen.of("c1")) < 300
