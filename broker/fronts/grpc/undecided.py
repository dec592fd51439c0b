"""Half messages that producers of this front may end: they name them by topic and transaction id, the log by offsets.

The topic is the producer group of this front's half messages. Who may end those of one topic ends no others.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

from lockstep.broker.messages.transactions.half_messages import HalfMessage

__all__ = ["Undecided", "UndecidedMessage"]

# As in RocketMQ: after that a producer is asked again, and answers with the ids of that question.
_KNOWN_MS: Final = 30_000


class UndecidedMessage(NamedTuple):
    half: HalfMessage
    until_ms: int


class Undecided:
    """The table, oldest first.

    Args:
        messages_max: Above it the oldest is forgotten, and decided when its producer is asked.
    """

    def __init__(self, messages_max: int) -> None:
        self._max = messages_max
        self._by_id: OrderedDict[tuple[str, str], UndecidedMessage] = OrderedDict()

    def add(self, topic: str, transaction_id: str, half: HalfMessage, now_ms: int) -> None:
        self._by_id[topic, transaction_id] = UndecidedMessage(half, now_ms + _KNOWN_MS)
        self._by_id.move_to_end((topic, transaction_id))
        while self._by_id and (len(self._by_id) > self._max or next(iter(self._by_id.values())).until_ms < now_ms):
            self._by_id.popitem(last=False)

    def find(self, topic: str, transaction_id: str, now_ms: int) -> UndecidedMessage | None:
        """None: it is not known, or not any more."""
        found = self._by_id.get((topic, transaction_id))
        return found if found is not None and found.until_ms >= now_ms else None

    def remove(self, topic: str, transaction_id: str) -> None:
        """The message is decided."""
        self._by_id.pop((topic, transaction_id), None)
