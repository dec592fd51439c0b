"""PULL_MESSAGE (11)."""

from typing import Final

from lockstep.protocol.codes import RequestCode as R
from tests.differential.case import LAST, Ask, Case, Table, ask, not_numbers, step, without
from tests.differential.cases.world import EMPTY, GROUP, NO_READ, NO_WRITE, OTHER, TAG_GROUP, TOPIC, pull, send

__all__ = ["CASES"]

REGISTERED: Final = {"subscription": None, "sysFlag": "0"}  # as a push consumer: by its heartbeat


def _offset(case_name: str, group: str, queue_id: int) -> Case:
    fields = {"consumerGroup": group, "topic": TOPIC, "queueId": str(queue_id)}
    return Case(R.QUERY_CONSUMER_OFFSET, case_name, "valid", fields)


VALID: Final = {
    "all": ask(),
    "from-the-middle": ask({"queueOffset": "3"}),
    "one-message": ask({"maxMsgNums": "1"}),
    "no-message-asked": ask({"maxMsgNums": "0"}),
    "very-many-asked": ask({"maxMsgNums": "100000"}),
    "batch": ask({"queueId": "1"}),
    "compressed": ask({"queueId": "2"}),
    "queue-without-message": ask({"queueId": "3"}),
    "queue-without-message-beyond": ask({"queueId": "3", "queueOffset": "5"}),
    "at-the-end": ask({"queueOffset": "6"}),
    "beyond-the-end": ask({"queueOffset": "7"}),
    "far-beyond-the-end": ask({"queueOffset": "100000"}),
    "negative-offset": ask({"queueOffset": "-1"}),
    "tag": ask({"subscription": "TagA"}),
    "two-tags": ask({"subscription": "TagA || TagB"}),
    "two-tags-close": ask({"subscription": "TagA||TagB"}),
    "no-such-tag": ask({"subscription": "TagC"}),
    "tags-from-the-middle": ask({"subscription": "TagB", "queueOffset": "2"}),
    "empty-expression": ask({"subscription": ""}),
    "no-expression": without("subscription"),
    "no-type": without("expressionType"),
    "sql": ask({"subscription": "color = 'red'", "expressionType": "SQL92"}),
    "sql-number": ask({"subscription": "size > 2 AND size <= 4", "expressionType": "SQL92"}),
    "sql-between": ask({"subscription": "size BETWEEN 1 AND 3", "expressionType": "SQL92"}),
    "sql-in": ask({"subscription": "color IN ('blue', 'green')", "expressionType": "SQL92"}),
    "sql-null": ask({"subscription": "TAGS IS NULL", "expressionType": "SQL92"}),
    "sql-no-match": ask({"subscription": "color = 'green'", "expressionType": "SQL92"}),
    "sql-broken": ask({"subscription": "color = = 'red'", "expressionType": "SQL92"}),
    "registered": ask({**REGISTERED, "subVersion": "1"}),
    "registered-tag": ask({**REGISTERED, "consumerGroup": TAG_GROUP, "subVersion": "1"}),
    "registered-sql": ask({**REGISTERED, "consumerGroup": "DiffSqlGroup", "subVersion": "1"}),
    "registered-older-version": ask({**REGISTERED, "subVersion": "0"}),
    "broadcasting": ask({**REGISTERED, "consumerGroup": "DiffAll", "subVersion": "1"}),
    "write-only-queues-above": ask({"topic": "DiffWide", "queueId": "7"}),
    "read-only-topic": ask({"topic": NO_WRITE}),
    "empty-topic": ask({"topic": EMPTY}),
    "other-topic": ask({"topic": OTHER}),
    "new-group": ask({"consumerGroup": "DiffNeverSeen"}),
    "lite-pull": ask({"sysFlag": "20"}),
    "commit": ask({"sysFlag": "5", "commitOffset": "3", "consumerGroup": "DiffCommits"}),
    "commit-negative": ask({"sysFlag": "5", "commitOffset": "-1", "consumerGroup": "DiffCommits", "queueId": "1"}),
    "commit-not-flagged": ask({"commitOffset": "3", "consumerGroup": "DiffCommits", "queueId": "2"}),
    "suspend-but-found": ask({"sysFlag": "6"}),
    "suspend-but-beyond": ask({"sysFlag": "6", "queueOffset": "99"}),
    "suspend-woken": ask(
        pull(OTHER, 1) | {"sysFlag": "6"},
        meanwhile=(step(R.SEND_MESSAGE, send(OTHER, 1), body=b"wake", connection="sender"),),
    ),
    # One message: RocketMQ looks at parked pulls every 5 s whatever their tags, and could come between two.
    "suspend-woken-tag": ask(
        pull(OTHER, 1, 1) | {"sysFlag": "6", "subscription": "TagA"},
        meanwhile=(step(R.SEND_MESSAGE, send(OTHER, 1, TAGS="TagA"), body=b"wake", connection="sender"),),
    ),
    "suspend-times-out": ask({"sysFlag": "6", "queueOffset": "6", "suspendTimeoutMillis": "1"}),
    "binary-header": ask(encoding=1),
    "raw-numbers": ask({"queueId": 0, "queueOffset": 0, "sysFlag": 4, "maxMsgNums": 32, "subVersion": 0}),
    "ali-ons": ask(version=121),
    "cpp": ask({"expressionType": None}, language="CPP", version=63),
    "own-broker-name": ask({"bname": "broker-a"}),
    "other-broker-name": ask({"bname": "nowhere"}),
    "one-way": ask(flag=2),
}
INVALID: Final = {
    "missing-group": without("consumerGroup"),
    "missing-topic": without("topic"),
    **not_numbers("queueId"),
    **not_numbers("queueOffset", bits=64),
    **not_numbers("maxMsgNums"),
    **not_numbers("sysFlag"),
    **not_numbers("commitOffset", bits=64),
    **not_numbers("suspendTimeoutMillis", bits=64),
    **not_numbers("subVersion", bits=64),
    "no-fields": Ask({}, {"fields": None}),
    "unknown-topic": ask({"topic": "DiffNowhere"}),
    "empty-topic-name": ask({"topic": ""}),
    "empty-group": ask({"consumerGroup": ""}, late=LAST),
    "unreadable-topic": ask({"topic": NO_READ}),
    "topic-without-permissions": ask({"topic": "DiffNothing"}),
    "queue-negative": ask({"queueId": "-1"}),
    "queue-above": ask({"queueId": "4"}),
    "read-queue-above": ask({"topic": "DiffNarrow", "queueId": "2"}),
    "closed-group": ask({"consumerGroup": "DiffClosedGroup"}),
    "not-registered": ask({**REGISTERED, "consumerGroup": "DiffNobody"}),
    "topic-not-subscribed": ask({**REGISTERED, "topic": OTHER}),
    "newer-version": ask({**REGISTERED, "subVersion": "2"}),
    "broadcasting-not-allowed": ask({**REGISTERED, "consumerGroup": "DiffNoBroadcast", "subVersion": "1"}),
    "only-bars": ask({"subscription": "||"}),
    "unknown-type": ask({"expressionType": "XPATH", "subscription": "a"}),
    "negative-many": ask({"maxMsgNums": "-1"}),
    "binary-header-no-topic": without("topic", encoding=1),
    "one-way-bad": ask({"queueId": "x"}, flag=2),
    "group-illegal": ask({"consumerGroup": "a b"}, late=LAST),
    "group-too-long": ask({"consumerGroup": "G" * 300}, late=LAST),
}

CASES: Final[tuple[Case, ...]] = (
    *Table(R.PULL_MESSAGE, pull(), VALID, INVALID).cases(),
    _offset("pull-committed", "DiffCommits", 0),
    _offset("pull-committed-negative", "DiffCommits", 1),
    _offset("pull-not-committed", "DiffCommits", 2),
    _offset("pull-kept", GROUP, 0),
)
