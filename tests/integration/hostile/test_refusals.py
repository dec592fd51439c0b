"""Requests that are readable and must be refused: RocketMQ's code and a remark with the reason, on both ports."""

import json
import struct
import zlib
from typing import Any, NamedTuple

import msgpack
import pytest

from lockstep.protocol.codes import BODY_BYTES_MAX, PROPERTIES_BYTES_MAX, RequestCode, ResponseCode
from lockstep.protocol.names import RESERVED_TOPICS
from lockstep.testing.peer import json_request, msgpack_request
from tests.integration.harness.attacked import BOTH_PORTS, Attack, Attacked
from tests.integration.harness.bystander import BYSTANDER_TOPIC, bystander
from tests.rows import each_row

R, A = RequestCode, ResponseCode
TOPIC, QUEUES = "orders", 2
OPTIONS = ("--topic", f"{BYSTANDER_TOPIC}:1", "--topic", f"{TOPIC}:{QUEUES}")

LONG_NAME = "t" * 200_000  # a header may have 256 KiB

SEND = {
    "producerGroup": "shop", "topic": TOPIC, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "0",
    "sysFlag": "0", "bornTimestamp": "0", "flag": "0", "properties": "",
}  # fmt: skip
SEND_V2 = dict(zip("abcdefghi", SEND.values(), strict=True))
PULL = {
    "consumerGroup": "audit", "topic": TOPIC, "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4",
    "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0", "subscription": "*",
}  # fmt: skip
CREATE = {"topic": "made", "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6"}
REGISTER = {
    "brokerName": "b", "brokerAddr": "127.0.0.1:1", "clusterName": "c", "haServerAddr": "", "brokerId": "0",
    "compressed": "false", "bodyCrc32": "0",
}  # fmt: skip
VERSION = {key: REGISTER[key] for key in ("brokerName", "brokerAddr", "clusterName", "brokerId")}


class Row(NamedTuple):
    code: int
    ext_fields: dict[str, Any]
    answer: int
    remark: str
    body: bytes = b"body"


def batch_record(body: bytes, *, said_bytes: int = 0) -> bytes:
    """One message of a batch; `said_bytes` makes its size a lie."""
    size = 20 + len(body) + 2
    return struct.pack(">iiiii", said_bytes or size, 0, 0, 0, len(body)) + body + struct.pack(">h", 0)


AT_BROKER: dict[str, Row] = {
    "an unknown code": Row(9999, {}, A.REQUEST_CODE_NOT_SUPPORTED, "request code 9999 is not supported here"),
    "a negative code": Row(-1, {}, A.REQUEST_CODE_NOT_SUPPORTED, "not supported"),
    "a code beyond 64 bits": Row(2**70, {}, A.REQUEST_CODE_NOT_SUPPORTED, "not supported"),
    "a name server's code": Row(R.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC}, A.REQUEST_CODE_NOT_SUPPORTED, "GET_ROUTE"),
    "a client's code": Row(R.NOTIFY_CONSUMER_IDS_CHANGED, {}, A.REQUEST_CODE_NOT_SUPPORTED, "NOTIFY_CONSUMER"),
    "a topic with a space": Row(R.SEND_MESSAGE, SEND | {"topic": "or ders"}, A.SYSTEM_ERROR, "only the characters"),
    "a topic with an umlaut": Row(R.SEND_MESSAGE, SEND | {"topic": "b\u00fccher"}, A.SYSTEM_ERROR, "only the char"),
    "an empty topic": Row(R.SEND_MESSAGE, SEND | {"topic": ""}, A.SYSTEM_ERROR, "must not be empty"),
    "a topic of 128 characters": Row(R.SEND_MESSAGE, SEND | {"topic": "t" * 128}, A.SYSTEM_ERROR, "at most 127"),
    "a topic of 200,000 characters": Row(R.SEND_MESSAGE, SEND | {"topic": LONG_NAME}, A.SYSTEM_ERROR, "topic 'ttt"),
    "a pull of 200,000 characters": Row(R.PULL_MESSAGE, PULL | {"topic": LONG_NAME}, A.TOPIC_NOT_EXIST, "topic 'ttt"),
    "a group of 200,000 characters": Row(
        R.PULL_MESSAGE, PULL | {"consumerGroup": LONG_NAME}, A.SUBSCRIPTION_GROUP_NOT_EXIST, "group 'ttt"),
    "an illegal topic by letters": Row(R.SEND_MESSAGE_V2, SEND_V2 | {"b": "or/ders"}, A.SYSTEM_ERROR, "only the char"),
    "a queue that does not exist": Row(R.SEND_MESSAGE, SEND | {"queueId": "2"}, A.SYSTEM_ERROR, "no queue 2"),
    "a queue beyond all": Row(R.SEND_MESSAGE, SEND | {"queueId": str(2**31 - 1)}, A.SYSTEM_ERROR, "no queue"),
    "an unknown topic and no default": Row(
        R.SEND_MESSAGE, SEND | {"topic": "new", "defaultTopic": "none"}, A.TOPIC_NOT_EXIST, "'new' does not exist"),
    "a body over 4 MiB": Row(
        R.SEND_MESSAGE, SEND, A.MESSAGE_ILLEGAL, f"at most {BODY_BYTES_MAX}", bytes(BODY_BYTES_MAX + 1)),
    "a body of 15 MiB": Row(R.SEND_MESSAGE_V2, SEND_V2, A.MESSAGE_ILLEGAL, "at most", bytes(15 * 1024 * 1024)),
    "properties too long": Row(
        R.SEND_MESSAGE, SEND | {"properties": "k\1" + "v" * PROPERTIES_BYTES_MAX}, A.MESSAGE_ILLEGAL, "properties"),
    "properties too long in UTF-8": Row(
        R.SEND_MESSAGE, SEND | {"properties": "k\1" + "\u20ac" * 11_000}, A.MESSAGE_ILLEGAL, "properties have 33"),
    "a delay that is no number": Row(
        R.SEND_MESSAGE, SEND | {"properties": "DELAY\001soon\2"}, A.SYSTEM_ERROR, "DELAY must be a number"),
    "a half message without its mark": Row(R.SEND_MESSAGE, SEND | {"sysFlag": "4"}, A.NO_PERMISSION, "TRAN_MSG"),
    "an end of no transaction": Row(
        R.END_TRANSACTION,
        {"producerGroup": "PG", "tranStateTableOffset": "0", "commitLogOffset": "5", "commitOrRollback": "8"},
        A.SYSTEM_ERROR, "no message begins"),
    "a send-back of nothing": Row(
        R.CONSUMER_SEND_MSG_BACK, {"offset": "5", "group": "audit", "delayLevel": "0"}, A.SYSTEM_ERROR, "no message"),
    "a message by a wrong id": Row(R.VIEW_MESSAGE_BY_ID, {"offset": "5"}, A.SYSTEM_ERROR, ""),
    "an empty batch": Row(R.SEND_BATCH_MESSAGE, SEND_V2, A.SYSTEM_ERROR, "at least one message", b""),
    "a batch of garbage": Row(R.SEND_BATCH_MESSAGE, SEND_V2, A.SYSTEM_ERROR, "batch record", b"\xff" * 100),
    "a batch cut short": Row(R.SEND_BATCH_MESSAGE, SEND_V2, A.SYSTEM_ERROR, "batch record", batch_record(b"b")[:-1]),
    "a batch whose second lies": Row(
        R.SEND_BATCH_MESSAGE, SEND_V2, A.SYSTEM_ERROR, "batch record at byte 23",
        batch_record(b"b") + batch_record(b"b", said_bytes=2**31 - 1)),
    "a batch over 4 MiB": Row(
        R.SEND_BATCH_MESSAGE, SEND_V2, A.MESSAGE_ILLEGAL, "at most", batch_record(bytes(BODY_BYTES_MAX))),
    "a pull of an unknown topic": Row(R.PULL_MESSAGE, PULL | {"topic": "none"}, A.TOPIC_NOT_EXIST, "does not exist"),
    "a pull of a queue beyond": Row(R.PULL_MESSAGE, PULL | {"queueId": "2"}, A.SYSTEM_ERROR, "read queues 0 to 1"),
    "a pull of queue -1": Row(R.PULL_MESSAGE, PULL | {"queueId": "-1"}, A.SYSTEM_ERROR, "read queues 0 to 1"),
    "a pull beyond the end": Row(R.PULL_MESSAGE, PULL | {"queueOffset": "5"}, A.PULL_OFFSET_MOVED, "NO_MESSAGE"),
    "a pull below 0": Row(R.PULL_MESSAGE, PULL | {"queueOffset": "-5"}, A.PULL_OFFSET_MOVED, "NO_MESSAGE"),
    "a pull of no group": Row(R.PULL_MESSAGE, PULL | {"consumerGroup": ""}, A.SUBSCRIPTION_GROUP_NOT_EXIST, "empty"),
    "a pull of an illegal group": Row(
        R.PULL_MESSAGE, PULL | {"consumerGroup": "a b"}, A.SUBSCRIPTION_GROUP_NOT_EXIST, "only the characters"),
    "a pull without a heartbeat": Row(
        R.PULL_MESSAGE, PULL | {"sysFlag": "0"}, A.SUBSCRIPTION_NOT_EXIST, "no consumer of group 'audit'"),
    "a filter without a tag": Row(
        R.PULL_MESSAGE, PULL | {"subscription": " || "}, A.SUBSCRIPTION_PARSE_FAILED, "tag"),
    "a filter by SQL": Row(
        R.PULL_MESSAGE, PULL | {"subscription": "a > 1", "expressionType": "SQL92"}, A.SYSTEM_ERROR, "SQL92"),
    "an illegal topic by an administrator": Row(
        R.UPDATE_AND_CREATE_TOPIC, CREATE | {"topic": "or ders"}, A.SYSTEM_ERROR, "only the characters"),
    "a reserved topic by an administrator": Row(
        R.UPDATE_AND_CREATE_TOPIC, CREATE | {"topic": "SELF_TEST_TOPIC"}, A.SYSTEM_ERROR, "the broker's own"),
    "a topic of -1 queues": Row(
        R.UPDATE_AND_CREATE_TOPIC, CREATE | {"writeQueueNums": "-1"}, A.SYSTEM_ERROR, "write queues"),
    "a topic of a million queues": Row(
        R.UPDATE_AND_CREATE_TOPIC, CREATE | {"readQueueNums": "1000000"}, A.SYSTEM_ERROR, "read queues"),
    "a permission nobody knows": Row(R.UPDATE_AND_CREATE_TOPIC, CREATE | {"perm": "64"}, A.SYSTEM_ERROR, "perm"),
    "an offset of a group that has none": Row(
        R.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "none"}, A.SYSTEM_ERROR, "no consumer of group 'none'"),
    **{f"reserved {topic}": Row(R.SEND_MESSAGE, SEND | {"topic": topic}, A.NO_PERMISSION, "belongs to the broker")
       for topic in sorted(RESERVED_TOPICS)},
}  # fmt: skip

AT_NAME_SERVER: dict[str, Row] = {
    "an unknown code": AT_BROKER["an unknown code"],
    "a broker's code": Row(R.SEND_MESSAGE_V2, SEND_V2, A.REQUEST_CODE_NOT_SUPPORTED, "SEND_MESSAGE_V2"),
    "a topic nobody knows": Row(R.GET_ROUTEINFO_BY_TOPIC, {"topic": "none"}, A.TOPIC_NOT_EXIST, "the topic: none"),
    "a topic of 200,000 characters": Row(
        R.GET_ROUTEINFO_BY_TOPIC, {"topic": LONG_NAME}, A.TOPIC_NOT_EXIST, "No topic route"),
    "a registration that is no JSON": Row(
        R.REGISTER_BROKER, REGISTER, A.SYSTEM_ERROR, "not a RegisterBrokerBody", b"{"),
    "a registration that is a list": Row(R.REGISTER_BROKER, REGISTER, A.SYSTEM_ERROR, "must be an object", b"[]"),
    "a registration with a wrong sum": Row(R.REGISTER_BROKER, REGISTER | {"bodyCrc32": "1"}, A.SYSTEM_ERROR, "crc32"),
    "a registration that is no zlib": Row(
        R.REGISTER_BROKER, REGISTER | {"compressed": "true"}, A.SYSTEM_ERROR, "not zlib"),
    "a registration that unpacks for ever": Row(
        R.REGISTER_BROKER, REGISTER | {"compressed": "true"}, A.SYSTEM_ERROR, "cut short or longer",
        zlib.compress(bytes(100 * 1024 * 1024))),
    "a version that is no JSON": Row(R.QUERY_DATA_VERSION, VERSION, A.SYSTEM_ERROR, "not a DataVersion", b"7 7"),
}  # fmt: skip

BAD_BODIES: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"{",
    "null": b"null",
    "a list": b"[]",
    "a number": b"7",
    "no UTF-8": b'{"clientId":"\xff"}',
    "deep nesting": b"[" * 100_000,
    "an empty object": b"{}",
    "members of the wrong kind": b'{"clientId":1,"clientID":1,"consumerGroup":[],"mqSet":{},"subscriptionData":1}',
    "a set of text": b'{"clientId":"c","clientID":"c","consumerGroup":"g","mqSet":"all","consumerDataSet":"all",'
    b'"group":"g","subscriptionData":"all"}',
    "members of numbers": b'{"clientId":"c","clientID":"c","consumerGroup":"g","mqSet":[1],"consumerDataSet":[1],'
    b'"group":"g","subscriptionData":[1]}',
    "members that lack members": b'{"clientId":"c","clientID":"c","consumerGroup":"g","mqSet":[{"topic":"t"}],'
    b'"consumerDataSet":[{"groupName":"g"}],"group":"g","subscriptionData":{}}',
    "numbers of text": b'{"clientId":"c","clientID":"c","consumerGroup":"g","mqSet":[{"topic":"t","brokerName":"b",'
    b'"queueId":"x"}],"consumerDataSet":[{"groupName":"g","consumeType":"MAYBE","messageModel":7}],"group":"g",'
    b'"subscriptionData":{"topic":"t","subVersion":"x"}}',
    "numbers beyond": b'{"clientId":"c","clientID":"c","consumerGroup":"g","mqSet":[{"topic":"t","brokerName":"b",'
    b'"queueId":99999999999999999999}],"producerDataSet":[{}],"group":"g",'
    b'"subscriptionData":{"topic":"t","subVersion":99999999999999999999}}',
}
SERVED_BODIES: dict[int, set[str]] = {  # as by RocketMQ: who asks for nothing gets it
    R.LOCK_BATCH_MQ: {"an empty object"},
    R.UNLOCK_BATCH_MQ: {"an empty object"},
    R.HEART_BEAT: {"an empty object", "members of the wrong kind", "members that lack members"},
    R.CHECK_CLIENT_CONFIG: {"null", "a list", "an empty object"},
}


async def check_row(target: Attacked, port: str, row: Row) -> None:
    """The row's answer, and a second one on the same connection, which goes on."""
    async with bystander(target), target.peer(port) as peer:
        reply = await peer.ask(json_request(row.code, row.ext_fields, row.body, opaque=31))
        assert (reply.code, reply.opaque) == (row.answer, 31), reply
        assert row.remark in (reply.remark or "")
        assert len(reply.remark or "") < 600
        assert (await peer.ask(json_request(9999, opaque=32))).opaque == 32


def test_each_is_refused(attack: Attack) -> None:
    """With the code that RocketMQ has for it (wire.md 3, 4.7, 6.2). The name server also answers unknown codes, which
    Apache's never answers."""

    async def story(target: Attacked) -> None:
        with each_row() as row:
            for port, table in zip(BOTH_PORTS, (AT_BROKER, AT_NAME_SERVER), strict=True):
                for name, each in table.items():
                    with row(f"{name} at the {port}"):
                        await check_row(target, port, each)

    attack(story, *OPTIONS)


def test_bad_bodies_are_refused(attack: Attack) -> None:
    """Unreadable lock requests, heartbeats and the like are answered 1 with the reason, in JSON and in MSGPACK, and
    nothing is changed."""

    async def story(target: Attacked) -> None:
        with each_row() as row:
            for code, served in SERVED_BODIES.items():
                for name, body in BAD_BODIES.items():
                    with row(f"{name} for {RequestCode(code).name}"):
                        await check_body(target, code, body, is_served=name in served)

    attack(story, *OPTIONS)


async def check_body(target: Attacked, code: int, body: bytes, *, is_served: bool) -> None:
    async with bystander(target), target.peer() as peer:
        for request in (json_request(code, body=body), msgpack_request(code, body=pack(body))):
            reply = await peer.ask(request)
            if is_served:
                assert reply.code == A.SUCCESS, reply
            else:
                assert reply.code == A.SYSTEM_ERROR, reply
                assert 10 < len((reply.remark or "").partition(": ")[2]) < 300
        table = await peer.ask(json_request(R.LIST_LOCKS, {}))
        assert json.loads(table.body) == {"lockTable": []}


def pack(body: bytes) -> bytes:
    """The same in msgpack, as far as it can be."""
    try:
        packed: bytes = msgpack.packb(json.loads(body))
    except (ValueError, RecursionError, OverflowError):
        return body
    return packed


@pytest.mark.smoke
def test_what_is_just_allowed_is_stored(attack: Attack) -> None:
    """A body of exactly 4 MiB, an empty one, and properties of the largest size (wire.md 4.7)."""
    overhead = len("k\1") + len("\2CLUSTER\1DefaultCluster")
    properties = "k\1" + "v" * (PROPERTIES_BYTES_MAX - overhead - 1)

    async def story(target: Attacked) -> None:
        async with bystander(target), target.peer() as peer:
            for fields, body in (
                (SEND, bytes(BODY_BYTES_MAX)),
                (SEND, b""),
                (SEND | {"properties": properties}, b"body"),
            ):
                reply = await peer.ask(json_request(R.SEND_MESSAGE, fields, body))
                assert reply.code == A.SUCCESS, reply

    attack(story, *OPTIONS)
