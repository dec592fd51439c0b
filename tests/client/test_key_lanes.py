"""KeyLanes: each key in order, one key not behind another, and a commit that is never too high."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lockstep.client.consumer.dispatch.key_queues import KeyLanes, Lane
from lockstep.protocol.message import MessageExt
from lockstep.protocol.properties import SHARDING_KEY
from tests.client.messages import message_at

SPAN = 100_000


def keyed(offset: int, key: str | None) -> MessageExt:
    properties = {SHARDING_KEY: key} if key is not None else {}
    return message_at(offset, None, **properties)


def lanes_with(*keys: str | None, first: int = 0, span_max: int = SPAN) -> tuple[KeyLanes, dict[str | None, Lane]]:
    """Messages with these keys, from offset `first` on; the lanes that were started."""
    lanes = KeyLanes(span_max)
    started = lanes.put([keyed(first + place, key) for place, key in enumerate(keys)])
    return lanes, {lane.key: lane for lane in started}


def offsets(messages: list[MessageExt]) -> list[int]:
    return [message.queue_offset for message in messages]


def test_a_lane_is_started_once() -> None:
    """Whatever comes for a key that is at work or parked waits behind what is there; an empty lane may start again."""
    lanes, by_key = lanes_with("a", "b", "a")
    assert list(by_key) == ["a", "b"]
    assert lanes.put([keyed(3, "a"), keyed(4, "c")])[0].key == "c"
    assert offsets(lanes.take(by_key["b"], 1)) == [1]
    assert lanes.put([keyed(5, "b")]) == []
    assert lanes.handled(by_key["b"])
    assert offsets(lanes.take(by_key["b"], 1)) == [5]
    assert not lanes.handled(by_key["b"])
    (again,) = lanes.put([keyed(6, "b")])
    assert again.key == "b"


def test_messages_without_a_key_share_a_lane() -> None:
    """They stay in order among themselves, and hold up nobody with a key."""
    _, by_key = lanes_with(None, "a", None)
    assert offsets(list(by_key[None].waiting)) == [0, 2]
    assert offsets(list(by_key["a"].waiting)) == [1]


@pytest.mark.rule("beyond/key-order/commit-lowest-not-handled")
def test_the_commit_is_the_lowest_that_is_not_handled() -> None:
    """It stands while the lowest is at work, and jumps over what was handled meanwhile, and over holes."""
    lanes = KeyLanes(SPAN)
    assert lanes.commit_offset == -1
    by_key = {
        lane.key: lane for lane in lanes.put([keyed(offset, key) for offset, key in ((3, "a"), (4, "b"), (9, "c"))])
    }
    assert lanes.commit_offset == 3
    for key, commit in (("b", 3), ("a", 9), ("c", 10)):
        lanes.take(by_key[key], 1)
        lanes.handled(by_key[key])
        assert lanes.commit_offset == commit
    assert lanes.is_empty


def test_a_batch_is_of_one_key_in_offset_order() -> None:
    """At most so many; the rest follows."""
    lanes, by_key = lanes_with("a", "b", "a", "a")
    assert offsets(lanes.take(by_key["a"], 2)) == [0, 2]
    assert lanes.handled(by_key["a"])
    assert offsets(lanes.take(by_key["a"], 2)) == [3]


def test_what_failed_comes_again_first() -> None:
    """The same messages, in their order, before any later one of the key; other keys are not touched."""
    lanes, by_key = lanes_with("a", "b", "a", "a")
    lanes.take(by_key["a"], 2)
    lanes.failed(by_key["a"])
    assert [lane.key for lane in lanes.parked] == ["a"]
    assert offsets(lanes.take(by_key["a"], 2)) == [0, 2]
    lanes.handled(by_key["a"])
    assert lanes.parked == []
    assert offsets(lanes.take(by_key["a"], 2)) == [3]


def test_dead_letters_leave_a_batch_and_the_rest_stays() -> None:
    """Part of a failed call is done; what is left comes again, in order, and the key stays parked."""
    lanes, by_key = lanes_with("a", "a", "a", "a")
    taken = lanes.take(by_key["a"], 3)
    assert lanes.handled(by_key["a"], [taken[1]])
    lanes.park(by_key["a"])
    assert (lanes.ready_count, lanes.unhandled_count, lanes.commit_offset) == (0, 3, 0)
    assert offsets(lanes.take(by_key["a"], 3)) == [0, 2, 3]


def test_a_parked_key_does_not_count() -> None:
    """Neither what failed nor what comes for its key meanwhile, until an attempt succeeds; the bytes always do."""
    lanes, by_key = lanes_with("a", "b", "a")
    lanes.take(by_key["a"], 1)
    assert lanes.ready_count == 3
    lanes.failed(by_key["a"])
    lanes.put([keyed(3, "a"), keyed(4, "b")])
    assert (lanes.ready_count, lanes.unhandled_count, lanes.message_bytes) == (2, 5, 5)
    lanes.take(by_key["a"], 1)
    assert lanes.ready_count == 2
    lanes.handled(by_key["a"])
    assert (lanes.ready_count, lanes.unhandled_count, lanes.message_bytes) == (4, 4, 4)


def test_the_span_ends_at_its_limit() -> None:
    """A message `span_max` above the lowest unhandled one is not started, the one before it is; full says so."""
    lanes, by_key = lanes_with("a", *"bcd", first=10, span_max=4)
    assert not lanes.is_full
    assert lanes.put([keyed(14, "e"), keyed(15, "a")]) == []
    assert (lanes.span, lanes.is_full, lanes.has_beyond) == (5, True, True)
    for key in "bcd":
        lanes.take(by_key[key], 1)
        lanes.handled(by_key[key])
    assert (lanes.is_full, lanes.release()) == (True, [])
    head = lanes.lane_at_head()
    assert head is by_key["a"]
    lanes.take(by_key["a"], 1)
    lanes.handled(by_key["a"])
    assert [lane.key for lane in lanes.release()] == ["e", "a"]
    assert (lanes.is_full, lanes.has_beyond, lanes.commit_offset) == (False, False, 14)


def test_offsets_that_were_pulled_before_are_passed_over() -> None:
    """A pull that brings some again changes nothing for them."""
    lanes, _ = lanes_with("a", "b")
    assert lanes.put([keyed(0, "a"), keyed(1, "b"), keyed(2, "c")])[0].key == "c"
    assert lanes.unhandled_count == 3


@settings(max_examples=60, stateful_step_count=60, deadline=None)
class AnyInterleaving(RuleBasedStateMachine):
    """However calls of several keys interleave, fail, and give up: against lists."""

    @initialize(span_max=st.sampled_from([1, 3, 8, SPAN]))
    def begin(self, span_max: int) -> None:
        self.lanes = KeyLanes(span_max)
        self.pulled: list[tuple[int, str | None]] = []
        self.done: dict[str | None, list[int]] = {}
        self.startable: list[Lane] = []
        self.parked: list[Lane] = []
        self.at_work: list[Lane] = []
        self.next = 0

    @rule(keys=st.lists(st.sampled_from(["a", "b", "c", None]), max_size=6), gap=st.integers(0, 2))
    def pull(self, keys: list[str | None], gap: int) -> None:
        messages = []
        for key in keys:
            self.next += gap
            messages.append(keyed(self.next, key))
            self.pulled.append((self.next, key))
            self.next += 1
        self.startable += self.lanes.put(messages)

    @precondition(lambda self: self.startable or self.parked)
    @rule(data=st.data(), count=st.integers(1, 3))
    def start(self, data: st.DataObject, count: int) -> None:
        lane = data.draw(st.sampled_from(self.startable + self.parked))
        (self.startable if lane in self.startable else self.parked).remove(lane)
        expected = [offset for offset, key in self.pulled if key == lane.key and offset not in self.finished]
        taken = offsets(self.lanes.take(lane, count))
        assert taken == expected[: len(taken)]
        self.at_work.append(lane)

    @precondition(lambda self: self.at_work)
    @rule(data=st.data(), fate=st.sampled_from(["handled", "handled", "failed", "partly"]))
    def end(self, data: st.DataObject, fate: str) -> None:
        lane = data.draw(st.sampled_from(self.at_work))
        self.at_work.remove(lane)
        if fate == "failed" or (fate == "partly" and len(lane.taken) == 1):
            self.lanes.failed(lane)
            self.parked.append(lane)
        elif fate == "partly":
            dead = lane.taken[:-1]
            self.done.setdefault(lane.key, []).extend(offsets(dead))
            self.lanes.handled(lane, dead)
            self.lanes.park(lane)
            self.parked.append(lane)
        else:
            self.done.setdefault(lane.key, []).extend(offsets(lane.taken))
            if self.lanes.handled(lane):
                self.startable.append(lane)
        self.startable += self.lanes.release()

    @property
    def finished(self) -> set[int]:
        return {offset for done in self.done.values() for offset in done}

    @invariant()
    def each_key_is_in_order(self) -> None:
        for key, done in self.done.items():
            assert done == [offset for offset, of in self.pulled if of == key][: len(done)]

    @invariant()
    def the_commit_is_the_lowest_unhandled(self) -> None:
        left = [offset for offset, _ in self.pulled if offset not in self.finished]
        assert self.lanes.commit_offset == (left[0] if left else self.next if self.pulled else -1)
        assert (self.lanes.unhandled_count, self.lanes.is_empty) == (len(left), not left)
        assert self.lanes.span == (self.pulled[-1][0] - left[0] if left else 0)

    @invariant()
    def counts_are_those_of_the_content(self) -> None:
        lanes = self.lanes
        parked = {lane.key for lane in lanes.parked}
        beyond = len(lanes._beyond)
        left = [(offset, key) for offset, key in self.pulled if offset not in self.finished]
        within = left[: len(left) - beyond]
        assert lanes.ready_count == sum(key not in parked for _, key in within)
        assert lanes.message_bytes == sum(len(b"%d" % offset) for offset, _ in left)
        assert lanes.running == len(self.at_work)
        assert all(offset - left[0][0] < lanes.span_max for offset, _ in within)
        assert not beyond or left[len(within)][0] - left[0][0] >= lanes.span_max

    def teardown(self) -> None:
        """Whatever is left can be handled to the end."""
        if not hasattr(self, "lanes"):
            return
        pending: list[Any] = [*self.startable, *self.parked, *self.at_work]
        while pending:
            lane = pending.pop()
            if not lane.taken:
                self.lanes.take(lane, 2)
            if self.lanes.handled(lane):
                pending.append(lane)
            pending += self.lanes.release()
        assert self.lanes.is_empty
        assert (self.lanes.ready_count, self.lanes.message_bytes, self.lanes.running, self.lanes.parked) == (
            0,
            0,
            0,
            [],
        )


TestAnyInterleaving = AnyInterleaving.TestCase
