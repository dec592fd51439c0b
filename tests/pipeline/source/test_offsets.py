"""Offsets as plain values: checkpoints, shares of a micro-batch, slices of queues."""

from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.client.blocking import Addresses, BlockingClient
from lockstep.client.errors import TopicNotFoundError
from lockstep.pipeline.errors import OptionError, TopicError
from lockstep.pipeline.offsets import Offsets, from_checkpoint, parse_offsets, share, to_checkpoint
from lockstep.pipeline.source.planning import queues_of, resolve, split_slices
from lockstep.protocol.model import MessageQueue

QUEUES = st.builds(MessageQueue, st.sampled_from("ab"), st.sampled_from(("x", "y")), st.integers(0, 9))
NUMBERS = st.integers(0, 2**40)


@given(st.dictionaries(QUEUES, NUMBERS))
def test_a_checkpoint_gives_back_what_was_put_in(offsets: Offsets) -> None:
    """In any order of queues, and equal offsets are equal dicts in equal order."""
    stored = to_checkpoint(offsets)
    assert from_checkpoint(stored) == offsets
    assert str(to_checkpoint(dict(reversed(offsets.items())))) == str(stored)


@given(st.dictionaries(QUEUES, st.tuples(NUMBERS, st.integers(0, 10_000)), min_size=1), st.integers(1, 5_000))
def test_shares_are_the_limit_and_no_more(waiting: dict[MessageQueue, tuple[int, int]], limit: int) -> None:
    """A micro-batch has exactly as many messages as it may, none from where there is none."""
    begin = {queue: first for queue, (first, _) in waiting.items()}
    ends = {queue: first + count for queue, (first, count) in waiting.items()}
    shared = share(begin, ends, limit)
    assert sum(shared[queue] - begin[queue] for queue in ends) == min(limit, sum(n for _, n in waiting.values()))
    assert all(begin[queue] <= shared[queue] <= ends[queue] for queue in ends)


@given(st.dictionaries(QUEUES, st.tuples(NUMBERS, st.integers(1, 10_000)), min_size=1, max_size=8), st.integers(1, 40))
def test_slices_are_the_queues(waiting: dict[MessageQueue, tuple[int, int]], wanted: int) -> None:
    """Joined they are what was cut, each has a message, and they are as many as asked for where there is so much."""
    ranges = [(queue, first, first + count) for queue, (first, count) in waiting.items()]
    parts = list(split_slices(ranges, wanted))
    joined: dict[MessageQueue, tuple[int, int]] = {}
    for queue, start, end in parts:
        assert start < end
        assert queue not in joined or joined[queue][1] == start
        joined[queue] = (joined.get(queue, (start,))[0], end)
    assert joined == {queue: (start, end) for queue, start, end in ranges}
    assert len(parts) >= min(wanted, sum(count for _, count in waiting.values()))


@given(st.dictionaries(QUEUES, st.tuples(NUMBERS, st.integers(1, 10_000)), min_size=1, max_size=8), st.integers(1, 999))
def test_no_slice_has_more_messages_than_it_may(waiting: dict[MessageQueue, tuple[int, int]], most: int) -> None:
    """maxRecordsPerPartition: no slice is longer, and all slices together have every message."""
    ranges = [(queue, first, first + count) for queue, (first, count) in waiting.items()]
    sizes = [end - start for _, start, end in split_slices(ranges, 1, most)]
    assert max(sizes) <= most
    assert sum(sizes) == sum(count for _, count in waiting.values())


def test_a_missing_topic_is_an_error_of_the_source() -> None:
    """As of the sink: Spark shows one name for it."""
    client = Mock(BlockingClient)
    client.readable_queues.side_effect = TopicNotFoundError("no topic 'nowhere'")
    with pytest.raises(TopicError, match="no topic 'nowhere'"):
        queues_of(client, Mock(assign=None, pattern=None, topics=["nowhere"]))


def test_offsets_without_a_broker_are_those_of_the_only_one() -> None:
    """With two brokers the error shows the shape that names one; a queue that is not there is named."""
    spec = parse_offsets('{"a":{"0":5,"1":7}}')
    queues = [MessageQueue("a", "x", 0), MessageQueue("a", "x", 1)]
    with Addresses(("127.0.0.1:1",)).open() as client:  # given offsets are not asked for
        assert resolve(client, queues, spec, "startingOffsets") == {queues[0]: 5, queues[1]: 7}
        with pytest.raises(OptionError, match="it has besides a@x:1"):
            resolve(client, queues[:1], spec, "startingOffsets")
        with pytest.raises(OptionError) as caught:
            resolve(client, [*queues, MessageQueue("a", "y", 0)], spec, "startingOffsets")
    assert "'a' is on the brokers x, y, so each offset needs its broker" in str(caught.value)
    assert 'allowed: {"a":{"x":{"0":5}}}' in str(caught.value)


def test_a_checkpoint_names_brokers() -> None:
    """Kafka's shape is for options alone."""
    with pytest.raises(ValueError, match="names the broker of each queue"):
        from_checkpoint({"a": {"0": 5}})
