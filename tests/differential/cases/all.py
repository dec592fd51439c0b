"""Every case in the order in which it is sent: the world, what only looks or adds, and last what takes away."""

from typing import Final

from tests.differential.case import Case
from tests.differential.cases import (
    clients,
    configuration,
    locking,
    messages,
    name_server,
    offsets,
    pulling,
    replies,
    resets,
    sending,
    statistics,
    topics,
    transactions,
    world,
)

__all__ = ["ALL_CASES"]

_IN_ORDER: Final[tuple[Case, ...]] = (
    *world.WORLD,
    *pulling.CASES,
    *offsets.CASES,
    *messages.CASES,
    *sending.CASES,
    *transactions.CASES,
    *replies.CASES,
    *locking.CASES,
    *topics.CASES,
    *clients.CASES,
    *statistics.CASES,
    *resets.CASES,
    *configuration.CASES,
    *name_server.CASES,
    *topics.LAST_CASES,
    *name_server.LAST_CASES,
)
ALL_CASES: Final = tuple(sorted(_IN_ORDER, key=lambda case: case.late))  # a stable sort
