"""What a world of producers says of the messages that its brokers have in the end."""

from types import SimpleNamespace
from typing import Any

import pytest

from lockstep.client import MessageQueue, SendOutcome
from lockstep.simulation.lab.experiment import LOCKING, LockMode
from lockstep.simulation.lab.findings import Wrong
from lockstep.simulation.lab.runner import run_seed
from lockstep.simulation.worlds.producing.producers_world import PRODUCERS_WORLDS
from lockstep.simulation.worlds.producing.sent import Places, Sent

QUEUE = MessageQueue("orders", "broker", 0)


def wrong(sent: list[Sent], stored: str) -> list[str]:
    """The kinds of findings, when a queue has these messages, such as "0 1 0"."""
    found: list[str] = []
    findings: Any = SimpleNamespace(add=lambda kind, *_, **__: found.append(kind), saw=lambda _: None)
    places = Places(findings, sent)
    messages: Any = [
        SimpleNamespace(body=text.encode(), queue_offset=offset) for offset, text in enumerate(stored.split())
    ]
    places.add(QUEUE, messages)
    places.check()
    return found


def answered(number: int, offset: int, behind: int, *, retried: bool = False) -> Sent:
    return Sent(number, "p1", (str(number),), retried, number, "stored", queue=QUEUE, offset=offset, behind=behind)


def failed(number: int, outcome: SendOutcome, ended: int = 0, *, retried: bool = False) -> Sent:
    return Sent(number, "p1", (str(number),), retried, number, outcome, ended)


@pytest.mark.parametrize(
    ("sent", "stored", "kinds"),
    [
        ([answered(0, 0, 1), answered(1, 1, 2)], "0 1", []),
        ([failed(0, SendOutcome.UNKNOWN), answered(1, 0, 0)], "1 0", [Wrong.STORED_OUT_OF_ORDER]),
        ([answered(0, 0, 1), answered(1, 2, 3)], "0 0 1", [Wrong.STORED_LATE, Wrong.STORED_TOO_OFTEN]),
        ([answered(0, 1, 2, retried=True), answered(1, 2, 3)], "0 0 1", [Wrong.STORED_TOO_OFTEN]),
        ([failed(0, SendOutcome.UNKNOWN, retried=True), answered(1, 1, 2)], "0 1 0",
         [Wrong.STORED_LATE, Wrong.STORED_TOO_OFTEN]),
        ([answered(0, 1, 2)], "0", [Wrong.NOT_STORED]),
        ([failed(0, SendOutcome.REFUSED)], "0", [Wrong.REFUSED_AND_STORED]),
        ([failed(0, SendOutcome.UNKNOWN, 2), *(answered(number, number - 1, number) for number in (1, 2, 3))], "1 2 3",
         [Wrong.OVERTAKEN]),
        ([failed(0, SendOutcome.UNKNOWN, 1), *(answered(number, number - 1, number) for number in (1, 2, 3))], "1 2 3",
         []),
    ],
)  # fmt: skip
def test_places_of_messages(sent: list[Sent], stored: str, kinds: list[str]) -> None:
    """Order, copies, and what the caller was told, each by itself."""
    assert wrong(sent, stored) == kinds


def test_calls_are_in_the_order_in_which_they_began() -> None:
    """A caller that heard of a failure at once calls before tasks that were made, and have not begun."""
    made, follows = answered(1, 1, 2), answered(2, 0, 1)
    assert wrong([made, follows], "2 1") == [Wrong.STORED_OUT_OF_ORDER, Wrong.STORED_LATE]
    made.called, follows.called = 2, 1
    assert wrong([made, follows], "2 1") == []


@pytest.mark.parametrize("mode", LOCKING)
def test_producers_keep_order(mode: LockMode) -> None:
    """With all that happens to the sends of ten worlds, no message is lost, late, overtaken or stored twice."""
    outcomes = [run_seed(PRODUCERS_WORLDS, seed, mode) for seed in range(1001, 1006)]
    assert [outcome.texts or outcome.error for outcome in outcomes if PRODUCERS_WORLDS.fails(outcome)] == []
