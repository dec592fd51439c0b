"""How many requests a second each peer may send: token buckets. Synchronous: callers give the time."""

from typing import Final

from lockstep.protocol.codes import RequestCode

__all__ = ["SPARED", "RequestRates"]

# A bucket of n requests a second gets n thousandths of a token each ms.
_TOKEN: Final = 1000
_OTHERS: Final = ""  # the peers that share a bucket

# Requests that limits spare, because a healthy client would lose what it has without them. A lock that is not renewed
# goes to another consumer, a client without heartbeats leaves its groups, a broker without registrations leaves the
# routes. Offsets and ends of transactions are one-way: a refusal would be lost without a trace.
SPARED: Final[frozenset[int]] = frozenset(
    {
        RequestCode.HEART_BEAT,
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.COMMIT_TOGETHER,
        RequestCode.RESET_OWN_OFFSET,
        RequestCode.END_TRANSACTION,
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.QUERY_DATA_VERSION,
    }
)


class RequestRates:
    """A peer has two buckets of one second's requests: one for spared requests, one for all others.

    So a peer that sends too much keeps its heartbeats and its locks, and a flood of heartbeats is limited too.

    Args:
        per_second: The requests of a peer in a second.
        peers_max: Peers with buckets of their own. Above it new ones share one.
    """

    def __init__(self, per_second: int, peers_max: int) -> None:
        self.per_second = per_second
        self._full = per_second * _TOKEN
        self._peers_max = peers_max
        self._buckets: tuple[dict[str, list[int]], dict[str, list[int]]] = ({}, {})  # peer -> thousandths, epoch ms

    def take(self, peer: str, now_ms: int, *, spared: bool = False) -> bool:
        """Whether a request that arrives now may be served. A refused one takes nothing."""
        buckets = self._buckets[spared]
        bucket = buckets.get(peer)
        if bucket is None:
            if len(buckets) >= self._peers_max:
                peer = _OTHERS
            bucket = buckets.setdefault(peer, [self._full, now_ms])
        left = bucket[0] + (now_ms - bucket[1]) * self.per_second
        if left < _TOKEN:
            return False
        bucket[0] = min(left, self._full) - _TOKEN
        bucket[1] = now_ms
        return True

    def forget_idle(self, now_ms: int) -> None:
        """Called each second: full buckets go, since a new one is the same."""
        for buckets in self._buckets:
            for peer in [peer for peer, (left, at_ms) in buckets.items() if self._is_full(left, now_ms - at_ms)]:
                del buckets[peer]

    def _is_full(self, left: int, since_ms: int) -> bool:
        return left + since_ms * self.per_second >= self._full

    def __len__(self) -> int:
        return sum(map(len, self._buckets))
