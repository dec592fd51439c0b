"""Permissions of an account on topics and groups, and the texts of RocketMQ's refusals."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from lockstep.broker.acl.addresses import AddressPattern
from lockstep.broker.acl.errors import AccessDenied
from lockstep.protocol.names import RETRY_PREFIX

__all__ = ["ANY", "DENY", "PUB", "SUB", "Account", "check_permissions", "parse_permission"]

DENY: Final = 1
ANY: Final = 2  # as a wish: PUB or SUB
PUB: Final = 4
SUB: Final = 8

_NAMES: Final = {"DENY": DENY, "PUB": PUB, "SUB": SUB, "PUB|SUB": PUB | SUB, "SUB|PUB": PUB | SUB}


@dataclass(frozen=True, slots=True)
class Account:
    """An account as the checks need it. A group is kept under the name of its retry topic, as in RocketMQ."""

    access_key: str
    secret_key: str = field(repr=False)
    fits_address: AddressPattern
    admin: bool = False
    default_topic: int = DENY
    default_group: int = DENY
    resources: Mapping[str, int] = field(default_factory=dict)


def parse_permission(text: str | None) -> int | None:
    """DENY, PUB, SUB, PUB|SUB or SUB|PUB; None for another text, which RocketMQ reads as DENY."""
    return _NAMES.get((text or "").strip())


def check_permissions(account: Account, code: int, *, admin: bool, wanted: Iterable[tuple[str, int]]) -> None:
    """Raises AccessDenied when the account lacks a permission.

    Args:
        account: The account that signed.
        code: The request code, for the text.
        admin: The request is for administrators alone.
        wanted: Topics and retry topics, each with the permission that it must give.
    """
    if admin and not account.admin:
        raise AccessDenied(f"Need admin permission for request code={code}, but accessKey={account.access_key} is not")
    if account.admin and not account.resources:
        return
    for resource, need in wanted:
        is_group = resource.startswith(RETRY_PREFIX)
        owned = account.resources.get(resource, account.default_group if is_group else account.default_topic)
        if owned & DENY or not (owned & (PUB | SUB) if need == ANY else owned & need):
            shown = f"group:{resource.removeprefix(RETRY_PREFIX)}" if is_group else f"topic:{resource}"
            raise AccessDenied(f"No default permission for {shown}")
