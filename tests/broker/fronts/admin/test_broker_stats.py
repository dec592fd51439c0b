"""Statistics by windows, from the offsets of queues and the counts of pulls (wire.md 2.4, 2.6)."""

from collections import deque

from lockstep.broker.messages.stats import SAMPLE_INTERVAL_MS, BrokerStats
from lockstep.protocol.bodies.admin import BrokerStatsItem

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


class Store:
    """Queues by their ends; every message has ten bytes."""

    def __init__(self) -> None:
        self.ends: dict[tuple[str, int], int] = {}

    def put(self, topic: str, queue_id: int, count: int) -> None:
        self.ends[topic, queue_id] = self.ends.get((topic, queue_id), 0) + count

    def queue_keys(self) -> list[tuple[str, int]]:
        return list(self.ends)

    def max_offset(self, topic: str, queue_id: int) -> int:
        return self.ends.get((topic, queue_id), 0)

    def stored_bytes(self, topic: str, queue_id: int, first_offset: int, end_offset: int) -> int:
        return 10 * (end_offset - first_offset)


class Deleted:
    """A queue of a deleted topic."""

    def __init__(self, max_offset: int) -> None:
        self.max_offset = max_offset

    def stored_bytes(self, first_offset: int, end_offset: int) -> int:
        return 10 * (end_offset - first_offset)


class World:
    def __init__(self, items_max: int = 1000) -> None:
        self.store = Store()
        self.full_at_ms: list[int] = []
        self.stats = BrokerStats(
            self.store, "C", NOW_MS, items_max, lambda items_max, now_ms: self.full_at_ms.append(now_ms)
        )
        self.now_ms = NOW_MS

    def pass_time(self, passed_ms: int) -> None:
        """Sampling as the broker's timer does."""
        for _ in range(passed_ms // SAMPLE_INTERVAL_MS):
            self.now_ms += SAMPLE_INTERVAL_MS
            deque(self.stats.sample(self.now_ms), 0)

    def delete(self, topic: str) -> None:
        """As the broker does: its queues are gone before they are counted."""
        ends = {key[1]: self.store.ends.pop(key) for key in list(self.store.ends) if key[0] == topic}
        counted = self.stats.forget_topic(topic)
        for queue_id, end in ends.items():
            self.stats.count_deleted(topic, queue_id, counted.get(queue_id, 0), Deleted(end))

    def minute(self, name: str, key: str) -> BrokerStatsItem:
        self.stats.count()
        data = self.stats.view(name, key)
        assert data is not None
        return data.stats_minute


def test_what_was_put_is_counted_by_topic_queue_and_broker() -> None:
    """Numbers and bytes, from offsets alone."""
    world = World()
    world.store.put("T", 0, 30)
    world.store.put("T", 1, 70)
    world.pass_time(10_000)
    assert world.minute("TOPIC_PUT_NUMS", "T") == BrokerStatsItem(100, 10.0, 1.0)
    assert world.minute("TOPIC_PUT_SIZE", "T") == BrokerStatsItem(1000, 100.0, 10.0)
    assert world.minute("QUEUE_PUT_NUMS", "T@1") == BrokerStatsItem(70, 7.0, 1.0)
    assert world.minute("BROKER_PUT_NUMS", "C") == BrokerStatsItem(100, 10.0, 1.0)


def test_what_was_got_is_counted_by_group_and_queue() -> None:
    """Messages and bytes; the mean is that of a pull."""
    world = World()
    for _ in range(2):
        world.stats.on_got("G", "T", 3, 20, 500)
    world.stats.on_sent_back("G", "T")
    world.pass_time(10_000)
    assert world.minute("GROUP_GET_NUMS", "T@G") == BrokerStatsItem(40, 4.0, 20.0)
    assert world.minute("GROUP_GET_SIZE", "T@G") == BrokerStatsItem(1000, 100.0, 500.0)
    assert world.minute("QUEUE_GET_NUMS", "T@3@G").sum == 40
    assert world.minute("BROKER_GET_NUMS", "C").sum == 40
    assert world.minute("SNDBCK_PUT_NUMS", "T@G").sum == 1
    assert world.stats.group_get_tps("T", "G") == 4.0
    assert world.stats.group_get_tps("T", "nobody") == 0.0


def test_an_item_exists_as_soon_as_something_was_counted() -> None:
    """Before the first sample its windows are empty; an item without counts does not exist."""
    world = World()
    world.store.put("T", 0, 1)
    assert world.minute("TOPIC_PUT_NUMS", "T") == BrokerStatsItem()
    assert world.stats.view("TOPIC_PUT_NUMS", "nowhere") is None


def test_windows_forget() -> None:
    """The minute has seven samples of 10 s, the hour seven of 10 min, the day those of each hour."""
    world = World()
    world.store.put("T", 0, 60)
    world.pass_time(60_000)
    assert world.minute("TOPIC_PUT_NUMS", "T").sum == 60
    world.pass_time(20_000)
    assert world.minute("TOPIC_PUT_NUMS", "T").sum == 0
    world.pass_time(2 * HOUR_MS)
    world.stats.count()
    data = world.stats.view("TOPIC_PUT_NUMS", "T")
    assert data is not None
    assert (data.stats_hour.sum, data.stats_day.sum) == (0, 60)


def test_a_topic_that_goes_is_counted_to_its_end_and_begins_anew() -> None:
    """No count of the deleted topic is lost, and none is subtracted from the new one."""
    world = World()
    world.store.put("T", 0, 5)
    world.stats.count()
    world.store.put("T", 0, 3)
    world.delete("T")
    world.store.put("T", 0, 2)
    totals = world.stats.count()
    assert (totals.put, totals.put_bytes) == (10, 100)
    assert [world.minute(name, "T").sum for name in ("TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE")] == [0, 0]
    world.pass_time(10_000)
    assert [world.minute(name, "T").sum for name in ("TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE")] == [10, 100]
    assert world.minute("BROKER_PUT_NUMS", "C").sum == 10


def test_a_topic_that_goes_counts_its_own_queues_alone() -> None:
    """The others may be very many, and are counted in steps."""
    world = World()
    world.store.put("T", 0, 5)
    for queue_id in range(1000):
        world.store.put("U", queue_id, 1)
    world.delete("T")
    assert world.stats.view("TOPIC_PUT_NUMS", "U") is None
    assert world.stats.count().put == 5 + 1000


def test_very_many_queues_are_counted_in_steps() -> None:
    """What is asked, stored or deleted between two steps counts once."""
    world = World(items_max=10)
    for queue_id in range(1000):
        world.store.put("T", queue_id, 1)
    world.store.put("U", 0, 5)
    steps = world.stats.sample(NOW_MS + SAMPLE_INTERVAL_MS)
    for _ in range(5):
        next(steps)
    world.store.put("T", 0, 1)
    assert world.stats.count().put > 600
    world.delete("U")
    deque(steps, 0)
    assert world.stats.count().put == 1000 + 5 + 1


def test_rates_are_those_of_the_last_ten_sixty_and_six_hundred_seconds() -> None:
    """Or of the time since the start, when that is shorter."""
    world = World()
    world.store.put("T", 0, 600)
    world.pass_time(20_000)
    assert tuple(world.stats.rates(world.now_ms, "put")) == (0.0, 30.0, 30.0)
    world.pass_time(580_000)
    assert tuple(world.stats.rates(world.now_ms, "put")) == (0.0, 0.0, 1.0)
    world.store.put("T", 0, 50)
    world.stats.count()
    assert world.stats.rates(world.now_ms + 5_000, "put").ten_seconds > 0


def test_a_day_begins_with_what_was_counted_until_then() -> None:
    """Yesterday's figure of the morning is what today's was before."""
    world = World()
    world.store.put("T", 0, 3)
    world.pass_time(24 * HOUR_MS)
    world.store.put("T", 0, 4)
    assert [totals.put for totals in world.stats.mornings()] == [0, 3]
    world.pass_time(24 * HOUR_MS)
    assert [totals.put for totals in world.stats.mornings()] == [3, 7]


def test_items_have_a_bound_and_those_that_were_idle_for_a_day_make_room() -> None:
    """A peer that pulls under ever new group names cannot fill the memory; known items go on counting."""
    world = World(items_max=8)
    for number in range(100):
        world.stats.on_got(f"G{number}", "T", 0, 2, 10)
    world.pass_time(10_000)
    assert world.minute("GROUP_GET_NUMS", "T@G0").sum == 2
    assert world.stats.view("GROUP_GET_NUMS", "T@G99") is None
    assert world.full_at_ms
    world.stats.on_got("G0", "T", 0, 3, 10)
    world.pass_time(10_000)
    assert world.minute("GROUP_GET_NUMS", "T@G0").sum == 5
    for _ in range(26):
        world.stats.on_got("G0", "T", 0, 1, 10)
        world.pass_time(HOUR_MS)
    world.stats.on_got("new", "T", 0, 2, 10)  # finds no room yet: then idle items go
    world.pass_time(10_000)
    world.stats.on_got("new", "T", 0, 2, 10)
    world.pass_time(10_000)
    assert world.minute("GROUP_GET_NUMS", "T@new").sum == 2
    world.stats.count()
    assert world.stats.view("GROUP_GET_NUMS", "T@G0") is not None


def test_many_items_are_sampled_in_steps() -> None:
    """Thousands of queues would keep the loop for long."""
    world = World(items_max=3000)
    for number in range(900):
        world.stats.on_got("G", "T", number, 1, 10)
    assert len(list(world.stats.sample(NOW_MS + 10_000))) > 2
    assert world.minute("QUEUE_GET_NUMS", "T@899@G").sum == 1
