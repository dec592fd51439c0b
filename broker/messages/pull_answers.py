"""Answers to pulls: messages of a queue, or why there are none."""

from enum import Enum, auto
from typing import NamedTuple

from lockstep.broker.ownership.denial import Denial
from lockstep.store import GetResult

__all__ = ["NoRoom", "Nothing", "PullAnswer", "Why"]


class Why(Enum):
    """Why a read found nothing. The next one begins at `next_begin_offset` of what the store said."""

    NOTHING_NEW = auto()  # no message is at the offset yet: who reads may wait for it
    NOTHING_MATCHED = auto()  # messages, but none that the filter wants: who reads goes on at once
    OUT_OF_BOUNDS = auto()  # the queue does not have the offset: who reads must move
    NOT_OWNER = auto()  # another client has the queue: nothing for this one, until that changes


class Nothing(NamedTuple):
    why: Why
    got: GetResult


class NoRoom(NamedTuple):
    """A pull would have to wait, and a setting leaves no room for it.

    Clients take "no new message" for the end of a wait and pull again at once, for ever. So this must not look like it.
    """

    setting: str
    maximum: int


# A GetResult has messages.
PullAnswer = GetResult | Nothing | Denial | NoRoom
