"""Send lanes: stored in their turn or not at all."""

from hypothesis import given
from hypothesis import strategies as st

from lockstep.broker.state.send_sequences import SendLanes
from tests.broker.helpers import NOW_MS, FakeConnection

KEY = ("producer-1", "T", 0)


def arrive(lanes: SendLanes, generation: int, sequence: int, *, stored: bool = True) -> bool:
    """A numbered send; stored unless its lane or (`stored` False) something else refuses it."""
    if lanes.refusal(KEY, generation, sequence, FakeConnection(), NOW_MS) is not None:
        return False
    if stored:
        lanes.stored(KEY)
    return stored


def test_sends_in_sequence_are_stored() -> None:
    """0, 1, 2 pass."""
    lanes = SendLanes(100)
    assert [arrive(lanes, 0, sequence) for sequence in range(3)] == [True, True, True]


def test_nothing_overtakes_a_send_that_was_not_stored() -> None:
    """With 1 refused for another reason, 2 and 3 of its generation are refused too, and a retried 1 passes."""
    lanes = SendLanes(100)
    assert arrive(lanes, 0, 0)
    assert not arrive(lanes, 0, 1, stored=False)
    assert [arrive(lanes, 0, sequence) for sequence in (2, 3)] == [False, False]
    assert [arrive(lanes, 0, sequence) for sequence in (1, 2)] == [True, True]


def test_the_first_send_of_a_generation_is_number_zero() -> None:
    """A lane that begins in the middle has lost its beginning."""
    lanes = SendLanes(100)
    assert not arrive(lanes, 0, 1)
    assert not arrive(lanes, 5, 1)
    assert arrive(lanes, 5, 0)


def test_a_higher_generation_replaces_a_lower_one_for_good() -> None:
    """What still arrives of the old one is refused, its next number included."""
    lanes = SendLanes(100)
    assert arrive(lanes, 0, 0)
    assert arrive(lanes, 1, 0)
    assert not arrive(lanes, 0, 1)
    assert arrive(lanes, 1, 1)


def test_a_repeat_of_a_stored_send_is_refused_as_such() -> None:
    """The remark says that it is stored."""
    lanes = SendLanes(100)
    arrive(lanes, 0, 0)
    assert "stored already" in str(lanes.refusal(KEY, 0, 0, FakeConnection(), NOW_MS))


def test_lanes_are_told_apart_by_producer_topic_and_queue() -> None:
    """Each has a sequence of its own."""
    lanes = SendLanes(100)
    for key in [("p", "T", 0), ("q", "T", 0), ("p", "U", 0), ("p", "T", 1)]:
        assert lanes.refusal(key, 0, 0, FakeConnection(), NOW_MS) is None
    assert len(lanes) == 4


def test_only_idle_lanes_of_closed_connections_are_forgotten() -> None:
    """A producer that is still connected may pause for an hour."""
    lanes = SendLanes(100)
    gone, there = FakeConnection(), FakeConnection()
    lanes.refusal(("gone", "T", 0), 0, 0, gone, NOW_MS)
    lanes.refusal(("there", "T", 0), 0, 0, there, NOW_MS)
    gone.is_open = False
    assert lanes.expire(NOW_MS + 599_999) == 0
    assert lanes.expire(NOW_MS + 600_000) == 1
    lanes.stored(("there", "T", 0))
    assert lanes.refusal(("there", "T", 0), 0, 1, there, NOW_MS + 3_600_000) is None


def test_the_table_is_bounded_and_the_oldest_lane_goes_first() -> None:
    """With room for two, the third pushes out the first."""
    lanes = SendLanes(lanes_max=2)
    for name in ("a", "b", "c"):
        lanes.refusal((name, "T", 0), 0, 0, FakeConnection(), NOW_MS)
        lanes.stored((name, "T", 0))
    assert len(lanes) == 2
    assert lanes.refusal(("b", "T", 0), 0, 1, FakeConnection(), NOW_MS) is None
    assert lanes.refusal(("a", "T", 0), 0, 1, FakeConnection(), NOW_MS) is not None


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4), st.booleans()), max_size=60))
def test_what_is_stored_of_a_generation_is_a_prefix_in_order(arrivals: list[tuple[int, int, bool]]) -> None:
    """Whatever arrives in whatever order: stored sequences of a generation are 0, 1, 2 ..., generations never fall."""
    lanes = SendLanes(100)
    stored: list[tuple[int, int]] = []
    for generation, sequence, willing in arrivals:
        if arrive(lanes, generation, sequence, stored=willing):
            stored.append((generation, sequence))
    assert stored == sorted(stored)
    for generation in range(3):
        sequences = [sequence for of, sequence in stored if of == generation]
        assert sequences == list(range(len(sequences)))
