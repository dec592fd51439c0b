"""The fenced way of a queue in order: keys wait for themselves, and a delivery that is over does nothing."""

from hypothesis import given
from hypothesis import strategies as st

from lockstep.broker.messages.pop.fenced import FencedQueue
from lockstep.broker.messages.pop.port import Answered, Order
from tests.broker.messages.pop.queue_of_messages import Group, Messages


def _group(keys: str, window: int = 100, unwanted: tuple[int, ...] = ()) -> Group[FencedQueue]:
    return Group(FencedQueue(window), Messages(keys, unwanted))


def test_a_key_that_is_held_holds_up_no_other() -> None:
    group = _group("abab")
    assert group.pop(1)[0] == [0]
    assert group.pop(32, "c2")[0] == [1, 3]
    assert group.pop(32, "c3")[0] is None


def test_the_next_message_of_a_key_comes_after_the_acknowledgement() -> None:
    group = _group("aab")
    _, pop_ms = group.pop(1)
    assert group.ack(0, pop_ms) == "DONE"
    assert group.pop(1)[0] == [1]


def test_what_was_acknowledged_does_not_come_again() -> None:
    group = _group("aaaa")
    _, pop_ms = group.pop(4)
    assert (group.ack(1, pop_ms), group.ack(2, pop_ms)) == ("DONE", "DONE")
    group.now_ms += 10_000
    assert group.pop()[0] == [0, 3]
    assert {offset: one.times_before for offset, one in group.queue.waiting.items()} == {0: 1, 1: 0, 2: 0, 3: 1}


def test_only_the_newest_delivery_may_answer() -> None:
    group = _group("aa")
    _, zombie_ms = group.pop(1)
    group.now_ms += 10_000
    _, owner_ms = group.pop(1, "c2")
    assert group.ack(0, zombie_ms) == "STALE"
    assert group.queue.change(0, zombie_ms, group.now_ms + 60_000) is Answered.STALE
    assert group.ack(0, owner_ms) == "DONE"
    # Also when the message is consumed; the owner may repeat its call.
    assert (group.ack(0, zombie_ms), group.ack(0, owner_ms)) == ("STALE", "DONE")
    assert group.committed == 1


def test_two_deliveries_of_one_millisecond_have_two_names() -> None:
    group = _group("a")
    _, first_ms = group.pop(invisible_ms=0)
    _, second_ms = group.pop()
    assert second_ms > first_ms
    assert group.ack(0, first_ms) == "STALE"


def test_a_repeat_that_gets_other_messages_gives_up_the_first() -> None:
    """Its client never got them: else they would be held, and renewed, for nobody."""
    group = _group("aba")
    _, pop_ms = group.pop(1, "c2")
    assert group.pop(1, "c1", attempt="x")[0] == [1]
    assert group.queue.change(0, pop_ms, group.now_ms) is Answered.DONE
    offsets, pop_ms = group.pop(1, "c1", attempt="x")
    assert offsets == [0]
    group.queue.end_attempt(Order("c1", "x", 0, pop_ms, 0))
    assert group.pop(2, "c2")[0] == [1]


def test_an_attempt_id_is_its_clients() -> None:
    group = _group("aab")
    group.pop(1, "c1", attempt="x")
    assert group.pop(1, "c2", attempt="x")[0] == [2]
    assert group.pop(2, "c1", attempt="x")[0] == [0, 1]
    assert group.queue.waiting[0].times_before == 0


def test_a_key_waits_for_a_message_that_is_held_for_longer() -> None:
    """The first of two messages is free, the second is still held: nobody may run the first one meanwhile."""
    group = _group("aab")
    _, pop_ms = group.pop(2)
    group.queue.change(1, pop_ms, group.now_ms + 60_000)
    group.now_ms += 10_000
    assert group.pop(32, "c2")[0] == [2]
    group.now_ms += 50_000
    assert group.pop(32, "c2")[0] == [0, 1, 2]


def test_a_message_that_comes_again_ends_what_follows_it() -> None:
    """c1 had handled both when c2 got the first one again: after c2's call the second one must come again, too."""
    group = _group("aab")
    _, zombie_ms = group.pop(3, "c1")
    group.now_ms += 10_000
    _, owner_ms = group.pop(1, "c2")
    assert group.ack(1, zombie_ms) == "STALE"
    assert group.queue.change(1, zombie_ms, group.now_ms + 60_000) is Answered.STALE
    assert (group.ack(2, zombie_ms), group.ack(0, owner_ms)) == ("DONE", "DONE")
    assert group.ack(1, zombie_ms) == "STALE"
    assert group.pop()[0] == [1]
    assert group.queue.waiting[1].times_before == 1


def test_what_a_client_held_is_free_after_its_end() -> None:
    group = _group("ab")
    group.pop(1, "c1", invisible_ms=600_000)
    group.queue.client_gone("c1", group.now_ms + 3000)
    assert group.queue.next_visible_ms(group.now_ms) == group.now_ms + 3000
    group.now_ms += 3000
    assert group.pop(1, "c2")[0] == [0]


def test_the_window_bounds_what_is_looked_at() -> None:
    group = _group("a" * 50 + "b", window=10)
    group.pop(1)
    assert group.pop(32, "c2")[0] is None
    assert len(group.queue.waiting) == 10


def test_a_reset_offset_ends_the_deliveries() -> None:
    group = _group("abc")
    _, pop_ms = group.pop(3)
    group.ack(0, pop_ms)
    group.committed = 0
    assert group.pop(3)[0] == [0, 1, 2]
    assert group.ack(1, pop_ms) == "STALE"


def test_messages_that_do_not_pass_the_filter_are_consumed() -> None:
    group = _group("abab", unwanted=(0, 2))
    offsets, pop_ms = group.pop()
    assert offsets == [1, 3]
    assert (group.committed, group.ack(3, pop_ms), group.ack(1, pop_ms), group.committed) == (1, "DONE", "DONE", 4)


def test_what_a_filter_hides_is_left_for_another_one() -> None:
    """A member with another subscription took a held key of the first, and the hidden message was gone."""
    group = _group("ab")
    _, pop_ms = group.pop(2, "c1")
    group.queue.change(1, pop_ms, group.now_ms + 60_000)
    group.now_ms += 10_000
    group.messages.unwanted = {0}
    assert group.pop(2, "c2")[0] is None
    assert group.pop(2, "c2")[0] is None
    group.messages.unwanted = set()
    assert group.pop(2, "c3")[0] == [0]
    assert group.ack(1, pop_ms) == "DONE"


def test_what_a_filter_hides_holds_up_no_other_messages() -> None:
    """However many are hidden before one that passes and was read before."""
    group = _group("abc")
    group.pop(3, invisible_ms=0)
    group.messages.unwanted = {0, 1}
    assert group.pop(1, "c2")[0] == [2]


def test_what_a_filter_hides_costs_no_read_of_its_own() -> None:
    group = _group("ab" * 50)
    group.pop(100, invisible_ms=0)
    group.messages.unwanted = set(range(0, 100, 2))
    group.messages.reads = 0
    assert group.pop(100, "c2")[0] == list(range(1, 100, 2))
    assert group.messages.reads == 2


def test_what_the_store_dropped_ends_no_other_delivery() -> None:
    group = _group("aab")
    _, pop_ms = group.pop(3)
    group.committed = 1
    assert group.pop(3, "c2")[0] is None
    assert group.ack(1, pop_ms) == "DONE"


def test_a_clock_that_is_set_back_does_not_lengthen_a_delivery() -> None:
    group = _group("aa")
    group.pop(1, invisible_ms=0)
    group.now_ms -= 3_600_000
    group.queue.client_gone("c1", group.now_ms)
    group.pop(1, invisible_ms=1000)
    assert group.queue.next_visible_ms(group.now_ms) == group.now_ms + 1000


def test_rocketmqs_record_of_a_fenced_queue_ends_before_what_was_not_delivered() -> None:
    """A broker that reads it as RocketMQ's would take the rest for consumed."""
    group = _group("aabc")
    group.pop(1, "c1")
    assert group.pop(2, "c2")[0] == [2, 3]
    saved = group.queue.saved()
    assert saved is not None
    assert saved.offsets == (0,)


class Clients:
    """Three clients, and what each may believe it holds: offset -> name of the delivery, client, its end."""

    def __init__(self, keys: str, window: int) -> None:
        self.group = _group(keys, window)
        self.keys = keys
        self.held: dict[int, tuple[int, str, int]] = {}
        self.old: list[tuple[int, int]] = []
        self.acked: set[int] = set()

    def pop(self, client: str, number: int) -> None:
        found, pop_ms = self.group.pop(number + 1, client)
        offsets = found or []
        for offset in offsets:
            assert offset not in self.acked
            same_key = [n for n in range(len(self.keys)) if self.keys[n] == self.keys[offset]]
            assert not [n for n in same_key if n < offset and n not in self.acked and n not in offsets], "out of order"
            assert not [n for n in same_key if n in self.held and self.group.now_ms < self.held[n][2]], "two holders"
        # What follows a message that comes again has no owner until it comes again, too.
        follows = [
            n for n in self.held if n not in offsets and any(self.keys[n] == self.keys[m] and m < n for m in offsets)
        ]
        for offset in (*offsets, *follows):
            if offset in self.held:
                self.old.append((offset, self.held.pop(offset)[0]))
        for offset in offsets:
            self.held[offset] = (pop_ms, client, self.group.now_ms + 10_000)

    def ack(self, client: str, number: int) -> None:
        if self.held:
            offset = sorted(self.held)[number % len(self.held)]
            assert self.group.ack(offset, self.held.pop(offset)[0]) == "DONE"
            self.acked.add(offset)

    def zombie(self, client: str, number: int) -> None:
        if self.old:
            assert self.group.ack(*self.old[number % len(self.old)]) == "STALE"

    def change(self, client: str, number: int) -> None:
        if self.held:
            offset = sorted(self.held)[number % len(self.held)]
            name, owner, _ = self.held[offset]
            visible_ms = self.group.now_ms + number * 2000
            assert self.group.queue.change(offset, name, visible_ms) is Answered.DONE
            self.held[offset] = (name, owner, visible_ms)

    def wait(self, client: str, number: int) -> None:
        self.group.now_ms += number * 2000

    def gone(self, client: str, number: int) -> None:
        visible_ms = self.group.now_ms + 1000
        self.group.queue.client_gone(client, visible_ms)
        for offset, (name, owner, end_ms) in self.held.items():
            if owner == client:
                self.held[offset] = (name, owner, min(end_ms, visible_ms))

    def finish(self) -> None:
        self.group.now_ms += 100_000
        while self.group.committed < len(self.keys):
            offsets, pop_ms = self.group.pop(3)
            assert offsets
            for offset in offsets:
                assert self.group.ack(offset, pop_ms) == "DONE"
                assert offset not in self.acked
                self.acked.add(offset)
        assert self.acked == set(range(len(self.keys)))


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(("pop", "ack", "zombie", "change", "wait", "gone")),
        st.sampled_from(("c1", "c2", "c3")),
        st.integers(0, 9),
    ),
    max_size=60,
)


@given(st.text("abc ", min_size=1, max_size=25), st.integers(1, 12), ACTIONS)
def test_whatever_happens_no_key_has_two_holders(keys: str, window: int, actions: list[tuple[str, str, int]]) -> None:
    """Each key is with one client at a time, in order; what is acknowledged is over; nothing is lost."""
    clients = Clients(keys, window)
    for name, client, number in actions:
        getattr(clients, name)(client, number)
        first = next((n for n in range(len(keys)) if n not in clients.acked), len(keys))
        assert clients.group.committed <= first
    clients.finish()
