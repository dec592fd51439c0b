"""Requests to brokers with ACL: signed and not, right and wrong. `differs` says why the answers are not the same."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from lockstep.protocol.codes import RequestCode as R
from lockstep.protocol.signature import ACCESS_KEY, SIGNATURE, signature_of, signed_bytes
from tests.broker.acl import accounts

__all__ = ["ACL_CASES", "RULES", "AclCase"]

RULES: Final = f"""\
{accounts.RULES}\
- accessKey: noaddress
  secretKey: secret-5678
  whiteRemoteAddress: 10.1.1.*
- accessKey: fromhere
  secretKey: secret-9012
  whiteRemoteAddress: 127.0.0.1
"""
_SECRETS: Final = {one.access_key: one.secret_key for one in (accounts.ADMIN, accounts.ACCOUNT)} | {
    "noaddress": "secret-5678"
}


@dataclass(frozen=True)
class AclCase:
    """`account` signs; with `wrong` the signature is another's, and without an account there is none."""

    name: str
    code: int
    fields: Mapping[str, Any] | None = field(default_factory=dict)
    body: bytes = b""
    account: str | None = "account1"
    wrong: bool = False
    encoding: int = 0
    one_way: bool = False
    unsigned: Mapping[str, str] = field(default_factory=dict)  # added after the signature
    differs: str = ""

    def signed_fields(self) -> dict[str, str] | None:
        if self.fields is None and self.account is None:
            return None
        texts = {name: str(value) for name, value in (self.fields or {}).items()}
        if self.account is not None:
            texts[ACCESS_KEY] = self.account
            secret = "secret-wrong" if self.wrong else _SECRETS.get(self.account, "secret-0000")
            texts[SIGNATURE] = signature_of(signed_bytes(texts, self.body), secret)
        return {**texts, **self.unsigned}


def _send(topic: str, group: str = "producers") -> dict[str, Any]:
    numbers = {"d": 4, "e": 0, "f": 0, "g": 1_700_000_000_000, "h": 0, "j": 0}
    return {"a": group, "b": topic, "c": "TBW102", "i": "", "k": "false", **numbers}


def _pull(group: str, topic: str = "both") -> dict[str, Any]:
    numbers = {"queueId": 0, "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 4, "commitOffset": 0}
    return {
        "consumerGroup": group,
        "topic": topic,
        "subscription": "*",
        "suspendTimeoutMillis": 0,
        "subVersion": 0,
        **numbers,
    }


def _offset(group: str, topic: str = "both") -> dict[str, Any]:
    return {"consumerGroup": group, "topic": topic, "queueId": 0, "commitOffset": 0}


def _topic(topic: str) -> dict[str, Any]:
    numbers = {"readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicSysFlag": 0}
    return {"topic": topic, "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "order": "false", **numbers}


def _beat(group: str, topic: str = "both") -> bytes:
    subscription = {"topic": topic, "subString": "*", "subVersion": 0, "tagsSet": [], "codeSet": []}
    consumer: dict[str, Any] = {"groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING"}
    consumer |= {"consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [subscription]}
    return json.dumps({"clientID": "c", "consumerDataSet": [consumer], "producerDataSet": []}).encode()


def _access(**changes: str) -> dict[str, Any]:
    return {"accessKey": "account9", "secretKey": "secret-9999", "admin": "false", **changes}


_BODY_FIRST: Final = "RocketMQ reads the body of a heartbeat before it looks for an account; ours after"
_TEXT: Final = "the text of a fault in a body is each reader's own"
_SECRET: Final = "the text of the refusal does not repeat the secret key"
_FLAG: Final = "RocketMQ leaves the flag out of the signed bytes, but its clients sign it since 4.9.4; ours takes both"
_EMPTY: Final = "RocketMQ reads an empty value of a binary header as null, and signs that word; its clients do not"
_WHITE: Final = "an address that cannot be read is refused; RocketMQ writes it, and cannot load the file again"

_UNSIGNED: Final = (
    AclCase("no-fields", R.GET_BROKER_RUNTIME_INFO, None, account=None),
    AclCase("no-key", R.GET_BROKER_RUNTIME_INFO, {"x": "1"}, account=None),
    AclCase("no-key-heartbeat", R.HEART_BEAT, None, _beat("open"), account=None),
    AclCase("no-key-unknown-code", 9999, None, account=None),
    AclCase("no-key-admin-code", R.UPDATE_BROKER_CONFIG, None, b"brokerPermission=6", account=None),
    AclCase("no-key-send", R.SEND_MESSAGE_V2, _send("both"), b"x", account=None),
    AclCase("no-key-binary-header", R.GET_BROKER_RUNTIME_INFO, {"x": "1"}, account=None, encoding=1),
    AclCase("no-key-one-way", R.SEND_MESSAGE_V2, _send("both"), b"x", account=None, one_way=True),
    AclCase("key-alone", R.GET_BROKER_RUNTIME_INFO, {ACCESS_KEY: "account1"}, account=None),
    AclCase("empty-key", R.GET_BROKER_RUNTIME_INFO, {ACCESS_KEY: "", SIGNATURE: ""}, account=None),
    AclCase("unknown-key", R.GET_BROKER_RUNTIME_INFO, account="nobody1"),
    AclCase("unknown-key-send", R.SEND_MESSAGE_V2, _send("both"), b"x", account="nobody1"),
    AclCase("wrong-signature", R.GET_BROKER_RUNTIME_INFO, wrong=True),
    AclCase("wrong-signature-send", R.SEND_MESSAGE_V2, _send("both"), b"x", wrong=True),
    AclCase("wrong-signature-admin", R.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=6", "adminadmin", wrong=True),
    AclCase("wrong-signature-one-way", R.SEND_MESSAGE_V2, _send("both"), b"x", wrong=True, one_way=True),
    AclCase("wrong-signature-binary", R.GET_MAX_OFFSET, {"topic": "both", "queueId": 0}, wrong=True, encoding=1),
    AclCase("signature-not-base64", R.GET_BROKER_RUNTIME_INFO, {ACCESS_KEY: "account1", SIGNATURE: "!"}, account=None),
    AclCase("added-field", R.GET_MAX_OFFSET, {"topic": "both", "queueId": 0}, unsigned={"zz": "1"}),
    AclCase("changed-field", R.GET_MAX_OFFSET, {"topic": "both", "queueId": 0}, unsigned={"queueId": "1"}),
    AclCase("other-address", R.GET_BROKER_RUNTIME_INFO, {}, account="noaddress", wrong=True),
    AclCase("own-address", R.UPDATE_BROKER_CONFIG, {ACCESS_KEY: "fromhere"}, b"brokerPermission=6", account=None),
)
_SIGNED: Final = (
    AclCase("empty-value", R.GET_MAX_OFFSET, {"topic": "both", "queueId": 0, "more": ""}),
    AclCase("other-script", R.GET_MAX_OFFSET, {"topic": "both", "queueId": 0, "more": "\u8ba2\u5355 \U0001f600"}),
    AclCase("binary-header", R.GET_MAX_OFFSET, {"topic": "both", "queueId": 0}, encoding=1),
    AclCase("token", R.GET_MAX_OFFSET, {"topic": "both", "queueId": 0, "SecurityToken": "t"}),
    AclCase("unknown-code", 9999),
    AclCase("send-both", R.SEND_MESSAGE_V2, _send("both"), b"x"),
    AclCase("send-both-binary", R.SEND_MESSAGE_V2, _send("both"), b"\x00\xff", encoding=1, differs=_EMPTY),
    AclCase("send-written", R.SEND_MESSAGE_V2, _send("written"), b"x"),
    AclCase("send-read", R.SEND_MESSAGE_V2, _send("read"), b"x"),
    AclCase("send-denied", R.SEND_MESSAGE_V2, _send("denied"), b"x"),
    AclCase("send-default", R.SEND_MESSAGE_V2, _send("other"), b"x"),
    AclCase("send-trace", R.SEND_MESSAGE_V2, _send("RMQ_SYS_TRACE_TOPIC"), b"x"),
    AclCase("send-retry-closed", R.SEND_MESSAGE_V2, _send("%RETRY%open", "closed"), b"x"),
    AclCase("send-no-permissions", R.SEND_MESSAGE_V2, _send("both"), b"x", account="noaddress"),
    AclCase("pull-open", R.PULL_MESSAGE, _pull("open")),
    AclCase("pull-default", R.PULL_MESSAGE, _pull("unnamed")),
    AclCase("pull-closed", R.PULL_MESSAGE, _pull("closed")),
    AclCase("pull-writes", R.PULL_MESSAGE, _pull("writes")),
    AclCase("pull-written", R.PULL_MESSAGE, _pull("open", "written")),
    AclCase("pull-denied", R.PULL_MESSAGE, _pull("open", "denied")),
    AclCase("beat-open", R.HEART_BEAT, {}, _beat("open")),
    AclCase("beat-closed", R.HEART_BEAT, {}, _beat("closed")),
    AclCase("beat-written", R.HEART_BEAT, {}, _beat("open", "written")),
    AclCase("beat-nonsense", R.HEART_BEAT, {}, b"nonsense", differs=_TEXT),
    AclCase("beat-nonsense-unsigned", R.HEART_BEAT, {}, b"nonsense", account=None, differs=_BODY_FIRST),
    AclCase("members-open", R.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "unnamed"}),
    AclCase("members-closed", R.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "closed"}),
    AclCase("leave-closed", R.UNREGISTER_CLIENT, {"clientID": "c", "consumerGroup": "closed"}),
    AclCase("leave-producer", R.UNREGISTER_CLIENT, {"clientID": "c", "producerGroup": "closed"}),
    AclCase("commit-open", R.UPDATE_CONSUMER_OFFSET, _offset("open")),
    AclCase("commit-closed", R.UPDATE_CONSUMER_OFFSET, _offset("closed")),
    AclCase("commit-denied", R.UPDATE_CONSUMER_OFFSET, _offset("open", "denied")),
    AclCase("offset-closed", R.QUERY_CONSUMER_OFFSET, _offset("closed")),
    AclCase("back-closed", R.CONSUMER_SEND_MSG_BACK, {"group": "closed", "offset": 0, "delayLevel": 0}),
    AclCase("lock-closed", R.LOCK_BATCH_MQ, {}, b'{"consumerGroup":"closed","clientId":"c","mqSet":[]}'),
    AclCase("max-offset-denied", R.GET_MAX_OFFSET, {"topic": "both", "queueId": 0}, account="noaddress"),
    AclCase(
        "query-written", R.QUERY_MESSAGE,
        {"topic": "written", "key": "k", "maxNum": 1, "beginTimestamp": 0, "endTimestamp": 9},
    ),
    AclCase(
        "query-unique-key", R.QUERY_MESSAGE,
        {"topic": "both", "key": "k", "maxNum": 1, "beginTimestamp": 0, "endTimestamp": 9, "_UNIQUE_KEY_QUERY": "true"},
        differs=_FLAG,
    ),
    AclCase(
        "query-unique-key-unsigned", R.QUERY_MESSAGE,
        {"topic": "both", "key": "k", "maxNum": 1, "beginTimestamp": 0, "endTimestamp": 9},
        unsigned={"_UNIQUE_KEY_QUERY": "true"},
    ),
)  # fmt: skip
_ADMIN: Final = (
    AclCase("topic", R.UPDATE_AND_CREATE_TOPIC, _topic("made")),
    AclCase("topic-by-admin", R.UPDATE_AND_CREATE_TOPIC, _topic("made"), account="adminadmin"),
    AclCase("delete-topic", R.DELETE_TOPIC_IN_BROKER, {"topic": "made"}),
    AclCase("delete-topic-by-admin", R.DELETE_TOPIC_IN_BROKER, {"topic": "made"}, account="adminadmin"),
    AclCase("group", R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, b'{"groupName":"g"}'),
    AclCase("group-by-admin", R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, b'{"groupName":"g"}', "adminadmin"),
    AclCase("delete-group", R.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g"}),
    AclCase("settings", R.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=6"),
    AclCase("settings-by-admin", R.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=6", "adminadmin"),
    AclCase("see-settings", R.GET_BROKER_CONFIG),
    AclCase("admin-any-topic", R.SEND_MESSAGE_V2, _send("other"), b"x", "adminadmin"),
    AclCase("admin-any-group", R.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "unnamed"}, account="adminadmin"),
    AclCase("rules-version", R.GET_BROKER_CLUSTER_ACL_INFO, account="adminadmin"),
    AclCase("rules", R.GET_BROKER_CLUSTER_ACL_CONFIG, account="adminadmin"),
    AclCase("rules-by-account", R.GET_BROKER_CLUSTER_ACL_CONFIG),
    AclCase("put-nothing", R.UPDATE_AND_CREATE_ACL_CONFIG, account="adminadmin"),
    AclCase("put-new", R.UPDATE_AND_CREATE_ACL_CONFIG, _access(topicPerms="t=PUB,u=SUB"), account="adminadmin"),
    AclCase("put-by-account", R.UPDATE_AND_CREATE_ACL_CONFIG, _access()),
    AclCase("put-short-key", R.UPDATE_AND_CREATE_ACL_CONFIG, _access(accessKey="a"), account="adminadmin",
        differs=_SECRET),
    AclCase("put-permission", R.UPDATE_AND_CREATE_ACL_CONFIG, _access(topicPerms="t=WHAT"), account="adminadmin"),
    AclCase("put-format", R.UPDATE_AND_CREATE_ACL_CONFIG, _access(groupPerms="g"), account="adminadmin"),
    AclCase("put-no-permissions", R.UPDATE_AND_CREATE_ACL_CONFIG, _access(groupPerms=""), account="adminadmin"),
    AclCase("put-address", R.UPDATE_AND_CREATE_ACL_CONFIG, _access(whiteRemoteAddress="1.2"), account="adminadmin"),
    AclCase("put-admin", R.UPDATE_AND_CREATE_ACL_CONFIG, _access(admin="true"), account="adminadmin"),
    AclCase("rules-after", R.GET_BROKER_CLUSTER_ACL_CONFIG, account="adminadmin"),
    AclCase("delete-nothing", R.DELETE_ACL_CONFIG, account="adminadmin"),
    AclCase("delete-empty", R.DELETE_ACL_CONFIG, {"accessKey": ""}, account="adminadmin"),
    AclCase("delete", R.DELETE_ACL_CONFIG, {"accessKey": "account9"}, account="adminadmin"),
    AclCase("delete-again", R.DELETE_ACL_CONFIG, {"accessKey": "account9"}, account="adminadmin"),
    AclCase("white-nothing", R.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, account="adminadmin"),
    AclCase("white", R.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, {"globalWhiteAddrs": "10.0.0.1,10.2.*.*"},
        account="adminadmin"),
    AclCase(
        "white-no-file", R.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        {"globalWhiteAddrs": "10.0.0.1", "aclFileFullPath": "/none"}, account="adminadmin",
    ),
    AclCase("rules-at-last", R.GET_BROKER_CLUSTER_ACL_CONFIG, account="adminadmin"),
    AclCase(
        "white-nonsense", R.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, {"globalWhiteAddrs": "nonsense"}, account="adminadmin",
        differs=_WHITE,
    ),
)  # fmt: skip
ACL_CASES: Final = (*_UNSIGNED, *_SIGNED, *_ADMIN)
