"""HEART_BEAT (34), UNREGISTER_CLIENT (35), GET_CONSUMER_LIST_BY_GROUP (38), CHECK_CLIENT_CONFIG (46)."""

from dataclasses import replace
from typing import Any, Final

from lockstep.protocol.codes import RequestCode as R
from tests.differential.case import LAST, Ask, Case, Table, ask, step, without
from tests.differential.cases.world import GROUP, TOPIC, consumer, heartbeat, object_body, subscription

__all__ = ["CASES"]

NO_FIELDS: Final = Ask({}, {"fields": None})


def _one(client_id: str = "beat-1", **change: Any) -> bytes:
    entry = consumer("DiffBeats", subscription(TOPIC), subscription("%RETRY%DiffBeats"))
    return heartbeat(client_id, {name: value for name, value in (entry | change).items() if value is not ...})


def _subscribed(**change: Any) -> bytes:
    wanted = {name: value for name, value in (subscription(TOPIC) | change).items() if value is not ...}
    return _one(subscriptionDataSet=[wanted])


BEATS: Final = Table(
    R.HEART_BEAT,
    None,
    valid={
        "new-consumer": ask(watch=("beat-1",)),
        "again": ask(watch=("beat-1",), pushes=0),
        "newer-version": ask(body=_subscribed(subVersion=2), watch=("beat-1",), pushes=0),
        "another-topic": ask(body=_one(subscriptionDataSet=[subscription("DiffOther")]), watch=("beat-1",)),
        "second-member": ask(body=_one("beat-2"), connection="beat-2", watch=("beat-1", "beat-2"), pushes=2),
        "broadcasting": ask(body=heartbeat("b", consumer("DiffBeatsAll", subscription(TOPIC), model="BROADCASTING"))),
        "producer": ask(body=heartbeat("p", producers=("DiffBeatProducers", "CLIENT_INNER_PRODUCER"))),
        "nobody": ask(body=heartbeat("n")),
        "enums-as-numbers": ask(body=_one(consumeType=1, messageModel=1, consumeFromWhere=0)),
        "enums-as-digits": ask(body=_one(consumeType="CONSUME_ACTIVELY", consumeFromWhere="CONSUME_FROM_TIMESTAMP")),
        "version-as-text": ask(body=_subscribed(subVersion="1700000000000")),
        "bare-subscription": ask(body=_one(subscriptionDataSet=[{"topic": TOPIC, "subString": "*"}])),
        "unknown-members": ask(body=_one(fingerprint=5)),
        "trailing-newline": ask(body=_one() + b"\n"),
        "single-quotes": ask(body=_one().replace(b'"', b"'")),
        "sql": ask(body=_one(subscriptionDataSet=[subscription(TOPIC, "a > 1", 9, "SQL92")])),
        "sql-broken": ask(body=_one(subscriptionDataSet=[subscription(TOPIC, "a > > 1", 10, "SQL92")])),
        "binary-header": ask(encoding=1),
        "cpp": ask(language="CPP", version=63),
        "no-subscriptions": ask(body=_one(subscriptionDataSet=[])),
        "empty-group": ask(body=_one(groupName="DiffEmptyBeats", subscriptionDataSet=[])),
        "one-way": ask(flag=2),
    },
    invalid={
        "empty-body": ask(body=b""),
        "not-json": ask(body=b"{"),
        "a-list": ask(body=b"[]"),
        "a-text": ask(body=b'"beat"'),
        "null": ask(body=b"null"),
        "no-client-id": ask(body=object_body({"consumerDataSet": [], "producerDataSet": []})),
        "no-client-id-but-consumers": ask(
            body=heartbeat("x", consumer("DiffNoId")).replace(b"clientID", b"nothing"), late=LAST
        ),
        "empty-object": ask(body=b"{}"),
        "consumers-are-text": ask(body=object_body({"clientID": "x", "consumerDataSet": "all"})),
        "consumer-is-null": ask(body=object_body({"clientID": "x", "consumerDataSet": [None]})),
        "no-group-name": ask(body=_one(groupName=...)),
        "group-name-empty": ask(body=_one(groupName=""), late=LAST),
        "no-subscription-set": ask(body=_one(groupName="DiffNoSet", subscriptionDataSet=...)),
        "subscription-without-topic": ask(body=_subscribed(topic=...)),
        "version-is-text": ask(body=_subscribed(subVersion="new")),
        "unknown-consume-type": ask(body=_one(groupName="DiffOdd1", consumeType="SOMETIMES"), late=LAST),
        "unknown-model": ask(body=_one(groupName="DiffOdd2", messageModel="SWARM"), late=LAST),
        "model-number-above": ask(body=_one(groupName="DiffOdd3", messageModel=9), late=LAST),
        "unknown-first-offset": ask(body=_one(groupName="DiffOdd4", consumeFromWhere="THE_MIDDLE"), late=LAST),
        "no-model": ask(body=_one(groupName="DiffOdd5", messageModel=...), late=LAST),
        "producer-without-name": ask(body=object_body({"clientID": "x", "producerDataSet": [{}]})),
        "group-name-illegal": ask(body=_one(groupName="a b"), late=LAST),
        "group-name-long": ask(body=_one(groupName="G" * 300), late=LAST),
    },
    defaults={"body": _one(), "connection": "beat-1"},
)
UNREGISTER: Final = Table(
    R.UNREGISTER_CLIENT,
    {"clientID": "leave-1"},
    valid={
        "consumer": ask({"consumerGroup": "DiffLeaves"}, watch=("leave-1", "leave-2")),
        "consumer-again": ask({"consumerGroup": "DiffLeaves"}, watch=("leave-2",)),
        "last-consumer": ask({"clientID": "leave-2", "consumerGroup": "DiffLeaves"}, connection="leave-2"),
        "producer": ask({"producerGroup": "DiffLeaveProducers"}),
        "both-names-empty": ask({"producerGroup": "", "consumerGroup": ""}, late=LAST),
        "unknown-group": ask({"consumerGroup": "DiffNoGroup", "producerGroup": "DiffNoProducers"}, late=LAST),
        "no-group": ask(),
        "binary-header": ask({"consumerGroup": "DiffLeaves"}, encoding=1),
        "one-way": ask({"consumerGroup": "DiffLeaves"}, flag=2),
    },
    invalid={
        "missing-client": without("clientID"),
        "missing-client-with-group": ask({"clientID": None, "consumerGroup": "DiffNoGroup"}, late=LAST),
        "other-spelling": ask({"clientID": None, "clientId": "leave-1"}),
        "no-fields": NO_FIELDS,
        "empty-client": ask({"clientID": ""}),
        "a-number": ask({"clientID": 5}),
        "body-is-ignored": ask(body=b"{nonsense"),
        "binary-header-no-client": without("clientID", encoding=1),
    },
    defaults={"connection": "leave-1"},
)
LIST: Final = Table(
    R.GET_CONSUMER_LIST_BY_GROUP,
    {"consumerGroup": GROUP},
    valid={
        "one": ask(),
        "two": ask({"consumerGroup": "DiffBeats"}),
        "broadcasting": ask({"consumerGroup": "DiffAll"}),
        "with-broker-name": ask({"bname": "broker-a"}),
        "binary-header": ask(encoding=1),
        "one-way": ask(flag=2),
    },
    invalid={
        "nobody": ask({"consumerGroup": "DiffNobody"}),
        "gone": ask({"consumerGroup": "DiffLeaves"}),
        "missing-group": without("consumerGroup"),
        "no-fields": NO_FIELDS,
        "empty-group": ask({"consumerGroup": ""}),
        "a-producers-group": ask({"consumerGroup": "DiffProducers"}),
        "binary-header-no-group": without("consumerGroup", encoding=1),
        "a-long-name": ask({"consumerGroup": "G" * 1000}),
    },
)


def _check(expression: str = "*", kind: str = "TAG", **change: Any) -> bytes:
    body = {"clientId": "check-1", "group": GROUP, "subscriptionData": subscription(TOPIC, expression, 1, kind)}
    return object_body({name: value for name, value in (body | change).items() if value is not ...})


CHECK: Final = Table(
    R.CHECK_CLIENT_CONFIG,
    None,
    valid={
        "all": ask(),
        "tag": ask(body=_check("TagA")),
        "sql": ask(body=_check("color = 'red' AND size > 3", "SQL92")),
        "sql-brackets": ask(body=_check("(a = 1 OR b = 2) AND c IS NOT NULL", "SQL92")),
        "sql-between": ask(body=_check("a BETWEEN 1 AND 2", "SQL92")),
        "no-type": ask(body=_check("*", "")),
        "unknown-group": ask(body=_check(group="DiffNobody")),
        "binary-header": ask(encoding=1),
        "one-way": ask(flag=2),
        "unknown-members": ask(body=_check(namespace="n")),
        "tag-nonsense": ask(body=_check("|| ||")),
    },
    invalid={
        "sql-broken": ask(body=_check("color = = 'red'", "SQL92")),
        "sql-empty": ask(body=_check("", "SQL92")),
        "sql-unfinished": ask(body=_check("a > ", "SQL92")),
        "sql-no-comparison": ask(body=_check("5", "SQL92")),
        "unknown-type": ask(body=_check("a", "XPATH")),
        "empty-body": ask(body=b""),
        "not-json": ask(body=b"{"),
        "null": ask(body=b"null"),
        "a-list": ask(body=b"[]"),
        "empty-object": ask(body=b"{}"),
        "no-subscription": ask(body=_check(subscriptionData=...)),
        "subscription-is-text": ask(body=_check(subscriptionData="*")),
    },
    defaults={"body": _check()},
)


def _leaver(client_id: str, *there: str) -> Case:
    body = heartbeat(client_id, consumer("DiffLeaves", subscription(TOPIC)), producers=("DiffLeaveProducers",))
    watch = (*there, client_id)  # who hear of it, before they are listened to for something else
    beat = step(R.HEART_BEAT, None, client_id, body=body, connection=client_id)
    return replace(beat, watch=watch, pushes=len(watch))


CASES: Final[tuple[Case, ...]] = (
    *BEATS.cases(),
    _leaver("leave-1"),
    _leaver("leave-2", "leave-1"),
    *UNREGISTER.cases(),
    *LIST.cases(),
    *CHECK.cases(),
)
