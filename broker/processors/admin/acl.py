"""The rules of a broker's ACL: codes 50 to 54 (wire.md 2.4)."""

import json
from typing import TYPE_CHECKING

from lockstep.broker.acl.changes import all_rules, delete_account, put_account, set_white_addresses, versions
from lockstep.broker.acl.errors import RuleError
from lockstep.broker.connection import Connection
from lockstep.broker.processors.refusal import Refusal
from lockstep.broker.state.broker import Broker
from lockstep.protocol.bodies.broker import DataVersion
from lockstep.protocol.bodies.codec import encode_body
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.acl import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    GetBrokerAclConfigResponseHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
)

if TYPE_CHECKING:
    from lockstep.broker.acl.files import AclFiles

__all__ = ["acl_version", "delete_access", "get_rules", "put_access", "put_white_addresses"]

_R = ResponseCode


def _files(broker: Broker, code: ResponseCode) -> "AclFiles":
    if broker.acl is None:
        raise Refusal(code, "this broker has no ACL: aclEnable is false")
    return broker.acl


def put_access(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """Add or change an account."""
    header = command.decode_header(CreateAccessConfigRequestHeader)
    files = _files(broker, _R.UPDATE_AND_CREATE_ACL_CONFIG_FAILED)
    given = {
        "accessKey": header.access_key,
        "secretKey": header.secret_key,
        "whiteRemoteAddress": header.white_remote_address,
        "admin": header.admin,
        "defaultTopicPerm": header.default_topic_perm,
        "defaultGroupPerm": header.default_group_perm,
        "topicPerms": _split(header.topic_perms),
        "groupPerms": _split(header.group_perms),
    }
    try:
        put_account(files, given, now_ms)
    except (RuleError, OSError) as error:
        raise Refusal(_R.UPDATE_AND_CREATE_ACL_CONFIG_FAILED, str(error)) from None
    broker.log.info("acl_account_changed", access_key=header.access_key, peer=connection.address)
    return command.reply(_R.SUCCESS)


def delete_access(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """Delete an account."""
    access_key = command.decode_header(DeleteAccessConfigRequestHeader).access_key
    files = _files(broker, _R.DELETE_ACL_CONFIG_FAILED)
    try:
        deleted = delete_account(files, access_key, now_ms)
    except (RuleError, OSError) as error:
        raise Refusal(_R.DELETE_ACL_CONFIG_FAILED, str(error)) from None
    if not deleted:
        shown = "null" if access_key is None else access_key
        remark = f"The accesskey[{shown}] corresponding to accessConfig has been deleted failed."
        raise Refusal(_R.DELETE_ACL_CONFIG_FAILED, remark)
    broker.log.info("acl_account_deleted", access_key=access_key, peer=connection.address)
    return command.reply(_R.SUCCESS)


def put_white_addresses(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand:
    """Replace the global white addresses of a file."""
    failed = _R.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED
    header = command.decode_header(UpdateGlobalWhiteAddrsConfigRequestHeader)
    files = _files(broker, failed)
    addresses = _split(header.global_white_addrs)
    try:
        done = addresses is not None and set_white_addresses(files, addresses, header.acl_file_full_path, now_ms)
    except (RuleError, OSError) as error:
        raise Refusal(failed, str(error)) from None
    if not done:
        shown = "null" if header.global_white_addrs is None else header.global_white_addrs
        raise Refusal(failed, f"The globalWhiteAddresses[{shown}] has been updated failed.")
    broker.log.info("acl_addresses_changed", addresses=addresses, peer=connection.address)
    return command.reply(_R.SUCCESS)


def acl_version(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """The version of each file of rules. RocketMQ does not answer when it has no ACL."""
    files = _files(broker, _R.SYSTEM_ERROR)
    found = versions(files)
    config = broker.config
    header = GetBrokerAclConfigResponseHeader(
        _json(found.get(files.path, DataVersion(0, 0)).to_wire()),
        _json({path: version.to_wire() for path, version in found.items()}),
        config.broker_name,
        f"{config.advertised_host}:{broker.store.store_port}",
        config.cluster,
    )
    return command.reply(_R.SUCCESS, header)


def get_rules(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """All rules, secret keys too, as in RocketMQ. With strict checks administrators alone come here."""
    body = all_rules(_files(broker, _R.SYSTEM_ERROR))
    return command.reply(_R.SUCCESS, body=encode_body(body, command.serialize_type))


def _split(text: str | None) -> list[str] | None:
    return None if text is None else text.split(",")


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
