"""The database of a service that reads a FIFO group: one fence a key, checked with each effect.

The fence is the time that names a delivery: fenced brokers give each delivery of a queue a later one than those before.
Of a faithful broker's deliveries nothing is compared, and the database takes everything.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from lockstep.client import MessageQueue
from lockstep.simulation.lab.findings import Findings, Wrong, place_of

__all__ = ["Effects", "KeyOfQueue"]

_BEFORE_ALL: Final = -1


class KeyOfQueue(NamedTuple):
    queue: MessageQueue
    key: str | None


class _Effect(NamedTuple):
    offset: int
    at_ms: int
    process: str


class Effects:
    """Of each key, what was written, in this order."""

    def __init__(self, findings: Findings, *, fenced: bool) -> None:
        self._findings = findings
        self._fenced = fenced
        self._fences = defaultdict[KeyOfQueue, int](int)
        self._written = defaultdict[KeyOfQueue, list[_Effect]](list)

    def begin(self, place: KeyOfQueue, fence: int) -> None:
        """A call for a message of the key begins: deliveries before its own have no more effects."""
        self._fences[place] = max(fence, self._fences[place])

    def write(self, place: KeyOfQueue, offset: int, fence: int, process: str) -> bool:
        """Returns False if it is rejected."""
        if self._fenced and fence < self._fences[place]:
            self._findings.saw("effects fenced")
            return False
        self._written[place].append(_Effect(offset, self._findings.world.elapsed_ms, process))
        return True

    def check(self, stored: Mapping[KeyOfQueue, Sequence[int]]) -> None:
        """At the end, when all messages of each key but dead letters are known by their offsets.

        A message may come again, and then all that follows it comes again. So the effect after that of a message is the
        same one's, an earlier one's or the next one's; and the last effect of a key is its last message's.
        """
        for place, offsets in stored.items():
            numbers, last = {offset: number for number, offset in enumerate(offsets)}, _BEFORE_ALL
            begun = _BEFORE_ALL
            for effect in self._written[place]:
                number = numbers.get(effect.offset, _BEFORE_ALL)
                if number == _BEFORE_ALL:
                    # The message is a dead letter: it may have an effect, or none.
                    continue
                if number > last + 1:
                    is_new = number > begun
                    wrong = Wrong.EFFECT_OUT_OF_ORDER if is_new else Wrong.EFFECT_LEFT_OUT
                    before = "none" if last == _BEFORE_ALL else f"offset {offsets[last]}"
                    self._add(wrong, place, f"offset {effect.offset} by {effect.process} after {before}", effect.at_ms)
                last, begun = number, max(begun, number)
            if last != len(offsets) - 1:
                before = "none" if last == _BEFORE_ALL else f"offset {offsets[last]}"
                self._add(Wrong.EFFECT_LEFT_OUT, place, f"the last effect is {before}, the last message {offsets[-1]}")

    def _add(self, wrong: Wrong, place: KeyOfQueue, text: str, at_ms: int | None = None) -> None:
        queue, key = place
        self._findings.add(wrong, f"{queue} key {key}: {text}", queue=place_of(queue), at_ms=at_ms)
