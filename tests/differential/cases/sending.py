"""SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320), and what is stored then."""

import struct
import zlib
from typing import Any, Final

from lockstep.protocol.codes import RequestCode as R
from lockstep.protocol.messages.batch import BatchRecord, encode_batch
from tests.differential.case import LAST, Ask, Case, Table, ask, not_numbers, step, without
from tests.differential.cases.world import EMPTY, GROUP, NO_WRITE, pull, send, text, topic_fields

__all__ = ["CASES"]

TOPIC: Final = "DiffSends"
BAD_TOPIC: Final = "DiffBadSends"  # nobody reads what came through there
LONG_TOPIC: Final = "T" * 127
LETTERS: Final = dict(
    zip(
        ("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp",
         "flag", "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes", "batch", "bname"),
        "abcdefghijklmn",
        strict=True,
    )
)  # fmt: skip


def _read(topic: str, queue_id: int = 0, offset: int = 0) -> dict[str, Any]:
    return pull(topic, queue_id, offset, consumerGroup="DiffReader")


VALID: Final = {
    "plain": ask(),
    "with-properties": ask({"properties": text({"KEYS": "a b", "TAGS": "TagX", "UNIQ_KEY": "0" * 31 + "1", "x": "y"})}),
    "trailing-separator": ask({"properties": "KEYS\x01a\x02TAGS\x01null\x02"}),
    "own-cluster-property": ask({"properties": text({"CLUSTER": "mine", "WAIT": "false"})}),
    "no-properties": without("properties"),
    "empty-values": ask({"properties": "KEYS\x01\x02\x01b\x02junk\x02c\x01d"}),
    "equal-names": ask({"properties": "a\x011\x02b\x012\x02a\x013"}),
    "trace-properties": ask({"properties": text({"MSG_REGION": "Mine", "TRACE_ON": "false", "KEYS": "k"})}),
    "user-flag": ask({"flag": "7"}),
    "negative-flag": ask({"flag": "-7"}),
    "empty-body": ask(body=b""),
    "binary-body": ask(body=bytes(range(256))),
    "compressed": ask({"sysFlag": "769"}, body=zlib.compress(b"c" * 9000)),
    "old-compressed": ask({"sysFlag": "1"}, body=zlib.compress(b"c" * 9000)),
    "multi-tags": ask({"sysFlag": "2", "properties": text({"TAGS": "a||b"})}),
    "reconsume-times": ask({"reconsumeTimes": "5"}),
    "no-optional-fields": without("reconsumeTimes", "unitMode", "batch"),
    "unit-mode": ask({"unitMode": "true"}),
    "second-queue": ask({"queueId": "1"}),
    "new-topic": ask({"topic": "DiffCreated"}),
    "new-topic-one-queue": ask({"topic": "DiffCreatedOne", "defaultTopicQueueNums": "1"}),
    "new-topic-many-queues": ask({"topic": "DiffCreatedMany", "defaultTopicQueueNums": "100", "queueId": "7"}),
    "new-retry-topic": ask({"topic": "%RETRY%DiffReader", "properties": "KEYS\x01again"}),
    "dead-letter-topic": ask({"topic": "%DLQ%DiffReader"}),
    "longest-topic": ask({"topic": LONG_TOPIC}),
    "read-only-topic": ask({"topic": NO_WRITE}),
    "raw-numbers": ask({"queueId": 0, "sysFlag": 0, "bornTimestamp": 5, "unitMode": False, "flag": 0}),
    "signed-number": ask({"queueId": "+1"}),
    "unknown-fields": ask({"surprise": "yes", "bname": "elsewhere"}),
    "cpp": ask(language="CPP", version=63),
    "go": ask(language="GO", version=317),
    "binary-header": ask(encoding=1),
    "binary-header-properties": ask({"properties": text({"KEYS": "häß", "TAGS": "日本"})}, encoding=1),
    "one-way": ask(flag=2),
    "unknown-language": ask(language="COBOL"),
    "born-far-away": ask({"bornTimestamp": "0"}),
    "negative-born": ask({"bornTimestamp": "-1"}),
    "unicode": ask({"properties": text({"KEYS": "ключ", "名": "\U0001f600"})}),
    "delayed": ask({"properties": text({"DELAY": "18", "KEYS": "later"})}),
    "delayed-above": ask({"properties": text({"DELAY": "99"})}),
    "delay-zero": ask({"properties": text({"DELAY": "0"})}),
    "delay-negative": ask({"properties": text({"DELAY": "-1"})}),
}
INVALID: Final = {
    "missing-topic": without("topic"),
    "missing-group": without("producerGroup"),
    "missing-default-topic": without("defaultTopic"),
    **not_numbers("queueId"),
    **not_numbers("sysFlag"),
    **not_numbers("bornTimestamp", bits=64),
    **not_numbers("defaultTopicQueueNums"),
    **not_numbers("flag"),
    "reconsume-text": ask({"reconsumeTimes": "x"}),
    "reconsume-empty": ask({"reconsumeTimes": ""}),
    "no-fields": Ask({}, {"fields": None}),
    "queue-above": ask({"queueId": "4"}),
    "queue-far-above": ask({"queueId": "2147483647"}),
    "topic-too-long": ask({"topic": "T" * 128}),
    "topic-empty": ask({"topic": ""}),
    "topic-blank": ask({"topic": " "}),
    "topic-illegal": ask({"topic": "no spaces"}),
    "topic-illegal-sign": ask({"topic": "a.b"}),
    "topic-unicode": ask({"topic": "日本"}),
    "reserved-schedule": ask({"topic": "SCHEDULE_TOPIC_XXXX"}),
    "reserved-half": ask({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}),
    "reserved-self-test": ask({"topic": "SELF_TEST_TOPIC"}),
    "reserved-offset-moved": ask({"topic": "OFFSET_MOVED_EVENT"}),
    "template-topic": ask({"topic": "TBW102"}),
    "unknown-default-topic": ask({"topic": "DiffNever", "defaultTopic": "DiffNowhere"}),
    "default-cannot-be-inherited": ask({"topic": "DiffNever", "defaultTopic": EMPTY}),
    "empty-default-topic": ask({"topic": "DiffNever", "defaultTopic": ""}),
    "properties-too-long": ask({"properties": text({"long": "x" * 32768})}),
    "body-too-long": ask(body=b"x" * (4 * 1024 * 1024 + 1)),
    "null-topic": ask(header={"extFields": {"topic": None}}),
    "binary-header-no-topic": without("topic", encoding=1),
    "binary-header-not-a-number": ask({"queueId": "x"}, encoding=1),
    "delay-text": ask({"properties": text({"DELAY": "soon"})}),
    "one-way-bad": ask({"queueId": "x"}, flag=2),
}
# Fields whose letters may stand in a V2 header without their number being read as Java reads a long name's.


def _letters(row: Ask) -> Ask:
    fields = None if row.fields is None else {LETTERS.get(name, name): value for name, value in row.fields.items()}
    changes = dict(row.changes)
    if "header" in changes:
        changes["header"] = {"extFields": {LETTERS[name]: v for name, v in changes["header"]["extFields"].items()}}
    return Ask(fields, changes)


def _in_letters(rows: dict[str, Ask], topic_suffix: str) -> dict[str, Ask]:
    """The same cases with short names; topics that the first table made are made anew under another name."""
    renamed = {}
    for name, row in rows.items():
        row = _letters(row)
        if row.fields and str(row.fields.get("b", "")).startswith("DiffCreated"):
            row = Ask({**row.fields, "b": row.fields["b"] + topic_suffix}, row.changes)
        renamed[name] = row
    return renamed


def _record(body: bytes, properties: str = "", flag: int = 0) -> bytes:
    return encode_batch([BatchRecord(flag, body, properties)])


TWO: Final = encode_batch([BatchRecord(1, b"one", "KEYS\x01k1\x02TAGS\x01TagA"), BatchRecord(2, b"two", "KEYS\x01k2")])
SHORT: Final = {LETTERS[name]: value for name, value in send(TOPIC).items()}
BAD_SHORT: Final = SHORT | {"b": BAD_TOPIC}
BAD_LETTERS: Final = _in_letters(INVALID, "V2") | {"long-names": Ask({}, {"fields": send(BAD_TOPIC)})}
BATCHES: Final = {
    "two": ask(),
    "one": ask(body=_record(b"alone")),
    "hundred": ask(body=encode_batch([BatchRecord(0, b"n%d" % n, "") for n in range(100)])),
    "second-queue": ask({"e": "1"}),
    "header-properties": ask({"i": text({"CLUSTER": "mine", "WAIT": "true", "x": "y"})}),
    "record-properties-end": ask(body=_record(b"end", "KEYS\x01k\x02")),
    "empty-body-record": ask(body=_record(b"")),
    "unicode": ask(body=_record("тело".encode(), "KEYS\x01ключ")),
    "no-properties": without("i"),
    "binary-header": ask(encoding=1),
    "new-topic": ask({"b": "DiffCreatedByBatch"}),
    "one-way": ask(flag=2),
    "wait-in-record": ask(body=_record(b"w", "WAIT\x01true\x02KEYS\x01k")),
    "batch-upper-case": ask({"m": "TRUE"}),
    "wait-in-both": ask({"i": text({"WAIT": "true"})}, body=_record(b"w", "WAIT\x01true\x02KEYS\x01k")),
    "same-names-in-both": ask({"i": text({"x": "2", "TAGS": "B"})}, body=_record(b"s", "x\x011\x02TAGS\x01A")),
    "record-properties-odd": ask(body=_record(b"o", "junk\x02x\x011\x02x\x013\x02e\x01\x02")),
    "header-properties-odd": ask({"i": "q\x01r\x02q\x01s\x02junk"}, body=_record(b"h", "a\x01b")),
}
BAD_BATCHES: Final = {
    "missing-topic": without("b"),
    "missing-queue": without("e"),
    "queue-text": ask({"e": "x"}),
    "queue-above": ask({"e": "99"}),
    "empty-blob": ask(body=b""),
    "blob-is-text": ask(body=b"this is not a batch at all"),
    "blob-cut": ask(body=TWO[:-3]),
    "blob-with-rest": ask(body=TWO + b"\0\0"),
    "record-longer-than-blob": ask(body=struct.pack(">iiiii", 100, 0, 0, 0, 3) + b"abc\0\0"),
    "record-negative-body": ask(body=struct.pack(">iiiii", 22, 0, 0, 0, -1) + b"\0\0"),
    "to-retry-topic": ask({"b": "%RETRY%DiffReader"}, late=LAST),
    "reserved-topic": ask({"b": "SCHEDULE_TOPIC_XXXX"}),
    "topic-too-long": ask({"b": "T" * 128}),
    "topic-illegal": ask({"b": "a b"}),
    "born-text": ask({"g": "x"}),
    "no-fields": Ask({}, {"fields": None}),
    "not-marked-as-batch": ask({"m": "false"}),
    "mark-missing": without("m"),
    "blob-too-long": ask(body=b"".join([_record(b"x" * 1000)] * 4200)),
    "binary-header-no-topic": without("b", encoding=1),
}

CASES: Final[tuple[Case, ...]] = (
    *(step(R.UPDATE_AND_CREATE_TOPIC, topic_fields(topic), topic) for topic in (TOPIC, BAD_TOPIC)),
    *Table(R.SEND_MESSAGE, send(TOPIC), VALID, {}, {"body": b"a body"}).cases(),
    *Table(R.SEND_MESSAGE, send(BAD_TOPIC), {}, INVALID, {"body": b"a body"}).cases(),
    *Table(R.SEND_MESSAGE_V2, SHORT, _in_letters(VALID, "V2"), {}, {"body": b"a body"}).cases(),
    *Table(R.SEND_MESSAGE_V2, BAD_SHORT, {}, BAD_LETTERS, {"body": b"a body"}).cases(),
    *Table(R.SEND_BATCH_MESSAGE, SHORT | {"m": "true"}, BATCHES, {}, {"body": TWO}).cases(),
    *Table(R.SEND_BATCH_MESSAGE, BAD_SHORT | {"m": "true"}, {}, BAD_BATCHES, {"body": TWO}).cases(),
    *Table(
        R.PULL_MESSAGE,
        None,
        valid={
            "what-was-sent": ask(_read(TOPIC)),
            "what-was-sent-then": ask(_read(TOPIC, 0, 32)),
            "what-was-sent-later": ask(_read(TOPIC, 0, 64)),
            "batches-sent": ask(_read(TOPIC, 0, 90)),
            "batches-sent-last": ask(_read(TOPIC, 0, 180)),
            "batches-sent-by-tag": ask(_read(TOPIC, 0, 180) | {"subscription": "B"}),
            "what-was-sent-second-queue": ask(_read(TOPIC, 1)),
            "what-made-its-topic": ask(_read("DiffCreated")),
            "what-made-its-topic-many": ask(_read("DiffCreatedMany", 7)),
            "what-was-retried": ask(_read("%RETRY%DiffReader")),
            "longest-topic": ask(_read(LONG_TOPIC)),
            "own-group": ask(_read(TOPIC) | {"consumerGroup": GROUP}),
        },
    ).cases(),
)
