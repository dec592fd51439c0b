"""The rules of a broker's ACL: codes 50 to 54 (wire.md 2.4). A change is answered when it is in force."""

import json
from collections.abc import Callable, Generator
from functools import partial
from typing import TypeVar

from lockstep.broker.acl.changes import all_rules, delete_account, put_account, set_white_addresses, versions
from lockstep.broker.acl.errors import RuleError
from lockstep.broker.acl.worker import AclRules
from lockstep.broker.connection import Connection
from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.remoting.in_steps import AnswerSteps, answer_in_steps
from lockstep.broker.fronts.remoting.refusal import Refusal
from lockstep.broker.sliced_work import Wait
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

__all__ = ["acl_version", "delete_access", "get_rules", "put_access", "put_white_addresses"]

_R = ResponseCode
T = TypeVar("T")


def _rules(broker: Broker, code: ResponseCode) -> AclRules:
    if broker.acl is None:
        raise Refusal(code, "this broker has no ACL: aclEnable is false")
    return broker.acl


def _changed(rules: AclRules, change: Callable[[], T], failed: ResponseCode) -> Generator[Wait, None, T]:
    """Make a change on the thread of the rules. Raises Refusal when it cannot be made."""
    try:
        return (yield from rules.worker.result_of(change))
    except (RuleError, OSError) as error:
        raise Refusal(failed, str(error)) from None


def put_access(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand | None:
    """Add or change an account."""
    header = command.decode_header(CreateAccessConfigRequestHeader)
    failed = _R.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
    rules = _rules(broker, failed)
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

    def answer() -> AnswerSteps:
        yield from _changed(rules, partial(put_account, rules.files, given, now_ms), failed)
        broker.log.info("acl_account_changed", access_key=header.access_key, peer=connection.address)
        return command.reply(_R.SUCCESS)

    return answer_in_steps(broker, connection, command, answer())


def delete_access(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand | None:
    """Delete an account."""
    access_key = command.decode_header(DeleteAccessConfigRequestHeader).access_key
    failed = _R.DELETE_ACL_CONFIG_FAILED
    rules = _rules(broker, failed)

    def answer() -> AnswerSteps:
        if not (yield from _changed(rules, partial(delete_account, rules.files, access_key, now_ms), failed)):
            shown = "null" if access_key is None else access_key
            remark = f"The accesskey[{shown}] corresponding to accessConfig has been deleted failed."
            raise Refusal(failed, remark)
        broker.log.info("acl_account_deleted", access_key=access_key, peer=connection.address)
        return command.reply(_R.SUCCESS)

    return answer_in_steps(broker, connection, command, answer())


def put_white_addresses(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand | None:
    """Replace the global white addresses of a file."""
    failed = _R.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED
    header = command.decode_header(UpdateGlobalWhiteAddrsConfigRequestHeader)
    rules = _rules(broker, failed)
    addresses = _split(header.global_white_addrs)

    def answer() -> AnswerSteps:
        change = partial(set_white_addresses, rules.files, addresses or [], header.acl_file_full_path, now_ms)
        if addresses is None or not (yield from _changed(rules, change, failed)):
            shown = "null" if header.global_white_addrs is None else header.global_white_addrs
            raise Refusal(failed, f"The globalWhiteAddresses[{shown}] has been updated failed.")
        broker.log.info("acl_addresses_changed", addresses=addresses, peer=connection.address)
        return command.reply(_R.SUCCESS)

    return answer_in_steps(broker, connection, command, answer())


def acl_version(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """The version of each file of rules. RocketMQ does not answer when it has no ACL."""
    files = _rules(broker, _R.SYSTEM_ERROR).files
    found = versions(files)
    config = broker.config
    header = GetBrokerAclConfigResponseHeader(
        _json(found.get(files.path, DataVersion(0, 0)).to_wire()),
        _json({path: version.to_wire() for path, version in found.items()}),
        config.broker_name,
        broker.address,
        config.cluster,
    )
    return command.reply(_R.SUCCESS, header)


def get_rules(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand | None:
    """All rules, secret keys too, as in RocketMQ. With strict checks administrators alone come here."""
    files, worker = _rules(broker, _R.SYSTEM_ERROR)

    def answer() -> AnswerSteps:
        body = yield from worker.result_of(lambda: encode_body(all_rules(files), command.serialize_type))
        return command.reply(_R.SUCCESS, body=body)

    return answer_in_steps(broker, connection, command, answer())


def _split(text: str | None) -> list[str] | None:
    return None if text is None else text.split(",")


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
