"""What a listener's result does: suspend, manual commit and rollback, dead letters (wire.md 12.7)."""

from itertools import pairwise
from typing import Any

from lockstep.client import ConsumeOrderlyContext, ConsumeOrderlyStatus, MessageExt
from lockstep.order import Cause
from lockstep.simulation.articles.stories.listener import by_hand, manual_commit
from tests.scenarios.cluster import GROUP, TOPIC, Cluster
from tests.scenarios.scenario import INSTANT, scenario

SUSPEND = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
COMMIT, ROLLBACK, SUCCESS = ConsumeOrderlyStatus.COMMIT, ConsumeOrderlyStatus.ROLLBACK, ConsumeOrderlyStatus.SUCCESS
PERSIST_MS = 5000


# Suspend ----------------------------------------------------------------------------------------------------------


@scenario(INSTANT, also_fenced=True)
async def test_a_suspended_queue_waits_1_000_ms(cluster: Cluster) -> None:
    """A message whose listener suspends comes again 1 000 ms later and no message of its queue before it; other queues
    go on."""
    cluster.expected.duplicates = {Cause.SUSPEND}

    def answer(message: MessageExt, _: ConsumeOrderlyContext) -> ConsumeOrderlyStatus | None:
        return SUSPEND if message.body == b"3" and message.reconsume_times < 3 else None

    await cluster.broker_and_producer(queues=2)
    await cluster.consumer("c1", answer=answer)
    await cluster.send(10, queue_id=0)
    await cluster.send(10, queue_id=1)
    await cluster.all_seen()
    assert cluster.seen.texts(queue_id=0) == list("0123333456789")
    held = [call for call in cluster.seen.of(queue_id=0) if call.text == "3"]
    assert [call.reconsume_times for call in held] == [0, 1, 2, 3]
    assert [after.begin_ms - before.end_ms for before, after in pairwise(held)] == [1000, 1000, 1000]
    assert cluster.seen.of(queue_id=1)[-1].end_ms < held[1].begin_ms


@scenario(also_fenced=True)
async def test_a_suspended_queue_is_left_cleanly(cluster: Cluster) -> None:
    """A consumer that leaves with a suspended queue hands over the suspended message and all later ones, in order."""
    cluster.expected.duplicates = {Cause.SUSPEND, Cause.TAKEOVER}
    await cluster.broker_and_producer(queues=1)
    await cluster.consumer("c1", answer=lambda message, _: SUSPEND if message.body == b"3" else None)
    await cluster.send(6, queue_id=0)
    await cluster.at(4_300)
    await cluster.leave("c1")
    await cluster.consumer("c2")
    await cluster.all_seen()
    assert cluster.seen.texts("c1") == list("012") + ["3"] * len(cluster.seen.texts("c1")[3:])
    assert cluster.seen.texts("c2") == list("345")


# Manual commit ----------------------------------------------------------------------------------------------------


@scenario(also_fenced=True)
async def test_success_keeps_in_hand_and_commit_commits(cluster: Cluster) -> None:
    """Without auto-commit SUCCESS commits nothing, however long it takes, and COMMIT commits all messages handled so
    far."""
    await cluster.broker_and_producer(queues=1)
    await cluster.consumer("c1", answer=by_hand({"4": COMMIT}))
    await cluster.send(4, queue_id=0)
    await cluster.world.sleep_ms(3 * PERSIST_MS)
    assert cluster.seen.texts() == list("0123")
    assert cluster.committed() <= 0
    await cluster.send(3, queue_id=0)
    await cluster.world.sleep_ms(3 * PERSIST_MS)
    assert cluster.seen.texts() == list("0123456")
    assert cluster.committed() == 5


@scenario(also_fenced=True)
async def test_rollback_redelivers_what_was_not_committed(cluster: Cluster) -> None:
    """ROLLBACK puts back all messages since the last COMMIT; they come again in order after 1 000 ms."""
    cluster.expected.duplicates = {Cause.SUSPEND}
    await manual_commit(cluster)
    await cluster.all_seen()
    assert cluster.seen.texts() == list("01234" + "23456")
    rolled_back, again = cluster.seen.all[4], cluster.seen.all[5]
    assert 1000 <= again.begin_ms - rolled_back.end_ms <= 1001
    await cluster.world.sleep_ms(2 * PERSIST_MS + 100)
    assert cluster.committed() == 7


@scenario(also_fenced=True)
async def test_what_was_in_hand_goes_to_the_next_owner(cluster: Cluster) -> None:
    """A consumer dies before COMMIT: the next owner begins at the last COMMIT and handles those messages again."""
    cluster.expected.duplicates = {Cause.TAKEOVER}
    await cluster.broker_and_producer(queues=1)
    await cluster.consumer("c1", answer=by_hand({"1": COMMIT}))
    await cluster.consumer("c2", answer=by_hand({"4": COMMIT}))
    await cluster.send(5, queue_id=0)
    await cluster.world.sleep_ms(2 * PERSIST_MS)
    cluster.crash("c1")
    await cluster.world.until(lambda: cluster.seen.texts("c2") == list("234"), timeout_ms=90_000)


# Poison -----------------------------------------------------------------------------------------------------------


@scenario(also_fenced=True)
async def test_a_poison_message_becomes_a_dead_letter(cluster: Cluster) -> None:
    """After max_reconsume_times a message is given up and later ones go on. A minute later (level 3 + 2) it is in
    %DLQ%group, and nothing is lost."""
    await _give_up(cluster, 60_000)


@scenario(also_fenced=True)
async def test_a_dead_letter_may_be_there_at_once(cluster: Cluster) -> None:
    """With the setting the broker stores it without the delay, as RocketMQ's means to and does not."""
    await _give_up(cluster, 0, dead_letter_at_once=True)


async def _give_up(cluster: Cluster, waited_ms: int, **settings: Any) -> None:
    cluster.expected.duplicates = {Cause.SUSPEND}
    await cluster.broker_and_producer(queues=1, **settings)
    poison = b"2"
    await cluster.consumer(
        "c1", max_reconsume_times=2, answer=lambda message, _: SUSPEND if message.body == poison else None
    )
    await cluster.send(6, queue_id=0)
    await cluster.world.until(lambda: cluster.seen.texts() == list("01222345"))
    tries = [call for call in cluster.seen.all if call.text == "2"]
    assert [call.reconsume_times for call in tries] == [0, 1, 2]
    await cluster.world.until(lambda: cluster.stored(topic=f"%DLQ%{GROUP}"), timeout_ms=waited_ms + 1000)
    [letter] = cluster.stored(topic=f"%DLQ%{GROUP}")
    assert (letter.body, letter.msg_id, letter.reconsume_times) == (poison, tries[0].msg_id, 2)
    assert letter.properties["RETRY_TOPIC"] == TOPIC
    assert 0 <= letter.store_timestamp - cluster.world.options.epoch_ms - tries[-1].end_ms - waited_ms <= 20
    report = await cluster.end()
    assert (report.dead_lettered, report.handled) == (1, 6)
