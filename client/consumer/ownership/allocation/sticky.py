"""Allocation that moves only what must move: an owner that is still a member keeps its queues, up to its quota.

Each member computes the shares of all for itself, so all must agree while queues move one by one. They do: a queue that
its owner has given up and one that it will give up go to the same member, and a quota does not change on the way to it.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple

from lockstep.protocol.model import MessageQueue

__all__ = ["WITHOUT_FENCE", "AllocateSticky", "Owned", "Owners"]

WITHOUT_FENCE: Final = "the strategy STICKY is for fenced=True: no other broker says who owns which queue"

# Views of a group, of all consumers of the process: in a simulation all members see the same ones.
_KEPT_MAX: Final = 16


class Owned(NamedTuple):
    """A queue of a broker, its last owner's client id, and since when, by the broker's clock, epoch ms."""

    queue_id: int
    client_id: str
    since_ms: int


Owners = tuple[tuple[str, tuple[Owned, ...]], ...]
"""By broker name."""


class AllocateSticky:
    """STICKY: even shares, from as few changes of owners as there can be; for consumers with `fenced=True`.

    Who has too many queues gives up those that it got last: after a restart a member gets its old queues back, if the
    others have only these to spare.
    """

    name: Final = "STICKY"

    def __init__(self, owners: Owners = ()) -> None:
        self._owners = owners

    def given(self, owners: Owners) -> "AllocateSticky":
        """Return the strategy for these owners, as the brokers named them."""
        return AllocateSticky(owners)

    def __call__(
        self, _group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        return list(_shares(tuple(queues), tuple(client_ids), self._owners).get(client_id, ()))


@lru_cache(_KEPT_MAX)
def _shares(
    queues: tuple[MessageQueue, ...], client_ids: tuple[str, ...], owners: Owners
) -> Mapping[str, Sequence[MessageQueue]]:
    """The queues of each member."""
    if not client_ids:
        return {}
    owner_of = {(broker, one.queue_id): one for broker, rows in owners for one in rows}
    owned: dict[str, list[tuple[int, MessageQueue]]] = {client_id: [] for client_id in client_ids}
    to_deal: list[MessageQueue] = []
    for queue in queues:
        owner = owner_of.get((queue.broker_name, queue.queue_id))
        if owner is not None and owner.client_id in owned:
            owned[owner.client_id].append((owner.since_ms, queue))
        else:
            to_deal.append(queue)
    size, longer = divmod(len(queues), len(owned))
    # How many more than `size` a member has does not count: else its quota would change while it gives queues up.
    by_claim = sorted(owned, key=lambda client_id: (len(owned[client_id]) <= size, client_id))
    quotas = {client_id: size + (place < longer) for place, client_id in enumerate(by_claim)}
    shares: dict[str, list[MessageQueue]] = {}
    for client_id, rows in owned.items():
        oldest_first = [queue for _, queue in sorted(rows)]
        shares[client_id] = oldest_first[: quotas[client_id]]
        to_deal += oldest_first[quotas[client_id] :]
    # In one piece to each, not in turn: else a queue that one has taken would change what the others get.
    left = iter(sorted(to_deal))
    for client_id in sorted(shares):
        share = shares[client_id]
        share += islice(left, quotas[client_id] - len(share))
        share.sort()
    return shares
