"""Typed headers of requests for a broker's ACL: codes 50 to 54 (wire.md 2.4).

MSGPACK sends the fields in the declared order, so new fields go to the end.
"""

from typing import Any, Final, NamedTuple

from lockstep.protocol.codes import RequestCode

__all__ = [
    "ACL_REQUEST_HEADERS",
    "ACL_RESPONSE_HEADERS",
    "CreateAccessConfigRequestHeader",
    "DeleteAccessConfigRequestHeader",
    "GetBrokerAclConfigResponseHeader",
    "UpdateGlobalWhiteAddrsConfigRequestHeader",
]


class CreateAccessConfigRequestHeader(NamedTuple):
    """UPDATE_AND_CREATE_ACL_CONFIG (50). Permissions are lists with commas, as in "orders=PUB,payments=DENY"."""

    access_key: str | None = None
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None


class DeleteAccessConfigRequestHeader(NamedTuple):
    """DELETE_ACL_CONFIG (51)."""

    access_key: str | None = None


class UpdateGlobalWhiteAddrsConfigRequestHeader(NamedTuple):
    """UPDATE_GLOBAL_WHITE_ADDRS_CONFIG (53). Addresses are a list with commas; without a path it is the main file."""

    global_white_addrs: str | None = None
    acl_file_full_path: str | None = None


class GetBrokerAclConfigResponseHeader(NamedTuple):
    """Reply to GET_BROKER_CLUSTER_ACL_INFO (52). Versions are DataVersions as JSON text, of all files by their path."""

    version: str
    all_acl_file_version: str
    broker_name: str
    broker_addr: str
    cluster_name: str


_R = RequestCode
ACL_REQUEST_HEADERS: Final[dict[int, type[tuple[Any, ...]]]] = {
    _R.UPDATE_AND_CREATE_ACL_CONFIG: CreateAccessConfigRequestHeader,
    _R.DELETE_ACL_CONFIG: DeleteAccessConfigRequestHeader,
    _R.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: UpdateGlobalWhiteAddrsConfigRequestHeader,
}
ACL_RESPONSE_HEADERS: Final[dict[int, type[tuple[Any, ...]]]] = {
    _R.GET_BROKER_CLUSTER_ACL_INFO: GetBrokerAclConfigResponseHeader,
}
