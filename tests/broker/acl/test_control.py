"""The check of requests: its order, RocketMQ's texts, and what strict checks add."""

import json
from pathlib import Path
from typing import Any

import pytest

from lockstep.broker.acl.control import AccessControl
from lockstep.broker.acl.errors import AccessDenied
from lockstep.broker.acl.replay import ReplayWindow
from lockstep.broker.acl.required_permissions import NAME_SERVER_ADMIN, REQUIRED_PERMISSIONS
from lockstep.protocol.bodies.codec import encode_body
from lockstep.protocol.bodies.pop import BatchAck, BatchAckBody, QueryAssignmentBody
from lockstep.protocol.codes import RequestCode as R
from lockstep.protocol.codes import SerializeType
from lockstep.protocol.command import RemotingCommand, decode_command, encode_command
from lockstep.protocol.frame import FrameDecoder
from lockstep.protocol.headers.messaging import PullMessageRequestHeader
from lockstep.protocol.messages.message import Record, encode_stored_message
from lockstep.protocol.messages.together import NO_NUMBERS, FrameQueue, encode_sends
from lockstep.protocol.names import TRACE_TOPIC
from lockstep.protocol.signature import ONCE, SIGNATURE, Credentials, sign
from tests.broker.acl.accounts import ACCOUNT, ADMIN, HOST, RULES, control, files, signed


def refusal(folder: Path, command: RemotingCommand, host: str = HOST, **options: Any) -> str | None:
    try:
        control(folder, **options).check(command, host, 0)
    except AccessDenied as denied:
        return str(denied)
    return None


def send(topic: str, **fields: str) -> dict[str, str]:
    return {"a": "producers", "b": topic, **fields}


def pull(group: str, topic: str = "both") -> dict[str, str]:
    return {"consumerGroup": group, "topic": topic}


def acks(group: str, topic: str) -> bytes:
    body = BatchAckBody("broker-a", (BatchAck(group, topic, "0", 0, 0, 0, 0, 0, (0,)),))
    return encode_body(body, SerializeType.JSON)


def assignment(group: str, topic: str) -> bytes:
    return encode_body(QueryAssignmentBody(topic, group, "c1"), SerializeType.JSON)


def heartbeat(consumer: str = "", topic: str = "both", producer: str = "") -> bytes:
    subscription = {"topic": topic, "subString": "*"}
    names = {"consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING"}
    names["consumeFromWhere"] = "CONSUME_FROM_LAST_OFFSET"
    consumers = [{"groupName": consumer, "subscriptionDataSet": [subscription], **names}] if consumer else []
    producers = [{"groupName": producer}] if producer else []
    return json.dumps({"clientID": "c", "consumerDataSet": consumers, "producerDataSet": producers}).encode()


def locks(group: str, topic: str = "both") -> bytes:
    queue = {"topic": topic, "brokerName": "b", "queueId": 0}
    return json.dumps({"consumerGroup": group, "clientId": "c", "mqSet": [queue]}).encode()


def frame(*topics: str) -> bytes:
    """A message for each."""
    heads = [(queue, 0, 0, 0, 0, 1, 0) for queue in range(len(topics))]
    return encode_sends([FrameQueue(topic, 0, NO_NUMBERS) for topic in topics], heads, [b"x"] * len(topics))


def test_order(tmp_path: Path) -> None:
    """Global address, key, known key, the account's address, signature, permissions: in this order."""
    bare = RemotingCommand(R.UPDATE_BROKER_CONFIG)
    assert refusal(tmp_path, bare, "10.9.9.1") is None
    assert refusal(tmp_path, bare) == "No accessKey is configured"
    unknown = RemotingCommand(R.UPDATE_BROKER_CONFIG, ext_fields={"AccessKey": "nobody1"})
    assert refusal(tmp_path, unknown) == "No acl config for nobody1"
    unsigned = RemotingCommand(R.UPDATE_BROKER_CONFIG, ext_fields={"AccessKey": "account1"})
    assert refusal(tmp_path, unsigned, "10.1.1.1") is None
    assert refusal(tmp_path, unsigned) == "Check signature failed for accessKey=account1"
    wanted = "Need admin permission for request code=25, but accessKey=account1 is not"
    assert refusal(tmp_path, signed(R.UPDATE_BROKER_CONFIG, {})) == wanted
    assert refusal(tmp_path, unsigned, "10.1.1.1", strict=True) == wanted  # an address stands for a signature alone


@pytest.mark.parametrize("change", ["value", "body", "key", "signature", "none"])
def test_signature(tmp_path: Path, change: str) -> None:
    """A change of a field, of the body, or of the key after the signature is refused."""
    other = Credentials("account1", "secret-1235")
    command = signed(R.SEND_MESSAGE_V2, send("both"), b"body", other if change == "key" else ACCOUNT)
    assert isinstance(command.ext_fields, dict)
    if change == "value":
        command.ext_fields["b"] = "written"
    elif change == "body":
        command.body = b"Body"
    elif change == "signature":
        command.ext_fields[SIGNATURE] = "\u00e9"
    wanted = None if change == "none" else "Check signature failed for accessKey=account1"
    assert refusal(tmp_path, command) == wanted


GOOD = None
NO_TOPIC = "No default permission for topic:"
NO_GROUP = "No default permission for group:"
NO_ADMIN = "Need admin permission for request code={}, but accessKey=account1 is not"


@pytest.mark.parametrize(
    ("code", "fields", "body", "rocketmq", "strict"),
    [
        (R.SEND_MESSAGE_V2, send("both"), b"", GOOD, GOOD),
        (R.SEND_MESSAGE_V2, send("written"), b"", GOOD, GOOD),
        (R.SEND_MESSAGE_V2, send("read"), b"", NO_TOPIC + "read", NO_TOPIC + "read"),
        (R.SEND_MESSAGE_V2, send("denied"), b"", NO_TOPIC + "denied", NO_TOPIC + "denied"),
        (R.SEND_MESSAGE_V2, send("other"), b"", NO_TOPIC + "other", NO_TOPIC + "other"),
        (R.SEND_MESSAGE_V2, send("RMQ_SYS_TRACE_TOPIC"), b"", GOOD, GOOD),
        (R.SEND_MESSAGE_V2, {"a": "open", "b": "%RETRY%closed"}, b"", GOOD, NO_GROUP + "closed"),
        (R.SEND_MESSAGE, {"producerGroup": "p", "topic": "read"}, b"", NO_TOPIC + "read", NO_TOPIC + "read"),
        (R.SEND_BATCH_MESSAGE, send("read"), b"", GOOD, NO_TOPIC + "read"),
        (R.SEND_REPLY_MESSAGE_V2, send("read"), b"", GOOD, NO_TOPIC + "read"),
        (R.PULL_MESSAGE, pull("open"), b"", GOOD, GOOD),
        (R.PULL_MESSAGE, pull("unnamed"), b"", GOOD, GOOD),
        (R.PULL_MESSAGE, pull("closed"), b"", NO_GROUP + "closed", NO_GROUP + "closed"),
        (R.PULL_MESSAGE, pull("open", "written"), b"", NO_TOPIC + "written", NO_TOPIC + "written"),
        (R.LITE_PULL_MESSAGE, pull("open", "written"), b"", NO_TOPIC + "written", NO_TOPIC + "written"),
        (R.POP_MESSAGE, pull("open", "written"), b"", NO_TOPIC + "written", NO_TOPIC + "written"),
        (R.ACK_MESSAGE, pull("open", "%RETRY%open_both"), b"", GOOD, GOOD),
        (R.ACK_MESSAGE, pull("open", "%RETRY%open_written"), b"", NO_TOPIC + "written", NO_TOPIC + "written"),
        (R.BATCH_ACK_MESSAGE, {}, acks("open", "both"), GOOD, GOOD),
        (R.BATCH_ACK_MESSAGE, {}, acks("open", "written"), NO_TOPIC + "written", NO_TOPIC + "written"),
        (R.BATCH_ACK_MESSAGE, {}, acks("closed", "both"), NO_GROUP + "closed", NO_GROUP + "closed"),
        (R.QUERY_ASSIGNMENT, {}, assignment("open", "both"), GOOD, GOOD),
        (R.QUERY_ASSIGNMENT, {}, assignment("open", "written"), GOOD, NO_TOPIC + "written"),
        (R.QUERY_ASSIGNMENT, {}, assignment("closed", "both"), GOOD, NO_GROUP + "closed"),
        (R.SEND_TOGETHER, {"messageCount": "2"}, frame("both", "written"), GOOD, GOOD),
        (R.SEND_TOGETHER, {"messageCount": "2"}, frame("both", "read"), NO_TOPIC + "read", NO_TOPIC + "read"),
        (R.SEND_TOGETHER, {"messageCount": "1"}, frame(TRACE_TOPIC), GOOD, GOOD),
        (R.SEND_TOGETHER, {"messageCount": "2"}, frame(TRACE_TOPIC, "read"), NO_TOPIC + "read", NO_TOPIC + "read"),
        (R.HEART_BEAT, {}, heartbeat("open"), GOOD, GOOD),
        (R.HEART_BEAT, {}, heartbeat("closed"), NO_GROUP + "closed", NO_GROUP + "closed"),
        (R.HEART_BEAT, {}, heartbeat("open", "written"), NO_TOPIC + "written", NO_TOPIC + "written"),
        (R.HEART_BEAT, {}, heartbeat(producer="closed"), GOOD, NO_GROUP + "closed"),
        (R.HEART_BEAT, {}, heartbeat(producer="CLIENT_INNER_PRODUCER"), GOOD, GOOD),
        (R.HEART_BEAT, {}, heartbeat("writes", producer="writes"), NO_GROUP + "writes", NO_GROUP + "writes"),
        (R.UNREGISTER_CLIENT, {"consumerGroup": "closed"}, b"", NO_GROUP + "closed", NO_GROUP + "closed"),
        (R.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "closed"}, b"", NO_GROUP + "closed", NO_GROUP + "closed"),
        (R.UPDATE_CONSUMER_OFFSET, pull("closed"), b"", NO_GROUP + "closed", NO_GROUP + "closed"),
        (R.UPDATE_CONSUMER_OFFSET, pull("open", "denied"), b"", NO_TOPIC + "denied", NO_TOPIC + "denied"),
        (R.QUERY_CONSUMER_OFFSET, pull("closed"), b"", GOOD, NO_GROUP + "closed"),
        (R.CONSUMER_SEND_MSG_BACK, {"group": "closed", "offset": "0"}, b"", NO_GROUP + "closed", NO_GROUP + "closed"),
        (R.QUERY_MESSAGE, {"topic": "written", "key": "k"}, b"", NO_TOPIC + "written", NO_TOPIC + "written"),
        (R.LOCK_BATCH_MQ, {}, locks("open"), GOOD, GOOD),
        (R.LOCK_BATCH_MQ, {}, locks("closed"), GOOD, NO_GROUP + "closed"),
        (R.UNLOCK_BATCH_MQ, {}, locks("open", "denied"), GOOD, NO_TOPIC + "denied"),
        (R.GET_MAX_OFFSET, {"topic": "written"}, b"", GOOD, GOOD),
        (R.GET_MAX_OFFSET, {"topic": "other"}, b"", GOOD, NO_TOPIC + "other"),
        (R.GET_BROKER_CONFIG, {}, b"", GOOD, NO_ADMIN.format(26)),
        (R.UPDATE_AND_CREATE_ACL_CONFIG, {"accessKey": "account9", "admin": "true"}, b"", GOOD, NO_ADMIN.format(50)),
        (R.GET_BROKER_CLUSTER_ACL_CONFIG, {}, b"", GOOD, NO_ADMIN.format(54)),
        (R.PULL_MESSAGE, pull("open", "SCHEDULE_TOPIC_XXXX"), b"", *[NO_TOPIC + "SCHEDULE_TOPIC_XXXX"] * 2),
        (99_999, {}, b"", GOOD, GOOD),
    ],
)
def test_permissions(
    tmp_path: Path, code: int, fields: dict[str, str], body: bytes, rocketmq: str | None, strict: str | None
) -> None:
    """What an account without a role may do, by RocketMQ's checks and by strict ones."""
    assert refusal(tmp_path, signed(code, dict(fields), body)) == rocketmq
    assert refusal(tmp_path, signed(code, dict(fields), body), strict=True) == strict
    assert refusal(tmp_path, signed(code, dict(fields), body, ADMIN), strict=True) is None


@pytest.mark.parametrize(
    ("account", "resources", "may_send"),
    [
        ("admin: false", "", False),
        ("admin: true", "", True),
        ("admin: true", "topicPerms: [both=SUB]", False),
        ("admin: true", "topicPerms: [both=SUB|PUB]", True),
    ],
)
def test_an_account_without_resources(tmp_path: Path, account: str, resources: str, may_send: bool) -> None:
    """Only an administrator without permissions of his own may do everything; others have what the defaults give."""
    fields = f"accessKey: account1, secretKey: secret-1234, {account}, {resources}"
    checks = AccessControl(files(tmp_path, f"accounts: [{{{fields}}}]"))
    command = signed(R.SEND_MESSAGE_V2, send("both"))
    if may_send:
        checks.check(command, HOST, 0)
    else:
        with pytest.raises(AccessDenied, match="topic:both"):
            checks.check(command, HOST, 0)


def test_reserved_topics(tmp_path: Path) -> None:
    """Strict: topics that hold messages of all others are for administrators, also with a default permission."""
    text = "accounts: [{accessKey: account1, secretKey: secret-1234, defaultTopicPerm: SUB, defaultGroupPerm: SUB}]"
    command = signed(R.PULL_MESSAGE, pull("open", "RMQ_SYS_TRANS_HALF_TOPIC"))
    lenient, strict = control(tmp_path), control(tmp_path, strict=True)
    for each in (lenient, strict):
        (tmp_path / "plain_acl.yml").write_text(text)
        assert each.files.look()
    lenient.check(command, HOST, 0)
    with pytest.raises(AccessDenied, match="topic:RMQ_SYS_TRANS_HALF_TOPIC"):
        strict.check(command, HOST, 0)


@pytest.mark.parametrize("offset", ["5", "+5", "-0", "0" * 30 + "5"])
@pytest.mark.parametrize(
    ("code", "name"),
    [(R.VIEW_MESSAGE_BY_ID, "offset"), (R.CONSUMER_SEND_MSG_BACK, "offset"), (R.END_TRANSACTION, "commitLogOffset")],
)
def test_offsets_in_any_form(tmp_path: Path, code: int, name: str, offset: str) -> None:
    """Strict: a sign or zeros before an offset, which the handler reads too, do not hide the message's topic.

    The refusal does not tell the topic: offsets are easy to guess.
    """
    at = int(offset)
    host = bytes(4)
    record = Record("other", 0, 0, 0, 0, host, 1, 0, 0, 0, b"x", b"", 0)
    stored = encode_stored_message(record, b"other", 0, at, host, 2)
    checks = control(tmp_path, strict=True, message_at={at: stored}.get)
    with pytest.raises(AccessDenied, match="the topic of this message") as denied:
        checks.check(signed(code, {"group": "open", name: offset}), HOST, 0)
    assert "other" not in str(denied.value)
    own = encode_stored_message(record._replace(topic="both"), b"both", 0, at, host, 2)
    control(tmp_path, strict=True, message_at={at: own}.get).check(
        signed(code, {"group": "open", name: offset}), HOST, 0
    )


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (R.UPDATE_CONSUMER_OFFSET, {"queueId": "0", "commitOffset": "5"}),
        (R.QUERY_CONSUMER_OFFSET, {"topic": "both", "queueId": "0"}),
        (R.QUERY_MESSAGE, {"key": "k", "maxNum": "9", "beginTimestamp": "0", "endTimestamp": "9"}),
    ],
)
def test_absent_names(tmp_path: Path, code: int, fields: dict[str, Any]) -> None:
    """Strict: what a handler reads for an absent field requires its permission. RocketMQ asks for none."""
    rules = RULES.replace("defaultGroupPerm: SUB", "defaultGroupPerm: DENY")
    with pytest.raises(AccessDenied, match=r"No default permission for (topic|group):null"):
        AccessControl(files(tmp_path, rules), strict=True).check(signed(code, dict(fields)), HOST, 0)
    AccessControl(files(tmp_path, rules)).check(signed(code, dict(fields)), HOST, 0)


def test_positions_count(tmp_path: Path) -> None:
    """A field beside a MSGPACK header does not stand in for the position that the handler reads."""
    header = PullMessageRequestHeader("closed", "denied", 0, 0, 32, 0, 0, 0, 0)
    command = RemotingCommand(R.PULL_MESSAGE, header, serialize_type=SerializeType.MSGPACK)
    command.ext_fields = {"consumerGroup": "open", "topic": "both"}
    sign(command, ACCOUNT)
    decoder = FrameDecoder()
    decoder.feed(encode_command(command))
    (frame,) = decoder.frames()
    assert refusal(tmp_path, decode_command(frame)) is not None


def test_unreadable_body(tmp_path: Path) -> None:
    """A heartbeat that cannot be read is refused, but only after its signature was checked."""
    assert "not" in str(refusal(tmp_path, signed(R.HEART_BEAT, {}, b"nonsense")))
    assert refusal(tmp_path, RemotingCommand(R.HEART_BEAT, body=b"nonsense")) == "No accessKey is configured"


def test_unique_key_query(tmp_path: Path) -> None:
    """RocketMQ's broker refuses what its clients sign since 4.9.4; ours takes both, strict checks only that."""
    fields = {"topic": "both", "key": "k", "_UNIQUE_KEY_QUERY": "true"}
    assert refusal(tmp_path, signed(R.QUERY_MESSAGE, dict(fields))) is None
    assert refusal(tmp_path, signed(R.QUERY_MESSAGE, dict(fields)), strict=True) is None
    older = signed(R.QUERY_MESSAGE, {"topic": "both", "key": "k"})
    older.ext_fields = {**(older.ext_fields or {}), "_UNIQUE_KEY_QUERY": "true"}
    assert refusal(tmp_path, older) is None
    assert refusal(tmp_path, older, strict=True) == "Check signature failed for accessKey=account1"


def test_every_code_has_a_row() -> None:
    """No request code is without its requirement, and a row names no code twice."""
    assert set(REQUIRED_PERMISSIONS) == set(R)
    assert set(R) >= NAME_SERVER_ADMIN
    for code, (rocketmq, strict) in REQUIRED_PERMISSIONS.items():
        assert rocketmq.text, code
        assert strict.text, code
        assert strict.admin or not rocketmq.admin, f"{code}: strict checks are not weaker"


def test_name_server(tmp_path: Path) -> None:
    """A name server with strict checks takes changes from administrators and from global white
    addresses, and answers questions of anybody."""
    checks = control(tmp_path, strict=True)
    checks.check_name_server(RemotingCommand(R.GET_ROUTEINFO_BY_TOPIC), HOST, 0)
    checks.check_name_server(signed(R.REGISTER_BROKER, {}, account=ADMIN), HOST, 0)
    checks.check_name_server(RemotingCommand(R.REGISTER_BROKER), "10.9.9.1", 0)
    with pytest.raises(AccessDenied, match="No accessKey"):
        checks.check_name_server(RemotingCommand(R.REGISTER_BROKER), HOST, 0)
    with pytest.raises(AccessDenied, match="Need admin permission"):
        checks.check_name_server(signed(R.PUT_KV_CONFIG, {}), HOST, 0)


def test_copies(tmp_path: Path) -> None:
    """A copy of a numbered request is refused; one of a client that does not number its requests is not noticed."""
    checks = control(tmp_path, strict=True, replay=ReplayWindow(1000))
    numbered = signed(R.GET_MAX_OFFSET, {"topic": "both", ONCE: "5000-s-1"})
    checks.check(numbered, HOST, 5000)
    with pytest.raises(AccessDenied, match="A copy of an earlier request"):
        checks.check(numbered, HOST, 5001)
    plain = signed(R.GET_MAX_OFFSET, {"topic": "both"})
    for _ in range(2):
        checks.check(plain, HOST, 5002)
