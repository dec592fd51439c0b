"""`lockstep group deliveries`: what is printed of the brokers' answers."""

import json
from typing import Any

import pytest

from lockstep.cli.group.deliveries import list_deliveries
from lockstep.cli.output import OutputFormat
from lockstep.client import AdminClient
from lockstep.protocol.bodies.pop import DeliveryRow, DeliveryTableBody
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.texts import date_time

POPPED_MS, VISIBLE_MS = 1_700_000_000_000, 1_700_000_060_000
ROWS = (
    DeliveryRow(MessageQueue("T", "broker-a", 0), 3, POPPED_MS, VISIBLE_MS, 0),
    DeliveryRow(MessageQueue("T", "broker-a", 1), 7, POPPED_MS, VISIBLE_MS, 2, 0xBEEF, "c1"),
)


async def test_rows_of_both_ways(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """What RocketMQ's way does not know is a dash in the table, and null in JSON."""

    async def rows(_: AdminClient, group: str) -> DeliveryTableBody:
        return DeliveryTableBody(ROWS if group == "g" else ())

    monkeypatch.setattr(AdminClient, "list_deliveries", rows)

    async def shown(output: OutputFormat) -> Any:
        await list_deliveries("127.0.0.1:1", "g", output)
        return capfdbinary.readouterr().out.decode()

    first, second = json.loads(await shown(OutputFormat.JSON))
    assert (first["offset"], first["client"], first["key_hash"]) == (3, None, None)
    assert second == {
        "topic": "T",
        "broker": "broker-a",
        "queue_id": 1,
        "offset": 7,
        "key_hash": 0xBEEF,
        "client": "c1",
        "popped_ms": POPPED_MS,
        "visible_ms": VISIBLE_MS,
        "times_before": 2,
    }
    lines = (await shown(OutputFormat.TABLE)).splitlines()
    assert lines[0].split() == ["QUEUE", "OFFSET", "KEY", "HASH", "CLIENT", "POPPED", "VISIBLE", "TIMES", "BEFORE"]
    assert lines[1].split()[2:4] == ["-", "-"]
    assert lines[2].split()[2:4] == ["0000beef", "c1"]
    assert date_time(VISIBLE_MS) in lines[2]
