"""Lock requests and their answers by orjson, beside the readers and writers of all bodies."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lockstep.protocol.bodies.codec import decode_body, encode_body
from lockstep.protocol.bodies.fastjson import loads
from lockstep.protocol.bodies.locks import LockBatchBody, LockOkBody, encode_locked, read_plain_batch
from lockstep.protocol.codes import SerializeType
from lockstep.protocol.errors import BodyError
from lockstep.protocol.model import MessageQueue
from tests.fuzz.strategies import BODIES, fuzz, json_values, with_bytes_changed, with_one_change

_requests = BODIES[LockBatchBody].map(lambda body: loads(encode_body(body, SerializeType.JSON)))
_texts = st.builds(
    lambda value, ascii_only: json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass"),
    _requests | with_one_change(_requests, json_values) | json_values,
    st.booleans(),
)
_odd = st.sampled_from(
    ["0", "18446744073709551616", "1.0", "1e400", "NaN", "null", "true", '"x"', '"7"', '"\\ud800"', "[]", "[{}]",
     '{"topic":"t","brokerName":"b"}', '{"$ref":"$"}', '[{"topic":"t","brokerName":"b","queueId":1,"queueId":2}]',
     '[{"queueId":-0,"brokerName":"\\u00e9","topic":"\\"\\\\"},{"topic":"t","brokerName":"b","queueId":3,"x":1}]']
)  # fmt: skip
_odd_requests = st.lists(
    st.tuples(st.sampled_from(["clientId", "consumerGroup", "mqSet", "mqSet", "epochs", "more"]), _odd), max_size=4
).map(
    lambda members: "".join(
        ['{"clientId":"c","consumerGroup":"g","mqSet":[{"brokerName":"b","queueId":0,"topic":"t"}]',
         *[f',"{name}":{value}' for name, value in members], "}"]
    ).encode()
)  # fmt: skip


@fuzz
@given(_texts | with_bytes_changed(_texts) | _odd_requests | with_bytes_changed(_odd_requests))
def test_a_plain_lock_request_is_read_as_any_other(data: bytes) -> None:
    """What the quick reader takes is what the thorough one makes of it; it takes nothing that this one refuses."""
    quick = read_plain_batch(data)
    if quick is not None:
        assert repr(decode_body(LockBatchBody, data, SerializeType.JSON)) == repr(quick)


@fuzz
@given(BODIES[LockBatchBody].filter(lambda body: body.mq_set and body.epochs is None))
def test_requests_of_clients_are_plain(body: LockBatchBody) -> None:
    """The quick reader takes what clients write, but not a request without queues or with epochs."""
    data = encode_body(body, SerializeType.JSON)
    assert read_plain_batch(data) == (None if b"$ref" in data else body)
    for other in (body._replace(mq_set=()), body._replace(epochs=tuple(range(len(body.mq_set))))):
        assert read_plain_batch(encode_body(other, SerializeType.JSON)) is None


def test_a_request_that_is_broken() -> None:
    """It is left to the reader that says what is wrong."""
    for data in (b"", b"[]", b"5", b'{"mqSet":5}', b'{"consumerGroup":"g","clientId":"c","mqSet":[5]}', b"\xff"):
        assert read_plain_batch(data) is None
        try:
            decode_body(LockBatchBody, data, SerializeType.JSON)
        except BodyError:
            pass


_names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_queues: Any = st.lists(st.builds(MessageQueue, _names, _names, st.integers(-(2**31), 2**31 - 1)), max_size=4)


@fuzz
@given(_queues)
def test_granted_queues_are_written_as_any_body(queues: list[MessageQueue]) -> None:
    """Byte for byte, in both encodings: order of members, escapes, numbers."""
    for serialize_type in (SerializeType.JSON, SerializeType.MSGPACK):
        expected = encode_body(LockOkBody(tuple(queues)), serialize_type)
        assert encode_locked(queues, serialize_type) == expected
