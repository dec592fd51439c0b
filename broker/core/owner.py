"""The check that whoever acts on a queue owns it."""

from lockstep.broker.core.broker import Broker
from lockstep.broker.core.refused import Denied
from lockstep.broker.ownership.claim import Claiming
from lockstep.broker.ownership.denial import Act
from lockstep.broker.peer import Peer

__all__ = ["check_owner"]


def check_owner(broker: Broker, peer: Peer, claim: Claiming, act: Act, now_ms: int) -> None:
    """Raises Denied when another client owns the queue, or the epoch of the claim is over."""
    denial = broker.ownership.deny(peer, claim, act, now_ms)
    if denial is not None:
        raise Denied(denial)
