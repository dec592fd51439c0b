"""The groups of the clients of one process: under one client id, a group only once (wire.md 12.2)."""

import asyncio
from typing import Final, Literal
from weakref import WeakKeyDictionary

from lockstep.client.errors import DuplicateConsumerGroupError, DuplicateGroupError
from lockstep.client.instance.client import MQClientInstance

__all__ = ["GroupClaim", "claim_group"]

Kind = Literal["consumer", "producer"]
_ERRORS: Final[dict[Kind, type[DuplicateGroupError]]] = {
    "consumer": DuplicateConsumerGroupError,
    "producer": DuplicateGroupError,
}
_Key = tuple[Kind, int, str, str]

# By event loop: clients of two loops share nothing, and claims that were never released end with their loop.
_CLAIMED: Final["WeakKeyDictionary[asyncio.AbstractEventLoop, dict[_Key, GroupClaim]]"] = WeakKeyDictionary()


class GroupClaim:
    """Held from a client's start to its shutdown."""

    def __init__(self, claims: "dict[_Key, GroupClaim]", key: _Key) -> None:
        self._claims = claims
        self._key = key

    def release(self) -> None:
        if self._claims.get(self._key) is self:
            del self._claims[self._key]


def claim_group(instance: MQClientInstance, kind: Kind, group: str) -> GroupClaim:
    """Claim a group for a client; call it on the loop.

    Several clients of a process may be in one group when their client ids differ, as they do by default.

    Raises:
        DuplicateGroupError: Another client of this process has the same client id and is in the group. Brokers could
            not distinguish the two.
    """
    claims = _CLAIMED.setdefault(asyncio.get_running_loop(), {})
    key: _Key = (kind, instance.identity.pid, instance.client_id, group)
    if key in claims:
        raise _ERRORS[kind](
            f"the {kind} group {group!r} has been created before in this process under the client id "
            f"{instance.client_id!r}: give it another group or another instance_name"
        )
    claim = claims[key] = GroupClaim(claims, key)
    return claim
