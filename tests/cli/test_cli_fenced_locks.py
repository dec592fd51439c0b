"""`lockstep lock` and a broker with fenced locks: epochs, and a lock delay instead of a lease after a kill."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from lockstep.protocol.epochs import parse_epoch
from tests.commands import Lockstep, running_broker


@pytest.fixture(scope="module")
def lockstep() -> Iterator[Lockstep]:
    """The command with a broker whose leases outlast the test, and whose lock delays are short."""
    options = ("--lock-mode", "fenced", "--lock-live-ms", "900000", "--lock-delay-legacy-ms", "6000")
    with running_broker(*options, "--topic", "orders:1") as command:
        yield command


@pytest.mark.long
def test_a_killed_owners_queue_moves_after_the_lock_delay(lockstep: Lockstep) -> None:
    """The watch sees the lock drain or end, and its next owner with a later epoch."""
    watch_locks = ("lock", "watch", "-g", "g", "-o", "json", "--interval", "0.05")
    consume = ("consume", "orders", "-g", "g")
    with lockstep.start(*watch_locks) as watch:

        def next_change() -> dict[str, Any]:
            while (row := json.loads(watch.line()))["topic"] != "orders":
                pass
            return dict(row)

        with lockstep.start(*consume) as first:
            taken = next_change()
            (row,) = [row for row in lockstep("lock", "list", "-g", "g", "-o", "json").rows if row["topic"] == "orders"]
            text = lockstep("lock", "list", "-g", "g").out
            first.popen.kill()
            with lockstep.start(*consume):
                seen = [next_change()]
                while seen[-1]["change"] != "moved":
                    seen.append(next_change())
    assert taken["change"] in ("acquired", "held")
    assert {row["change"] for row in seen[:-1]} <= {"draining", "expired"}
    assert (row["epoch"], row["draining"], row["waiting"]) == (taken["epoch"], False, 0)
    assert parse_epoch(seen[-1]["epoch"]) > parse_epoch(taken["epoch"])
    assert text.splitlines()[0].split()[-2:] == ["EPOCH", "WAITING"]
    assert taken["epoch"] in text
