"""Committed offsets (wire.md 8.1, 8.2)."""

from lockstep.broker.catalog.offsets import ConsumerOffsetManager


def test_any_value_is_stored_and_the_last_one_counts() -> None:
    """A lower offset replaces a higher one; commit returns the previous one."""
    offsets = ConsumerOffsetManager()
    assert offsets.commit("G", "T", 0, 9) == -1
    assert offsets.commit("G", "T", 0, 4) == 9
    assert offsets.query("G", "T", 0) == 4


def test_a_stored_negative_offset_counts_as_none() -> None:
    """ali-ons stores -1 to say that it knows nothing."""
    offsets = ConsumerOffsetManager()
    offsets.commit("G", "T", 0, -5)
    assert offsets.query("G", "T", 0) == -1
    assert offsets.query_or_start("G", "T", 0, min_offset=0) == 0


def test_offsets_belong_to_group_topic_and_queue() -> None:
    """A commit shows nowhere else."""
    offsets = ConsumerOffsetManager()
    offsets.commit("G", "T", 0, 9)
    assert [offsets.query(*key) for key in [("H", "T", 0), ("G", "U", 0), ("G", "T", 1)]] == [-1, -1, -1]


def test_a_group_without_an_offset_starts_at_zero_only_while_nothing_was_dropped() -> None:
    """The min-offset rule: 0 on a young queue, no answer when its first messages were dropped."""
    offsets = ConsumerOffsetManager()
    assert offsets.query_or_start("G", "T", 0, min_offset=0) == 0
    assert offsets.query_or_start("G", "T", 0, min_offset=1) is None
    offsets.commit("G", "T", 0, 0)
    assert offsets.query_or_start("G", "T", 0, min_offset=1) == 0


def test_groups_and_topics_with_offsets_are_listed() -> None:
    """In the order of their first commits."""
    offsets = ConsumerOffsetManager()
    offsets.commit("behind", "T", 0, 4)
    offsets.commit("level", "T", 0, 5)
    offsets.commit("elsewhere", "U", 0, 1)
    offsets.commit("unknown", "T", 0, -1)
    assert offsets.groups_of("T") == ["behind", "level", "unknown"]
    assert offsets.groups() == ["behind", "level", "elsewhere", "unknown"]
    assert [offsets.topics_of(group) for group in ("behind", "elsewhere")] == [["T"], ["U"]]


def test_what_was_given_out_stays_as_it_was() -> None:
    """`all` copies the entries that changed since the last call; later commits do not change the returned ones."""
    offsets = ConsumerOffsetManager()
    offsets.commit("G", "T", 0, 1)
    offsets.commit("H", "T", 0, 2)
    before = offsets.all()
    offsets.commit("G", "T", 0, 5)
    offsets.commit("G", "T", 1, 6)
    offsets.clone("G", "C", "T")
    offsets.remove_group("H")
    assert before == {("T", "G"): {0: 1}, ("T", "H"): {0: 2}}
    assert offsets.all() == {("T", "G"): {0: 5, 1: 6}, ("T", "C"): {0: 5, 1: 6}}
    offsets.lower_to({("T", 0): 3})
    assert offsets.all() == {("T", "G"): {0: 3, 1: 6}, ("T", "C"): {0: 3, 1: 6}}
    for _ in offsets.forget_topics(lambda _: True):
        pass
    assert offsets.all() == {}


def test_a_repeated_offset_copies_nothing() -> None:
    """Consumers commit every five seconds, also without a message."""
    offsets = ConsumerOffsetManager()
    offsets.commit("G", "T", 0, 1)
    before = offsets.all()["T", "G"]
    assert offsets.commit("G", "T", 0, 1) == 1
    assert offsets.all()["T", "G"] is before
