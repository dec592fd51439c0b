"""Hostile and lawful input for the protocol, and how hard to try.

The examples are the same in every run, so that a green tree stays green; how many there are says the profile of the
tier. `LOCKSTEP_FUZZ=5000` tries that many new ones a test instead.
"""

import os
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from lockstep.protocol.bodies.broker import (
    BrokerData,
    ClusterInfo,
    ConsumerGroupList,
    ConsumerIdList,
    DataVersion,
    QueueData,
    QueueOwner,
    TopicConfig,
    TopicConfigs,
    TopicList,
    TopicRouteData,
)
from lockstep.protocol.bodies.codec import WireBody
from lockstep.protocol.bodies.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
)
from lockstep.protocol.bodies.locks import (
    LockBatchBody,
    LockGrant,
    LockOkBody,
    LockRefusal,
    LocksReleasedBody,
    LockTableBody,
    LockTableRow,
)
from lockstep.protocol.bodies.pop import DeliveryRow, DeliveryTableBody
from lockstep.protocol.headers.messaging import REQUEST_HEADERS, RESPONSE_HEADERS
from lockstep.protocol.headers.spec import spec_of
from lockstep.protocol.messages.batch import BatchRecord
from lockstep.protocol.messages.message import Record, encode_stored_message
from lockstep.protocol.messages.together import FrameQueue, encode_sends
from lockstep.protocol.model import MessageQueue

_EXAMPLES = int(os.environ.get("LOCKSTEP_FUZZ", "0"))
fuzz = settings(
    max_examples=_EXAMPLES or settings().max_examples,
    derandomize=not _EXAMPLES,
    database=None,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow],
)
fuzz_each = settings(fuzz, max_examples=_EXAMPLES or fuzz.max_examples // 3)  # for what is tried on every class
fuzz_broken = settings(fuzz, max_examples=300, phases=[Phase.generate])  # for canaries: to fail is enough

HEADER_CLASSES = sorted({*REQUEST_HEADERS.values(), *RESPONSE_HEADERS.values()}, key=lambda c: c.__name__)

int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
texts = st.text(max_size=12)
numerals = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.sampled_from(["", "+1", "-0", "007", "1_0", " 1", "1e3", "0x1", "true", "TRUE", "1"]),
)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), texts, numerals, st.just("x" * 200)
)
json_values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=12,
)
msgpack_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), texts, st.binary(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.one_of(texts, st.binary(max_size=4)), inner, max_size=4)
    ),
    max_leaves=12,
)


def headers(header_class: type[tuple[Any, ...]]) -> st.SearchStrategy[tuple[Any, ...]]:
    """Lawful headers of a class."""
    values: list[st.SearchStrategy[Any]] = []
    for field in spec_of(header_class).fields:
        numbers = int32s if field.bits == 32 else int64s
        value: st.SearchStrategy[Any] = {int: numbers, bool: st.booleans(), str: texts}[field.kind]
        # None cannot be told from "absent", which reads as the default.
        values.append(st.one_of(st.none(), value) if field.optional and field.default is None else value)
    return st.tuples(*values).map(header_class._make)  # type: ignore[attr-defined]


queues = st.builds(MessageQueue, texts, texts, int64s)
_some_queues = st.lists(queues, max_size=3).map(tuple)
_brokers = st.builds(
    BrokerData, texts, texts, st.dictionaries(int64s, texts, max_size=3), st.none() | st.booleans(), int64s
)
_owners = st.lists(st.builds(QueueOwner, texts, int64s, int64s, int64s), max_size=3).map(tuple)
_attributes = st.dictionaries(texts, texts, max_size=2).map(lambda table: tuple(sorted(table.items())))
configs = st.builds(TopicConfig, texts, int64s, int64s, int64s, int64s, st.booleans(), _attributes)
subscriptions = st.builds(
    SubscriptionData,
    texts,
    texts,
    st.lists(texts, max_size=3).map(tuple),
    st.lists(int64s, max_size=3).map(tuple),
    int64s,
    texts,
    st.booleans(),
)
_consumers = st.builds(
    ConsumerData,
    texts,
    st.sampled_from(ConsumeType),
    st.sampled_from(MessageModel),
    st.sampled_from(ConsumeFromWhere),
    st.lists(subscriptions, max_size=2).map(tuple),
    st.booleans(),
)
_epochs = st.integers(0, 2**63 - 1)
_owned = st.lists(st.tuples(queues, _epochs), max_size=3)  # queues and their epochs
_locked = _owned.map(lambda pairs: (tuple(queue for queue, _ in pairs), tuple(epoch for _, epoch in pairs)))
_rows = st.builds(
    LockTableRow, texts, queues, texts, int64s, int64s, int64s,
    st.none() | _epochs, st.none() | st.booleans(), st.none() | int64s,
)  # fmt: skip
_deliveries = st.builds(DeliveryRow, queues, int64s, int64s, int64s, int64s, st.none() | int64s, st.none() | texts)
versions = st.builds(DataVersion, int64s, int64s)
text_tuples = st.lists(texts, max_size=3).map(tuple)

BODIES: dict[type[WireBody], st.SearchStrategy[Any]] = {
    LockBatchBody: st.builds(LockBatchBody, texts, texts, _some_queues, st.none())
    | st.builds(lambda locked: LockBatchBody("G", "c", *locked), _locked),
    LockOkBody: st.builds(LockOkBody, _some_queues, st.none(), st.none())
    | st.builds(
        lambda locked, refused: LockOkBody(locked[0], tuple(LockGrant(n, n % 10**9) for n in locked[1]), refused),
        _locked,
        st.none() | st.lists(st.builds(LockRefusal, queues, texts, texts, int64s), max_size=2).map(tuple),
    ),
    LocksReleasedBody: st.builds(LocksReleasedBody, texts, _some_queues),
    LockTableBody: st.builds(LockTableBody, st.lists(_rows, max_size=2).map(tuple)),
    DeliveryTableBody: st.builds(
        DeliveryTableBody, st.lists(_deliveries, max_size=2).map(tuple), *[int64s] * 4, text_tuples
    ),
    ConsumerIdList: st.builds(ConsumerIdList, text_tuples, st.none() | _owners),
    TopicList: st.builds(TopicList, text_tuples),
    ConsumerGroupList: st.builds(ConsumerGroupList, st.dictionaries(texts, text_tuples, max_size=3)),
    TopicRouteData: st.builds(
        TopicRouteData,
        st.lists(st.builds(QueueData, texts, int64s, int64s, int64s, int64s), max_size=2).map(tuple),
        st.lists(_brokers, max_size=2).map(tuple),
        st.none() | texts,
    ),
    ClusterInfo: st.builds(
        ClusterInfo,
        st.lists(_brokers, max_size=3, unique_by=lambda b: b.broker_name).map(
            lambda brokers: tuple(sorted(brokers, key=lambda b: b.broker_name))
        ),
    ),
    DataVersion: versions,
    TopicConfig: configs,
    TopicConfigs: st.builds(
        TopicConfigs,
        versions,
        st.lists(configs, max_size=3, unique_by=lambda c: c.topic_name).map(lambda configs: tuple(sorted(configs))),
    ),
    HeartbeatData: st.builds(
        HeartbeatData,
        texts,
        st.lists(st.builds(ProducerData, texts), max_size=2).map(tuple),
        st.lists(_consumers, max_size=2).map(tuple),
        int32s,
    ),
}


@st.composite
def with_one_change(draw: st.DrawFn, lawful: st.SearchStrategy[Any], replacement: st.SearchStrategy[Any]) -> Any:
    """Plain dicts and lists with one node, at any depth, replaced, left out or given another name."""
    return _changed(draw, draw(lawful), replacement)


def _changed(draw: st.DrawFn, value: Any, replacement: st.SearchStrategy[Any]) -> Any:
    if not isinstance(value, (dict, list)) or not value or draw(st.integers(0, 4)) == 0:
        return draw(replacement)
    if isinstance(value, list):
        index = draw(st.integers(0, len(value) - 1))
        return [_changed(draw, old, replacement) if i == index else old for i, old in enumerate(value)]
    name = draw(st.sampled_from(sorted(value)))
    how = draw(st.sampled_from(["deeper", "deeper", "deeper", "left out", "renamed"]))
    rest = {key: old for key, old in value.items() if key != name}
    if how == "left out":
        return rest
    return rest | ({draw(texts): value[name]} if how == "renamed" else {name: _changed(draw, value[name], replacement)})


@st.composite
def with_bytes_changed(draw: st.DrawFn, lawful: st.SearchStrategy[bytes]) -> bytes:
    """Bytes that were right, after a few were overwritten, put in or cut out."""
    data = bytearray(draw(lawful))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        cut = draw(st.sampled_from([0, 1, 1, 2, 4, 4, 8, 50]))
        put = draw(st.sampled_from(["same", "same", "same", "other"]))
        new = draw(st.binary(min_size=cut, max_size=cut) if put == "same" else st.binary(max_size=6))
        data[start : start + cut] = new
    return bytes(data)


def stored_message(parts: dict[str, Any]) -> bytes:
    """A message in the stored layout, its parts by name; the topic is bytes."""
    fields: dict[str, Any] = {name: parts.get(name) for name in Record._fields} | {"topic": "", "tags_code": 0}
    place = (parts["queue_offset"], parts["commit_log_offset"], parts["store_host"], parts["store_port"])
    return encode_stored_message(Record(**fields), parts["topic"], *place)


stored_parts: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "queue_id": int32s,
        "flag": int32s,
        "queue_offset": int64s,
        "commit_log_offset": int64s,
        "sys_flag": int32s.map(lambda flag: flag & ~0x31),  # neither compressed nor IPv6
        "born_timestamp": int64s,
        "born_host": st.binary(min_size=4, max_size=4),
        "born_port": int32s,
        "store_timestamp": int64s,
        "store_host": st.binary(min_size=4, max_size=4),
        "store_port": int32s,
        "reconsume_times": int32s,
        "prepared_transaction_offset": int64s,
        "body": st.binary(max_size=30),
        "topic": texts.map(str.encode),
        "properties": st.binary(max_size=30),
    }
)
stored_blobs = st.lists(stored_parts, min_size=1, max_size=3).map(
    lambda records: b"".join(map(stored_message, records))
)
batches = st.lists(st.builds(BatchRecord, int32s, st.binary(max_size=20), texts), min_size=1, max_size=4)


@st.composite
def _send_frames(draw: st.DrawFn) -> tuple[bytes, int]:
    queues = draw(st.lists(st.builds(FrameQueue, texts, int32s, int64s), min_size=1, max_size=3))
    contents = draw(st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=9)), min_size=3, max_size=5))
    queue = st.integers(0, len(queues) - 1)
    heads = [
        (draw(queue), draw(int64s), draw(int64s), draw(int32s), draw(int32s), len(body), len(properties))
        for body, properties in contents
    ]
    return encode_sends(queues, heads, [text for pair in contents for text in pair]), len(heads)


send_frames = _send_frames()
"""Bodies of SEND_TOGETHER, and how many messages they have."""
