"""Requests made from the product's own tables: each code with its header class, and values that fit the field."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from lockstep.protocol.codes import RequestCode
from lockstep.protocol.headers.messaging import REQUEST_HEADERS, RESPONSE_HEADERS
from lockstep.protocol.headers.spec import spec_of
from tests.fuzz.frames.bodies import body_of
from tests.fuzz.frames.loose import BINARY, JSON, MSGPACK, Loose
from tests.fuzz.frames.words import Words

__all__ = ["BROKER_CODES", "NAME_SERVER_CODES", "answer", "reply", "request"]

_R = RequestCode
NAME_SERVER_CODES: Final = tuple(
    int(code)
    for code in (
        _R.PUT_KV_CONFIG, _R.GET_KV_CONFIG, _R.DELETE_KV_CONFIG, _R.REGISTER_BROKER, _R.UNREGISTER_BROKER,
        _R.GET_ROUTEINFO_BY_TOPIC, _R.GET_BROKER_CLUSTER_INFO, _R.WIPE_WRITE_PERM_OF_BROKER,
        _R.ADD_WRITE_PERM_OF_BROKER, _R.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, _R.DELETE_TOPIC_IN_NAMESRV,
        _R.GET_KVLIST_BY_NAMESPACE, _R.GET_TOPICS_BY_CLUSTER, _R.GET_SYSTEM_TOPIC_LIST_FROM_NS, _R.GET_UNIT_TOPIC_LIST,
        _R.GET_HAS_UNIT_SUB_TOPIC_LIST, _R.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, _R.UPDATE_NAMESRV_CONFIG,
        _R.GET_NAMESRV_CONFIG, _R.QUERY_DATA_VERSION,
    )
)  # fmt: skip
_OFTEN: Final = tuple(
    int(code)
    for code in (
        _R.SEND_MESSAGE, _R.SEND_MESSAGE_V2, _R.SEND_BATCH_MESSAGE, _R.PULL_MESSAGE, _R.HEART_BEAT, _R.LOCK_BATCH_MQ,
        _R.UPDATE_CONSUMER_OFFSET, _R.CONSUMER_SEND_MSG_BACK, _R.END_TRANSACTION, _R.VIEW_MESSAGE_BY_ID,
    )
)  # fmt: skip
# Every code goes to each server: what is not its own is answered that it is not supported.
BROKER_CODES: Final = (
    tuple(int(code) for code in RequestCode) + _OFTEN * 2 + (0, -1, 9, 99, 9999, 32767, 65536, 2**31 - 1)
)

_KINDS: Final = (JSON, JSON, JSON, BINARY, MSGPACK, MSGPACK)
_TOPICS: Final = frozenset({"topic", "default_topic", "lock_topic", "origin_topic"})
_GROUPS: Final = frozenset(
    {"producer_group", "consumer_group", "group", "group_name", "compare_group", "src_group", "dest_group"}
)
_CLIENTS: Final = frozenset({"client_id", "lock_client_id", "sender_id"})
_STORED: Final = frozenset({"commit_log_offset", "tran_state_table_offset"})
_ADDRESSES: Final = frozenset({"broker_addr", "client_addr", "ha_server_addr"})
_IDS: Final = frozenset({"msg_id", "origin_msg_id", "transaction_id"})
_VALUES: Final[dict[str, Callable[[Words], Any]]] = {
    **dict.fromkeys(_TOPICS, Words.topic),
    **dict.fromkeys(_GROUPS, Words.group),
    **dict.fromkeys(_CLIENTS, Words.client),
    **dict.fromkeys(_STORED, Words.log_offset),
    **dict.fromkeys(_ADDRESSES, Words.address),
    **dict.fromkeys(_IDS, Words.message_id),
    "sys_flag": Words.sys_flag,
    "queue_id": lambda words: words.small(5) or words.number(32),
    "access_key": lambda words: ("few-rights", "no-rights", "new-account", "a")[words.small(4)],
    "namespace": lambda words: f"n-{words.small(400)}" if words.small(2) else words.text(),
}


class _Shape:
    """How requests of one code are filled in."""

    def __init__(self, code: int, headers: Mapping[int, type[tuple[Any, ...]]] = REQUEST_HEADERS) -> None:
        header_class = headers.get(code)
        fields = spec_of(header_class).fields if header_class is not None else ()
        self.names = tuple(each.wire_name for each in fields) if header_class is not None else None
        self.draws = [(each.wire_name, each.optional, self._drawn(code, each)) for each in fields]

    @staticmethod
    def _drawn(code: int, field: Any) -> Callable[[Words], Any]:
        if field.name == "offset" and code in (_R.VIEW_MESSAGE_BY_ID, _R.CONSUMER_SEND_MSG_BACK):
            return Words.log_offset
        known = _VALUES.get(field.name)
        if known is not None:
            return known
        if field.kind is bool:
            return lambda words: words.small(2) == 1
        if field.kind is int:
            bits = field.bits
            return lambda words: words.number(bits)
        return Words.text


_SHAPES: Final = {code: _Shape(code) for code in {*BROKER_CODES, *NAME_SERVER_CODES}}


def request(code: int, words: Words) -> Loose:
    """A request as a client could make it."""
    kind = _KINDS[words.small(len(_KINDS))]
    shape = _SHAPES[code]
    fields = {name: draw(words) for name, optional, draw in shape.draws if not optional or words.small(3) == 0}
    names = shape.names
    if kind == JSON:
        fields = {name: _json_text(value) for name, value in fields.items()}
    elif kind == MSGPACK and names is not None:
        fields = {name: fields.get(name) for name in names}
    flag = 2 if words.small(20) == 0 else 0
    loose = Loose(kind, code, fields, body_of(code, words), names if kind == MSGPACK else None, flag)
    if words.small(25) == 0:
        fields["lockstep.serialize"] = ("MSGPACK", "JSON", "ROCKETMQ", "x")[words.small(4)]
    return loose


def _json_text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else value


_REPLIES: Final = {code: _Shape(code, RESPONSE_HEADERS) for code in _SHAPES}


def reply(code: int, opaque: int, body: Any, words: Words) -> Loose:
    """An answer of a broker to a request of a client."""
    kind = _KINDS[words.small(len(_KINDS))]
    shape = _REPLIES[code]
    fields = {name: draw(words) for name, optional, draw in shape.draws if not optional or words.small(3) == 0}
    if kind == JSON:
        fields = {name: _json_text(value) for name, value in fields.items()}
    if words.small(4) == 0:
        fields["lockstep.serialize"] = ("MSGPACK", "MSGPACK", "JSON", "x")[words.small(4)]
    result = 0 if words.small(3) else (1, 2, 3, 17, 19, 20, 21, 206, 30011, -1)[words.small(10)]
    remark = None if words.small(3) else words.text()
    names = shape.names if kind == MSGPACK else None
    return Loose(kind, result, fields, body, names, flag=1, opaque=opaque, remark=remark)


def answer(opaque: int, words: Words) -> Loose:
    """An answer of a client to a request of the broker."""
    kind = _KINDS[words.small(len(_KINDS))]
    code = (0, 0, 1, 3, 206, -1)[words.small(6)]
    body: Any = (b"", b"{}", b"[]", b"\xff", {"a": 1}, _running_info(words), {"offsetTable": {}})[words.small(7)]
    return Loose(kind, code, {"a": words.text()}, body, flag=1, opaque=opaque, remark=words.text())


def _running_info(words: Words) -> Any:
    queue = {"topic": words.topic(), "brokerName": "broker-a", "queueId": 0}
    return {
        "properties": {"PROP_NAMESERVER_ADDR": words.text()}, "subscriptionSet": [], "mqTable": {str(queue): {}},
        "statusTable": {words.topic(): {"pullRT": words.number()}}, "consumeResult": "CR_SUCCESS", "order": False,
        "spentTimeMills": words.number(), "remark": words.text(), "messageQueueTable": {}, "autoCommit": True,
    }  # fmt: skip
