"""fastjson's dialect as real brokers and clients use it (wire.md 1.5)."""

from typing import Any

import pytest

from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.bodies.fastjson import ObjectKeyed, dumps, loads
from lockstep.protocol.bodies.heartbeat import HeartbeatData
from lockstep.protocol.bodies.queue_tables import as_queue_offsets, queue_from_key, queue_key, queue_table
from lockstep.protocol.errors import BodyError
from lockstep.protocol.model import MessageQueue
from tests.rows import by_row

QUEUE = MessageQueue("T", "b", 0)


@by_row(
    "text, value",
    [
        ("{a:1,_b:2,$c:3}", {"a": 1, "_b": 2, "$c": 3}),
        ("{'a':'it\\'s \"x\"'}", {"a": 'it\'s "x"'}),
        ('{"a":[1,2,],}', {"a": [1, 2]}),
        ("{0:1.5,1:-2,2:1e3,3:null,4:true}", {"0": 1.5, "1": -2, "2": 1000.0, "3": None, "4": True}),
        ('{{"queueId":0,"brokerName":"b"}:1}', {'{"brokerName":"b","queueId":0}': 1}),
        ("{{queueId:0}:{{queueId:1}:2}}", {'{"queueId":0}': {'{"queueId":1}': 2}}),
        ('{{"a":[{"b":1}]}:[]}', {'{"a":[{"b":1}]}': []}),
        ("{x:'\\u00e4\t'}\n", {"x": "ä\t"}),
    ],
)
def test_the_dialect(text: str, value: Any) -> None:
    """Names bare, quoted or objects; commas too many; text in single quotes."""
    assert loads(text.encode()) == value


@by_row("text",
    ["{{{a:1}:2}:3}", "{a:01x}", "{a:nul}", "{a 1}", "{a:}", "{:1}", "{a:1}b", "'a", "{a:'b}", "[1", "{a:1]", "{null}",
     "{[1]:2}", "{a:+}", "{'a\\", "[" * 201, '{"a":\'\\ud800\'}'])  # fmt: skip
def test_what_is_no_dialect(text: str) -> None:
    """The rest is refused, names inside names too: each level would double what stands in the one below."""
    with pytest.raises(ValueError, match=r"character|Invalid|column|surrogate|nested deeper"):
        loads(text.encode())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":{"b":[1]},"c":{"$ref":"$.a.b"}}', {"a": {"b": [1]}, "c": [1]}),
        ('{"a":[{"x":1},{"$ref":"$.a[0]"}]}', {"a": [{"x": 1}, {"x": 1}]}),
        ('{"a":{0:{"x":1}},"c":{"$ref":"$.a[0]"}}', {"a": {"0": {"x": 1}}, "c": {"x": 1}}),
        ('{"a":{"%RETRY%G":[5]},"c":{"$ref":"$.a.\\\\%RETRY\\\\%G"}}', {"a": {"%RETRY%G": [5]}, "c": [5]}),
        ('{"a":{"x.y":[5]},"c":{"$ref":"$.a[\'x.y\']"}}', {"a": {"x.y": [5]}, "c": [5]}),
        ('{"a":[{"$ref":"$.nowhere"},{"$ref":"$.a[7].b"},{"$ref":"x"}]}', {"a": [None, None, None]}),
        ('{"a":{"$ref":5},"b":{"$ref":"$.a","more":1}}', {"a": {"$ref": 5}, "b": {"$ref": "$.a", "more": 1}}),
    ],
)  # fmt: skip
def test_references(text: str, value: Any) -> None:
    """A path leads to what is named; one that leads nowhere is null; what only looks like a reference stays."""
    assert loads(text.encode()) == value


def test_references_to_what_is_around() -> None:
    """`@` is the object or list around the reference, `..` the one around that, `$` the whole body."""
    value = loads(b'{"a":{"b":{"self":{"$ref":"@"},"up":{"$ref":".."},"top":{"$ref":"$"}}}}')
    inner = value["a"]["b"]
    assert inner["self"] is inner
    assert inner["up"] is value["a"]
    assert inner["top"] is value


def test_a_heartbeat_with_references() -> None:
    """Two groups that share a subscription, as fastjson writes one Java object that occurs twice."""
    consumer = b'"consumeFromWhere":0,"consumeType":1,"messageModel":1,'
    first = b'{"groupName":"G",' + consumer + b'"subscriptionDataSet":[{"topic":"T"}]}'
    second = b'{"groupName":"H",' + consumer
    second += b'"subscriptionDataSet":[{"$ref":"$.consumerDataSet[0].subscriptionDataSet[0]"}]}'
    body = b'{"clientID":"c","consumerDataSet":[' + first + b"," + second + b"]}"
    heartbeat = decode_body(HeartbeatData, body, 0)
    assert [data.subscriptions[0].topic for data in heartbeat.consumer_data_set] == ["T", "T"]
    with pytest.raises(BodyError):
        decode_body(HeartbeatData, body.replace(b"[0]", b"[9]"), 0)


def test_maps_of_queues() -> None:
    """A queue as a name: the object itself for Java's tools; read in that form and as the text of one."""
    text = dumps({"table": queue_table({QUEUE: 3})})
    assert text == '{"table":{{"brokerName":"b","queueId":0,"topic":"T"}:3}}'
    as_text = '{"table":{"{\\"brokerName\\":\\"b\\", \\"topic\\":\\"T\\",\\"queueId\\":0}":"3"}}'
    for form in (text, as_text):
        assert as_queue_offsets(loads(form.encode())["table"], "table") == {QUEUE: 3}
    assert queue_from_key(queue_key(QUEUE)) == QUEUE
    for key in ("", "T", "[]", "5", '{"topic":"T"}', "[" * 100_000):
        with pytest.raises(BodyError):
            queue_from_key(key)


def test_what_has_no_form() -> None:
    """Numbers that are none, and things, are errors of the writer, inside a map with objects as names too."""
    for value in (float("nan"), object()):
        for wire in ({"a": value}, {"a": ObjectKeyed({"{}": value})}):
            with pytest.raises((ValueError, TypeError)):
                dumps(wire)


@pytest.mark.parametrize("text", [b'{a:"%s"}', b'{"a":"%s","b":{"$ref":"$.a"}}'])
def test_the_dialect_may_have_a_limit(text: bytes) -> None:
    """A long text that takes many times as long to read as strict JSON is refused; strict JSON is not."""
    data = text % (b"x" * 100)
    assert loads(data, len(data)) is not None
    with pytest.raises(ValueError, match=f"{len(data)} bytes are over the limit of {len(data) - 1}"):
        loads(data, len(data) - 1)
    assert loads(b'{"a":"%s"}' % (b"x" * 100), 5) == {"a": "x" * 100}
