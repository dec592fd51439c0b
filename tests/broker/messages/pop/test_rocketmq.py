"""RocketMQ's record of a delivery: the timelines that were measured on 5.5.0 (docs/wire.md 18.3)."""

from lockstep.broker.messages.pop.port import Answered
from lockstep.broker.messages.pop.rocketmq import RocketMqQueue
from tests.broker.messages.pop.queue_of_messages import Group, Messages


def _group(keys: str = "aaaaaa", unwanted: tuple[int, ...] = ()) -> Group[RocketMqQueue]:
    return Group(RocketMqQueue(), Messages(keys, unwanted))


def test_a_delivery_blocks_the_whole_queue() -> None:
    group = _group("abab")
    assert group.pop(1)[0] == [0]
    assert group.pop(1, "c2")[0] is None
    assert group.queue.next_visible_ms(group.now_ms) == group.now_ms + 10_000


def test_acknowledged_messages_come_again_with_the_rest() -> None:
    group = _group()
    _, pop_ms = group.pop(4)
    assert (group.ack(1, pop_ms), group.ack(2, pop_ms), group.committed) == ("DONE", "DONE", 0)
    group.now_ms += 10_000
    assert group.pop(6)[0] == [0, 1, 2, 3, 4, 5]
    assert group.queue.record is not None
    assert group.queue.record.times_before == {0: 1, 1: 1, 2: 1, 3: 1}


def test_the_offset_is_the_first_that_is_not_acknowledged() -> None:
    group = _group()
    _, pop_ms = group.pop(4)
    assert [(group.ack(offset, pop_ms), group.committed)[1] for offset in (3, 1, 0, 2)] == [0, 0, 2, 4]
    assert group.pop(4)[0] == [4, 5]


def test_any_client_enters_with_the_attempt_id() -> None:
    group = _group("aab")
    _, first_ms = group.pop(1, attempt="x")
    group.now_ms += 100
    offsets, second_ms = group.pop(2, "c2", attempt="x")
    assert offsets == [0, 1]
    assert group.queue.record is not None
    assert group.queue.record.times_before == {}
    # The old receipt is answered OK, and does nothing.
    assert group.ack(0, first_ms) == "LATE"
    assert group.committed == 0
    assert group.queue.next_visible_ms(group.now_ms) == second_ms + 10_000


def test_an_invisible_time_can_be_changed_for_each_message() -> None:
    group = _group()
    _, pop_ms = group.pop(2)
    assert group.queue.change(0, pop_ms, group.now_ms) is Answered.DONE
    assert group.pop()[0] is None, "the other message is still invisible"
    assert group.queue.change(1, pop_ms, group.now_ms) is Answered.DONE
    group.now_ms += 1
    assert group.pop(2)[0] == [0, 1]
    assert group.queue.change(0, pop_ms, group.now_ms + 99) is Answered.LATE


def test_what_was_not_delivered_cannot_be_acknowledged() -> None:
    group = _group()
    _, pop_ms = group.pop(2)
    assert group.ack(2, pop_ms) == "UNKNOWN"


def test_messages_that_do_not_pass_the_filter_are_consumed() -> None:
    group = _group("abc", unwanted=(0, 1, 2))
    assert group.pop()[0] == []
    assert group.committed == 3
    group = _group("abc", unwanted=(1,))
    offsets, pop_ms = group.pop()
    assert offsets == [0, 2]
    assert [group.ack(offset, pop_ms) for offset in offsets] == ["DONE", "DONE"]
    assert group.committed == 3


def test_without_a_record_an_acknowledgement_is_believed() -> None:
    """So RocketMQ loses messages after a crash that lost the record."""
    group = _group()
    assert group.ack(3, 77) == "DONE"
    assert group.committed == 4
