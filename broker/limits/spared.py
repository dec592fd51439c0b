"""Requests that limits spare, because a healthy client would lose what it has without them.

A lock that is not renewed goes to another consumer, a client without heartbeats leaves its groups, a broker without
registrations leaves the routes. Offsets and ends of transactions are one-way: a refusal would be lost without a trace.
"""

from typing import Final

from lockstep.protocol.codes import RequestCode

__all__ = ["SPARED"]

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
