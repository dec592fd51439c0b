"""Detects a key in two partitions: each task reports the keys that it sent, the driver compares.

A key of up to 40 bytes is reported as it is, a longer one as a digest of 41 bytes; only a collision of 328 bits could
confuse two keys. A task reports at most 262,144 keys, the smallest in byte order; the others are not compared. A
missing repartition spreads all keys, so these are enough to show it.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import repeat
from typing import Final, NamedTuple

__all__ = ["KEYS_MAX", "KeyEvidence", "key_evidence", "keys_in_two"]

KEYS_MAX: Final = 262_144
_EXACT_BYTES_MAX: Final = 40
_DIGEST_BYTES: Final = _EXACT_BYTES_MAX + 1  # longer than any plain key, so never confused with one
_NAMED_MAX: Final = 3


class KeyEvidence(NamedTuple):
    """The reported keys, sorted; `complete` when they are all keys of the partition."""

    partition: int
    keys: tuple[bytes, ...]
    complete: bool


def key_evidence(partition: int, keys: Iterable[tuple[str, str]], keys_max: int = KEYS_MAX) -> KeyEvidence:
    """The report for (topic, sharding key) pairs, each given once; the topic is "" when all messages have the same."""
    shown = [_shown(f"{topic}\0{key}".encode()) for topic, key in keys]
    complete = len(shown) <= keys_max
    return KeyEvidence(partition, tuple(sorted(shown) if complete else heapq.nsmallest(keys_max, shown)), complete)


def _shown(key: bytes) -> bytes:
    return key if len(key) <= _EXACT_BYTES_MAX else blake2b(key, digest_size=_DIGEST_BYTES).digest()


def keys_in_two(evidence: Sequence[KeyEvidence]) -> str | None:
    """An error text with the first keys of more than one partition; None when there are none."""
    found: list[str] = []
    for key, partitions in _shared(evidence):
        if len(found) < _NAMED_MAX:
            found.append(f"{_named(key)} in partitions {', '.join(map(str, partitions))}")
        else:
            found.append("...")
            break
    return "; ".join(found) if found else None


def _shared(evidence: Sequence[KeyEvidence]) -> Iterator[tuple[bytes, list[int]]]:
    streams = [zip(one.keys, repeat(one.partition)) for one in evidence]
    last, partitions = b"", list[int]()
    for key, partition in heapq.merge(*streams):
        if key != last:
            if len(partitions) > 1:
                yield last, partitions
            last, partitions = key, []
        partitions.append(partition)
    if len(partitions) > 1:
        yield last, partitions


def _named(key: bytes) -> str:
    if len(key) == _DIGEST_BYTES:
        return f"a key of over {_EXACT_BYTES_MAX} bytes (digest {key.hex()[:12]})"
    topic, _, text = key.decode().partition("\0")
    return f"key {text!r} of topic {topic}" if topic else f"key {text!r}"
