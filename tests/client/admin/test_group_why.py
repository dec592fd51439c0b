"""`lockstep group describe --why`: what members say, and what is reckoned of members of other makes."""

import json
from typing import Any

import pytest

from lockstep.client.consumer.ownership.explained import PROPERTY
from lockstep.client.diagnosis.why import Group, why_rows
from lockstep.protocol.bodies.client import ConsumerRunningInfo
from lockstep.protocol.bodies.locks import LockTableRow
from lockstep.protocol.model import MessageQueue

QUEUES = tuple(MessageQueue("orders", "b", number) for number in range(4))
ROW = {"broker": "b", "queue_id": 0, "did": "locked", "why": "c2 left", "since_ms": 7, "epoch": "1-2"}
TOPIC = {"topic": "orders", "strategy": "AVG", "members": ["c1"], "share_after": ["b:0"], "queues": [ROW]}


def group(
    *infos: tuple[str, str], locks: dict[int, str] | None = None, members: tuple[str, ...] = ("c1", "c2")
) -> Group:
    found = {name: ConsumerRunningInfo({PROPERTY: text} if text else {}, (), {}, {}) for name, text in infos}
    rows = {
        QUEUES[number]: LockTableRow("g", QUEUES[number], owner, 0, 1000, 0, 5)
        for number, owner in (locks or {}).items()
    }
    return Group("g", members, found, {"orders": QUEUES}, rows)


def shown(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["queue_id"], row["client_id"], row["did"], row["reckoned"], row["why"]) for row in rows]


def test_what_a_member_says_is_shown_as_it_is() -> None:
    """With when, epoch and owner; topics that were not asked for are left out."""
    other = {**TOPIC, "topic": "others"}
    [row] = why_rows(group(("c1", json.dumps([TOPIC, other])), members=("c1",)))
    assert shown([row]) == [(0, "c1", "locked", False, "c2 left")]
    assert (row["since_ms"], row["epoch"], row["owner"]) == (7, "1-2", None)


def test_a_member_of_another_make_is_reckoned() -> None:
    """From the members, the usual strategy and the locks; a lock beyond its share is shown too."""
    rows = why_rows(group(("c1", ""), locks={0: "c1", 1: "c2", 2: "c1"}))
    gives = "reckoned: AVG of 2 members gives it to"
    assert shown(rows) == [
        (0, "c1", "locked", True, f"{gives} c1; this member holds the lock"),
        (1, "c1", "refused", True, f"{gives} c1; c2 holds the lock"),
        (1, "c2", "locked", True, f"{gives} c1; this member holds the lock"),
        (2, "c1", "locked", True, f"{gives} c2; this member holds the lock"),
        (2, "c2", "refused", True, f"{gives} c2; c1 holds the lock"),
        (3, "c2", "allocated", True, f"{gives} c2; no lock of it is known"),
    ]


def test_two_connections_with_one_id_are_reckoned() -> None:
    """The strategy then gives some queues to no member; each member is shown once."""
    rows = why_rows(group(("c1", ""), locks={2: "c1"}, members=("c1", "c1", "c2")))
    gives = "reckoned: AVG of 3 members gives it to"
    assert shown(rows) == [
        (0, "c1", "allocated", True, f"{gives} c1; no lock of it is known"),
        (1, "c1", "allocated", True, f"{gives} c1; no lock of it is known"),
        (2, "c1", "locked", True, f"{gives} no member; this member holds the lock"),
        (3, "c2", "allocated", True, f"{gives} c2; no lock of it is known"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "{}",
        "[1]",
        json.dumps([{**TOPIC, "queues": 1}]),
        json.dumps([{**TOPIC, "queues": [{**ROW, "queue_id": "0"}]}]),
        json.dumps([{name: value for name, value in TOPIC.items() if name != "strategy"}]),
    ],
)
def test_an_explanation_that_cannot_be_read_is_reckoned(text: str) -> None:
    """Whatever a member of another make has under this name."""
    assert {row["reckoned"] for row in why_rows(group(("c1", text), members=("c1",)))} == {True}
