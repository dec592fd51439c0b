"""SEND_REPLY_MESSAGE (324) and its V2 (325): an answer is passed on to the client that asked."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from lockstep.protocol.codes import RequestCode as R
from tests.differential.case import AFTER_READS, Ask, Case, Table, ask, without
from tests.differential.cases.sending import LETTERS
from tests.differential.cases.world import CLUSTER, send, text

__all__ = ["CASES"]

TOPIC: Final = f"{CLUSTER}_REPLY_TOPIC"
ASKER: Final = "diff-client-6"
NAMES: Final = {"MSG_TYPE": "reply", "CORRELATION_ID": "question-1", "REPLY_TO_CLIENT": ASKER, "CLUSTER": CLUSTER}


def _named(**change: Any) -> dict[str, Any]:
    return {"properties": text({name: value for name, value in (NAMES | change).items() if value is not None})}


VALID: Final = {
    "to-the-asker": ask(watch=("producer-1",)),
    "again": ask(watch=("producer-1",)),
    "more-properties": ask(_named(KEYS="k", UNIQ_KEY="1" * 32), watch=("producer-1",)),
    "empty-body": ask(body=b"", watch=("producer-1",)),
    "nobody-is-called-so": ask(_named(REPLY_TO_CLIENT="nobody")),
    "asker-not-named": ask(_named(REPLY_TO_CLIENT=None)),
    "no-properties": without("properties"),
    "no-optional-fields": without("reconsumeTimes", "unitMode", "batch", watch=("producer-1",)),
    "binary-header": ask(encoding=1, watch=("producer-1",)),
    "one-way": ask(flag=2, watch=("producer-1",)),
    "go": ask(language="GO", version=317, watch=("producer-1",)),
}
INVALID: Final = {
    "missing-topic": without("topic"),
    "missing-queue": without("queueId"),
    "queue-text": ask({"queueId": "x"}),
    "queue-above": ask({"queueId": "99"}),
    "topic-illegal": ask({"topic": "a b"}),
    "topic-too-long": ask({"topic": "T" * 128}),
    "topic-reserved": ask({"topic": "SCHEDULE_TOPIC_XXXX"}),
    "born-text": ask({"bornTimestamp": "x"}),
    "no-fields": Ask({}, {"fields": None}),
    "binary-header-no-topic": without("topic", encoding=1),
    "unknown-default-topic": ask({"topic": "DiffNoReplies", "defaultTopic": "DiffNowhere"}),
}


def _in_letters(rows: Mapping[str, Ask]) -> dict[str, Ask]:
    return {
        name: row if row.fields is None else Ask({LETTERS[field]: v for field, v in row.fields.items()}, row.changes)
        for name, row in rows.items()
    }


USUAL: Final = send(TOPIC) | {"properties": text(NAMES)}
SHORT: Final = {LETTERS[name]: value for name, value in USUAL.items()}
BODY: Final = {"body": b"an answer"}
_IN_ORDER: Final = (
    *Table(R.SEND_REPLY_MESSAGE, USUAL, VALID, INVALID, BODY).cases(),
    *Table(R.SEND_REPLY_MESSAGE_V2, SHORT, _in_letters(VALID), _in_letters(INVALID), BODY).cases(),
)
CASES: Final[tuple[Case, ...]] = tuple(replace(case, late=AFTER_READS) for case in _IN_ORDER)
