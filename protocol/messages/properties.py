"""A message's property string: name 0x01 value 0x02 name 0x01 value (wire.md 4.2 and 4.3)."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Final

from lockstep.protocol.errors import LocalProtocolError

__all__ = [
    "ARRIVE_TIME",
    "CHECK_IMMUNITY_TIME_IN_SECONDS",
    "CLUSTER",
    "CORRELATION_ID",
    "DELAY",
    "FIRST_POP_TIME",
    "INSTANCE_ID",
    "KEYS",
    "MAX_OFFSET",
    "MAX_RECONSUME_TIMES",
    "MIN_OFFSET",
    "MSG_TYPE",
    "NAME_END",
    "ORIGIN_GROUP",
    "ORIGIN_MESSAGE_ID",
    "PAIR_END",
    "PGROUP",
    "POP_CK",
    "PUSH_REPLY_TIME",
    "REAL_QID",
    "REAL_TOPIC",
    "RECONSUME_TIME",
    "REPLY_TO_CLIENT",
    "RESERVED_PROPERTIES",
    "RETRY_TOPIC",
    "SHARDING_KEY",
    "SHARDING_KEY_NAMES",
    "START_DELIVER_TIME",
    "TAGS",
    "TIMED",
    "TIMERS",
    "TIMER_DELAY_MS",
    "TIMER_DELAY_SEC",
    "TIMER_DELIVER_MS",
    "TIMER_DEL_UNIQKEY",
    "TIMER_OUT_MS",
    "TRANSACTION_CHECK_TIMES",
    "TRAN_MSG",
    "TTL",
    "UNIQ_KEY",
    "WAIT",
    "check_user_properties",
    "decode_properties",
    "encode_properties",
    "find_property",
    "sharding_key_of",
]

NAME_END: Final = "\x01"
PAIR_END: Final = "\x02"

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
WAIT: Final = "WAIT"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
DELAY: Final = "DELAY"
UNIQ_KEY: Final = "UNIQ_KEY"
RETRY_TOPIC: Final = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QID: Final = "REAL_QID"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
TRAN_MSG: Final = "TRAN_MSG"
PGROUP: Final = "PGROUP"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"
CLUSTER: Final = "CLUSTER"
CONSUME_START_TIME: Final = "CONSUME_START_TIME"
INSTANCE_ID: Final = "INSTANCE_ID"  # the namespace
MSG_TYPE: Final = "MSG_TYPE"
CORRELATION_ID: Final = "CORRELATION_ID"
TTL: Final = "TTL"
FIRST_POP_TIME: Final = "1ST_POP_TIME"
ORIGIN_GROUP: Final = "ORIGIN_GROUP"
POP_CK: Final = "POP_CK"  # the receipt, in a message that a group without order gets again
ARRIVE_TIME: Final = "ARRIVE_TIME"
START_DELIVER_TIME: Final = "__STARTDELIVERTIME"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
# RocketMQ 5 delivers a message with one of these later (docs/wire.md 18.7); the first that is there counts.
TIMERS: Final = (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS)
TIMER_OUT_MS: Final = "TIMER_OUT_MS"  # the time of delivery, of the broker
TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"  # of a mark: the message with this id is recalled
TIMED: Final = frozenset((START_DELIVER_TIME, *TIMERS))
SHARDING_KEY: Final = "__SHARDINGKEY"  # the name in Java 5.x, ONS and the 5.x clients
# The names in order of preference. The second is Go's; the last is in stores of earlier Lockstep versions.
SHARDING_KEY_NAMES: Final = (SHARDING_KEY, "SHARDING_KEY", "__SHARDING_KEY")

RESERVED_PROPERTIES: Final = frozenset(
    {
        KEYS, TAGS, WAIT, DELAY, UNIQ_KEY, RETRY_TOPIC, ORIGIN_MESSAGE_ID, REAL_TOPIC, REAL_QID, RECONSUME_TIME,
        MAX_RECONSUME_TIMES, TRAN_MSG, PGROUP, MIN_OFFSET, MAX_OFFSET, CLUSTER,
        "TRAN_PREPARED_QUEUE_OFFSET", TRANSACTION_CHECK_TIMES, CHECK_IMMUNITY_TIME_IN_SECONDS,
        CONSUME_START_TIME, "MSG_REGION", "TRACE_ON", INSTANCE_ID, "BUYER_ID", "TRANSFER_FLAG",
        "CORRECTION_FLAG", "MQ2_FLAG", MSG_TYPE, CORRELATION_ID, REPLY_TO_CLIENT, TTL, ARRIVE_TIME,
        PUSH_REPLY_TIME,
    }
)  # fmt: skip


def encode_properties(properties: Mapping[str, str]) -> str:
    """Encode properties like Java 4.9.8: without 0x02 after the last pair."""
    return PAIR_END.join([name + NAME_END + value for name, value in properties.items()])


def decode_properties(text: str) -> dict[str, str]:
    """Decode properties like Java: skip pieces without a name or a value; of equal names use the last."""
    result = {}
    for piece in text.split(PAIR_END):
        name, found, value = piece.partition(NAME_END)
        if found and name and value:
            result[name] = value
    return result


@cache
def _last_of(name: str) -> re.Pattern[str]:
    return re.compile(f"(?s)(?:.*{PAIR_END})?{re.escape(name)}{NAME_END}([^{PAIR_END}]+)")


def find_property(text: str, name: str) -> str | None:
    """What `decode_properties(text).get(name)` returns, without decoding all, which takes 0.2 us a property."""
    if name not in text:
        return None
    while PAIR_END * 2 in text:
        # The search below would stop at each.
        text = text.replace(PAIR_END * 2, PAIR_END)
    found = _last_of(name).match(text)
    return None if found is None else found[1]


def sharding_key_of(properties: Mapping[str, str]) -> str | None:
    """The sharding key, under any of its names (wire.md 4.3)."""
    for name in SHARDING_KEY_NAMES:
        if key := properties.get(name):
            return key
    return None


def check_user_properties(properties: Mapping[str, str]) -> None:
    """Check the properties of a message to send. Raises LocalProtocolError with the first illegal one (wire.md 4.2)."""
    for name, value in properties.items():
        if name in RESERVED_PROPERTIES:
            raise LocalProtocolError(f"property {name!r} is RocketMQ's own; choose another name")
        if not name or not value:
            raise LocalProtocolError(f"property {name!r} = {value!r}: names and values must not be empty")
        for text in (name, value):
            if NAME_END in text or PAIR_END in text:
                raise LocalProtocolError(f"property {name!r}: the characters 0x01 and 0x02 separate properties")
