"""The collector: owners over time from journals and lock tables, handovers, refusals, and bounds of its memory."""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.console.collector import Collector
from lockstep.console.model import BrokerState, GroupReading, MarkKind, Span
from lockstep.protocol.bodies.admin import OffsetWrapper
from lockstep.protocol.bodies.client import ConsumerRunningInfo, ProcessQueueInfo
from lockstep.protocol.bodies.lock_changes import LockChange
from lockstep.protocol.bodies.locks import LockTableRow
from tests.console.locks_made import GROUP, NOW_MS, change, queue_at, row

KEY = (GROUP, queue_at(0))


def fed(*changes: LockChange, ahead_ms: int = 0, now_ms: int = NOW_MS) -> Collector:
    collector = Collector()
    collector.changed(changes, ahead_ms, now_ms)
    return collector


def spans(collector: Collector) -> list[Span]:
    return list(collector.queues[KEY].spans)


def kinds(collector: Collector) -> list[MarkKind]:
    return [mark.kind for mark in collector.queues[KEY].marks]


def test_a_period_ends_and_another_begins() -> None:
    """Granted, lost with its connection, taken over by another: two spans, a gap, three marks, a handover."""
    collector = fed(
        change(NOW_MS - 90_000, None, "a", "granted", epoch=5),
        change(NOW_MS - 30_000, "a", None, "connection lost", epoch=5),
        change(NOW_MS - 27_000, None, "b", "taken over", epoch=6, rest_ms=3000),
    )
    assert spans(collector) == [Span(NOW_MS - 90_000, NOW_MS - 30_000, "a", 5), Span(NOW_MS - 27_000, None, "b", 6)]
    assert kinds(collector) == [MarkKind.GRANTED, MarkKind.EXPIRED, MarkKind.TAKEN_OVER]
    (handover,) = collector.handovers
    assert (handover.old, handover.new, handover.cause, handover.rest_ms) == ("a", "b", "connection lost", 3000)
    assert list(collector.queues[KEY].flaps_ms) == [NOW_MS - 27_000]


@pytest.mark.parametrize("is_end_known", [True, False])
def test_a_table_that_is_read_before_the_journal(is_end_known: bool) -> None:
    """The table shows the next owner before the journal tells of the takeover: it is a takeover all the same, once."""
    collector = fed(change(NOW_MS - 90_000, None, "a", "granted", epoch=5))
    end = change(NOW_MS - 3000, "a", None, "connection lost", epoch=5)
    grant = change(NOW_MS - 500, None, "b", "taken over", epoch=6, rest_ms=2500)
    if is_end_known:
        collector.changed([end], 0, NOW_MS)
    collector.locked("broker-a", [row("b", held_ms=500, epoch=6)], NOW_MS)
    collector.changed([grant] if is_end_known else [end, grant], 0, NOW_MS)
    assert spans(collector) == [Span(NOW_MS - 90_000, NOW_MS - 3000, "a", 5), Span(NOW_MS - 500, None, "b", 6)]
    assert kinds(collector) == [MarkKind.GRANTED, MarkKind.EXPIRED, MarkKind.TAKEN_OVER]
    (handover,) = collector.handovers
    assert (handover.old, handover.new, handover.cause) == ("a", "b", "connection lost")


def test_a_queue_that_its_last_owner_gets_again_was_not_handed_over() -> None:
    """The same client after an unlock: granted, no flap."""
    collector = fed(
        change(NOW_MS - 9000, None, "a", "granted"),
        change(NOW_MS - 8000, "a", None, "unlocked"),
        change(NOW_MS - 7000, None, "a", "granted again", rest_ms=1000),
    )
    assert kinds(collector) == [MarkKind.GRANTED, MarkKind.RELEASED, MarkKind.GRANTED]
    assert not collector.handovers
    assert not collector.queues[KEY].flaps_ms


def test_a_lock_without_a_lease_ends_when_it_was_not_renewed_in_time() -> None:
    """RocketMQ's lock ends silently: the span ends one life after the last renewal, which the takeover tells."""
    collector = fed(
        change(NOW_MS - 200_000, None, "a", "granted"), change(NOW_MS, "a", "b", "taken over", rest_ms=75_000)
    )
    assert spans(collector) == [Span(NOW_MS - 200_000, NOW_MS - 15_000, "a", None), Span(NOW_MS, None, "b", None)]
    assert collector.handovers[-1].cause == "expired"


def test_a_silent_end_is_seen_in_the_lock_table() -> None:
    """An expired row ends the span at the time when it expired, once."""
    collector = fed(change(NOW_MS - 100_000, None, "a", "granted"))
    for later_ms in (0, 1000):
        late = row("a", age_ms=65_000 + later_ms)
        collector.locked("broker-a", [late], NOW_MS + later_ms)
    assert spans(collector) == [Span(NOW_MS - 100_000, NOW_MS - 5000, "a", None)]
    assert kinds(collector) == [MarkKind.GRANTED, MarkKind.EXPIRED]


def test_a_table_without_a_journal_shows_since_when_a_queue_is_owned() -> None:
    """The journal has forgotten the grant; the row says how long it is held. A later row changes nothing."""
    collector = Collector()
    for later_ms in (0, 1000):
        collector.locked("broker-a", [row("a", held_ms=40_000 + later_ms, epoch=3)], NOW_MS + later_ms)
    assert spans(collector) == [Span(NOW_MS - 40_000, None, "a", 3)]


def test_a_moved_offset_begins_a_period_of_the_same_owner() -> None:
    """Reset: another epoch, no handover."""
    collector = fed(
        change(NOW_MS - 5000, None, "a", "granted", epoch=1), change(NOW_MS - 1000, "a", "a", "reset", epoch=2)
    )
    assert spans(collector) == [Span(NOW_MS - 5000, NOW_MS - 1000, "a", 1), Span(NOW_MS - 1000, None, "a", 2)]
    assert kinds(collector)[-1] is MarkKind.RESET
    assert not collector.handovers


def test_a_refusal_is_a_mark_and_moves_no_owner() -> None:
    """It names the client that asked, and the owner."""
    collector = fed(change(NOW_MS - 5000, None, "a", "granted"), change(NOW_MS - 1000, "a", "b", "refused"))
    assert len(spans(collector)) == 1
    ((key, mark),) = collector.refusals
    assert (key, mark.old, mark.new) == (KEY, "a", "b")


def test_times_are_those_of_this_machine() -> None:
    """A broker whose clock is ahead tells later times; nothing happens in the future."""
    collector = fed(change(NOW_MS + 7000, None, "a", "granted"), ahead_ms=8000)
    assert spans(collector)[0].from_ms == NOW_MS - 1000
    assert spans(fed(change(NOW_MS + 7000, None, "a", "granted")))[0].from_ms == NOW_MS


def test_a_lock_that_is_not_in_the_table_any_more_is_not_shown() -> None:
    """`row_of` is of the last table of its broker."""
    collector = Collector()
    collector.locked("broker-a", [row("a"), row("b", queue=queue_at(1))], NOW_MS)
    collector.locked("broker-a", [row("b", queue=queue_at(1))], NOW_MS + 1000)
    assert collector.row_of(KEY) is None
    found = collector.row_of((GROUP, queue_at(1)))
    assert found is not None
    assert found.client_id == "b"


def info(last_lock_ms: int = 0, *, dropped: bool = False) -> ConsumerRunningInfo:
    """A member that says that it has the lock."""
    told = ProcessQueueInfo(locked=True, last_lock_timestamp=last_lock_ms, dropped=dropped)
    return ConsumerRunningInfo({}, (), {queue_at(0): told}, {})


def test_owners_at_apaches_brokers_are_what_members_say() -> None:
    """The newest claim counts, all claims are kept, and another owner is a handover that was seen."""
    collector = Collector()
    collector.broker_answered(BrokerState("broker-a", "127.0.0.1:1", is_lockstep=False), NOW_MS)
    old = info(NOW_MS - 30_000)
    collector.group(GroupReading(GROUP, infos={"a": old}), NOW_MS)
    new = info(NOW_MS - 1000)
    gone = info(NOW_MS, dropped=True)
    collector.group(GroupReading(GROUP, infos={"a": old, "b": new, "c": gone}), NOW_MS + 2000)
    found = collector.row_of(KEY)
    assert found is not None
    assert (found.client_id, found.age_ms, found.remaining_ms) == ("b", 3000, 57_000)
    assert collector.queues[KEY].claims == ("b", "a")
    assert [(one.old, one.new, one.cause) for one in collector.handovers] == [("a", "b", "seen")]


def test_claims_do_not_count_where_the_broker_lists_its_locks() -> None:
    """A member may believe what the broker knows better."""
    collector = Collector()
    collector.broker_answered(BrokerState("broker-a", "127.0.0.1:1", is_lockstep=True), NOW_MS)
    collector.group(GroupReading(GROUP, infos={"a": info()}), NOW_MS)
    assert not collector.queues


def test_a_broker_is_gone_since_its_first_failure() -> None:
    """Later failures keep the time and bring their text; an answer ends it."""
    collector = Collector()
    state = BrokerState("broker-a", "127.0.0.1:1", is_lockstep=True)
    collector.broker_answered(state, NOW_MS)
    collector.broker_failed("broker-a", "127.0.0.1:1", "refused", NOW_MS + 5)
    collector.broker_failed("broker-a", "127.0.0.1:1", "timeout", NOW_MS + 9)
    assert collector.broker("broker-a") == state._replace(answered_ms=NOW_MS, gone_ms=NOW_MS + 5, error="timeout")
    collector.broker_answered(state, NOW_MS + 20)
    assert not collector.is_gone("broker-a")


def test_a_group_that_no_broker_names_is_dropped() -> None:
    """Its page is empty then."""
    collector = Collector()
    collector.group(GroupReading("old"), NOW_MS)
    collector.group(GroupReading("new"), NOW_MS)
    collector.forget_groups(["new"])
    assert list(collector.groups) == ["new"]


def test_queues_that_nobody_locks_are_forgotten_after_an_hour() -> None:
    """A deleted topic does not stay."""
    collector = Collector()
    collector.locked("broker-a", [row("a")], NOW_MS)
    collector.locked("broker-a", [row("b", queue=queue_at(1))], NOW_MS + 3_000_000)
    collector.turn(NOW_MS + 3_600_000)
    assert list(collector.queues) == [(GROUP, queue_at(1))]


# Bounds ------------------------------------------------------------------------------------------------------

QUEUES, GROUPS, TURNS, TURN_MS = 10_000, 200, 240, 120_000
A_TENTH = QUEUES // 10


def eight_hours(collector: Collector) -> Iterator[int]:
    """10,000 queues of 200 groups; each two minutes, a turn, a tenth of them changes its owner twice."""
    keys = [(f"group-{number % GROUPS}", queue_at(number, f"topic-{number % 50}")) for number in range(QUEUES)]
    owners = dict.fromkeys(keys, "client-0")
    for turn in range(TURNS):
        now_ms = NOW_MS + turn * TURN_MS
        changes = []
        for group, queue in keys[turn % 10 * A_TENTH : (turn % 10 + 1) * A_TENTH]:
            old, new = owners[group, queue], f"client-{turn % 90}"
            changes += [
                LockChange(0, now_ms - 9000, group, queue, old, None, None, "unlocked"),
                LockChange(0, now_ms - 8000, group, queue, None, "x", None, "taken over", 1000),
                LockChange(0, now_ms - 7000, group, queue, "x", old, None, "refused"),
                LockChange(0, now_ms - 6000, group, queue, "x", None, None, "lease ended"),
                LockChange(0, now_ms - 5000, group, queue, None, new, None, "taken over", 1000),
            ]
            owners[group, queue] = new
        collector.changed(changes, 0, now_ms)
        rows = [LockTableRow(*key, owner, 100, 59_900, 1000) for key, owner in owners.items()]
        collector.locked("broker-a", rows, now_ms)
        for number in range(GROUPS):
            offsets = {keys[number][1]: OffsetWrapper(turn * 10, turn)}
            collector.group(GroupReading(f"group-{number}", offsets=offsets), now_ms)
        collector.turn(now_ms)
        yield turn


def entries(collector: Collector) -> int:
    """How many spans, marks and points are kept."""
    of_queues = sum(len(one.spans) + len(one.marks) + len(one.flaps_ms) for one in collector.queues.values())
    return of_queues + sum(len(one.history) for one in collector.flows.groups.values())


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_eight_hours_of_ten_thousand_queues_take_no_more_memory_than_two() -> None:
    """When the histories of an hour are full, neither what is kept nor the memory of the process grows."""
    collector = Collector()
    kept, resident = {}, {}
    for turn in eight_hours(collector):
        if (turn + 1) % 30 == 0:
            hour = (turn + 1) // 30
            kept[hour], resident[hour] = entries(collector), resident_bytes()
    assert len(collector.queues) == QUEUES
    assert kept[8] <= kept[2] * 1.02
    assert resident[8] <= resident[2] * 1.25, resident  # freed memory does not go back at once


def test_more_queues_than_the_bound_push_out_the_oldest() -> None:
    """Whatever brokers list, the console keeps `queues_max` queues."""
    collector = Collector(queues_max=100)
    collector.locked("broker-a", [row("a", queue=queue_at(number)) for number in range(1000)], NOW_MS)
    assert len(collector.queues) == 100


def test_one_queue_that_flaps_all_the_time_is_bounded() -> None:
    """100,000 changes within a minute."""
    changes = [change(NOW_MS + number // 2, None, f"client-{number}", "granted") for number in range(100_000)]
    collector = fed(*changes, now_ms=NOW_MS + 60_000)
    state = collector.queues[KEY]
    assert max(len(state.spans), len(state.marks), len(state.flaps_ms), len(collector.handovers)) <= 1000
