"""An answer as plain facts, and facts as paths: `ext.offset`, `body.offsetTable.{...}.maxOffset`, `pushes[0].code`.

Addresses and offset message ids are written as what they are (`<broker>`, `<client>`, `<offset id>`): every broker has
its own. Clocks and the like are left to masks.py.
"""

import base64
import re
from collections.abc import Iterator
from typing import Any, Final

from lockstep.protocol.codes import RequestCode
from lockstep.protocol.errors import BodyError
from lockstep.protocol.messages.message import MessageExt, decode_messages
from lockstep.protocol.messages.properties import decode_properties
from tests.differential.fastjson import NotJson, read_json
from tests.differential.side import Answer, Received, Side

__all__ = ["EXCEPTION", "Facts", "facts_of", "flatten"]

Facts = dict[str, Any]

EXCEPTION: Final = "<text of a Java exception>"
_MESSAGES: Final = {11, 12, 33, 309, 361, 200050, 200052}  # codes whose bodies are messages
_LINES: Final = {26, 319}  # codes whose bodies are `key=value` lines
_TOPIC_COUNTS: Final = {205, 327}  # how many topics there are is compared by their lists
_PUSHED_REPLY: Final = 326  # carries properties as a message does
_STATUS_REMARKS: Final = {0, 19, 20, 21}  # replies to pulls whose remark is the name of a status
_POP: Final = range(RequestCode.POP_MESSAGE, RequestCode.BATCH_ACK_MESSAGE + 1)  # whose remarks are RocketMQ's
_ADDRESS = re.compile(r"\b127\.0\.0\.1:\d+")
_OFFSET_ID = re.compile(r"\b7F000001[0-9A-F]{24}\b")
# Lists whose order says nothing.
_SETS: Final = {
    "topicList", "consumerIdList", "connectionSet", "groupList", "lockOKMQSet", "consumeTimeSpanSet", "brokerDatas",
    "queueDatas", "consumeStatsList", "tagsSet", "codeSet", "filterServerList", "messageQueueAssignments",
}  # fmt: skip


def facts_of(answer: Answer, code: int, side: Side) -> Facts:
    """Of a whole answer to a request of this code."""
    reply = answer.reply
    facts: Facts = {"answer": "reply" if reply else "closed" if answer.closed else "silence"}
    if reply is not None:
        facts |= _frame(reply, code, side)
        facts["encoding"] = reply.encoding
        if answer.closed:
            facts["answer"] = "reply, then closed"
    if answer.pushes:
        facts["pushes"] = [_frame(one, one.code, side) | {"to": name} for name, one in answer.pushes]
    return facts


def _frame(one: Received, code: int, side: Side) -> Facts:
    remark: Any = _remark(one.remark, one.code, code, side) if one.remark else None
    fields = None if one.fields is None else {name: _named(value, side) for name, value in one.fields.items()}
    if fields is not None and code in _TOPIC_COUNTS:
        fields = {name: value if value == "0" else "<some>" for name, value in fields.items()}
    if fields is not None and "recallHandle" in fields:
        fields["queueOffset"] = "<a place among timers>"
        fields["recallHandle"] = base64.urlsafe_b64decode(fields["recallHandle"] + "==").decode()
    if fields is not None and one.code == _PUSHED_REPLY:
        fields["properties"] = decode_properties(fields["properties"])
    return {"code": one.code, "flag": one.flag, "remark": remark, "ext": fields, "body": _body(one.body, code, side)}


def _remark(text: str, response_code: int, code: int, side: Side) -> str:
    if code in _POP:
        return EXCEPTION if re.match(r"java\.|com\.alibaba", text) else _named(text, side)
    return text if code in (11, 361) and response_code in _STATUS_REMARKS else "<text>"


def _body(body: bytes, code: int, side: Side) -> Any:
    if not body:
        return None
    if code in _MESSAGES:
        try:
            return [_message(each, side) for each in decode_messages(body)]
        except BodyError:
            pass
    text = body.decode("utf-8", "replace")
    if code in _LINES:
        return dict(line.partition("=")[::2] for line in text.splitlines() if line)
    try:
        return _named(read_json(text), side)
    except NotJson:
        return _named(text, side)


def _message(message: MessageExt, side: Side) -> Facts:
    return {
        "stored_bytes": message.stored_bytes,
        "body_crc": message.body_crc,
        "queue_id": message.queue_id,
        "flag": message.flag,
        "queue_offset": message.queue_offset,
        "commit_log_offset": message.commit_log_offset,
        "sys_flag": message.sys_flag,
        "born_timestamp": message.born_timestamp,
        "born_host": message.born_host[0].hex(),
        "store_timestamp": message.store_timestamp,
        "store_host": message.store_host[0].hex(),
        "reconsume_times": message.reconsume_times,
        "prepared_transaction_offset": "<a place in the log>" if message.prepared_transaction_offset else 0,
        "body": message.body.hex(),
        "topic": message.topic,
        "properties": {name: _named(value, side) for name, value in message.properties.items()},
    }


def _named(value: Any, side: Side, name: str = "") -> Any:
    """Addresses and ids by what they are, sets in one order."""
    if isinstance(value, dict):
        sets = name == "clusterAddrTable"  # cluster -> names of its brokers
        return {_named(key, side): _named(member, side, "groupList" if sets else key) for key, member in value.items()}
    if isinstance(value, list):
        named = [_named(each, side) for each in value]
        return sorted(named, key=repr) if name in _SETS else named
    if not isinstance(value, str):
        return value
    names = {side.broker_address: "<broker>", side.name_server_address: "<name server>"}
    text = _ADDRESS.sub(lambda found: names.get(found[0], "<client>"), value)
    return _OFFSET_ID.sub("<offset id>", text)


def flatten(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf with its path; an empty object or list is a leaf too."""
    if isinstance(value, dict) and value:
        for name, member in value.items():
            yield from flatten(member, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and value:
        for index, member in enumerate(value):
            yield from flatten(member, f"{path}[{index}]")
    else:
        yield path, value
