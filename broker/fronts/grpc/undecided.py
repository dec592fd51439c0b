"""Half messages that producers of this front may end: they name them by transaction id, the log by its offsets."""

from collections import OrderedDict
from typing import Final, NamedTuple

from lockstep.broker.messages.transactions.half_messages import HalfMessage

__all__ = ["Undecided", "UndecidedMessage"]

# As in RocketMQ: after that a producer is asked again, and answers with the ids of that question.
_KNOWN_MS: Final = 30_000


class UndecidedMessage(NamedTuple):
    """`producer_group`: the topic, under which this front stores half messages."""

    producer_group: str
    half: HalfMessage
    until_ms: int


class Undecided:
    """The table, oldest first.

    Args:
        messages_max: Above it the oldest is forgotten, and decided when its producer is asked.
    """

    def __init__(self, messages_max: int) -> None:
        self._max = messages_max
        self._by_id: OrderedDict[str, UndecidedMessage] = OrderedDict()

    def add(self, transaction_id: str, producer_group: str, half: HalfMessage, now_ms: int) -> None:
        self._by_id[transaction_id] = UndecidedMessage(producer_group, half, now_ms + _KNOWN_MS)
        self._by_id.move_to_end(transaction_id)
        while self._by_id and (len(self._by_id) > self._max or next(iter(self._by_id.values())).until_ms < now_ms):
            self._by_id.popitem(last=False)

    def take(self, transaction_id: str, now_ms: int) -> UndecidedMessage | None:
        """A message that is ended now; None: it is not known, or not any more."""
        found = self._by_id.pop(transaction_id, None)
        return found if found is not None and found.until_ms >= now_ms else None
