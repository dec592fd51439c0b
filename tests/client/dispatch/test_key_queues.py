"""KeyQueues: each key in order, one key not behind another, and a commit that is never too high."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lockstep.client.consumer.cache.key_queues import KeyQueue, KeyQueues
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.messages.properties import SHARDING_KEY
from tests.client.messages import message_at

SPAN = 100_000


def keyed(offset: int, key: str | None) -> MessageExt:
    properties = {SHARDING_KEY: key} if key is not None else {}
    return message_at(offset, None, **properties)


def key_queues_with(
    *keys: str | None, first: int = 0, span_max: int = SPAN
) -> tuple[KeyQueues, dict[str | None, KeyQueue]]:
    """Messages with these keys, from offset `first` on; the key queues that were started."""
    key_queues = KeyQueues(span_max)
    started = key_queues.put([keyed(first + place, key) for place, key in enumerate(keys)])
    return key_queues, {key_queue.key: key_queue for key_queue in started}


def offsets(messages: list[MessageExt]) -> list[int]:
    return [message.queue_offset for message in messages]


def test_a_key_queue_is_started_once() -> None:
    """Messages for a key that is running or parked are queued behind its earlier ones; an empty key queue may start
    again."""
    key_queues, by_key = key_queues_with("a", "b", "a")
    assert list(by_key) == ["a", "b"]
    assert key_queues.put([keyed(3, "a"), keyed(4, "c")])[0].key == "c"
    assert offsets(key_queues.take(by_key["b"], 1)) == [1]
    assert key_queues.put([keyed(5, "b")]) == []
    assert key_queues.handled(by_key["b"])
    assert offsets(key_queues.take(by_key["b"], 1)) == [5]
    assert not key_queues.handled(by_key["b"])
    (again,) = key_queues.put([keyed(6, "b")])
    assert again.key == "b"


def test_messages_without_a_key_share_a_key_queue() -> None:
    """They stay in order among themselves, and do not delay messages with a key."""
    _, by_key = key_queues_with(None, "a", None)
    assert offsets(list(by_key[None].waiting)) == [0, 2]
    assert offsets(list(by_key["a"].waiting)) == [1]


def test_the_commit_is_the_lowest_that_is_not_handled() -> None:
    """It waits while the lowest message is handled, then moves over all handled ones and over gaps."""
    key_queues = KeyQueues(SPAN)
    assert key_queues.commit_offset == -1
    by_key = {
        key_queue.key: key_queue
        for key_queue in key_queues.put([keyed(offset, key) for offset, key in ((3, "a"), (4, "b"), (9, "c"))])
    }
    assert key_queues.commit_offset == 3
    for key, commit in (("b", 3), ("a", 9), ("c", 10)):
        key_queues.take(by_key[key], 1)
        key_queues.handled(by_key[key])
        assert key_queues.commit_offset == commit
    assert key_queues.is_empty


def test_a_listener_may_change_the_body() -> None:
    """The bytes of the cache go back to 0 with the last message."""
    key_queues, by_key = key_queues_with("a", "b")
    for key in ("a", "b"):
        (message,) = key_queues.take(by_key[key], 1)
        message.body = None  # type: ignore[assignment]  # as a listener may
        key_queues.handled(by_key[key])
    assert key_queues.message_bytes == 0


def test_a_batch_is_of_one_key_in_offset_order() -> None:
    """At most so many; the rest follows."""
    key_queues, by_key = key_queues_with("a", "b", "a", "a")
    assert offsets(key_queues.take(by_key["a"], 2)) == [0, 2]
    assert key_queues.handled(by_key["a"])
    assert offsets(key_queues.take(by_key["a"], 2)) == [3]


def test_what_failed_comes_again_first() -> None:
    """The same messages, in their order, before any later one of the key; other keys are not touched."""
    key_queues, by_key = key_queues_with("a", "b", "a", "a")
    key_queues.take(by_key["a"], 2)
    key_queues.failed(by_key["a"])
    assert [key_queue.key for key_queue in key_queues.parked] == ["a"]
    assert offsets(key_queues.take(by_key["a"], 2)) == [0, 2]
    key_queues.handled(by_key["a"])
    assert key_queues.parked == []
    assert offsets(key_queues.take(by_key["a"], 2)) == [3]


def test_dead_letters_leave_a_batch_and_the_rest_stays() -> None:
    """A part of a failed call is done; the rest comes again in order, and the key stays parked."""
    key_queues, by_key = key_queues_with("a", "a", "a", "a")
    taken = key_queues.take(by_key["a"], 3)
    assert key_queues.handled(by_key["a"], [taken[1]])
    key_queues.park(by_key["a"])
    assert (key_queues.ready_count, key_queues.unhandled_count, key_queues.commit_offset) == (0, 3, 0)
    assert offsets(key_queues.take(by_key["a"], 3)) == [0, 2, 3]


def test_a_parked_key_does_not_count() -> None:
    """Neither the failed messages nor later ones of the key count until an attempt succeeds; their bytes always do."""
    key_queues, by_key = key_queues_with("a", "b", "a")
    key_queues.take(by_key["a"], 1)
    assert key_queues.ready_count == 3
    key_queues.failed(by_key["a"])
    key_queues.put([keyed(3, "a"), keyed(4, "b")])
    assert (key_queues.ready_count, key_queues.unhandled_count, key_queues.message_bytes) == (2, 5, 5)
    key_queues.take(by_key["a"], 1)
    assert key_queues.ready_count == 2
    key_queues.handled(by_key["a"])
    assert (key_queues.ready_count, key_queues.unhandled_count, key_queues.message_bytes) == (4, 4, 4)


def test_the_span_ends_at_its_limit() -> None:
    """A message `span_max` above the lowest unhandled one is not started, the one before it is; full says so."""
    key_queues, by_key = key_queues_with("a", *"bcd", first=10, span_max=4)
    assert not key_queues.is_full
    assert key_queues.put([keyed(14, "e"), keyed(15, "a")]) == []
    assert (key_queues.span, key_queues.is_full, key_queues.has_beyond) == (5, True, True)
    for key in "bcd":
        key_queues.take(by_key[key], 1)
        key_queues.handled(by_key[key])
    assert (key_queues.is_full, key_queues.release()) == (True, [])
    head = key_queues.at_commit_offset()
    assert head is by_key["a"]
    key_queues.take(by_key["a"], 1)
    key_queues.handled(by_key["a"])
    assert [key_queue.key for key_queue in key_queues.release()] == ["e", "a"]
    assert (key_queues.is_full, key_queues.has_beyond, key_queues.commit_offset) == (False, False, 14)


def test_offsets_that_were_pulled_before_are_passed_over() -> None:
    """A pull that brings some again changes nothing for them."""
    key_queues, _ = key_queues_with("a", "b")
    assert key_queues.put([keyed(0, "a"), keyed(1, "b"), keyed(2, "c")])[0].key == "c"
    assert key_queues.unhandled_count == 3


@settings(max_examples=60, stateful_step_count=60, deadline=None)
class AnyInterleaving(RuleBasedStateMachine):
    """However calls of several keys interleave, fail, and give up: against lists."""

    @initialize(span_max=st.sampled_from([1, 3, 8, SPAN]))
    def begin(self, span_max: int) -> None:
        self.key_queues = KeyQueues(span_max)
        self.pulled: list[tuple[int, str | None]] = []
        self.done: dict[str | None, list[int]] = {}
        self.startable: list[KeyQueue] = []
        self.parked: list[KeyQueue] = []
        self.at_work: list[KeyQueue] = []
        self.next = 0

    @rule(keys=st.lists(st.sampled_from(["a", "b", "c", None]), max_size=6), gap=st.integers(0, 2))
    def pull(self, keys: list[str | None], gap: int) -> None:
        messages = []
        for key in keys:
            self.next += gap
            messages.append(keyed(self.next, key))
            self.pulled.append((self.next, key))
            self.next += 1
        self.startable += self.key_queues.put(messages)

    @precondition(lambda self: self.startable or self.parked)
    @rule(data=st.data(), count=st.integers(1, 3))
    def start(self, data: st.DataObject, count: int) -> None:
        key_queue = data.draw(st.sampled_from(self.startable + self.parked))
        (self.startable if key_queue in self.startable else self.parked).remove(key_queue)
        expected = [offset for offset, key in self.pulled if key == key_queue.key and offset not in self.finished]
        taken = offsets(self.key_queues.take(key_queue, count))
        assert taken == expected[: len(taken)]
        self.at_work.append(key_queue)

    @precondition(lambda self: self.at_work)
    @rule(data=st.data(), fate=st.sampled_from(["handled", "handled", "failed", "partly"]))
    def end(self, data: st.DataObject, fate: str) -> None:
        key_queue = data.draw(st.sampled_from(self.at_work))
        self.at_work.remove(key_queue)
        if fate == "failed" or (fate == "partly" and len(key_queue.taken) == 1):
            self.key_queues.failed(key_queue)
            self.parked.append(key_queue)
        elif fate == "partly":
            dead = key_queue.taken[:-1]
            self.done.setdefault(key_queue.key, []).extend(offsets(dead))
            self.key_queues.handled(key_queue, dead)
            self.key_queues.park(key_queue)
            self.parked.append(key_queue)
        else:
            self.done.setdefault(key_queue.key, []).extend(offsets(key_queue.taken))
            if self.key_queues.handled(key_queue):
                self.startable.append(key_queue)
        self.startable += self.key_queues.release()

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
        assert self.key_queues.commit_offset == (left[0] if left else self.next if self.pulled else -1)
        assert (self.key_queues.unhandled_count, self.key_queues.is_empty) == (len(left), not left)
        assert self.key_queues.span == (self.pulled[-1][0] - left[0] if left else 0)

    @invariant()
    def counts_are_those_of_the_content(self) -> None:
        key_queues = self.key_queues
        parked = {key_queue.key for key_queue in key_queues.parked}
        beyond = len(key_queues._beyond)
        left = [(offset, key) for offset, key in self.pulled if offset not in self.finished]
        within = left[: len(left) - beyond]
        assert key_queues.ready_count == sum(key not in parked for _, key in within)
        assert key_queues.message_bytes == sum(len(b"%d" % offset) for offset, _ in left)
        assert key_queues.running == len(self.at_work)
        assert all(offset - left[0][0] < key_queues.span_max for offset, _ in within)
        assert not beyond or left[len(within)][0] - left[0][0] >= key_queues.span_max

    def teardown(self) -> None:
        """Whatever is left can be handled to the end."""
        if not hasattr(self, "key_queues"):
            return
        pending: list[Any] = [*self.startable, *self.parked, *self.at_work]
        while pending:
            key_queue = pending.pop()
            if not key_queue.taken:
                self.key_queues.take(key_queue, 2)
            if self.key_queues.handled(key_queue):
                pending.append(key_queue)
            pending += self.key_queues.release()
        assert self.key_queues.is_empty
        assert (
            self.key_queues.ready_count,
            self.key_queues.message_bytes,
            self.key_queues.running,
            self.key_queues.parked,
        ) == (
            0,
            0,
            0,
            [],
        )


TestAnyInterleaving = AnyInterleaving.TestCase
