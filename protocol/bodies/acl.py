"""The rules of a broker's ACL, reply to GET_BROKER_CLUSTER_ACL_CONFIG (54); it has the secret keys, as in RocketMQ."""

from typing import Any, NamedTuple, Self

from lockstep.protocol.bodies.codec import as_list, as_object

__all__ = ["AclConfigBody"]


class AclConfigBody(NamedTuple):
    """`accounts` have RocketMQ's names of fields; absent ones are left out."""

    white_addresses: tuple[str, ...]
    accounts: tuple[dict[str, Any], ...]

    def __repr__(self) -> str:
        return f"AclConfigBody({len(self.white_addresses)} addresses, {len(self.accounts)} accounts)"

    def to_wire(self) -> dict[str, Any]:
        return {"globalWhiteAddrs": list(self.white_addresses), "plainAccessConfigs": list(self.accounts)}

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "the rules")
        addresses = as_list(wire.get("globalWhiteAddrs", []), "globalWhiteAddrs")
        accounts = as_list(wire.get("plainAccessConfigs", []), "plainAccessConfigs")
        return cls(tuple(map(str, addresses)), tuple(as_object(each, "an account") for each in accounts))
