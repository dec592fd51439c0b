"""The evidence that no key was in two partitions."""

from lockstep.pipeline.sink.keys import key_evidence, keys_in_two


def test_keys_of_their_own_are_fine() -> None:
    """Partitions that share no key are in order, whatever the keys are alike in, topics and lengths included."""
    evidence = [
        key_evidence(0, [("", "a"), ("", "b"), ("", "x" * 100)]),
        key_evidence(1, [("", "ab"), ("", "A"), ("", "x" * 101)]),
        key_evidence(2, [("t", "a"), ("", "ä")]),
        key_evidence(3, []),
    ]
    assert keys_in_two(evidence) is None


def test_a_shared_key_is_named_with_its_partitions() -> None:
    """A key in several partitions is named, with its topic where there are several, and with all its partitions."""
    fault = keys_in_two([key_evidence(n, [("orders", "k1"), ("orders", f"own-{n}")]) for n in (4, 2, 7)])
    assert fault == "key 'k1' of topic orders in partitions 2, 4, 7"


def test_a_long_shared_key_is_found_by_its_digest() -> None:
    """A key too long to be told as it is, is found all the same; one that shares all but its end is another."""
    long = "k" * 500
    assert "over 40 bytes" in str(keys_in_two([key_evidence(0, [("", long)]), key_evidence(1, [("", long)])]))
    assert keys_in_two([key_evidence(0, [("", long)]), key_evidence(1, [("", long + "!")])]) is None


def test_only_the_first_few_are_named() -> None:
    """A write without any repartition has an error of bounded length."""
    keys = [("", f"key-{n}") for n in range(1000)]
    fault = keys_in_two([key_evidence(0, keys), key_evidence(1, keys)])
    assert fault is not None
    assert fault.count("partitions") == 3
    assert fault.endswith("...")


def test_a_partition_of_very_many_keys_shows_the_smallest() -> None:
    """Past its limit a task tells a part of its keys, and says so; what it tells is still compared."""
    many = key_evidence(0, [("", f"{n:04}") for n in range(100)], keys_max=10)
    assert (len(many.keys), many.complete) == (10, False)
    assert key_evidence(0, [("", "a")]).complete
    assert keys_in_two([many, key_evidence(1, [("", "0009"), ("", "0050")])]) == "key '0009' in partitions 0, 1"
