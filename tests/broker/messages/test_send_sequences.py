"""Send sequences: sends are stored in order or refused."""

from hypothesis import given
from hypothesis import strategies as st

from lockstep.broker.messages.send_sequences import SendSequences
from tests.broker.helpers import NOW_MS, FakeConnection

KEY = ("producer-1", "T", 0)


def arrive(sequences: SendSequences, generation: int, sequence: int, *, stored: bool = True) -> bool:
    """A numbered send; stored unless its sequence or (`stored` False) something else refuses it."""
    if sequences.refusal(KEY, generation, sequence, FakeConnection(), NOW_MS) is not None:
        return False
    if stored:
        sequences.stored(KEY)
    return stored


def test_nothing_overtakes_a_send_that_was_not_stored() -> None:
    """With 1 refused for another reason, 2 and 3 of its generation are refused too, and a retried 1 passes."""
    sequences = SendSequences(100)
    assert arrive(sequences, 0, 0)
    assert not arrive(sequences, 0, 1, stored=False)
    assert [arrive(sequences, 0, sequence) for sequence in (2, 3)] == [False, False]
    assert [arrive(sequences, 0, sequence) for sequence in (1, 2)] == [True, True]


def test_nothing_follows_a_stored_send_that_was_lost() -> None:
    """No number of its generation, not even the first one again; the next generation begins anew."""
    sequences = SendSequences(100)
    assert arrive(sequences, 0, 0)
    sequences.failed(KEY, 0)
    assert [arrive(sequences, 0, sequence) for sequence in range(3)] == [False, False, False]
    assert arrive(sequences, 1, 0)


def test_a_lost_send_of_an_older_generation_ends_no_newer_one() -> None:
    """The producer went on without its answer: it learns no more of it."""
    sequences = SendSequences(100)
    assert arrive(sequences, 0, 0)
    assert arrive(sequences, 1, 0)
    sequences.failed(KEY, 0)
    assert arrive(sequences, 1, 1)
    sequences.failed(("unknown", "T", 0), 0)


def test_the_first_send_of_a_generation_is_number_zero() -> None:
    """A sequence that begins in the middle has lost its beginning."""
    sequences = SendSequences(100)
    assert not arrive(sequences, 0, 1)
    assert not arrive(sequences, 5, 1)
    assert arrive(sequences, 5, 0)


def test_a_higher_generation_replaces_a_lower_one_for_good() -> None:
    """Late sends of the old one are refused, also with its next number."""
    sequences = SendSequences(100)
    assert arrive(sequences, 0, 0)
    assert arrive(sequences, 1, 0)
    assert not arrive(sequences, 0, 1)
    assert arrive(sequences, 1, 1)


def test_a_repeat_of_a_stored_send_is_refused_as_such() -> None:
    """The remark says that it is stored."""
    sequences = SendSequences(100)
    arrive(sequences, 0, 0)
    assert "stored already" in str(sequences.refusal(KEY, 0, 0, FakeConnection(), NOW_MS))


def test_long_names_are_not_kept() -> None:
    """A header may have 256 KiB, so 100,000 sequences could fill the memory with names."""
    sequences = SendSequences(100)
    for key in (("p" * 1020, "topic", 0), ("p", "t" * 1024, 0)):
        assert "1024 characters" in str(sequences.refusal(key, 0, 0, FakeConnection(), NOW_MS))
    assert len(sequences) == 0
    assert sequences.refusal(("p" * 1019, "topic", 0), 0, 0, FakeConnection(), NOW_MS) is None


def test_sequences_are_separate_by_producer_topic_and_queue() -> None:
    """Each has a sequence of its own."""
    sequences = SendSequences(100)
    for key in [("p", "T", 0), ("q", "T", 0), ("p", "U", 0), ("p", "T", 1)]:
        assert sequences.refusal(key, 0, 0, FakeConnection(), NOW_MS) is None
    assert len(sequences) == 4


def test_only_idle_sequences_of_closed_connections_are_removed() -> None:
    """A producer that is still connected may pause for an hour."""
    sequences = SendSequences(100)
    gone, there = FakeConnection(), FakeConnection()
    sequences.refusal(("gone", "T", 0), 0, 0, gone, NOW_MS)
    sequences.refusal(("there", "T", 0), 0, 0, there, NOW_MS)
    gone.is_open = False
    assert sequences.expire(NOW_MS + 599_999) == 0
    assert sequences.expire(NOW_MS + 600_000) == 1
    sequences.stored(("there", "T", 0))
    assert sequences.refusal(("there", "T", 0), 0, 1, there, NOW_MS + 3_600_000) is None


def test_a_producer_that_connects_again_keeps_its_sequence() -> None:
    """The end of its first connection is no reason to forget which generation is the present one."""
    sequences = SendSequences(100)
    first, second = FakeConnection(), FakeConnection()
    assert sequences.refusal(KEY, 3, 0, first, NOW_MS) is None
    sequences.stored(KEY)
    first.is_open = False
    assert sequences.refusal(KEY, 3, 1, second, NOW_MS + 1000) is None
    sequences.stored(KEY)
    assert sequences.expire(NOW_MS + 3_600_000) == 0
    assert sequences.refusal(KEY, 2, 0, second, NOW_MS + 3_600_000) is not None


def test_the_table_is_bounded_and_the_oldest_sequence_goes_first() -> None:
    """With room for two, the third pushes out the first."""
    sequences = SendSequences(count_max=2)
    for name in ("a", "b", "c"):
        sequences.refusal((name, "T", 0), 0, 0, FakeConnection(), NOW_MS)
        sequences.stored((name, "T", 0))
    assert len(sequences) == 2
    assert sequences.refusal(("b", "T", 0), 0, 1, FakeConnection(), NOW_MS) is None
    assert sequences.refusal(("a", "T", 0), 0, 1, FakeConnection(), NOW_MS) is not None


def test_a_large_table_is_looked_at_in_parts() -> None:
    """To sort all of it would keep the loop. Each part loses a tenth: what has no connection goes first."""
    sequences, there, gone = SendSequences(count_max=3000), FakeConnection(), FakeConnection()
    for number in range(3000):
        sequences.refusal((f"{number}", "T", 0), 0, 0, gone if number % 20 == 0 else there, NOW_MS + number)
    gone.is_open = False

    def left(connection: FakeConnection) -> int:
        return sum(entry.connection is connection for entry in sequences._sequences.values())

    lengths, lost = list[int](), list[int]()
    for number in range(3 * 101):
        sequences.refusal((f"new {number}", "T", 0), 0, 0, there, NOW_MS + 9999)
        lengths.append(len(sequences))
        lost.append(left(gone))
    assert min(lengths) == 2900
    assert max(lengths) == 3000
    assert [lost[0], lost[101], lost[202]] == [100, 50, 0]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4), st.booleans()), max_size=60))
def test_what_is_stored_of_a_generation_is_a_prefix_in_order(arrivals: list[tuple[int, int, bool]]) -> None:
    """Whatever arrives in whatever order: stored sequences of a generation are 0, 1, 2 ..., generations never fall."""
    table = SendSequences(100)
    stored: list[tuple[int, int]] = []
    for generation, sequence, willing in arrivals:
        if arrive(table, generation, sequence, stored=willing):
            stored.append((generation, sequence))
    assert stored == sorted(stored)
    for generation in range(3):
        sequences = [sequence for of, sequence in stored if of == generation]
        assert sequences == list(range(len(sequences)))
