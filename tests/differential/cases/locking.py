"""LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42)."""

from typing import Any, Final

from lockstep.protocol.codes import RequestCode as R
from tests.differential.case import Case, Table, ask, step
from tests.differential.cases.world import MQ, TOPIC, object_body

__all__ = ["CASES"]


def _body(client: Any = "locker-1", group: Any = "DiffLocks", queues: Any = (0,), **more: Any) -> bytes:
    body = {"clientId": client, "consumerGroup": group, "mqSet": [MQ(TOPIC, queue) for queue in queues]}
    return object_body({name: value for name, value in (body | more).items() if value is not ...})


BAD_BODIES: Final = {
    "empty-body": ask(body=b""),
    "not-json": ask(body=b"{{{"),
    "cut-json": ask(body=_body()[:-5]),
    "a-list": ask(body=b"[]"),
    "a-number": ask(body=b"42"),
    "a-text": ask(body=b'"lock"'),
    "null": ask(body=b"null"),
    "empty-object": ask(body=b"{}"),
    "no-group": ask(body=_body(group=...)),
    "no-client": ask(body=_body(client=..., queues=(9,))),
    "no-queues": ask(body=_body(mqSet=...)),
    "null-queues": ask(body=_body(mqSet=None)),
    "queues-are-text": ask(body=_body(mqSet="all")),
    "queues-are-an-object": ask(body=_body(mqSet=MQ())),
    "queue-id-is-text": ask(body=_body(mqSet=[MQ() | {"queueId": "one"}])),
    "queue-id-is-a-fraction": ask(body=_body(mqSet=[MQ() | {"queueId": 1.5}])),
    "queue-id-too-big": ask(body=_body(mqSet=[MQ() | {"queueId": 2**40}])),
    "queue-is-null": ask(body=_body(mqSet=[None])),
    "client-is-a-list": ask(body=_body(client=["a"])),
    "group-is-an-object": ask(body=_body(group={"a": 1})),
    "not-utf-8": ask(body=b'{"clientId":"\xff\xfe","consumerGroup":"G","mqSet":[]}'),
    "binary-header-not-json": ask(body=b"{", encoding=1),
}
SHAPES: Final = {
    "unknown-members": ask(body=_body(onlyThisBroker=False, colour="red")),
    "trailing-newline": ask(body=_body() + b"\n"),
    "single-quotes": ask(body=_body().replace(b'"', b"'")),
    "trailing-comma": ask(body=_body()[:-1] + b",}"),
    "queue-id-as-text": ask(body=_body(mqSet=[MQ() | {"queueId": "0"}])),
    "unquoted-names": ask(body=b"{clientId:'locker-1',consumerGroup:'DiffLocks',mqSet:[]}"),
    "with-fields": ask({"something": "else"}),
    "binary-header": ask(encoding=1),
    "empty-set": ask(body=_body(queues=())),
    "unknown-topic": ask(body=_body(mqSet=[MQ("DiffNowhere", 3)])),
    "other-broker": ask(body=_body(mqSet=[MQ(TOPIC, 0, "broker-z")])),
    "negative-queue": ask(body=_body(mqSet=[MQ(TOPIC, -1)])),
    "no-queue-id": ask(body=_body(mqSet=[{"brokerName": "broker-a", "topic": TOPIC}])),
    "no-broker-name": ask(body=_body(mqSet=[{"queueId": 0, "topic": TOPIC}])),
    "same-queue-twice": ask(body=_body(queues=(0, 0))),
    "empty-group": ask(body=_body(group="", queues=(8,))),
    "empty-client": ask(body=_body(client="", queues=(8,))),
    "number-as-client": ask(body=_body(client=17, queues=(7,))),
    "one-way": ask(flag=2),
}
LOCK: Final = Table(
    R.LOCK_BATCH_MQ,
    None,
    valid={
        "free": ask(),
        "again": ask(),
        "taken-by-another": ask(body=_body("locker-2")),
        "one-free-one-taken": ask(body=_body("locker-2", queues=(0, 1))),
        "other-group": ask(body=_body("locker-2", "DiffLocks2")),
        "four": ask(body=_body(queues=(0, 1, 2, 3))),
        **SHAPES,
    },
    invalid=BAD_BODIES,
    defaults={"body": _body()},
)
UNLOCK: Final = Table(
    R.UNLOCK_BATCH_MQ,
    None,
    valid={
        "not-mine": ask(body=_body("locker-2")),
        "mine": ask(),
        "twice": ask(),
        "unknown-group": ask(body=_body(group="DiffNoLocks")),
        **SHAPES,
    },
    invalid=BAD_BODIES,
    defaults={"body": _body()},
)


def _lock(name: str, client: str, *queues: int) -> Case:
    return Case(R.LOCK_BATCH_MQ, name, "valid", body=_body(client, queues=queues))


CASES: Final[tuple[Case, ...]] = (
    *LOCK.cases(),
    step(R.LOCK_BATCH_MQ, body=_body(queues=(0, 2, 3))),
    step(R.UNLOCK_BATCH_MQ, body=_body("locker-2", queues=(2,))),
    _lock("unlock-by-another-does-nothing", "locker-2", 2),
    step(R.UNLOCK_BATCH_MQ, body=_body(queues=(3,)), connection="elsewhere"),
    _lock("unlocked-is-free", "locker-3", 2, 3),
    *UNLOCK.cases(),
    _lock("after-unlocks", "locker-9", 0, 1, 2, 3),
)
