"""Requests of POP: those recorded in tests/vectors/pop-5.5.0.ndjson, asked live, and what a broker shares out."""

import base64
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from lockstep.protocol.codes import RequestCode as R
from tests.differential.case import Case, Table, ask, step, without
from tests.differential.cases.world import (
    BROKER_NAME,
    consumer,
    heartbeat,
    object_body,
    pull,
    send,
    subscription,
    text,
    topic_fields,
)
from tests.differential.side import Side

__all__ = ["POP_CASES"]

RECORDED: Final = Path(__file__).parents[2] / "vectors" / "pop-5.5.0.ndjson"
TOPIC: Final = "PopShared"
GROUP: Final = "PopSharers"
NO_FIELDS: Final[dict[str, Any]] = {}


def _recorded() -> list[Case]:
    rows = [json.loads(line) for line in RECORDED.read_text(encoding="utf-8").splitlines()]
    # First the rest of its queue: where a pop looks first, the topic or the retry topic, is chance.
    again = rows.pop()
    rest = again | {"fields": again["fields"] | {"queueId": "0"}}
    rows += [{"code": rest["code"], "fields": rest["fields"]}, rest]
    return [
        Case(
            R(row["code"]),
            row.get("name", "prepare"),
            "valid" if "answer" in row else "step",
            _fields(row["fields"]) if "fields" in row else None,
            body=partial(_filled_body, row.get("body", "")),
            wait_ms=row.get("wait_ms", 0),
        )
        for row in rows
    ]


def _fields(row: dict[str, str]) -> dict[str, Any]:
    # Born later than now: a request that does not wait is refused when it was under way for half a second.
    born = {"bornTime": "$soon"} if row.get("bornTime") == "$now" and row["pollTime"] == "0" else {}
    return {name: partial(_filled, text) for name, text in (row | born).items()}


def _filled(text: str, side: Side) -> str:
    """With the time, and the newest delivery's time and revive queue."""
    delivery = side.known.get("delivery", {"popTime": "0", "reviveQid": "0"})
    now_ms = side.now_ms()
    names = {"$now": str(now_ms), "$soon": str(now_ms + 10_000)}
    names |= {"$pop": delivery["popTime"], "$revive": delivery["reviveQid"]}
    for name, value in names.items():
        text = text.replace(name, value)
    return text


def _filled_body(text: str, side: Side) -> bytes:
    return _filled(text, side).encode()


# Queues that a broker shares out -----------------------------------------------------------------------------------


def _wanted(**more: Any) -> bytes:
    body = {"topic": TOPIC, "consumerGroup": GROUP, "clientId": "sharer-1", "strategyName": "AVG"}
    body |= {"messageModel": "CLUSTERING"} | more
    return object_body({name: value for name, value in body.items() if value is not None})


def _mode(mode: str = "POP", **more: Any) -> bytes:
    body = {"topic": TOPIC, "consumerGroup": GROUP, "mode": mode, "popShareQueueNum": 0} | more
    return object_body({name: value for name, value in body.items() if value is not None})


BAD: Final = {"empty": ask(body=b""), "not-json": ask(body=b"{{{"), "a-number": ask(body=b"42")}
ASSIGNMENT: Final = Table(
    R.QUERY_ASSIGNMENT,
    NO_FIELDS,
    valid={
        "pull": ask(),
        "pull-of-two": ask(body=_wanted(clientId="sharer-2")),
        "no-member": ask(body=_wanted(clientId="nobody")),
        "unknown-group": ask(body=_wanted(consumerGroup="PopNoSharers")),
        "unknown-topic": ask(body=_wanted(topic="PopNowhere2")),
        "broadcast": ask(body=_wanted(messageModel="BROADCASTING")),
        "circle": ask(body=_wanted(strategyName="AVG_BY_CIRCLE")),
    },
    invalid={"strategy": ask(body=_wanted(strategyName="LUCK")), **BAD},
    defaults={"body": _wanted()},
)
MODE: Final = Table(
    R.SET_MESSAGE_REQUEST_MODE,
    NO_FIELDS,
    valid={
        "pop": ask(),
        "pull": ask(body=_mode("PULL", consumerGroup="PopPullers")),
        "share-one": ask(body=_mode(consumerGroup="PopOneShared", popShareQueueNum=1)),
        "again": ask(),
    },
    invalid={
        "retry-topic": ask(body=_mode(topic=f"%RETRY%{GROUP}")),
        "mode": ask(body=_mode("PUSH", consumerGroup="PopPushers")),
        **BAD,
    },
    defaults={"body": _mode()},
)


def _assigned(name: str, **more: Any) -> Case:
    return Case(R.QUERY_ASSIGNMENT, name, "valid", NO_FIELDS, body=_wanted(**more))


SHARED: Final = (
    step(R.UPDATE_AND_CREATE_TOPIC, topic_fields(TOPIC, 4, 4), "shared"),
    *(
        step(R.HEART_BEAT, {}, client, connection=client, body=heartbeat(client, *memberships))
        for client in ("sharer-1", "sharer-2")
        for memberships in [[consumer(group, subscription(TOPIC)) for group in (GROUP, "PopOneShared", "PopPullers")]]
    ),
    *ASSIGNMENT.cases(),
    *MODE.cases(),
    step(R.SET_MESSAGE_REQUEST_MODE, {}, body=_mode("PULL", consumerGroup="PopPushers")),
    Case(R.GET_ALL_MESSAGE_REQUEST_MODE, "mode-list", "valid", NO_FIELDS),
    _assigned("assignment-pop"),
    _assigned("assignment-pop-second", clientId="sharer-2"),
    _assigned("assignment-pop-no-member", clientId="nobody"),
    _assigned("assignment-set-to-pull", consumerGroup="PopPullers"),
    _assigned("assignment-shared", consumerGroup="PopOneShared"),
)

# Lite pulls --------------------------------------------------------------------------------------------------------

LITE: Final = (
    *(step(R.SEND_MESSAGE, send(TOPIC, 0, KEYS=f"lite{n}"), body=b"lite %d" % n) for n in range(3)),
    *Table(
        R.LITE_PULL_MESSAGE,
        pull(TOPIC, consumerGroup="PopLite", suspendTimeoutMillis="0", sysFlag="20"),
        valid={"found": ask(), "none": ask({"queueOffset": "3", "sysFlag": "4"})},
        invalid={"unknown-topic": ask({"topic": "PopNowhere2"})},
    ).cases(),
)

# Messages for a time, and recall -----------------------------------------------------------------------------------

TIMED: Final = "PopTimed"
ID: Final = "7F0000010000000000000000000000A0"


def _sent(properties: dict[str, str], name: str = "", in_ms: int | None = None, **changes: Any) -> Case:
    """A send; `in_ms`: TIMER_DELIVER_MS so much after now."""

    def filled(side: Side) -> str:
        when = {} if in_ms is None else {"TIMER_DELIVER_MS": str(side.now_ms() + in_ms)}
        return text({"UNIQ_KEY": ID} | properties | when)

    kind = changes.pop("kind", "valid")
    return Case(R.SEND_MESSAGE, name, kind, send(TIMED, 0) | {"properties": filled}, body=b"timed", **changes)


def _handle(topic: str = TIMED, broker: str = BROKER_NAME, in_ms: int = 60_000, version: str = "v1") -> Any:
    """A handle that nobody gave."""

    def filled(side: Side) -> str:
        words = f"{version} {topic} {broker} {side.now_ms() + in_ms} {ID}"
        return base64.urlsafe_b64encode(words.encode()).decode().rstrip("=")

    return {"recallHandle": filled}


def _given_handle(side: Side) -> str:
    return str(side.known["timed"]["recall_handle"])


RECALLED: Final = (
    step(R.UPDATE_AND_CREATE_TOPIC, topic_fields(TIMED, 1, 1), "timed"),
    _sent({"TIMER_DELAY_MS": "60000"}, "timer-ms"),
    _sent({"TIMER_DELAY_SEC": "60"}, "timer-sec"),
    _sent({}, "timer-deliver", 60_000, message="timed"),
    _sent({}, "timer-past", -60_000),
    _sent({"DELAY": "3"}, "timer-and-level", 60_000),
    _sent({}, "timer-too-long", 4 * 24 * 3600 * 1000),
    _sent({"TIMER_DELAY_MS": "soon"}, "timer-text", kind="invalid"),
    _sent({"TIMER_DELAY_MS": "-5"}, "timer-negative", kind="invalid"),
    *Table(
        R.RECALL_MESSAGE,
        {"producerGroup": "PopProducers", "topic": TIMED, "recallHandle": _given_handle},
        valid={"ok": ask(), "twice": ask(), "unknown-message": ask(_handle()), "no-group": without("producerGroup")},
        invalid={
            "bad": ask({"recallHandle": "no handle"}),
            "not-base64": ask({"recallHandle": "§§§"}),
            "empty": ask({"recallHandle": ""}),
            "missing": without("recallHandle"),
            "other-topic": ask(_handle(TOPIC)),
            "other-broker": ask(_handle(broker="broker-z")),
            "other-version": ask(_handle(version="v9")),
            "late": ask(_handle(in_ms=-1000)),
            "too-far": ask(_handle(in_ms=40 * 24 * 3600 * 1000)),
            "unknown-topic": ask({"topic": "PopNowhere2"}),
        },
    ).cases(),
)

POP_CASES: Final = tuple(replace(case, version=513) for case in (*_recorded(), *SHARED, *LITE, *RECALLED))
